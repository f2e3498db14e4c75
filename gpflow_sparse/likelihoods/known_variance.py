"""Gaussian noise whose variance is known for every row, as from a measuring instrument."""

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import likelihoods, logdensities
from gpflow.base import MeanAndVariance, TensorType

from gpflow_sparse.validation import checks


class GaussianWithKnownVariance(likelihoods.ScalarLikelihood):
    """
    ``y ~ N(f, s2 + variance)`` with a known variance s2 of each entry, which is a column of Y: P
    outputs, then their P variances, ``Y [N, 2 P]``. So are the columns of the heteroskedastic
    likelihoods in GPflow's notebooks.

    All expectations are in closed form. Observations that are predicted, by ``predict_y``, have the
    learned variance alone; ``predict_log_density`` adds the variances in its Y.

    :param variance: start of the learned variance that all entries have in common,
        ``model.likelihood.variance``; 0 for none.
    :raises ValueError: for a negative number.
    """

    columns_per_output = 2
    support = (False, 0, np.inf, "variances of at least 0 in its second half")

    def __init__(self, variance: float = 1.0) -> None:
        super().__init__()
        if checks.is_number(variance) and variance == 0.0:
            self.variance = gpflow.Parameter(0.0, trainable=False)
            return
        start = checks.require_positive_number(variance, "variance")
        self.variance = gpflow.Parameter(start, transform=gpflow.utilities.positive())

    def _split(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Outputs, and variances of their noise, ``[..., P]`` each."""
        Y, known = tf.split(tf.convert_to_tensor(Y), 2, axis=-1)
        return Y, known + self.variance

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        Y, noise = self._split(Y)
        return logdensities.gaussian(Y, F, noise)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.variance + tf.zeros_like(F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + self.variance

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        Y, noise = self._split(Y)
        each = logdensities.gaussian(Y, Fmu, noise) - 0.5 * Fvar / noise
        return tf.reduce_sum(each, axis=-1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        Y, noise = self._split(Y)
        return tf.reduce_sum(logdensities.gaussian(Y, Fmu, Fvar + noise), axis=-1)
