"""Functions drawn from posteriors that condition each row on its neighbors only."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.posteriors.pathwise import PriorPaths, in_blocks


class LocalPaths(tf.Module):
    """
    ``f_prior(x) + sum_(i in I(x)) w_i(x) v_i``: draws of a prior, updated by values v at the
    inducing points that are neighbors of x. The values are drawn once for each function, so that it
    is one function wherever it is evaluated; it jumps where the neighbors I(x) change.
    """

    def __init__(
        self,
        prior: PriorPaths,
        values: tf.Tensor,
        weights: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
        points: NeighborInducingPoints,
    ) -> None:
        """
        :param values: v, ``[S, M, P]``.
        :param weights: from ``X [n, D]`` to the neighbors I(x) of each row, int32 ``[n, H]``, and
            ``w [n, H, P]`` or ``[n, H, 1]``; must depend on constants only.
        :param points: a frozen copy, which ``weights`` uses.
        """
        super().__init__()
        self.prior, self.points = prior, points
        self._values = tf.transpose(values, [1, 0, 2])  # [M, S, P]
        self.weights = weights

    @property
    def dtype(self) -> tf.DType:
        """Float type of X and of the values."""
        return self.prior.dtype

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``; time O(N (H^3 + H S P)) and that of the prior's draws."""
        H, (_, S, P) = int(self.points.num_neighbors), self._values.shape
        return in_blocks(self._evaluate, X, max(self.prior.numbers_per_row, H * max(H * P, S * P)))

    def _evaluate(self, X: tf.Tensor) -> tf.Tensor:
        neighbors, w = self.weights(X)
        values = tf.gather(self._values, neighbors)  # [n, H, S, P]
        update = tf.reduce_sum(w[:, :, None, :] * values, axis=1)
        return self.prior.evaluate(X) + tf.transpose(update, [1, 0, 2])


def standard_normal(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: tf.DType
) -> tf.Tensor:
    """Independent standard normal numbers from NumPy's generator."""
    return tf.constant(generator.normal(size=tuple(shape)), dtype=dtype)
