"""Sums of a one-dimensional kernel over the input columns."""

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.kernels import Kernel
from gpflow.utilities.ops import difference_matrix

from gpflow_sparse.bases.fourier import draw_frequencies

_BLOCK_ENTRIES = 2**20


class MainEffects(Kernel):
    """
    The average over the input columns of one kernel of a single column,

        k(x, z) = 1 / D  sum_d  base(x_d, z_d),

    the covariance of a sum of D independent functions, each of one column: an additive model
    without interactions (Duvenaud, Nickisch and Rasmussen, "Additive Gaussian Processes", NeurIPS
    2011; it is their first order with equal weights). Beside a kernel of all columns it
    keeps predictions from returning to the prior mean as soon as one column leaves the data.

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
        X = tf.convert_to_tensor(X)
        num_columns = X.shape[-1]
        size = self._columns_at_once(X, X if X2 is None else tf.convert_to_tensor(X2))
        total: tf.Tensor | float = 0.0
        for start in range(0, num_columns, size):
            pair = [None if A is None else A[..., start : start + size] for A in (X, X2)]
            # differences, which a common offset of a column does not round  [N, N2, D]
            difference = difference_matrix(*pair) / self.base.lengthscales
            total += tf.reduce_sum(self.base.K_r2(tf.square(difference)), axis=-1)
        return total / num_columns

    @inherit_check_shapes
    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.base.K_diag(X)

    def draw_frequencies(
        self, count: int, num_columns: int, generator: np.random.Generator
    ) -> np.ndarray:
        """
        Draws ``[count, num_columns]`` from the spectral density, for ``sample_functions``: one of
        the base in a column at random.
        """
        found = np.zeros((count, num_columns))
        columns = generator.integers(num_columns, size=count)
        found[np.arange(count), columns] = draw_frequencies(self.base, count, 1, generator)[:, 0]
        return found

    @staticmethod
    def _columns_at_once(X: tf.Tensor, X2: tf.Tensor) -> int:
        """Columns whose covariances are in memory together; one for an unknown number of rows."""
        sizes = X.shape[:-1].num_elements(), X2.shape[:-1].num_elements()
        return 1 if None in sizes else max(1, _BLOCK_ENTRIES // (sizes[0] * sizes[1]))
