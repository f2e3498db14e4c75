"""
Standardized sinh-arcsinh distributions: Jones and Pewsey, "Sinh-arcsinh distributions", Biometrika
96 (2009).

``r = (x - mu) / sigma`` with ``x = sinh((arcsinh(z) + skewness) / tail)`` for standard normal z,
and mu and sigma the mean and the standard deviation of x: r has mean 0 and variance 1 whatever its
shape. Skewness 0 and tail 1 give the normal distribution; a tail below 1 a narrower peak and
heavier tails, positive skewness a longer tail to the right.
"""

import numpy as np
import tensorflow as tf

_NUM_NODES = 64  # of Gauss-Hermite quadrature, for mu and sigma


def to_normal(
    residual: tf.Tensor, skewness: tf.Tensor, tail: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """z, and ``log dz / dr``, of standardized residuals r of any shape."""
    mean, deviation = _moments(skewness, tail, residual.dtype)
    x = mean + deviation * residual
    angle = tail * tf.asinh(x) - skewness
    slope = tf.math.log(deviation * tail) + tf.math.log(tf.cosh(angle))
    return tf.sinh(angle), slope - 0.5 * tf.math.log1p(tf.square(x))


def from_normal(z: tf.Tensor, skewness: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
    """Standardized residuals r from z, the inverse of :func:`to_normal`."""
    mean, deviation = _moments(skewness, tail, z.dtype)
    return (tf.sinh((tf.asinh(z) + skewness) / tail) - mean) / deviation


def log_density(residual: tf.Tensor, skewness: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
    """Log density of standardized residuals."""
    z, slope = to_normal(residual, skewness, tail)
    return slope - 0.5 * (tf.square(z) + np.log(2.0 * np.pi))


def _moments(skewness: tf.Tensor, tail: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """mu and sigma."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NUM_NODES)
    z, w = tf.constant(nodes, dtype), tf.constant(weights / weights.sum(), dtype)
    x = tf.sinh((tf.asinh(z) + skewness) / tail)
    mean = tf.reduce_sum(w * x)
    return mean, tf.sqrt(tf.reduce_sum(w * tf.square(x - mean)))
