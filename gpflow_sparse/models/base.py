"""The base classes of the models: public methods with validated arguments, and the ELBO."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, get_check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import ExternalDataTrainingLossMixin, GPModel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.inference import residual_bounds
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.models.training_data import variable_or
from gpflow_sparse.numerics import tracing
from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.posteriors.multioutput import require_latent_kernels
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import explain_arguments, public_method

# Starting value of the residual scale, near 1, where the bound is the standard one.
_SCALE = 0.9
# Arguments of GPflow's models, by the arguments that replace them.
_INSTEAD = {"noise_variance": "likelihood", "Z": "inducing_variable"}


class SparseGPModel(GPModel):
    """
    A GPflow model whose public methods validate their arguments and the components of the model.

    A subclass provides ``_make_posterior`` and an objective.
    """

    calibration: Calibration | None = None
    """Factors of predictive variances, see :func:`gpflow_sparse.calibrate`; saved with the model.
    Predictions and draws have them, objectives do not."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the constructor of a subclass say which arguments it has."""
        super().__init_subclass__(**options)
        if "__init__" not in vars(cls):
            return
        own = inspect.signature(cls.__init__).parameters
        instead = {theirs: ours for ours, theirs in _INSTEAD.items() if ours in own}
        explain = explain_arguments(instead=instead)
        cls.__init__ = explain(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        """
        :param num_latent_gps: number of latent functions L; None means the number that a
            multi-output kernel has, and 1 for other kernels, which all L share.
        :raises ValueError: if a component is of a wrong kind or does not fit the others.
        """
        if num_latent_gps is None:
            multioutput = isinstance(kernel, MultioutputKernel)
            num_latent_gps = int(kernel.num_latent_gps) if multioutput else 1
        checks.require_count(num_latent_gps, "num_latent_gps")
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        SparseGPModel._require_parts(self, None)  # a subclass checks its own components later
        # Smallest jitter relative to the kernel's variance; None leaves it to the float type.
        # `training.fit` raises it where a factorization fails; saved with the model.
        self.jitter: float | None = None
        # Set it where X and Y were standardized; then it is saved and checkpointed with the model.
        self.standardizer: Any = None

    def __repr__(self) -> str:
        """One line: the class, its kernel and likelihood, and the sizes that are known."""
        parts = [f"{n}={type(getattr(self, n, None)).__name__}" for n in ("kernel", "likelihood")]
        parts += [f"{name}={size}" for name, size in self._sizes().items() if size is not None]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _sizes(self) -> dict[str, Any]:
        """The sizes that :meth:`__repr__` shows; None where a model has no such size."""
        data = getattr(self, "data", None)
        held = data[0].shape[0] if isinstance(data, tuple) else None
        sizes: dict[str, Any] = {}
        if hasattr(self, "layers"):
            sizes["num_layers"] = len(self.layers)
        with suppress(ValueError):  # components of another kind may have been assigned
            inducing = getattr(self, "inducing_variable", None)
            rows = (getattr(inducing, "shape", None) or [None])[0]
            sizes["num_inducing"] = getattr(inducing, "sizes", rows)
            sizes["num_basis"] = getattr(getattr(self, "basis", None), "num_basis", None)
        sizes["num_latent_gps"] = getattr(self, "num_latent_gps", None)
        sizes["num_data"] = getattr(self, "num_data", held)
        return sizes

    @public_method()
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> Any:
        """
        The posterior process, with the tensors that predictions share computed once.

        A cached posterior keeps the parameters it was made with: call ``update_cache()`` after
        further training. Make it eagerly, then compile its ``predict_f``. A model whose q is in
        closed form computes q for the cache, and again, in a pass over its rows, in every call of a
        method that does not use the cache.

        :param precompute_cache: "tensor", "variable" or "nocache", as in GPflow.
        :raises ValueError: for a model that has to be solved or fitted first.
        """
        return self._make_posterior(
            mean_function=self.mean_function,
            precompute_cache=precompute_cache,
            calibration=self.calibration,
        )

    @abstractmethod
    def _make_posterior(self, **options: Any) -> SparsePosterior:
        """
        The :meth:`posterior`.

        :param options: arguments of the posterior that are the same for all models.
        """

    @property
    def input_dim(self) -> int | None:
        """D, the number of input columns; None if any number is accepted."""
        return None

    @property
    def num_outputs(self) -> int:
        """P, the number of columns of f: one for each latent function, unless the kernel mixes."""
        if isinstance(self.kernel, LinearCoregionalization):
            return int(self.kernel.W.shape[0])
        return int(self.num_latent_gps)

    @property
    def dtype(self) -> tf.DType:
        """Float type of the parameters."""
        return gpflow.default_float()

    @public_method("the prediction", prediction=True)
    @get_check_shapes(GPModel.predict_f)
    def predict_f(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and (co)variance of the latent functions.

        Factorizes on every call, so that gradients flow; for many predictions use
        ``model.posterior().predict_f``.

        :param Xnew: ``[..., N, D]``.
        :param full_cov: covariance between inputs, ``[..., P, N, N]``.
        :param full_output_cov: covariance between outputs, ``[..., N, P, P]``; with full_cov
            ``[..., N, P, N, P]``.
        :return: mean ``[..., N, P]``, and variance ``[..., N, P]`` or a covariance as above.
        """
        return self.posterior(None).predict(None, Xnew, full_cov, full_output_cov)

    @public_method(prediction=True)
    @get_check_shapes(GPModel.predict_f_samples)
    def predict_f_samples(
        self,
        Xnew: tf.Tensor,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """
        Draws of the latent functions at ``Xnew [..., N, D]``.

        :param num_samples: S; None for one draw without the leading axis.
        :param full_cov: draws that are joint over inputs; time O(N^3).
        :return: ``[..., S, N, P]``, or ``[..., N, P]``.
        """
        if full_cov and full_output_cov:
            raise ValueError("full_cov and full_output_cov cannot both be True for samples.")
        samples = super().predict_f_samples(Xnew, num_samples, full_cov, full_output_cov)
        component_checks.require_finite_result(self, "the draw", samples)
        return _require_drawn(samples)

    @public_method("the prediction", prediction=True)
    @check_shapes(
        "Xnew: [batch..., N, D]", "return[0]: [batch..., N, P]", "return[1]: [batch..., N, P]"
    )
    def predict_y(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations at ``Xnew [..., N, D]``, noise included."""
        require_marginals("predict_y", full_cov, full_output_cov)
        return self.posterior(None).predict_y(Xnew, self.likelihood)  # type: ignore[no-any-return]

    @public_method("the log density", prediction=True)
    @check_shapes("data[0]: [batch..., N, D]", "data[1]: [batch..., N, P]", "return: [batch..., N]")
    def predict_log_density(
        self,
        data: tuple[tf.Tensor, tf.Tensor],
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Log density of new observations ``(X [N, D], Y [N, P])``, one per row, in nats."""
        require_marginals("predict_log_density", full_cov, full_output_cov)
        return self.posterior(None).predict_log_density(data, self.likelihood)  # type: ignore[no-any-return]

    @public_method()
    def condition_on(self, X: tf.Tensor, Y: tf.Tensor) -> Any:
        """
        A new model that has also seen these rows, without training: it has the
        hyperparameters, calibration and inducing inputs of this model, which does not change.

        - Models that hold their data have the rows beside the old ones, and are what they would be
          with all rows and these hyperparameters. GPnn keeps its local factors of variances.
        - Models with a q of inducing variables or weights have the q that is best for the new rows
          with the old q in place of the prior, see :mod:`gpflow_sparse.models.conditioning`; with
          Gaussian noise and one set of variables it is the q of all rows together. ``num_data``
          counts the new rows too. To train further, give ``training.fit`` all rows.

        The new model shares no parameters with this one.

        :param X: new inputs ``[n, D]``, in the units of the training inputs.
        :param Y: their outputs ``[n, P]``.
        :raises ValueError: for rows that do not fit the model, a model that cannot take rows, with
            the reason, and inside ``tf.function``.
        """
        if not tf.executing_eagerly():
            raise ValueError(
                "condition_on must be called outside of tf.function: it makes a model."
            )
        rows = self._require_data((X, Y))
        held = getattr(self, "data", None)  # not copied, as a data set cannot be
        new = gpflow.utilities.deepcopy(self, {id(held): held})
        new._add_rows(rows)
        new.validate_loaded()
        return new

    _takes_no_rows = "its q is not Gaussian with full covariances"
    """Why :meth:`condition_on` is refused."""

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        """Condition this model, a copy, on valid rows ``(X [n, D], Y [n, P])``."""
        raise ValueError(
            f"{type(self).__name__} cannot be conditioned on new rows, since "
            f"{self._takes_no_rows}; train it on all rows by gs.training.fit, which starts from "
            "the present parameters."
        )

    def require_one_gaussian(self) -> None:
        """
        Refuse calibration by factors; for models whose predictions of a row are not one Gaussian,
        nor averages over draws that calibration knows.
        """

    def validate_loaded(self) -> None:
        """:raises ValueError: for parts, as a file may hold, that do not fit each other."""
        self._require_parts(self.input_dim, self.dtype)

    def _require_data(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The pair ``(X [N, D], Y [N, P])`` in the model's float type."""
        return checks.require_data(
            data,
            input_dim=self.input_dim,
            likelihood=self.likelihood,
            num_latent_gps=self.num_outputs,
            dtype=self.dtype,
        )

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        """
        Refuse components that do not fit each other. Users may assign any of them at any time.

        :param num_columns: D; None where it is not known.
        :param dtype: float type of the parameters; GPflow's default float by default.
        """
        num_outputs = self.num_outputs
        component_checks.require_kernel(self.kernel, num_columns)
        component_checks.require_jitter(getattr(self, "jitter", None))
        require_num_latents(self.kernel, self.num_latent_gps)
        checks.require_likelihood(self.likelihood, num_outputs)
        component_checks.require_mean_function(self.mean_function, num_columns, num_outputs)
        dtype = gpflow.default_float() if dtype is None else dtype
        for name in ("kernel", "likelihood", "mean_function"):
            component_checks.require_dtype(getattr(self, name), name, dtype)


class VariationalModel(SparseGPModel, ExternalDataTrainingLossMixin):
    """
    A GPflow model trained on data that are given to its objective, all rows or a minibatch:

        elbo = (num_data / batch) * sum_n E_q[log p(y_n | f_n)] - KL[q || p]

    With ``bound="log"`` q also shrinks the residual process of f given the inducing
    variables at the training inputs, which makes the bound tighter: see
    :mod:`gpflow_sparse.inference.residual_bounds`. Predictions keep the prior of that process.

    A subclass provides ``_make_posterior`` and holds what the posterior needs. One with another
    objective overrides :meth:`elbo`, as SWSGP and QSGP do.
    """

    residual_scale: Parameter | None = None
    """v of ``q(r) = N(0, v D)``, for "log" with a likelihood that is not Gaussian."""

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        bound: str = "standard",
    ) -> None:
        """
        :param num_data: number of training rows N, so that a minibatch counts for all of them;
            None means that every batch is all the data.
        :param bound: "standard"; or "log", a tighter bound of the same cost.
        :raises ValueError: for components that do not fit each other, or another num_data.
        """
        super().__init__(
            kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps
        )
        self.num_data = num_data
        self.bound = bound
        if bound == "log" and not isinstance(likelihood, Gaussian):
            self.residual_scale = Parameter(_SCALE, transform=tfp.bijectors.Sigmoid())
        VariationalModel._require_parts(self, None)

    @public_method("the KL divergence", prediction=True)
    @check_shapes("return: []")
    def prior_kl(self) -> tf.Tensor:
        """KL from the variational distribution to the prior, a scalar; at least zero."""
        return self.posterior(None).prior_kl()

    @public_method("the elbo")
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    def elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        Evidence lower bound, or its unbiased estimate from a minibatch if ``num_data`` is set.

        :param data: ``(X [N, D], Y [N, P])``.
        :return: scalar, in nats.
        :raises ValueError: for data that do not fit the model, eagerly and when tracing.
        """
        X, _ = data
        terms = self.posterior(None).terms(X)
        return self._weight(X, terms.kl.dtype) * self._sum_over_rows(data, terms) - terms.kl

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """The :meth:`elbo`."""
        return self.elbo(data)

    def training_loss(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Minus the :meth:`elbo`, minus the log prior density of the parameters."""
        return self._training_loss(data)

    def training_loss_closure(
        self, data: tuple[tf.Tensor, tf.Tensor] | Iterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """
        A function without arguments that returns the training loss, for GPflow's optimizers.

        :param data: ``(X [N, D], Y [N, P])``, or an iterator over a ``tf.data.Dataset``. Arrays are
            copied; a ``tf.Variable`` is read at every call.
        :param compile: wrap the loss in ``tf.function``.
        :raises ValueError: as :meth:`elbo`, when the closure is made, not when it is called.
        """
        checks.require_flag(compile, "compile")
        component_checks.validate_components(self)
        if isinstance(data, Iterator) and not isinstance(data, tf.data.Iterator):
            raise ValueError(
                "data must be arrays or iter(tf.data.Dataset): a compiled closure would freeze the "
                f"first batch of a {type(data).__name__}."
            )
        if isinstance(data, tf.data.Iterator):
            # the batch is an argument: a gradient inside tf.function cannot pass IteratorGetNext
            loss: Callable[..., tf.Tensor] = self.training_loss
            if compile:
                signature = [data.element_spec]
                loss = tracing.compiled(loss, input_signature=signature)
            return lambda: loss(next(data))
        self._require_parts(self.input_dim, self.dtype)
        X, Y = self._require_data(data)
        self._require_parts(int(X.shape[1]), self.dtype)
        live = variable_or(X, data[0], "X"), variable_or(Y, data[1], "Y")  # read at every call
        return compiled(lambda: self.training_loss(live), compile)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        if self.num_data is not None and not tf.is_tensor(self.num_data):
            checks.require_count(self.num_data, "num_data")
        checks.require_choice(self.bound, "bound", residual_bounds.BOUNDS)
        gaussian = isinstance(self.likelihood, Gaussian)
        if self.bound == "log" and gaussian != (self.residual_scale is None):
            raise ValueError(
                "likelihood must stay Gaussian, or not Gaussian, as the model was built with "
                f"bound='log'; got {type(self.likelihood).__name__}. Build a new model."
            )

    def _sum_over_rows(self, data: tuple[tf.Tensor, tf.Tensor], terms: Terms) -> tf.Tensor:
        """The part of the bound that is a sum over rows, for the rows of a batch."""
        if self.bound == "standard":
            (X, Y), (mean, variance, *_) = data, terms
            return tf.reduce_sum(self.likelihood.variational_expectations(X, mean, variance, Y))
        return residual_bounds.sum_over_rows(
            self.likelihood,
            data,
            terms,
            scale=self.residual_scale,
            num_latent_gps=self.num_latent_gps,
        )

    def _count_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        """Let ``num_data`` count these rows too."""
        if self.num_data is not None:
            self.num_data = self.num_data + int(data[0].shape[0])

    def _weight(self, X: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """``num_data / batch``: the weight of a row of a minibatch."""
        batch = tf.cast(tf.shape(X)[0], dtype)
        num_data = batch if self.num_data is None else tf.cast(self.num_data, dtype)
        return num_data / batch


def require_num_latents(kernel: Kernel, num_latent_gps: int) -> None:
    """:raises ValueError: for a multi-output kernel of an unknown class or another number."""
    if not isinstance(kernel, MultioutputKernel):
        return
    require_latent_kernels(kernel)
    if kernel.num_latent_gps != num_latent_gps:
        raise ValueError(
            f"num_latent_gps must be {kernel.num_latent_gps}, the number of latent functions of "
            f"this {type(kernel).__name__} kernel, got {num_latent_gps}; leave it out."
        )


def require_shape(value: Any, name: str, *shapes: tuple[int | None, ...]) -> None:
    """:raises ValueError: for a value assigned to an attribute that has none of these shapes."""
    found = getattr(value, "shape", None)
    if found is None or not any(tf.TensorShape(s).is_compatible_with(found) for s in shapes):
        raise ValueError(
            f"{name} must have shape {shapes[0]}, got {type(value).__name__} of shape {found}."
        )


def compiled(loss: Callable[[], tf.Tensor], compile: bool) -> Callable[[], tf.Tensor]:
    """
    A training loss in ``tf.function`` if wanted, without AutoGraph, which nothing here needs and
    which makes the first call of SOLVEGP's loss fifteen times as long.
    """
    return tracing.compiled(loss) if compile else loss


def require_marginals(method: str, full_cov: bool, full_output_cov: bool) -> None:
    """:raises ValueError: if a covariance is asked of a method that returns variances only."""
    for name, value in (("full_cov", full_cov), ("full_output_cov", full_output_cov)):
        if value:
            raise ValueError(
                f"{name} must be False: {method} gives marginals only. Covariances of the latent "
                "functions come from predict_f."
            )


def _require_drawn(samples: tf.Tensor) -> tf.Tensor:
    """GPflow draws through an unchecked factorization, which fails as NaN."""
    message = (
        "the covariance of the samples is not positive definite in "
        f"{samples.dtype.name}: Xnew has rows that coincide or nearly so, or the kernel's variance "
        "is large. Raise gpflow.config.set_default_jitter, or draw with full_cov=False."
    )
    if not tf.executing_eagerly():
        return tf.debugging.check_numerics(samples, message)
    if not bool(tf.reduce_all(tf.math.is_finite(samples))):
        raise ValueError(message)
    return samples
