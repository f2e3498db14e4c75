"""Noise with the density of Laplace."""

from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import likelihoods
from gpflow.base import MeanAndVariance, TensorType

from gpflow_sparse.inference.gaussian_averages import folded_mean, log_normal_laplace
from gpflow_sparse.validation import checks


class Laplace(likelihoods.ScalarLikelihood):
    """
    Noise with the density ``exp(-|y - f| / b) / (2 b)``: its logarithm falls off linearly, so that
    outliers have less influence than with Gaussian noise, and is concave in ``f``.

    All expectations are in closed form. The noise variance is ``2 b^2``.

    :param scale: starting value of ``b``, ``model.likelihood.scale``; positive. Its lower bound is
        ``gpflow.config.default_likelihood_positive_minimum()``, as for GPflow's Student's t.
    :raises ValueError: unless ``scale`` is one number above that bound.
    """

    def __init__(self, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        lowest = gpflow.config.default_likelihood_positive_minimum()
        if not checks.require_positive_number(scale, "scale") > lowest:
            raise ValueError(
                f"scale must be above {lowest:g}, "
                "gpflow.config.default_likelihood_positive_minimum(), "
                f"got {scale!r}. Standardize Y, or lower that bound."
            )
        transform = gpflow.utilities.positive(lower=lowest)
        self.scale = gpflow.Parameter(scale, transform=transform)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.math.log(2.0 * self.scale) - tf.abs(Y - F) / self.scale

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.fill(tf.shape(F), 2.0 * tf.square(self.scale))

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + 2.0 * tf.square(self.scale)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        expected = -tf.math.log(2.0 * self.scale) - folded_mean(Y - Fmu, Fvar) / self.scale
        return tf.reduce_sum(expected, axis=-1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(log_normal_laplace(Y - Fmu, Fvar, self.scale), axis=-1)
