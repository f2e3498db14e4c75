"""Validation of the arguments and components of a QSGP."""

from typing import Any

import gpflow
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Likelihood

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.validation import checks, component_checks

_COVARIANCES = ("diag", "block", "chevron")
_REDUCTIONS = ("anchored", "none")


def require_covariance(
    basis: FiniteBasis, covariance: str | None, num_dense_columns: int | None
) -> tuple[str, int]:
    """
    :return: the structure of C, and the size h of its head.
    :raises ValueError: for unknown structures, and those that do not fit the basis.
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
            f"a {type(basis).__name__} has {count} leading functions"
            if num_dense_columns is None
            else f"got {count}"
        )
        raise ValueError(
            f"num_dense_columns must be from 1 to {basis.num_basis - 1} with "
            f"covariance={covariance!r}, less than the number of functions; {given}."
        )
    return covariance, int(count)


def require_variance_reduction(value: Any) -> str:
    """:raises ValueError: for an unknown variance reduction."""
    checks.require_choice(value, "variance_reduction", _REDUCTIONS)
    return str(value)


def require_draw_size(value: Any, num_tail: int) -> int:
    """``basis_batch_size``, at most the size of the tail."""
    size = checks.require_count(value, "basis_batch_size")
    if size > num_tail:
        raise ValueError(
            f"basis_batch_size must be at most {num_tail}, the functions that are not in the head; "
            f"got {size}."
        )
    return size


def require_rows(value: Any, name: str, basis: FiniteBasis) -> tf.Variable | None:
    """Rows of inputs ``[p, D]`` that are kept with a model; None for None."""
    if value is None:
        return None
    return tf.Variable(require_matrix(value, name, basis), trainable=False)


def require_matrix(value: Any, name: str, basis: FiniteBasis) -> tf.Tensor:
    """Rows of inputs ``[p, D]`` as a tensor."""
    X = checks.require_matrix(value, name, basis.dtype)
    if basis.input_dim not in (None, X.shape[1]):
        raise ValueError(
            f"{name} must have {basis.input_dim} column(s), as the basis; got {tuple(X.shape)}."
        )
    component_checks.require_kernel(basis.kernel, X.shape[1])
    return X


def require_augmentation(value: Any, basis: FiniteBasis, likelihood: Likelihood) -> None:
    """:raises ValueError: where an additional function at each test point has no closed form."""
    if value is None:
        return
    if basis.precision != "dense":
        raise ValueError(
            "augmentation needs functions that are covariances with points and a dense prior "
            f"precision, gs.bases.KernelDictionary(kernel, centers); got {type(basis).__name__}."
        )
    component_checks.require_one_variance(likelihood, "augmentation")


def require_logit(likelihood: Likelihood, basis: FiniteBasis) -> None:
    """:raises ValueError: for a likelihood other than a logit's, and for a dense precision."""
    if not isinstance(likelihood, Bernoulli) or likelihood.invlink is not tf.sigmoid:
        raise ValueError(
            "logit_bound needs gs.likelihoods.BernoulliLogit(), got "
            f"{type(likelihood).__name__}; take exact_elbo, a bound with any likelihood."
        )
    if basis.precision == "dense":
        raise ValueError("logit_bound has no determinant of a dense precision; take exact_elbo.")


def require_call(step: Any, data: Any) -> None:
    """:raises ValueError: for arguments that ``prepare_step`` does not take."""
    if checks.require_whole(step, "step") < 0:
        raise ValueError(f"step must be at least 0, got {step!r}.")
    if not callable(data):
        raise ValueError(
            "data must be a function that returns the batch, such as lambda: (X, Y); got "
            f"{type(data).__name__}."
        )


def require_support(support: tf.Variable | None, X: tf.Tensor) -> None:
    """:raises ValueError: for control rows of another number of columns than X."""
    if support is not None and support.shape[1] != X.shape[1]:
        raise ValueError(
            f"support must have {X.shape[1]} column(s), as X has; got shape {tuple(support.shape)}."
        )


def require_parts(model: Any) -> None:
    """:raises ValueError: for parts or options of a model that do not go together any more."""
    basis = model.basis
    if basis.precision == "dense" and basis.trainable_variables:
        raise ValueError(
            f"the hyperparameters of a {type(basis).__name__} with a dense prior precision "
            "must be fixed: the elbo has its determinant, too expensive for a step. Learn them "
            "on a part of the data, then gpflow.utilities.set_trainable(basis, False)."
        )
    require_variance_reduction(model.variance_reduction)
    require_draw_size(model.basis_batch_size, model.num_tail)
    require_augmentation(model.augmentation, basis, model.likelihood)
    if model.num_data is None:
        raise ValueError("num_data must be the number of training rows, got None.")
    if (model.anchors is not None) != (model.variance_reduction == "anchored"):
        raise ValueError(
            "variance_reduction must be chosen when the model is built; it was assigned "
            f"{model.variance_reduction!r}: build a new model."
        )
    _require_variables(model)


def _require_variables(model: Any) -> None:
    """:raises ValueError: if a variable of q was replaced by a value that does not fit."""
    m, h, L = model.basis.num_basis, model.num_head, model.num_latent_gps
    shapes: dict[str, tuple[int, ...] | None] = {"q_mu": (m, L), "q_log_scale": (m - h, L)}
    shapes["q_block"] = (L, h, h) if h else None
    shapes["q_columns"] = (m - h, L, h) if model.covariance == "chevron" else None
    for name, shape in shapes.items():
        value, kind = getattr(model, name), tf.Variable
        if name == "q_block":
            kind = gpflow.Parameter
        # tensors are what gpflow.utilities.freeze leaves of either
        fits = value is None if shape is None else isinstance(value, kind | tf.Tensor)
        if not fits or (shape and tuple(value.shape) != shape):
            wanted = "None" if shape is None else f"a {kind.__name__} of shape {shape}"
            raise ValueError(
                f"{name} must be {wanted}, got {type(value).__name__} of shape "
                f"{getattr(value, 'shape', None)}; assign values by model.{name}.assign(...)."
            )
