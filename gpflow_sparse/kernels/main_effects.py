"""Sums of a one-dimensional kernel over the input columns."""

import functools

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.kernels import Kernel
from gpflow.utilities.ops import difference_matrix


class MainEffects(Kernel):
    """
    The average over the input columns of one kernel of a single column,

        k(x, z) = 1 / D  sum_d  base(x_d, z_d),

    the covariance of a sum of D independent functions, each of one column: an additive model
    without interactions (Duvenaud, Nickisch and Rasmussen, "Additive Gaussian Processes", NeurIPS
    2011, of which it is the first order with equal weights). Beside a kernel of all columns it keeps
    predictions from returning to the prior mean as soon as one column leaves the data.

    A covariance takes time O(D N^2) and memory O(N^2).
    """

    def __init__(self, base: Kernel) -> None:
        """
        :param base: a stationary kernel with one lengthscale, such as
            ``gpflow.kernels.Matern32(variance=0.3)``; variance and lengthscale are common to all
            columns, which should be standardized.
        :raises ValueError: for a kernel that is not stationary, or has several lengthscales.
        """
        single = isinstance(base, gpflow.kernels.IsotropicStationary)
        if not single or base.lengthscales.shape.num_elements() != 1:
            raise ValueError(
                "base must be a stationary kernel with one lengthscale, such as "
                f"gpflow.kernels.Matern32(); got {type(base).__name__}."
            )
        super().__init__()
        self.base = base

    @inherit_check_shapes
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        num_columns = X.shape[-1]
        pairs = (
            [None if A is None else A[..., d : d + 1] for A in (X, X2)] for d in range(num_columns)
        )
        return functools.reduce(tf.add, (self._effect(*pair) for pair in pairs)) / num_columns

    @inherit_check_shapes
    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.base.K_diag(X)

    def _effect(self, x: tf.Tensor, z: tf.Tensor | None) -> tf.Tensor:
        """The kernel of one column [N, 1]; from differences, which a common offset does not round."""
        difference = difference_matrix(x, z)[..., 0] / self.base.lengthscales  # [N, N2]
        return self.base.K_r2(tf.square(difference))
