"""Kernels of linearly mapped inputs."""

from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.validation import checks, component_checks


class LinearMap(Kernel):
    """
    A kernel of mapped inputs,

        k(x, z) = base(A x, A z).

    With a rotation A, a base with a lengthscale for each of its columns has lengthscales along any
    orthogonal directions of the inputs, not along their columns alone. The matrix is not trainable
    unless it is made so; :func:`gpflow_sparse.initialization.gradient_axes` finds one.
    """

    def __init__(self, base: Kernel, matrix: Any) -> None:
        """
        :param base: a kernel of D' columns, such as ``gpflow.kernels.Matern52(lengthscales=...)``.
        :param matrix: A ``[D', D]``.
        :raises ValueError: for a matrix that is not finite, or a base that does not take D'
            columns.
        """
        super().__init__()
        matrix = checks.require_matrix(matrix, "matrix")
        component_checks.require_kernel(base, matrix.shape[0])
        self.base = base
        self.matrix = Parameter(matrix, trainable=False)

    def mapped(self, X: tf.Tensor) -> tf.Tensor:
        """``A x`` of rows ``[..., D]``: ``[..., D']``."""
        return tf.linalg.matmul(X, self.matrix, transpose_b=True)

    @inherit_check_shapes
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return self.base(self.mapped(X), None if X2 is None else self.mapped(X2))

    @inherit_check_shapes
    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.base(self.mapped(X), full_cov=False)
