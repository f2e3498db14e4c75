"""A basis of inducing points, with random Fourier features for the rest of the kernel."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.bases.fourier import RandomFourier, spectral_degrees
from gpflow_sparse.bases.kernel_dictionary import require_places
from gpflow_sparse.covariances.stationary import covariance, jittered_covariance
from gpflow_sparse.numerics import linalg


class Hybrid(FiniteBasis):
    r"""
    k inducing functions, then the residuals of random Fourier features: ``m = k + num_features``.

        column j < k:  (Kxu Luu^-T)_j,
        column k + j:  phi_j(x) - Kxu Kuu^-1 phi_j(Z).

    Weights are ``N(0, I)``, so the prior covariance is ``Quu + R R^T``: the part of the kernel that
    the points Z explain, exactly, and the residual by random features, which is the kernel on
    average over seeds and close to it for many features or many points. At Z the residuals are
    zero up to the jitter. Inducing points and random features are known, their sum is new here.

    The inducing functions are the first ``num_leading`` = k. Z, variance and lengthscales are
    trainable.
    """

    def __init__(
        self,
        kernel: Kernel,
        Z: Any,
        num_features: int,
        *,
        orthogonal: bool = False,
        seed: int = 0,
    ) -> None:
        """
        :param kernel: SquaredExponential (RBF), Matern12, Matern32 or Matern52.
        :param Z: inducing points ``[k, D]``; ``basis.Z`` is a ``gpflow.Parameter``.
        :param num_features: number of random features, even.
        :param orthogonal: see :class:`~gpflow_sparse.bases.RandomFourier`.
        :param seed: seed of the frequencies, from 0 to 2^32 - 1.
        :raises ValueError: for another kernel, points that do not fit it, an odd number of
            features, or a bad seed or flag.
        """
        super().__init__()
        spectral_degrees(kernel)
        self.kernel = kernel
        self.Z = Parameter(require_places(kernel, Z, "Z"))
        self.fourier = RandomFourier(kernel, num_features, orthogonal=orthogonal, seed=seed)
        self.num_leading = self.Z.shape[0]
        self.num_basis = self.num_leading + self.fourier.num_basis

    def precompute(self) -> tuple[tf.Tensor, ...]:
        """``Luu [k, k]`` and ``Luu^-1 phi(Z) [k, num_features]``."""
        Z, Luu = self._factor()
        phi_Z = self._fourier()._features(Z, ())  # [F, k]
        return Luu, linalg.solve_triangular(Luu, tf.transpose(phi_Z))

    @property
    def input_dim(self) -> int | None:
        return self.Z.shape[1]

    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        """Functions at l indices in O((N + k) l D + N k l + k^2 N + k^3) time, for any m."""
        if indices is None:
            return tf.transpose(self._features(X, self.precompute()))
        return self._of_sets(X, [indices])[0]

    def _of_sets(self, X: tf.Tensor, sets: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Functions of several sets of indices, which share ``Luu^-1 Kux`` and ``Kuu^-1 Kux``."""
        Z, Luu = self._factor()
        A = linalg.solve_triangular(Luu, covariance(self.kernel, Z, X))  # [k, N]
        B = linalg.solve_triangular(Luu, A, adjoint=True)  # [k, N]
        return [self._chosen(X, Z, A, B, indices) for indices in sets]

    def _chosen(
        self, X: tf.Tensor, Z: tf.Tensor, A: tf.Tensor, B: tf.Tensor, indices: tf.Tensor
    ) -> tf.Tensor:
        """Functions of one set, ``[N, l]``: a row of A if leading, else ``phi - B^T phi(Z)``."""
        tail, last = indices - self.num_leading, self.num_leading - 1
        phi_X, phi_Z = self._fourier().columns_at([X, Z], tf.maximum(tail, 0))
        residuals = phi_X - tf.linalg.matmul(B, phi_Z, transpose_a=True)  # [N, l]

        def with_leading() -> tf.Tensor:
            leading = tf.transpose(tf.gather(A, tf.minimum(indices, last)))
            return tf.where(tail < 0, leading, residuals)

        # QSGP's draws have no leading functions: no copy of all entries for them
        return tf.cond(tf.reduce_any(tail < 0), with_leading, lambda: residuals)

    def _features(self, X: tf.Tensor, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        Luu, V = precomputed
        A = linalg.solve_triangular(Luu, covariance(self.kernel, self.Z, X))  # [k, N]
        R = self._fourier()._features(X, ()) - tf.linalg.matmul(V, A, transpose_a=True)  # [F, N]
        return tf.concat([A, R], axis=0)

    def _factor(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Z and the factor of Kuu and jitter, in O(k^3)."""
        Z = tf.convert_to_tensor(self.Z)
        return Z, linalg.cholesky(jittered_covariance(self.kernel, Z), "Kuu")

    def _fourier(self) -> RandomFourier:
        """The random features, for the present kernel of this basis, which can be assigned."""
        self.fourier.kernel = self.kernel
        return self.fourier
