"""Posterior given one Gaussian site per inducing variable; each row uses the sites nearby."""

from collections.abc import Sequence
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.covariances.stationary import covariance, local_covariances
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.models.swsgp.posterior import moments_in_blocks
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.base import Cache, MeanAndVariance, SparsePosterior, by_batches
from gpflow_sparse.posteriors.pathwise import LocalPaths, Paths, PriorPaths, Sampler
from gpflow_sparse.validation import checks


class SitePosterior(SparsePosterior):
    """
    ``q(u_I)`` proportional to ``p(u_I) prod_{j in I} N(t_j; u_j, 1 / tau_j)`` for the neighbors I
    of each row, with one Gaussian *site* for every inducing variable. Ours; not in the paper.

    No inverse of a covariance, no jitter: with ``B = I + T^1/2 K_I T^1/2``, ``T = diag(tau_I)``,

        mean = k^T T^1/2 B^-1 T^1/2 t,      var = k(x, x) - |L^-1 T^1/2 k|^2,     L L^T = B,

    so that points may coincide and float32 is safe. ``tau = 0`` is the prior. Time O(n P H^3).

    The local distributions of different rows share no q(u), so there is no KL divergence and no
    objective for hyperparameters.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: NeighborInducingPoints,
        targets: Any,
        precisions: Any = None,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: PrecomputeCacheType | str | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """
        :param targets: ``t [M, P]``, prior mean excluded; or, without ``precisions``, a function
            that returns valid targets and precisions, which is called whenever they are needed.
        :param precisions: ``tau [M, P]``, at least zero.
        :param calibration: factors of predictive variances.
        :raises ValueError: for shapes that do not fit the points, or negative precisions.
        """
        options: dict[str, Any] = {"mean_function": mean_function, "calibration": calibration}
        super().__init__(kernel, inducing_variable, targets, precisions, **options)
        if not isinstance(inducing_variable, NeighborInducingPoints):
            raise ValueError(
                "inducing_variable must be gs.inducing_variables.NeighborInducingPoints(Z, "
                f"num_neighbors), got {type(inducing_variable).__name__}."
            )
        if not (callable(targets) and precisions is None):
            self._q_mu = checks.require_matrix(targets, "targets", self.dtype)
            self._q_sqrt = checks.require_matrix(precisions, "precisions", self.dtype)
            shape = (inducing_variable.Z.shape[0], self._q_mu.shape[1])
            for name, part in (("targets", self._q_mu), ("precisions", self._q_sqrt)):
                if tuple(part.shape) != shape:
                    raise ValueError(f"{name} must have shape {shape}, got {tuple(part.shape)}.")
            if bool(tf.reduce_any(self._q_sqrt < 0.0)):
                raise ValueError("precisions must be at least 0.")
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    @property
    def targets(self) -> tf.Tensor:
        """``t [M, P]``, as given or as the function returns them now."""
        return self._current_q()[0]

    @property
    def precisions(self) -> tf.Tensor:
        """``tau [M, P]``, as given or as the function returns them now."""
        return self._current_q()[1]

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """
        ``f_prior(x) + k_I^T T^1/2 B^-1 (T^1/2 (t_I - f_prior(Z_I)) - zeta_I)``, with one draw zeta
        of the noise of every site for each function. Mean and variance equal ``predict_f`` without
        ``full_cov``, see :class:`NeighborPosterior`.
        """
        targets, precisions = self._current_q()
        points, (M, P) = gpflow.utilities.freeze(self.X_data), targets.shape
        zeta = sampler.normal((sampler.num_samples, M, P), targets.dtype)
        prior = PriorPaths(self.kernel, P, points.Z.shape[1], sampler)
        all_roots = tf.sqrt(precisions)  # [M, P]
        values = all_roots * (targets - prior(points.Z)) - zeta  # [S, M, P]

        def weights(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """``B^-1 T^1/2 k_I``, for each output."""
            neighbors = points.neighbors(X, prior.kernel)
            K, k, _ = local_covariances(prior.kernel, X, tf.gather(points.Z, neighbors))
            roots = tf.transpose(tf.gather(all_roots, neighbors), [0, 2, 1])  # [n, P, H]
            right = (roots * k[:, None])[..., None]
            solved = tf.linalg.cholesky_solve(_factor(K, roots), right)[..., 0]
            return neighbors, tf.linalg.matrix_transpose(solved)

        return LocalPaths(prior, values, weights, points.num_neighbors)

    def _tensors(self) -> list[tf.Tensor]:
        """The current sites; everything else depends on the row."""
        return list(self._current_q())

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        sites = self._current_q() if cache is None else cache

        def moments(X: tf.Tensor) -> MeanAndVariance:
            return self._near(sites, X, self.X_data.neighbors(X, self.kernel))

        return moments_in_blocks(moments, X, self._row_size(sites))

    def _near(self, sites: Cache, X: tf.Tensor, neighbors: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of f at each row from the sites of its neighbors ``[n, H]``."""
        Z = tf.gather(tf.convert_to_tensor(self.X_data.Z), neighbors)
        K, k, diagonal = local_covariances(self.kernel, X, Z)
        roots, targets = _at(neighbors, sites)
        # L^-1 T^1/2 of k_I and of the targets, whose products are variance and mean: one solve
        # where alpha takes three
        right = tf.stack([roots * k[:, None], roots * targets], axis=-1)  # [n, P, H, 2]
        half = linalg.solve_triangular(_factor(K, roots), right)
        mean, reduction = tf.unstack(tf.reduce_sum(half[..., :1] * half, axis=2), axis=2)[::-1]
        return mean, diagonal[:, None] - reduction

    def _row_size(self, sites: Cache) -> int:
        """Entries for each row in the largest tensor of a prediction."""
        of_moments = int(self.X_data.num_neighbors) ** 2 * int(sites[0].shape[1])
        return max(of_moments, self.X_data.entries_of_search)

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        """One joint distribution for each batch of rows, over the union of their neighbors."""
        sites = self._current_q() if cache is None else cache

        def moments(X: tf.Tensor) -> MeanAndVariance:
            active, _ = tf.unique(tf.reshape(self.X_data.neighbors(X, self.kernel), [-1]))
            Z = tf.gather(tf.convert_to_tensor(self.X_data.Z), active)
            roots, targets = (part[0] for part in _at(active[None], sites))  # [P, m]
            L = _factor(covariance(self.kernel, Z)[None], roots[None])[0]  # [P, m, m]
            cross = covariance(self.kernel, Z, X)  # [m, n]
            half = linalg.solve_triangular(L, roots[:, :, None] * cross)  # [P, m, n]
            cov = covariance(self.kernel, X) - tf.linalg.matmul(half, half, transpose_a=True)
            alpha = roots * tf.linalg.cholesky_solve(L, (roots * targets)[..., None])[..., 0]
            return tf.linalg.matmul(cross, alpha, transpose_a=True, transpose_b=True), cov

        return by_batches(moments, X)


def _at(neighbors: tf.Tensor, sites: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """``T^1/2`` and targets of the neighbors ``[n, P, H]``."""
    targets, precisions = (tf.gather(part, neighbors) for part in sites)
    return tf.transpose(tf.sqrt(precisions), [0, 2, 1]), tf.transpose(targets, [0, 2, 1])


def _factor(K: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
    """Cholesky factor of ``B = I + T^1/2 K_I T^1/2  [n, P, H, H]``, ``roots`` being ``T^1/2``."""
    B = roots[..., :, None] * K[:, None] * roots[..., None, :]
    B = tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0)
    return linalg.cholesky(B, "I + T^1/2 K_I T^1/2 (sites of the neighbors of a row)")
