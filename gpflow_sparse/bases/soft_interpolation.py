"""SoftKI: soft kernel interpolation between learned points, as a finite basis."""

from collections.abc import Sequence
from typing import Any

import gpflow
import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.bases.kernel_dictionary import require_places
from gpflow_sparse.covariances.stationary import jittered_covariance, quadratic
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks

# Squared distance in units of the temperature below which two points count as equal: the gradient
# of the square root diverges at 0.
_SAME = 1e-12


class SoftInterpolation(FiniteBasis):
    r"""
    ``f(x) = w(x)^T u``: means of the values u at m learned points with softmax weights.

        w_j(x) = exp(-|x - z_j| / T) / sum_i exp(-|x - z_i| / T),      u ~ N(0, k(Z, Z)).

    Distances are Euclidean and not squared. Camano and Huang, "High-Dimensional Gaussian Process
    Regression with Soft Kernel Interpolation" (SoftKI), eqs. (16) and (17), where T = 1. The basis
    is whitened, ``W L`` with ``L = chol(k(Z, Z) + jitter)``, so that nothing is ever multiplied by
    the inverse of ``k(Z, Z)``. Because weights are positive and add up to 1, prior variances are at
    most the kernel's, which :class:`gpflow_sparse.kernels.WithMissingVariance` restores.

    The *temperature* T decides how local the weights are, and the paper leaves it out: with 256
    points in standard normal columns, T = 1 spreads the weights of a row over some 180 to 220 of
    them, in 2 columns as in 100. It is a parameter here, for one column each if it is an array, and
    with ``tied`` it is in units of the kernel's lengthscales, so that one number serves any data;
    0.3 is a good start.
    ``gpflow.set_trainable(basis.temperature, False)`` keeps it, as the paper does.

    Time O(N m (D + m) + m^3) for all columns. Z, the temperature and the kernel are trainable;
    gradients are finite where a point equals a row of X.
    """

    jitter: float | None = None
    """Smallest jitter relative to the kernel's variance; None leaves it to the float type."""

    def __init__(
        self,
        kernel: Kernel,
        Z: Any,
        *,
        temperature: Any = 1.0,
        tied: bool = False,
    ) -> None:
        """
        :param kernel: any kernel of GPflow with one output, stationary or not.
        :param Z: interpolation points ``[m, D]``; ``basis.Z`` is a ``gpflow.Parameter``.
        :param temperature: T, positive; one number, or one for each column that the kernel reads.
        :param tied: whether T is in units of the kernel's lengthscales, which must then exist.
        :raises ValueError: for a kernel or points that do not fit each other, a temperature that is
            not positive or of another shape, and ``tied`` for a kernel without lengthscales.
        """
        super().__init__()
        checks.require_flag(tied, "tied")
        self.kernel = kernel
        self.Z = Parameter(require_places(kernel, Z, "Z"))
        self.num_basis = self.Z.shape[0]
        self.tied = bool(tied)
        read = self.kernel.slice(tf.convert_to_tensor(self.Z), None)[0].shape[1]
        wanted = f"one number or {read}, one for each column that the kernel reads, all positive"
        values = checks.require_positive(temperature, "temperature", wanted, ((), (read,)))
        self.temperature = Parameter(values, transform=gpflow.utilities.positive())
        self._scale()

    def weights(self, X: Any) -> tf.Tensor:
        """
        ``W [N, m]``, positive, rows adding up to 1; O(N m D).

        :param X: ``[N, D]``.
        :raises ValueError: for inputs of another rank or D, or not finite.
        """
        return self._weights(self._require_inputs(X))

    def covariance(self) -> tf.Tensor:
        """``k(Z, Z)`` and jitter, ``[m, m]``; O(m^2 D)."""
        return jittered_covariance(self.kernel, self.Z, self.jitter)

    def precompute(self) -> tuple[tf.Tensor, ...]:
        """
        ``L [m, m]``, the factor of :meth:`covariance`, in O(m^3).

        Factorized in float64 whatever the type: points close together make it ill-conditioned.
        """
        K = tf.cast(self.covariance(), tf.float64)
        L = linalg.cholesky(K, "Kzz (covariance of the interpolation points)")
        return (tf.cast(L, self.dtype),)

    @property
    def input_dim(self) -> int | None:
        return self.Z.shape[1]

    @property
    def numbers_per_row(self) -> int:
        return 4 * self.num_basis

    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        """Functions at X, each of which depends on the distances to all points."""
        (L,) = self.precompute()
        L = L if indices is None else tf.gather(L, indices, axis=1)  # [m, k]
        return tf.linalg.matmul(self._weights(X), L)

    def mixing(self, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        return precomputed[0]

    def plain_features(self, X: tf.Tensor) -> tf.Tensor:
        return tf.transpose(self._weights(X))

    def _features(self, X: tf.Tensor, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        L = self.mixing(precomputed)
        return linalg.lower_matmul(L, self.plain_features(X), adjoint=True)  # L^T W^T

    def _weights(self, X: tf.Tensor) -> tf.Tensor:
        """:meth:`weights` of checked inputs."""
        scale = self._scale()
        X, Z = (part / scale for part in self.kernel.slice(X, tf.convert_to_tensor(self.Z)))
        # distances do not depend on a common shift, so it needs no gradient
        center = tf.stop_gradient(tf.reduce_mean(Z, axis=0))
        squares = _squared_distances(X - center, Z - center)  # [N, m]
        return _softmax_of_distances(squares)

    def _scale(self) -> tf.Tensor:
        """The temperature T, a scalar or one for each column that the kernel reads."""
        temperature = tf.convert_to_tensor(self.temperature)
        if not self.tied:
            return temperature
        lengthscales = getattr(self.kernel, "lengthscales", None)
        if lengthscales is None:
            raise ValueError(
                "tied must be False for a kernel without lengthscales; got "
                f"{type(self.kernel).__name__}. Give the temperature in units of the inputs."
            )
        return temperature * tf.convert_to_tensor(lengthscales)


@tf.custom_gradient
def _squared_distances(X: tf.Tensor, Z: tf.Tensor) -> Any:
    """
    ``|x - z|^2 [N, m]``, computed in float64, since a square root magnifies the rounding of small
    ones. The gradient is computed in the type of X.
    """
    wide_X, wide_Z = (tf.cast(part, tf.float64) for part in (X, Z))

    def gradient(slopes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows, points = (tf.concat([part, tf.ones_like(part[:, :1])], axis=1) for part in (X, Z))
        by_rows = tf.linalg.matmul(slopes, points)  # [N, D + 1], the last column their sums
        by_points = tf.linalg.matmul(slopes, rows, transpose_a=True)
        dX = 2.0 * (by_rows[:, -1:] * X - by_rows[:, :-1])
        return dX, 2.0 * (by_points[:, -1:] * Z - by_points[:, :-1])

    return tf.cast(quadratic(wide_X, wide_Z, 1.0, 0.0), X.dtype), gradient


@tf.custom_gradient
def _softmax_of_distances(squares: tf.Tensor) -> Any:
    """Softmax of minus the root of ``squares [N, m]`` over its rows."""
    logits = -tf.sqrt(tf.maximum(squares, _SAME))
    W = tf.nn.softmax(logits)

    def gradient(dW: tf.Tensor) -> tf.Tensor:
        weighted = W * dW
        slopes = weighted - W * tf.reduce_sum(weighted, axis=1, keepdims=True)
        # the root has no gradient where a point equals the row
        return tf.where(squares > _SAME, slopes / (2.0 * logits), tf.zeros_like(slopes))

    return W, gradient
