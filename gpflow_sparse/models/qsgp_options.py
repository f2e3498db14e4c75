"""What the arguments of a sub-sampled model may be, and which of them go together."""

from typing import Any

import gpflow
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Likelihood

from gpflow_sparse import likelihoods
from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.kernels import Basis
from gpflow_sparse.models.anchors import Anchors, trained_hyperparameters
from gpflow_sparse.validation import checks, component_checks

_COVARIANCES = ("diag", "block", "chevron")
_REDUCTIONS = ("anchored", "eq3", "tracked", "none", "literal")
_CONJUGATE = ("eq3", "literal")
ANCHORED = ("anchored", "eq3", "tracked")
# Steps between looks at the hyperparameters; steps whose rounding adds up to 1e-5 in float32.
_LOOK_EVERY, _ROUNDED_AFTER = 100, 10_000
_SITES = ("split", "absorbed", "strict")


def require_covariance(
    basis: FiniteBasis, covariance: str | None, num_dense_columns: int | None
) -> tuple[str, int]:
    """
    :return: the shape of C, and the size h of its head.
    :raises ValueError: for unknown shapes, and those that the basis does not go with.
    """
    if covariance is None:
        covariance = "block" if basis.num_leading else "diag"
    checks.require_choice(covariance, "covariance", _COVARIANCES)
    if num_dense_columns is not None:
        checks.require_whole(num_dense_columns, "num_dense_columns", "an integer or None")
    if covariance == "diag":
        if num_dense_columns:
            raise ValueError(
                f"num_dense_columns must be 0 with covariance='diag', got {num_dense_columns}; "
                "take covariance='block' or 'chevron'."
            )
        return covariance, 0
    if basis.precision == "dense":
        raise ValueError(
            f"covariance must be 'diag' for a {type(basis).__name__} with a dense prior precision: "
            "tr(S C C^T) of dense columns would need all of S in every step."
        )
    count = basis.num_leading if num_dense_columns is None else num_dense_columns
    if not 1 <= count < basis.num_basis:
        given = (
            f"a {type(basis).__name__} has {count} of its own"
            if num_dense_columns is None
            else f"got {count}"
        )
        raise ValueError(
            f"num_dense_columns must be from 1 to {basis.num_basis - 1} with "
            f"covariance={covariance!r}, less than the number of functions; {given}."
        )
    return covariance, int(count)


def require_estimators(
    basis: FiniteBasis,
    likelihood: Likelihood,
    covariance: str,
    variance_reduction: str | None,
    site_estimator: str,
) -> str:
    """
    :return: the variance reduction, chosen if it was None.
    :raises ValueError: for unknown estimators, and those that the likelihood does not go with.
    """
    checks.require_choice(site_estimator, "site_estimator", _SITES)
    strict = site_estimator == "strict" and not isinstance(likelihood, Gaussian)
    if variance_reduction is None:
        variance_reduction = "none" if strict else "anchored"
    checks.require_choice(variance_reduction, "variance_reduction", _REDUCTIONS)
    if variance_reduction in _CONJUGATE:
        require_conjugate(likelihood, f"variance_reduction={variance_reduction!r}")
    if variance_reduction == "literal" and (covariance != "diag" or basis.precision == "dense"):
        raise ValueError(
            "variance_reduction='literal' is for covariance='diag' and a basis whose prior "
            "precision is diagonal; take 'anchored'."
        )
    if strict and variance_reduction != "none":
        raise ValueError(
            "site_estimator='strict' goes with variance_reduction='none': what anchors make of a "
            "draw is no draw of a concave function's argument, so that the bound would not hold."
        )
    if strict and not likelihoods.is_log_concave(likelihood):
        raise ValueError(
            f"site_estimator='strict' needs a log-concave likelihood; {type(likelihood).__name__} "
            "is not known to be one. Take 'split'."
        )
    return variance_reduction


def require_draw_size(value: Any, num_tail: int, site_estimator: str) -> int:
    """``basis_batch_size``, at most the size of the tail."""
    size = checks.require_count(value, "basis_batch_size")
    if size > num_tail:
        raise ValueError(
            f"basis_batch_size must be at most {num_tail}, the functions that are not in the head; "
            f"got {size}."
        )
    if site_estimator == "absorbed" and size < 2:
        raise ValueError("basis_batch_size must be at least 2 with site_estimator='absorbed'.")
    return size


def require_rows(value: Any, name: str, basis: FiniteBasis) -> tf.Variable | None:
    """Rows of inputs ``[p, D]`` that are kept with a model; None for None."""
    if value is None:
        return None
    return tf.Variable(require_inputs(value, name, basis), trainable=False)


def require_inputs(value: Any, name: str, basis: FiniteBasis) -> tf.Tensor:
    """Rows of inputs ``[p, D]`` as a tensor."""
    X = checks.require_matrix(value, name, basis.dtype)
    if basis.input_dim not in (None, X.shape[1]):
        raise ValueError(
            f"{name} must have {basis.input_dim} column(s), as the basis; got {tuple(X.shape)}."
        )
    component_checks.require_kernel(basis.kernel, X.shape[1])
    checks.require_range(X, name)
    return X


def support_rows(model: Any, X: tf.Tensor) -> tf.Tensor:
    """The support rows: those that were given, or the first of the batch ``X [n, D]``."""
    if model.support is None:
        return X[: model.num_support]
    if model.support.shape[1] != X.shape[1]:
        raise ValueError(
            f"support must have {X.shape[1]} column(s), as X has; got shape "
            f"{tuple(model.support.shape)}."
        )
    return tf.convert_to_tensor(model.support)


def held_variables(model: Any) -> list[tf.Variable]:
    """Variables of a QSGP that are none of its parameters, whether set trainable or not."""
    own = [value for value in (model.support, model.augmentation) if value is not None]
    return own + ([] if model.anchors is None else list(model.anchors.variables))


def require_augmentation(
    value: Any, basis: FiniteBasis, likelihood: Likelihood
) -> tf.Variable | None:
    """:raises ValueError: where one more function at each test point has no closed form."""
    if value is not None:
        if basis.precision != "dense":
            raise ValueError(
                "augmentation needs functions that are covariances with points and a dense prior "
                "precision, gs.bases.KernelDictionary(kernel, centers); got "
                f"{type(basis).__name__}."
            )
        require_conjugate(likelihood, "augmentation")
    return require_rows(value, "augmentation", basis)


def require_conjugate(likelihood: Any, what: str = "this closed form") -> None:
    """:raises ValueError: for a likelihood without one noise variance."""
    if not isinstance(likelihood, Gaussian) or likelihood.variance is None:
        raise ValueError(
            f"{what} needs a Gaussian likelihood with one variance, got "
            f"{type(likelihood).__name__}."
        )


def require_call(step: Any, data: Any) -> None:
    """What ``prepare_step`` is called with."""
    if checks.require_whole(step, "step") < 0:
        raise ValueError(f"step must be at least 0, got {step!r}.")
    if not callable(data):
        raise ValueError(
            "data must be a function that returns the batch, such as lambda: (X, Y); got "
            f"{type(data).__name__}."
        )


def require_all_functions(model: Any) -> None:
    """:raises ValueError: if the loss of ``model`` depends on which functions are drawn."""
    if model.basis_batch_size < model.num_tail:
        raise ValueError(
            "training_loss_closure is for a loss that is the same in every call, but with "
            f"basis_batch_size={model.basis_batch_size} each call draws some of the "
            f"{model.num_tail} functions, and its gradient would reach all rows: train with "
            f"gs.training.fit, or build the model with basis_batch_size={model.num_tail}."
        )


def basis_of(kernel: Any) -> FiniteBasis:
    """:raises ValueError: for a kernel that holds no basis, which can be assigned."""
    if not isinstance(kernel, Basis):
        raise ValueError(
            "kernel must be the one the model was built with, gs.kernels.Basis(basis); got "
            f"{type(kernel).__name__}. Build a new model for another kernel."
        )
    return kernel.basis


def require_own_parts(model: Any) -> None:
    """:raises ValueError: for parts of a QSGP that were assigned and do not fit."""
    require_fixed_precision(model.basis)
    require_estimators(
        model.basis,
        model.likelihood,
        model.covariance,
        model.variance_reduction,
        model.site_estimator,
    )
    if model.num_data is None:
        raise ValueError("num_data must be the number of training rows, got None.")
    require_draw_size(model.basis_batch_size, model.num_tail, model.site_estimator)
    if (model.anchors is not None) != (model.variance_reduction in ANCHORED):
        raise ValueError(
            "variance_reduction must be chosen when the model is built; it was assigned "
            f"{model.variance_reduction!r}: build a new model."
        )
    if model.augmentation is not None:
        require_conjugate(model.likelihood, "augmentation")
    m, h, L = model.basis.num_basis, model.num_head, model.num_latent_gps
    shapes: dict[str, tuple[int, ...] | None] = {"q_mu": (m, L), "q_log_scale": (m - h, L)}
    shapes["q_block"] = (L, h, h) if h else None
    shapes["q_columns"] = (m - h, L, h) if model.covariance == "chevron" else None
    for name, wanted in shapes.items():
        value = getattr(model, name)
        kind = gpflow.Parameter if name == "q_block" else tf.Variable
        # tensors are what gpflow.utilities.freeze leaves of either
        own = value is None if wanted is None else isinstance(value, kind | tf.Tensor)
        if not own or (wanted and tuple(value.shape) != wanted):
            what = "None" if wanted is None else f"a {kind.__name__} of shape {wanted}"
            found = getattr(value, "shape", None)
            raise ValueError(
                f"{name} must be {what}, got {type(value).__name__} of shape {found}; assign "
                f"values by model.{name}.assign(...)."
            )


def require_fixed_precision(basis: FiniteBasis) -> None:
    """
    :raises ValueError: if hyperparameters under a dense prior precision would be trained.
    """
    if basis.precision == "dense" and basis.trainable_variables:
        raise ValueError(
            f"the hyperparameters of a {type(basis).__name__} with a dense prior precision must be "
            "fixed: the elbo has its determinant, which no step can afford. Learn them on a part "
            "of the data, then gpflow.utilities.set_trainable(basis, False)."
        )


def freeze_dense(basis: FiniteBasis) -> None:
    """Hyperparameters under a dense prior precision are not trained."""
    if basis.precision == "dense":
        gpflow.utilities.set_trainable(basis, False)


def is_due(step: int, anchors: Anchors, basis: FiniteBasis) -> bool:
    """Whether the anchors are to be computed again; looking at hyperparameters takes a while."""
    if step and step % _ROUNDED_AFTER == 0:
        return True
    if not trained_hyperparameters(basis):  # a step takes both copies for one
        return anchors.have_aged(basis, by=0.0)
    return step % _LOOK_EVERY == 0 and anchors.have_aged(basis)
