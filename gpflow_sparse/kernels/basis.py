"""GPflow kernels of finite bases."""

from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.kernels import Kernel

from gpflow_sparse.bases import (
    FiniteBasis,
    GridEigenfunctions,
    ReweightedBasis,
    SoftInterpolation,
)
from gpflow_sparse.bases.base import require_basis
from gpflow_sparse.covariances.stationary import covariance


class _BasisKernel(Kernel):
    """Base class of kernels that are functions of the features of one basis."""

    def __init__(self, basis: FiniteBasis) -> None:
        """
        :param basis: a finite basis; its parameters are trained through it.
        :raises ValueError: if it is not a finite basis.
        """
        super().__init__()
        self.basis = require_basis(basis)


class Basis(_BasisKernel):
    """
    ``k(x, x') = phi(x)^T phi(x')`` for the whitened features of a basis: the covariance of
    ``phi(x)^T w``, ``w ~ N(0, I)``.

    Its matrices have rank m at most. It can be used in any GPflow model; if m is less than the
    number of rows, :class:`~gpflow_sparse.models.BasisGPR` and
    :class:`~gpflow_sparse.models.BasisSVGP` give the same results at lower cost.
    """

    @inherit_check_shapes
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        """``[..., N, N]``, or ``[..., N, ..., N2]`` for other inputs; O(N N2 m)."""
        return _inner_products(self.basis, X, X2)

    @inherit_check_shapes
    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return _squares(self.basis, X)


class GRIEF(Basis):
    """
    The kernel of Evans and Nair, "Scalable Gaussian Processes with Grid-Structured Eigenfunctions"
    (2018), eq. (3): the p leading eigenfunctions of a product kernel on a grid; see
    :class:`~gpflow_sparse.bases.GridEigenfunctions` for the arguments.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        num_eigenfunctions: int = 1000,
        points_per_dimension: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(
            GridEigenfunctions(kernel, X, num_eigenfunctions, points_per_dimension, **options)
        )


class SoftKI(Basis):
    """
    The kernel of Camano and Huang, "High-Dimensional Gaussian Process Regression with Soft Kernel
    Interpolation", eq. (16): softmax weights between m points; see
    :class:`~gpflow_sparse.bases.SoftInterpolation` for the arguments.
    """

    def __init__(self, kernel: Kernel, Z: Any, **options: Any) -> None:
        super().__init__(SoftInterpolation(kernel, Z, **options))


class WithMissingVariance(_BasisKernel):
    """
    ``phi(x)^T phi(x')`` plus independent noise at every x that restores the kernel's own variance:
    ``max(k(x, x) - |phi(x)|^2, 0)``.

    For example for soft interpolation, which has less variance than its kernel between the points.
    Far from the data the posterior of the finite sum does not return to the prior. As with GPflow's
    ``White``, only ``K(X)`` and ``K_diag(X)`` include the noise, not ``K(X, X2)``.
    """

    @inherit_check_shapes
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        """As :meth:`Basis.K`."""
        K = _inner_products(self.basis, X, X2)
        if X2 is not None:
            return K
        variances = tf.maximum(self.basis.kernel(X, full_cov=False), tf.linalg.diag_part(K))
        return tf.linalg.set_diag(K, variances)

    @inherit_check_shapes
    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return tf.maximum(self.basis.kernel(X, full_cov=False), _squares(self.basis, X))


class Corrected(Kernel):
    """
    ``k(x, x') + phi(x)^T (W - I) phi(x')``: a kernel with weights W of its leading functions
    and the residual of k.

    For a :class:`~gpflow_sparse.bases.ReweightedBasis` over a projection of k. It is a covariance
    for any weights, because ``k - phi^T phi`` is one. Ours: the re-weighted kernel of Evans and
    Nair (2018), eq. (11), is ``phi^T W phi`` alone.
    """

    def __init__(self, basis: ReweightedBasis) -> None:
        """
        :param basis: a projection with weights.
        :raises ValueError: for another basis, or one that does not project a kernel.
        """
        super().__init__()
        if not isinstance(basis, ReweightedBasis) or not basis.basis.is_projection:
            raise ValueError(
                "basis must be a ReweightedBasis of a projection, such as GridEigenfunctions; got "
                f"{type(basis).__name__}."
            )
        self.basis = basis

    @inherit_check_shapes
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        """As :meth:`Basis.K`."""
        gain = _inner_products(self.basis, X, X2) - _inner_products(self.basis.basis, X, X2)
        return covariance(self.basis.kernel, X, X2) + gain

    @inherit_check_shapes
    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        """``[..., N]``; the residual of k is clipped at 0, because of rounding."""
        residual = self.basis.kernel(X, full_cov=False) - _squares(self.basis.basis, X)
        return tf.maximum(residual, 0.0) + _squares(self.basis, X)


def _inner_products(basis: FiniteBasis, X: tf.Tensor, X2: tf.Tensor | None) -> tf.Tensor:
    """``phi(X)^T phi(X2)`` over all pairs of leading axes, or of each batch with itself."""
    A = _features(basis, X)  # [..., m, N]
    if X2 is None:
        return tf.linalg.matmul(A, A, transpose_a=True)  # [..., N, N]
    first = tf.linalg.matrix_transpose(A)
    return tf.tensordot(first, _features(basis, X2), [[-1], [-2]])  # [..., N, ..., N2]


def _squares(basis: FiniteBasis, X: tf.Tensor) -> tf.Tensor:
    """``|phi(x)|^2 [..., N]``."""
    return tf.reduce_sum(tf.square(_features(basis, X)), axis=-2)


def _features(basis: FiniteBasis, X: tf.Tensor) -> tf.Tensor:
    """``[..., m, N]`` for ``X [..., N, D]``."""
    X = tf.convert_to_tensor(X)
    if X.shape.rank == 2:
        return basis.features(X)
    A = basis.features(tf.reshape(X, [-1, X.shape[-1]]))  # [m, n]
    shape = tf.concat([tf.shape(X)[:-1], [basis.num_basis]], axis=0)
    return tf.linalg.matrix_transpose(tf.reshape(tf.transpose(A), shape))
