"""Gradients of the log marginal likelihood from solved systems, without a determinant.

With ``K~ = k(X, X) + Sigma``, errors e of the prior mean and ``a = K~^-1 e``,

    d log p(y) = a^T (dK~) a / 2 - tr(K~^-1 dK~) / 2.

Draws ``xi`` of the prior with noise at the rows have the covariance ``K~``, so that the solutions
``z = K~^-1 xi`` have ``E[z z^T] = K~^-1`` and ``tr(K~^-1 dK~) = E[z^T (dK~) z]``: the pathwise
estimator of Lin et al., "Improving Linear System Solvers for Hyperparameter Optimisation in
Iterative Gaussian Processes" (2024, arXiv:2405.18457). Predictive variances follow from the same z,
which are near the solutions of the step before. Only the covariance of xi enters: draws from random
Fourier features with frequencies of their own leave the estimate unbiased.

Both terms are quadratic forms of the same shape, whose derivatives are sums over tiles of k(X, X).
"""

from typing import Any

import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import centered, covariance
from gpflow_sparse.models.dual.solver import tile_height, with_values
from gpflow_sparse.numerics.tracing import compiled


class QuadraticForms:
    """
    ``sum_c factors_c A_c^T k(X, X) A_c`` for fixed rows X, to be differentiated by the kernel's
    parameters, for changing values of these and of A: tiles are compiled once.
    """

    def __init__(self, kernel: Kernel, X: Any, num_columns: int, precision: str) -> None:
        """
        :param kernel: any kernel of one output.
        :param X: ``[N, D]``.
        :param num_columns: c.
        :param precision: type of the tiles; sums over tiles are in float64.
        """
        self.kernel, self.dtype = kernel, tf.as_dtype(precision)
        self.X = tf.cast(centered(kernel, X), self.dtype)
        columns = self.X.shape[1]
        # variables: kernels that recompute parts for the gradient pass none on to other tensors
        self.values = [tf.Variable(tf.cast(p, self.dtype)) for p in kernel.parameters]
        self.copy = with_values(kernel, self.values)
        parts = [tf.TensorSpec([None, c], self.dtype) for c in (columns, num_columns)]
        signature = [parts[0], parts[0], parts[1], parts[1]]
        self._compiled = compiled(self._of_tile, input_signature=signature)

    def gradients(self, weights: Any, factors: Any) -> list[tf.Tensor]:
        """
        Derivatives for the present parameters.

        Half of the symmetric matrix is computed, in tiles: O(N^2 (D + c)) time, and memory for
        some tiles and O(N (D + c)).

        :param weights: A, ``[N, c]``.
        :param factors: ``[c]``.
        :return: a float64 tensor for each of ``kernel.parameters``, of its shape.
        """
        for value, parameter in zip(self.values, self.kernel.parameters, strict=True):
            value.assign(tf.cast(parameter, self.dtype))
        A = tf.cast(weights, self.dtype)  # [N, c]
        left, N = tf.cast(factors, self.dtype) * A, int(A.shape[0])
        height = tile_height(N)
        sums = [tf.zeros(value.shape, tf.float64) for value in self.values]
        for start in range(0, N, height):
            own = slice(start, start + height)
            parts = self._compiled(self.X[own], self.X[start:], left[own], A[start:])
            sums = [total + part for total, part in zip(sums, parts, strict=True)]
        return sums

    def _of_tile(
        self, rows: tf.Tensor, others: tf.Tensor, left: tf.Tensor, right: tf.Tensor
    ) -> list[tf.Tensor]:
        """
        The share of some rows ``[n, D]`` and of all pairs of them with rows below them.

        :param others: ``[N', D]``, of which ``rows`` are the first.
        :param left: factors times weights of ``rows``, ``[n, c]``.
        :param right: weights of ``others``, ``[N', c]``.
        """
        size = tf.shape(rows)[0]
        G = tf.linalg.matmul(left, right, transpose_b=True)  # [n, N']
        # entries right of the tile's own square stand for entries below it too
        G = tf.concat([G[:, :size], 2.0 * G[:, size:]], axis=1)
        with tf.GradientTape() as tape:
            K = covariance(self.copy, rows, others)
            K = tf.linalg.set_diag(K, self.copy(rows, full_cov=False))
            total = tf.reduce_sum(K * G)
        found = tape.gradient(total, self.values, unconnected_gradients="zero")
        return [tf.cast(gradient, tf.float64) for gradient in found]
