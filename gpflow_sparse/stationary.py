"""Covariance matrices of GPflow's stationary kernels, in fewer passes over memory.

GPflow builds such a matrix from about ten elementwise operations, each of which reads and writes
all of it, and differentiates each of them. Here the whole quadratic form comes out of one matmul
and the profile of a Matern is written with its gradient. Measured on two cores, 512 x 512, D = 8,
float64, value and gradient, in ms: squared exponential 1.8 to 1.5, Matern 1/2 2.2 to 2.0, 3/2 2.3
to 1.8, 5/2 2.8 to 2.1.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from gpflow.kernels import Kernel, Matern12, Matern32, Matern52, SquaredExponential

# dK / d(r^2) of the Matern 1/2 does not exist at r = 0; GPflow cuts r off at the same value.
_SMALLEST = 1e-36


def covariance(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
    """
    ``k(X, X2)``, the same as ``kernel(X, X2)`` to rounding, faster for some kernels.

    Those are SquaredExponential and Matern12, Matern32, Matern52; others are evaluated as usual.

    :param X: ``[N, D]``.
    :param X2: ``[N2, D]``.
    :return: ``[N, N2]``.
    """
    X, X2 = tf.convert_to_tensor(X), tf.convert_to_tensor(X2)
    if type(kernel) not in _FROM_INPUTS or X.shape.rank != 2 or X2.shape.rank != 2:
        return kernel(X, X2)
    scaled = [kernel.scale(part) for part in kernel.slice(X, X2)]  # lengthscales now 1
    return _FROM_INPUTS[type(kernel)](*scaled, tf.convert_to_tensor(kernel.variance))


def _squared_exponential(X: tf.Tensor, X2: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """``variance exp(-r^2 / 2)``, the whole exponent from one matmul."""
    return tf.exp(_quadratic(X, X2, -0.5, tf.math.log(variance)))


def _matern12(X: tf.Tensor, X2: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """``e``, with ``e = variance exp(-s)`` and ``s = r``; the derivative by s^2 is -e / (2 s)."""
    squares = _quadratic(X, X2, 1.0, 0.0)
    return _profile(squares, variance, lambda s, e: e, lambda s, e: -0.5 * e / s)


def _matern32(X: tf.Tensor, X2: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """``(1 + s) e``, ``s = sqrt(3) r``; the derivative by s^2 is -e / 2."""
    squares = _quadratic(X, X2, 3.0, 0.0)
    return _profile(squares, variance, lambda s, e: (1.0 + s) * e, lambda s, e: -0.5 * e)


def _matern52(X: tf.Tensor, X2: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """``(1 + s + s^2 / 3) e``, ``s = sqrt(5) r``; the derivative by s^2 is -(1 + s) e / 6."""
    squares = _quadratic(X, X2, 5.0, 0.0)
    return _profile(
        squares,
        variance,
        lambda s, e: (1.0 + s * (1.0 + s / 3.0)) * e,
        lambda s, e: (-1.0 / 6.0) * (1.0 + s) * e,
    )


_FROM_INPUTS: dict[type[Kernel], Callable[..., tf.Tensor]] = {
    SquaredExponential: _squared_exponential,
    Matern12: _matern12,
    Matern32: _matern32,
    Matern52: _matern52,
}


def _quadratic(X: tf.Tensor, X2: tf.Tensor, scale: float, shift: tf.Tensor | float) -> tf.Tensor:
    """``scale |x - x2|^2 + shift [N, N2]``, as inner products of D + 2 columns."""
    norms, norms2 = (
        scale * tf.reduce_sum(tf.square(part), axis=-1, keepdims=True) for part in (X, X2)
    )
    left = tf.concat([-2.0 * scale * X, norms, tf.ones_like(norms)], axis=-1)
    right = tf.concat([X2, tf.ones_like(norms2), norms2 + shift], axis=-1)
    return tf.linalg.matmul(left, right, transpose_b=True)


Part = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def _profile(squares: tf.Tensor, variance: tf.Tensor, value: Part, slope: Part) -> tf.Tensor:
    """
    A function of ``s`` and ``e = variance exp(-s)``, from ``s^2``.

    :param value: of ``(s, e)``; proportional to e.
    :param slope: its derivative by ``s^2``, of ``(s, e)``.
    """

    @tf.custom_gradient
    def profile(squares: tf.Tensor, variance: tf.Tensor) -> Any:
        s = tf.sqrt(tf.maximum(squares, _SMALLEST))  # rounding may leave s^2 below zero
        e = tf.exp(tf.math.log(variance) - s)
        K = value(s, e)

        def gradient(dK: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            dsquares = tf.where(squares > _SMALLEST, dK * slope(s, e), 0.0)
            return dsquares, tf.reduce_sum(dK * K) / variance

        return K, gradient

    return profile(squares, variance)
