"""The one ``elbo``: every variational model maximizes expected log likelihood minus KL."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.functions import Function, MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import ExternalDataTrainingLossMixin, GPModel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse import checks, component_checks, labels
from gpflow_sparse.posteriors import SparsePosterior


class VariationalModel(GPModel, ExternalDataTrainingLossMixin):
    """
    A GPflow model whose objective is

        elbo = (num_data / batch) * sum_n E_q[log p(y_n | f_n)] - KL[q || p]

    and whose public methods, inherited ones too, refuse bad input before anything broadcasts.
    A subclass provides :meth:`posterior` and holds what the posterior needs.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        num_data: int | None = None,
    ) -> None:
        """
        :param num_latent_gps: number of latent functions P sharing the kernel.
        :param num_data: number of training rows N, so that a minibatch counts for all of them;
            None means that every batch is all the data.
        :raises ValueError: if the likelihood cannot take that many latent functions, or num_data is
            not positive.
        """
        checks.require_count(num_latent_gps, "num_latent_gps")
        if num_data is not None and not tf.is_tensor(num_data):
            checks.require_count(num_data, "num_data")
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        self._require_parts(None)
        self.num_data = num_data
        # smallest jitter relative to the kernel's variance; None leaves it to the float type.
        # `training.fit` raises it where a factorization fails; saved with the model.
        self.jitter: float | None = None
        # set it where X and Y were standardized; then it is saved and checkpointed with the model
        self.standardizer: Any = None

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
    def dtype(self) -> tf.DType:
        """Float type of the parameters."""
        return gpflow.default_float()

    def prior_kl(self) -> tf.Tensor:
        """KL from the variational distribution to the prior, a scalar; at least zero."""
        self._require_parts(self.input_dim, self.dtype)
        if not tf.executing_eagerly():
            component_checks.require_sound(self)
        with component_checks.blame(self):
            kl = self.posterior(PrecomputeCacheType.NOCACHE).prior_kl()
        component_checks.require_finite_result(self, "the KL divergence", kl)
        return kl

    def elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        Evidence lower bound, or its unbiased estimate from a minibatch if ``num_data`` is set.

        :param data: ``(X [N, D], Y [N, P])``.
        :return: scalar, in nats.
        :raises ValueError: for data that do not fit the model, eagerly and when tracing.
        """
        X, Y = self._require_data(data)
        with component_checks.blame(self):
            mean, var, kl = self.posterior(PrecomputeCacheType.NOCACHE).marginals_and_kl(X)
        expectations = self.likelihood.variational_expectations(X, mean, var, Y)  # [N]
        batch = tf.cast(tf.shape(X)[0], kl.dtype)
        num_data = batch if self.num_data is None else tf.cast(self.num_data, kl.dtype)
        elbo = (num_data / batch) * tf.reduce_sum(expectations) - kl
        component_checks.require_finite_result(self, "the elbo", elbo)
        return elbo

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
        A function of nothing that returns the training loss, as GPflow's optimizers want it.

        :param data: ``(X [N, D], Y [N, P])``, or an iterator over a ``tf.data.Dataset``.
        :param compile: wrap the loss in ``tf.function``.
        :raises ValueError: as :meth:`elbo`, when made: a compiled loss cannot look at values.
        """
        checks.require_flag(compile, "compile")
        component_checks.require_sound(self)
        if isinstance(data, tf.data.Iterator):
            return super().training_loss_closure(data, compile=compile)
        if isinstance(data, Iterator):
            raise ValueError(
                "data must be arrays or iter(tf.data.Dataset): a compiled closure would freeze the "
                f"first batch of a {type(data).__name__}."
            )
        return super().training_loss_closure(self._require_data(data), compile=compile)

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
        return self.posterior(PrecomputeCacheType.NOCACHE).fused_predict_f(
            Xnew, full_cov=full_cov, full_output_cov=full_output_cov
        )

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

    def predict_y(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations at ``Xnew [..., N, D]``, noise included."""
        Xnew = self._require_inputs(Xnew)
        _refuse_covariances("predict_y", full_cov, full_output_cov)
        mean, var = super().predict_y(Xnew)
        component_checks.require_finite_result(self, "the prediction", mean, var)
        return mean, var

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
        log_density = super().predict_log_density((X, Y))
        component_checks.require_finite_result(self, "the log density", log_density)
        return log_density

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
            num_latent_gps=self.num_latent_gps,
            dtype=self.dtype,
        )
        checks.require_range(X, "X")
        checks.require_range(Y, "Y")
        if self.input_dim is None:
            self._require_parts(X.shape[-1], self.dtype)
        if self.num_data is not None and not tf.is_tensor(self.num_data):
            checks.require_count(self.num_data, "num_data")
        return X, Y

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        """Refuse a kernel, likelihood or mean function that does not fit; they can be assigned."""
        _require_kind(self.kernel, Kernel, "kernel", "gpflow.kernels.SquaredExponential()")
        _require_kind(self.likelihood, Likelihood, "likelihood", "gpflow.likelihoods.Gaussian()")
        _require_kind(self.mean_function, Function, "mean_function", "gpflow.functions.Zero()")
        checks.require_latents(self.likelihood, self.num_latent_gps)
        labels.require_computable(self.likelihood)
        component_checks.require_kernel(self.kernel, num_columns)
        component_checks.require_mean_function(self.mean_function, num_columns, self.num_latent_gps)
        dtype = gpflow.default_float() if dtype is None else dtype
        for name in ("kernel", "likelihood", "mean_function"):
            component_checks.require_dtype(getattr(self, name), name, dtype)


def _require_kind(value: Any, kind: type, name: str, example: str) -> None:
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
