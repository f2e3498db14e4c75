"""Labels 0 and 1 by a logit."""

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import likelihoods
from gpflow.base import MeanAndVariance, TensorType
from gpflow.quadrature import GaussianQuadrature

from gpflow_sparse.likelihoods.quadrature import TrapezoidQuadrature


class BernoulliLogit(likelihoods.Bernoulli):
    """
    Labels 0 and 1 with ``P(y = 1) = 1 / (1 + exp(-f))``.

    GPflow's ``Bernoulli(invlink=tf.sigmoid)`` takes the logarithm of a probability, which is -inf
    at f = 40 and y = 0; this computes ``-softplus(-(2 y - 1) f)``, exact everywhere and concave in
    ``f``. Expectations are by :class:`TrapezoidQuadrature`.

    :param quadrature: another rule for one dimension.
    """

    def __init__(self, *, quadrature: GaussianQuadrature | None = None) -> None:
        rule = TrapezoidQuadrature() if quadrature is None else quadrature
        super().__init__(invlink=tf.sigmoid, quadrature=rule)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.nn.softplus((1.0 - 2.0 * Y) * F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(F) * tf.sigmoid(-F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # both probabilities, since 1 - p is inaccurate for p close to 1
        one, zero = self.quadrature([tf.sigmoid, lambda F: tf.sigmoid(-F)], Fmu, Fvar)
        return one, one * zero

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_density = self.quadrature.logspace(self._quadrature_log_prob, Fmu, Fvar, X=X, Y=Y)
        return self._quadrature_reduction(log_density)
