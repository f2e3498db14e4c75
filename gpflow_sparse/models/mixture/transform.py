"""A transform of the outputs of one component: Yeo and Johnson's powers, standardized."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics import yeo_johnson

# Nodes of Gauss-Hermite quadrature, and terms of the Hermite expansion of joint covariances. The
# power's second derivative jumps at zero: of 32 nodes means are off by at most 1e-4 deviations.
_NUM_NODES, _NUM_TERMS = 32, 12
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(_NUM_NODES)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_BLOCK_ENTRIES = 2**20  # values of nodes in memory together


class YeoJohnson(tf.Module):
    """
    ``z = (T(y) - center) / scale`` with T of Yeo and Johnson, of powers from 0 to 2: one of each
    for every output.

    :param power: ``[P]``, from 0 to 2; 1 is the identity.
    :param center: ``[P]``
    :param scale: ``[P]``, positive.
    """

    def __init__(self, power: np.ndarray, center: np.ndarray, scale: np.ndarray) -> None:
        super().__init__()
        self.power, self.center, self.scale = (
            np.asarray(v, np.float64) for v in (power, center, scale)
        )

    @classmethod
    def fit(cls, Y: np.ndarray, row_weights: Any = None) -> "YeoJohnson":
        """
        Powers of the largest likelihood of a Gaussian for outputs ``[N, P]``.

        :param row_weights: weights of the rows ``[N]``; None for 1.
        """
        Y = np.asarray(Y, np.float64)
        power = np.array([yeo_johnson.best_power(y, row_weights) for y in Y.T])
        Z = yeo_johnson.forward(tf.constant(Y), tf.constant(power)).numpy()
        mean = np.average(Z, axis=0, weights=row_weights)
        deviation = np.sqrt(np.average(np.square(Z - mean), axis=0, weights=row_weights))
        return cls(power, mean, np.where(deviation > 0.0, deviation, 1.0))

    def forward(self, Y: tf.Tensor) -> tf.Tensor:
        """``z [..., P]`` of outputs, in graphs too."""
        power, center, scale = self._constants(Y)
        return (yeo_johnson.forward(Y, power) - center) / scale

    def inverse(self, Z: tf.Tensor) -> tf.Tensor:
        """Outputs ``y [..., P]``, in graphs too."""
        power, center, scale = self._constants(Z)
        return yeo_johnson.inverse(center + scale * Z, power)

    def log_derivative(self, Y: tf.Tensor) -> tf.Tensor:
        """``log dz / dy [..., P]``."""
        power, _, scale = self._constants(Y)
        return yeo_johnson.log_derivative(Y, power) - tf.math.log(scale)

    def moments(self, mean: tf.Tensor, var: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of y for Gaussian z, elementwise ``[..., P]``, by quadrature."""
        size = max(1, _BLOCK_ENTRIES // (mean.shape.num_elements() or _BLOCK_ENTRIES))
        center, spread = self.inverse(mean), tf.sqrt(var)
        first, second = tf.zeros_like(mean), tf.zeros_like(mean)
        for start in range(0, _NUM_NODES, size):
            nodes, weights = (
                tf.constant(part[start : start + size], mean.dtype) for part in (_NODES, _WEIGHTS)
            )
            error = self.inverse(mean + tf.tensordot(nodes, spread, 0)) - center
            first += tf.tensordot(weights, error, 1)
            second += tf.tensordot(weights, tf.square(error), 1)
        return center + first, second - tf.square(first)

    def moments_in_numpy(self, mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """:meth:`moments` of arrays."""
        size = max(1, _BLOCK_ENTRIES // 8 // mean.size)
        center, spread = self._inverse_in_numpy(mean), np.sqrt(var)
        first, second = np.zeros_like(mean), np.zeros_like(mean)
        for start in range(0, _NUM_NODES, size):
            nodes, weights = (part[start : start + size] for part in (_NODES, _WEIGHTS))
            error = self._inverse_in_numpy(mean + np.multiply.outer(nodes, spread)) - center
            first += np.tensordot(weights, error, 1)
            second += np.tensordot(weights, np.square(error, out=error), 1)
        return center + first, second - np.square(first)

    def _inverse_in_numpy(self, Z: np.ndarray) -> np.ndarray:
        """:meth:`inverse` of arrays."""
        Z = self.center + self.scale * Z
        size, power = np.abs(Z), np.where(Z < 0.0, 2.0 - self.power, self.power)
        if np.any(np.isin(self.power, yeo_johnson.POWERS)):
            size = np.where(power == 0.0, size, np.log1p(power * size) / np.where(power, power, 1))
        else:
            size = np.log1p(power * size) / power
        return np.copysign(np.expm1(size), Z)

    def hermite(self, mean: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        """
        Coefficients ``c_k = E[y h_k(e)]``, ``z = mean + sqrt(var) e``, ``[K, ..., P]``.

        With orthonormal Hermite polynomials ``h_k``, ``c_0`` is the mean of y, and outputs of two
        rows whose z have the correlation r have the covariance ``sum_k c_k c'_k r^k``, k > 0
        (Mehler's formula).
        """
        H = np.empty((_NUM_TERMS, _NUM_NODES))
        H[0], H[1] = 1.0, _NODES
        for k in range(1, _NUM_TERMS - 1):
            H[k + 1] = (_NODES * H[k] - np.sqrt(k) * H[k - 1]) / np.sqrt(k + 1.0)
        spread = tf.sqrt(var)
        total = tf.zeros([_NUM_TERMS, *[1] * mean.shape.rank], mean.dtype)
        for node, column in zip(_NODES, (H * _WEIGHTS).T, strict=True):
            values = self.inverse(mean + node.astype(mean.dtype.as_numpy_dtype) * spread)
            shape = [_NUM_TERMS, *[1] * mean.shape.rank]
            total += values * tf.reshape(tf.constant(column, mean.dtype), shape)
        return total

    def _constants(self, like: tf.Tensor) -> list[tf.Tensor]:
        return [tf.constant(part, like.dtype) for part in (self.power, self.center, self.scale)]
