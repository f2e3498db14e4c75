"""The prediction side of every model: GPflow's public methods behind our guards."""

from abc import abstractmethod
from contextlib import suppress
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.functions import Function, MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.posteriors import SparsePosterior
from gpflow_sparse.validation import checks, component_checks, labels
from gpflow_sparse.validation.step_lock import reads_parameters


class GuardedModel(GPModel):
    """
    A GPflow model whose public methods, inherited ones too, refuse bad input before anything
    broadcasts. A subclass provides :meth:`posterior`, holds what the posterior needs, and says what
    is maximized.
    """

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
        :raises ValueError: if a part is of a wrong kind or does not fit the others.
        """
        if num_latent_gps is None:
            num_latent_gps = _num_latent_gps(kernel)
        checks.require_count(num_latent_gps, "num_latent_gps")
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        self._require_parts(None)
        # smallest jitter relative to the kernel's variance; None leaves it to the float type.
        # `training.fit` raises it where a factorization fails; saved with the model.
        self.jitter: float | None = None
        # set it where X and Y were standardized; then it is saved and checkpointed with the model
        self.standardizer: Any = None

    def __repr__(self) -> str:
        """One line: the class, its kernel and likelihood, and the sizes that are known."""
        parts = [f"{n}={type(getattr(self, n, None)).__name__}" for n in ("kernel", "likelihood")]
        parts += [f"{name}={size}" for name, size in self._sizes().items() if size is not None]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _sizes(self) -> dict[str, Any]:
        """What :meth:`__repr__` says about sizes; None where there is nothing to say."""
        data = getattr(self, "data", None)
        held = data[0].shape[0] if isinstance(data, tuple) else None
        sizes: dict[str, Any] = {}
        if hasattr(self, "layers"):
            sizes["num_layers"] = len(self.layers)
        with suppress(ValueError):  # parts of another kind may have been assigned
            inducing = getattr(self, "inducing_variable", None)
            rows = (getattr(inducing, "shape", None) or [None])[0]
            sizes["num_inducing"] = getattr(inducing, "sizes", rows)
            sizes["num_basis"] = getattr(getattr(self, "basis", None), "num_basis", None)
        sizes["num_latent_gps"] = getattr(self, "num_latent_gps", None)
        sizes["num_data"] = getattr(self, "num_data", held)
        return sizes

    @abstractmethod
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> SparsePosterior:
        """
        The posterior process, with what prediction needs computed once.

        A cached posterior keeps the parameters it was made with: call ``update_cache()`` after
        training on. Make it eagerly, then compile its ``predict_f``.

        :param precompute_cache: "tensor", "variable" or "nocache", as in GPflow.
        """

    @property
    def input_dim(self) -> int | None:
        """D, the number of input columns; None where any number is right."""
        return None

    @property
    def num_outputs(self) -> int:
        """P, the columns of f: those a kernel mixes the latent functions into, or one for each."""
        if isinstance(self.kernel, LinearCoregionalization):
            return int(self.kernel.W.shape[0])
        return int(self.num_latent_gps)

    @property
    def dtype(self) -> tf.DType:
        """Float type of the parameters."""
        return gpflow.default_float()

    @reads_parameters
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
        Xnew = self._require_inputs(Xnew)
        mean, cov = self.posterior(PrecomputeCacheType.NOCACHE).fused_predict_f(
            Xnew, full_cov=full_cov, full_output_cov=full_output_cov
        )
        component_checks.require_finite_result(self, "the prediction", mean, cov)
        return mean, cov

    @reads_parameters
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
        if num_samples is not None:
            checks.require_count(num_samples, "num_samples")
        Xnew = self._require_inputs(Xnew)
        checks.require_flag(full_cov, "full_cov")
        checks.require_flag(full_output_cov, "full_output_cov")
        if full_cov and full_output_cov:
            raise ValueError("full_cov and full_output_cov cannot both be True for samples.")
        samples = super().predict_f_samples(Xnew, num_samples, full_cov, full_output_cov)
        return _require_drawn(samples)

    @reads_parameters
    def predict_y(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations at ``Xnew [..., N, D]``, noise included."""
        Xnew = self._require_inputs(Xnew)
        _refuse_covariances("predict_y", full_cov, full_output_cov)
        mean, var = self._predict_observations(Xnew)
        component_checks.require_finite_result(self, "the prediction", mean, var)
        return mean, var

    @reads_parameters
    def predict_log_density(
        self,
        data: tuple[tf.Tensor, tf.Tensor],
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Log density of new observations ``(X [N, D], Y [N, P])``, one per row, in nats."""
        X, Y = self._require_data(data)
        _refuse_covariances("predict_log_density", full_cov, full_output_cov)
        Y = checks.require_finite_in_graph(Y, "Y")
        log_density = self._predict_log_density(X, Y)
        component_checks.require_finite_result(self, "the log density", log_density)
        return log_density

    def _predict_observations(self, Xnew: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """:meth:`predict_y` behind the guards."""
        return super().predict_y(Xnew)

    def _predict_log_density(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """:meth:`predict_log_density` behind the guards."""
        return super().predict_log_density((X, Y))

    def _require_inputs(self, Xnew: Any) -> tf.Tensor:
        tensor = checks.require_inputs(Xnew, self.input_dim, self.dtype)
        self._require_parts(tensor.shape[-1] if tensor.shape.rank else None, self.dtype)
        return tensor

    def _require_data(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        self._require_parts(self.input_dim, self.dtype)
        X, Y = checks.require_data(
            data,
            input_dim=self.input_dim,
            likelihood=self.likelihood,
            num_latent_gps=self.num_outputs,
            dtype=self.dtype,
        )
        checks.require_range(X, "X")
        checks.require_range(Y, "Y")
        if self.input_dim is None:
            self._require_parts(X.shape[-1], self.dtype)
        return X, Y

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        """Refuse a kernel, likelihood or mean function that does not fit; they can be assigned."""
        require_kind(self.kernel, Kernel, "kernel", "gpflow.kernels.SquaredExponential()")
        require_kind(self.likelihood, Likelihood, "likelihood", "gpflow.likelihoods.Gaussian()")
        require_kind(self.mean_function, Function, "mean_function", "gpflow.functions.Zero()")
        checks.require_latents(self.likelihood, self.num_outputs)
        labels.require_computable(self.likelihood)
        component_checks.require_kernel(self.kernel, num_columns)
        component_checks.require_mean_function(self.mean_function, num_columns, self.num_outputs)
        dtype = gpflow.default_float() if dtype is None else dtype
        for name in ("kernel", "likelihood", "mean_function"):
            component_checks.require_dtype(getattr(self, name), name, dtype)


def _num_latent_gps(kernel: Any) -> int:
    return int(kernel.num_latent_gps) if isinstance(kernel, MultioutputKernel) else 1


def require_kind(value: Any, kind: type, name: str, example: str) -> None:
    """:raises ValueError: unless ``value`` is of this GPflow kind."""
    if not isinstance(value, kind):
        raise ValueError(
            f"{name} must be a GPflow {kind.__name__}, such as {example}; got "
            f"{type(value).__name__}."
        )


def _refuse_covariances(method: str, full_cov: Any, full_output_cov: Any) -> None:
    for name, value in (("full_cov", full_cov), ("full_output_cov", full_output_cov)):
        checks.require_flag(value, name)
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
