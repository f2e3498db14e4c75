"""The one ``elbo``: every variational model maximizes expected log likelihood minus KL."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import ExternalDataTrainingLossMixin
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse import checks, component_checks
from gpflow_sparse.models.guarded import GuardedModel


class VariationalModel(GuardedModel, ExternalDataTrainingLossMixin):
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
        num_latent_gps: int | None = None,
        num_data: int | None = None,
    ) -> None:
        """
        :param num_latent_gps: number of latent functions L; None means the number that a
            multi-output kernel has, and 1 for other kernels, which all L share.
        :param num_data: number of training rows N, so that a minibatch counts for all of them;
            None means that every batch is all the data.
        :raises ValueError: if the likelihood cannot take that many latent functions, or num_data is
            not positive.
        """
        if num_data is not None and not tf.is_tensor(num_data):
            checks.require_count(num_data, "num_data")
        super().__init__(
            kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps
        )
        self.num_data = num_data

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

    def _require_data(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = super()._require_data(data)
        if self.num_data is not None and not tf.is_tensor(self.num_data):
            checks.require_count(self.num_data, "num_data")
        return X, Y
