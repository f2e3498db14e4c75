"""
The power transform of Yeo and Johnson, "A new family of power transformations to improve normality
or symmetry", Biometrika 87 (2000), of powers from 0 to 2, with which it maps the line onto itself.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from scipy import optimize, stats

POWERS = (0.0, 2.0)
"""Least and largest power; with others densities of Gaussians would not integrate to 1."""


def forward(Z: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """The transformed values of ``Z [..., P]``, with one power for each column, in graphs too."""
    power, some = _powers(Z, power)
    size = tf.math.log1p(tf.abs(Z))
    return tf.sign(Z) * tf.where(power == 0.0, size, tf.math.expm1(some * size) / some)


def inverse(Z: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """The inverse of :func:`forward`, in graphs too."""
    power, some = _powers(Z, power)
    size = tf.abs(Z)
    return tf.sign(Z) * tf.math.expm1(
        tf.where(power == 0.0, size, tf.math.log1p(some * size) / some)
    )


def _powers(Z: tf.Tensor, power: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Powers of the Box-Cox function of ``1 + |z|`` that each half of the line has, and these with 1
    in place of 0.
    """
    power = tf.where(Z < 0.0, 2.0 - power, power * tf.ones_like(Z))
    return power, tf.where(power == 0.0, tf.ones_like(power), power)


def log_derivative(Z: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """The logarithm of the derivative of :func:`forward`."""
    return (power - 1.0) * tf.sign(Z) * tf.math.log1p(tf.abs(Z))


def best_power(z: np.ndarray, row_weights: Any = None) -> float:
    """
    The power that makes standardized values most like draws from a Gaussian.

    :param row_weights: weights of the values ``[N]``; None for 1.
    """

    def loss(power: float) -> float:
        if row_weights is None:
            return -float(stats.yeojohnson_llf(power, z))
        values = stats.yeojohnson(z, power)
        mean = np.average(values, weights=row_weights)
        variance = np.average(np.square(values - mean), weights=row_weights)
        log_slopes = (power - 1.0) * np.sign(z) * np.log1p(np.abs(z))
        return float(0.5 * np.log(variance) - np.average(log_slopes, weights=row_weights))

    found = optimize.minimize_scalar(loss, bounds=POWERS, method="bounded")
    return float(np.clip(found.x, *POWERS))
