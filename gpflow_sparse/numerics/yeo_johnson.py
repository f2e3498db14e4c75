"""
The power transform of Yeo and Johnson, "A new family of power transformations to improve normality
or symmetry", Biometrika 87 (2000), of powers from 0 to 2, with which it maps the line onto itself.
"""

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


def best_power(z: np.ndarray) -> float:
    """The power that makes standardized values most like draws from a Gaussian."""
    found = optimize.minimize_scalar(
        lambda power: -stats.yeojohnson_llf(power, z), bounds=POWERS, method="bounded"
    )
    return float(np.clip(found.x, *POWERS))
