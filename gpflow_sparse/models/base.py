"""The one ``elbo``: every variational model maximizes expected log likelihood minus KL."""

import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.models.minibatch import MinibatchModel
from gpflow_sparse.validation import component_checks
from gpflow_sparse.validation.step_lock import reads_parameters


class VariationalModel(MinibatchModel):
    """
    A GPflow model whose objective is

        elbo = (num_data / batch) * sum_n E_q[log p(y_n | f_n)] - KL[q || p]

    and whose public methods, inherited ones too, refuse bad input before anything broadcasts.
    A subclass provides :meth:`posterior` and holds what the posterior needs.
    """

    @reads_parameters
    def prior_kl(self) -> tf.Tensor:
        """KL from the variational distribution to the prior, a scalar; at least zero."""
        self._require_parts(self.input_dim, self.dtype)
        if not tf.executing_eagerly():
            component_checks.require_sound(self)
        with component_checks.blame(self):
            kl = self.posterior(PrecomputeCacheType.NOCACHE).prior_kl()
        component_checks.require_finite_result(self, "the KL divergence", kl)
        return kl

    @reads_parameters
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
        elbo = self._weight(X, kl.dtype) * tf.reduce_sum(expectations) - kl
        component_checks.require_finite_result(self, "the elbo", elbo)
        return elbo
