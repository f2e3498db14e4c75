"""Functions drawn from posteriors of which every row sees its neighbors only."""

import abc

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import local_covariances
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inference.neighborhoods import Rows
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.neighbor_terms import NeighborTerms
from gpflow_sparse.posteriors.pathwise import PriorPaths, in_blocks


class LocalPaths(tf.Module, metaclass=abc.ABCMeta):
    """
    ``f_prior(x) + sum_(i in I(x)) w_i(x) v_i``: draws of a prior, moved by values v at the inducing
    points that x sees. The values are drawn once for each function, so that it is one function
    wherever it is evaluated; it jumps where the neighbors I(x) change.
    """

    def __init__(self, prior: PriorPaths, points: NeighborInducingPoints, values: tf.Tensor):
        """
        :param points: copied.
        :param values: v, ``[S, M, P]``.
        """
        super().__init__()
        self.prior = prior
        self.points = gpflow.utilities.freeze(points)
        self._values = tf.transpose(values, [1, 0, 2])  # [M, S, P]

    @property
    def dtype(self) -> tf.DType:
        """Float type of X and of the values."""
        return self.prior.dtype

    @abc.abstractmethod
    def weights(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        :param X: ``[n, D]``.
        :return: the neighbors I(x) of each row, ``[n, H]``, and ``w [n, H, P]`` or ``[n, H, 1]``.
        """

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``; time O(N (H^3 + H S P)) and that of the prior's draws."""
        H, (_, S, P) = int(self.points.num_neighbors), self._values.shape
        return in_blocks(self._evaluate, X, max(self.prior.numbers_per_row, H * max(H * P, S * P)))

    def _evaluate(self, X: tf.Tensor) -> tf.Tensor:
        places, w = self.weights(X)
        values = tf.gather(self._values, places)  # [n, H, S, P]
        update = tf.reduce_sum(w[:, :, None, :] * values, axis=1)
        return self.prior.evaluate(X) + tf.transpose(update, [1, 0, 2])


class NeighborPaths(LocalPaths):
    """
    ``f_prior(x) + k_I^T (K_I + eps I)^-1 (u_I - f_prior(Z_I) - sqrt(eps) zeta_I)`` with ``u ~
    q(u)``.

    At each x by itself mean and variance are ``a^T m_I`` and ``k(x, x) - a^T k_I + a^T S_I a``,
    those of :class:`~gpflow_sparse.posteriors.NeighborPosterior`.
    """

    def __init__(
        self,
        kernel: Kernel,
        points: NeighborInducingPoints,
        q: Rows,
        num_samples: int,
        num_features: int,
        generator: np.random.Generator,
        *,
        jitter: float | None,
        by_cell: bool = False,
    ) -> None:
        """
        :param jitter: smallest relative jitter, as of the posterior.
        :param by_cell: a row sees the neighbors of its nearest point in place of its own.
        """
        u = _draw(q, num_samples, generator)
        zeta = _normal(generator, u.shape, u.dtype)
        prior = _prior(kernel, points, u, num_features, generator)
        nugget = NeighborTerms(kernel, points, jitter).nugget
        values = u - prior(tf.convert_to_tensor(points.Z)) - tf.sqrt(nugget) * zeta
        super().__init__(prior, points, values)
        self._jitter, self._by_cell = jitter, by_cell

    def weights(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """``a = (K_I + eps I)^-1 k_I``, the same for all outputs."""
        kernel, seen_from = self.prior.kernel, X
        if self._by_cell:
            nearest = self.points.closest(X, kernel, 1)[:, 0]
            seen_from = tf.gather(tf.convert_to_tensor(self.points.Z), nearest)
        places = self.points.neighbors(seen_from, kernel)
        a = NeighborTerms(kernel, self.points, self._jitter).weights(X, places)
        return places, a[:, :, None]


class SitePaths(LocalPaths):
    """
    ``f_prior(x) + k_I^T T^1/2 B^-1 (T^1/2 (t_I - f_prior(Z_I)) - zeta_I)``, ``B = I + T^1/2 K_I
    T^1/2``: moments at each x by itself are those of
    :class:`~gpflow_sparse.posteriors.SitePosterior`.
    """

    def __init__(
        self,
        kernel: Kernel,
        points: NeighborInducingPoints,
        sites: tuple[tf.Tensor, tf.Tensor],
        num_samples: int,
        num_features: int,
        generator: np.random.Generator,
    ) -> None:
        """
        :param sites: targets t and precisions ``[M, P]``.
        """
        targets, roots = sites[0], tf.sqrt(sites[1])
        zeta = _normal(generator, (num_samples, *targets.shape), targets.dtype)
        prior = _prior(kernel, points, zeta, num_features, generator)
        at_points = prior(tf.convert_to_tensor(points.Z))  # [S, M, P]
        super().__init__(prior, points, roots * (targets - at_points) - zeta)
        self._roots = roots

    def weights(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """``B^-1 T^1/2 k_I``, of every output its own."""
        places = self.points.neighbors(X, self.prior.kernel)
        Z = tf.gather(tf.convert_to_tensor(self.points.Z), places)
        K, k, _ = local_covariances(self.prior.kernel, X, Z)
        roots = tf.transpose(tf.gather(self._roots, places), [0, 2, 1])  # [n, P, H]
        B = roots[..., :, None] * K[:, None] * roots[..., None, :]
        B = tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0)
        L = linalg.cholesky(B, "I + T^1/2 K_I T^1/2 (sites of the neighbors of a row)")
        solved = tf.linalg.cholesky_solve(L, (roots * k[:, None])[..., None])[..., 0]
        return places, tf.linalg.matrix_transpose(solved)


def _prior(
    kernel: Kernel,
    points: NeighborInducingPoints,
    values: tf.Tensor,
    num_features: int,
    generator: np.random.Generator,
) -> PriorPaths:
    """One draw for each sample and output of ``values [S, M, P]``."""
    S, _, P = values.shape
    return PriorPaths(kernel, (S, P), num_features, int(points.Z.shape[1]), generator)


def _draw(q: Rows, num_samples: int, generator: np.random.Generator) -> tf.Tensor:
    """Draws of u from q, ``[S, M, P]``; O(S M P R)."""
    M, P = q.mean.shape
    u = tf.broadcast_to(q.mean, [num_samples, M, P])
    if q.scales is not None:
        u = u + q.scales * _normal(generator, (num_samples, M, P), u.dtype)
    if q.factors is not None:
        xi = _normal(generator, (num_samples, P, q.factors.shape[2]), u.dtype)
        u = u + tf.einsum("mpr,spr->smp", q.factors, xi)
    return u


def _normal(generator: np.random.Generator, shape: tuple[int, ...], dtype: tf.DType) -> tf.Tensor:
    return tf.constant(generator.normal(size=tuple(shape)), dtype=dtype)
