"""Predictions in O(H^2) time a row: rows with the same nearest inducing point share neighbors."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.covariances.stationary import local_cross_covariances
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inference import neighborhoods
from gpflow_sparse.models.swsgp.posterior import NeighborPosterior, moments_in_blocks, point_blocks
from gpflow_sparse.posteriors.base import Cache, MeanAndVariance, SparsePosterior
from gpflow_sparse.posteriors.pathwise import Paths, Sampler
from gpflow_sparse.validation import checks


class CellPosterior(SparsePosterior):
    """
    A :class:`NeighborPosterior` in which every row has the neighbors of its nearest inducing point,
    its *cell*, in place of its own, so that all but the covariances of a row can be precomputed:

        mean = k^T alpha_c,  alpha_c = K_c^-1 m_c,     var = k(x, x) - k^T G_c k,
        G_c = K_c^-1 - K_c^-1 S_c K_c^-1,

    O(H) and O(H^2) a row and a search for one point, in place of O(H^3) and a search for H.
    Predictions differ from the posterior that it is made from: the H points nearest to the cell's
    inducing point are not the H nearest to the row. They jump where cells meet.

    ``alpha`` is kept for all M cells, in O(M H P) memory; ``G`` for the cells that were needed
    last, up to ``num_cached``, and only outside of ``tf.function``, inside of which variances take
    O(H^3). After any change of kernel, points or q call ``update_cache()``.
    """

    def __init__(self, posterior: NeighborPosterior, *, num_cached: int = 10_000) -> None:
        """
        :param posterior: posterior of a single kernel, whose current q is used.
        :param num_cached: largest number of cells whose G ``[P, H, H]`` is stored.
        :raises ValueError: for another kind of posterior.
        """
        if type(posterior) is not NeighborPosterior:  # others have more parts than cells cache
            raise ValueError(
                "posterior must be a NeighborPosterior, as gs.models.SWSGP.posterior() gives for a "
                f"kernel with one output; got {type(posterior).__name__}."
            )
        self._posterior = posterior
        self._num_cached = checks.require_count(num_cached, "num_cached")
        super().__init__(
            posterior.kernel,
            posterior.X_data,
            mean_function=posterior.mean_function,
            precompute_cache=PrecomputeCacheType.TENSOR,
            jitter=posterior.jitter,
            calibration=posterior.calibration,
        )

    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """The KL terms of the posterior that it was made from."""
        return self._posterior.prior_kl(X)

    def _tensors(self) -> list[tf.Tensor]:
        """Neighbors of every cell ``[M, H]`` and ``alpha [M, H, P]``."""
        self._matrices: dict[int, np.ndarray] = {}
        self._q, prior = self._posterior._q, self._posterior._prior
        lists, alphas = [], []
        for cells in point_blocks(prior, self.X_data.num_neighbors):
            neighbors = self.X_data.neighbors(tf.gather(prior.Z, cells), self.kernel)
            means = tf.gather(self._q.mean, neighbors)
            lists.append(neighbors)
            alphas.append(tf.linalg.matmul(self._inverse(cells, neighbors), means))
        return [tf.concat(lists, axis=0), tf.concat(alphas, axis=0)]

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """Draws of the posterior that it was made from, with the neighbors of the row's cell."""
        return self._posterior._draw_paths(sampler, find=_of_cell)

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        size = self.X_data.num_neighbors**2 * int(self._posterior._q.mean.shape[1])
        prior = self._posterior._prior
        if cache is None:
            q = self._posterior._q

            def fused(X: tf.Tensor) -> MeanAndVariance:
                neighbors = _of_cell(self.X_data, X, self.kernel)
                return prior.conditional(X, neighbors, q.take(neighbors))[:2]

            return moments_in_blocks(fused, X, size)
        lists, alpha = cache

        def moments(X: tf.Tensor) -> MeanAndVariance:
            cells = self.X_data.closest(X, self.kernel, 1)[:, 0]
            neighbors = tf.gather(lists, cells)
            Z = tf.gather(prior.Z, neighbors)
            k = local_cross_covariances(self.kernel, X, Z)  # [n, H]
            mean = tf.linalg.matvec(tf.gather(alpha, cells), k, transpose_a=True)
            if tf.executing_eagerly():
                reduction = self._reductions(lists, cells, k)
                return mean, self.kernel(X, full_cov=False)[:, None] - reduction
            return mean, prior.conditional(X, neighbors, self._q.take(neighbors))[1]

        return moments_in_blocks(moments, X, size)

    def _reductions(self, lists: tf.Tensor, cells: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
        """``k^T G_c k  [n, P]``."""
        wanted, places = np.unique(cells.numpy(), return_inverse=True)
        if len(wanted) > self._num_cached:
            G = self._made(lists, wanted)
        else:
            G = self._kept(lists, wanted)
        return tf.einsum("npgh,ng,nh->np", tf.constant(G[places]), k, k)

    def _kept(self, lists: tf.Tensor, wanted: np.ndarray) -> np.ndarray:
        """``G [n, P, H, H]`` of different cells, computed where it is not in the cache."""
        cells = wanted.tolist()
        new = [cell for cell in cells if cell not in self._matrices]
        if len(self._matrices) + len(new) > self._num_cached:
            self._matrices, new = {}, cells
        if new:
            self._matrices |= dict(zip(new, self._made(lists, np.array(new)), strict=True))
        return np.stack([self._matrices[cell] for cell in cells])

    def _made(self, lists: tf.Tensor, cells: np.ndarray) -> np.ndarray:
        neighbors = tf.gather(lists, cells)
        inverse = self._inverse(cells, neighbors)[:, None]  # [n, 1, H, H]
        S, _ = self._q.take(neighbors).covariances()
        if S.shape.rank == 3:
            half = inverse * tf.linalg.matrix_transpose(S)[:, :, None, :]
        else:
            half = tf.linalg.matmul(inverse, S)
        return (inverse - tf.linalg.matmul(half, inverse)).numpy()

    def _inverse(self, cells: Any, neighbors: tf.Tensor) -> tf.Tensor:
        """``K_c^-1 [n, H, H]`` of each cell."""
        prior = self._posterior._prior
        K, _, _ = prior.covariances(tf.gather(prior.Z, cells), neighbors)
        return neighborhoods.inverse_of(K)[0]


def _of_cell(points: NeighborInducingPoints, X: tf.Tensor, kernel: Kernel) -> tf.Tensor:
    """Neighbors ``[n, H]`` of the inducing point nearest to each row."""
    cells = points.closest(X, kernel, 1)[:, 0]
    return points.neighbors(tf.gather(tf.convert_to_tensor(points.Z), cells), kernel)
