"""Posterior of a base process that all rows share and of its residual given neighbors.

    f = g + r,    g(x) = A(x)^T w,  w ~ N(0, I),    Cov[r(x), r(x')] = k(x, x') - A(x)^T A(x'),

with ``A(x) = Luu^-1 k(Z, x)`` for base points Z, or the functions of a basis. g and r are
independent, and r is conditioned on its values at few inducing points near each row.
"""

from functools import cached_property
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, Stationary

from gpflow_sparse.inducing_variables.basis_features import BasisFeatures
from gpflow_sparse.inducing_variables.covariances import cross_covariance, set_covariance
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inducing_variables.orthogonal import OrthogonalInducingVariables
from gpflow_sparse.inference import neighborhoods
from gpflow_sparse.inference.blocks import (
    gaussian_moments,
    grouped_products,
    kl_from_standard_normal,
)
from gpflow_sparse.inference.neighborhoods import (
    DenseGaussian,
    GaussianRows,
    JointConditional,
    NeighborPrior,
)
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.models.swsgp import NeighborPosterior, as_rows, draw_inducing
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.base import Cache
from gpflow_sparse.posteriors.pathwise import (
    LocalPaths,
    Paths,
    PosteriorPaths,
    PriorPaths,
    Sampler,
    require_points,
)

# Entries of the largest table of features, and rows that are computed together for it.
_MAX_TABLE, _ROWS = 2**27, 4096


class BaseProcess(NamedTuple):
    """``g(x) = A(x)^T w`` with ``q(w) = N(q_mu, R R^T)``, P functions."""

    inducing_set: InducingVariables
    """Points Z ``[M, D]``, or :class:`BasisFeatures`."""
    kernel: Kernel
    Luu: Any
    """Cholesky factor of ``Kuu [M, M]``, jitter included; None where that is the identity."""
    q_mu: tf.Tensor
    """``[M, P]``"""
    q_sqrt: tf.Tensor
    """R, ``[P, M, M]``"""

    def features(self, X: tf.Tensor) -> tf.Tensor:
        """``A [M, n]``; O(n M^2)."""
        Kuf = cross_covariance(self.inducing_set, self.kernel, X)
        return Kuf if self.Luu is None else linalg.whiten(self.Luu, Kuf)

    def moments(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of g under q, ``[n, P]`` each."""
        mean, _, spread = gaussian_moments(self.features(X), self.q_mu, self.q_sqrt)
        return mean, spread


class ResidualPrior(NeighborPrior):
    """
    The prior of the residual process r at rows and at the inducing points near them.

    Its methods return means and variances of ``f = g + r``, with g under its q. A batch of n rows
    takes O(u M^2 + n H^2 M) time for the u <= n (H + 1) places that it touches.
    """

    def __init__(
        self, sets: OrthogonalInducingVariables, kernel: Kernel, jitter: float | None, q_base: Any
    ) -> None:
        """
        :param sets: the base set, and points with neighbors.
        :param jitter: smallest relative jitter; None for the default.
        :param q_base: mean ``[M, P]`` and factor ``[P, M, M]`` of q of the base set; and its
            ``Luu`` if that is known.
        """
        self._set, points = sets.sets
        super().__init__(kernel, points.Z, jitter)
        self._q_base = q_base
        self._table: tf.Tensor | None = None

    def with_table(self, table: tf.Tensor | None = None) -> "ResidualPrior":
        """
        The same prior for a pass over many rows: ``A [M2, M]`` of all points is computed once, in
        O(M2 M^2), unless it takes more than 1 GiB.

        :param table: ``A`` if it is known; without rows if there is none.
        """
        M2, M = int(self.Z.shape[0]), int(self.base.q_mu.shape[0])
        if table is None and M2 * M <= _MAX_TABLE:
            parts = (self.Z[start : start + _ROWS] for start in range(0, M2, _ROWS))
            table = tf.concat([tf.transpose(self.base.features(Z)) for Z in parts], axis=0)
        self._table = table if table is not None and table.shape[0] else None
        return self

    @property
    def table(self) -> tf.Tensor:
        """The table, or one without rows."""
        q_mu = self.base.q_mu
        return tf.zeros([0, q_mu.shape[0]], q_mu.dtype) if self._table is None else self._table

    @cached_property
    def nugget(self) -> tf.Tensor:
        """
        Jitter of base points and of other points, relative to the variance of f: the variance of r
        nearly vanishes at the base points.
        """
        if isinstance(self.kernel, Stationary) or isinstance(self._set, BasisFeatures):
            return super().nugget
        both = tf.concat([self._set.Z, self.Z], axis=0)
        return linalg.jitter(self.kernel(both, full_cov=False), self._jitter)

    @cached_property
    def base(self) -> BaseProcess:
        """g."""
        q_mu, q_sqrt, *known = (tf.convert_to_tensor(part) for part in self._q_base)
        if isinstance(self._set, BasisFeatures):
            Luu = None
        elif known:
            (Luu,) = known
        else:
            Kuu = linalg.add_jitter(set_covariance(self._set, self.kernel), self.nugget)
            Luu = linalg.cholesky(Kuu, "Kuu (covariance of the base inducing set)")
        return BaseProcess(self._set, self.kernel, Luu, q_mu, q_sqrt)

    def local(self, X: tf.Tensor, neighbors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        K, k, diagonal = super().local(X, neighbors)
        explained = self._explained(X, neighbors)  # A^T A  [n, H + 1, H + 1], x last
        explained = tf.ensure_shape(explained, [X.shape[0], *[_plus_one(k.shape[1])] * 2])
        diagonal = tf.maximum(diagonal - explained[:, -1, -1], 0.0)
        return K - explained[:, :-1, :-1], k - explained[:, :-1, -1], diagonal

    def _explained(self, X: tf.Tensor, neighbors: tf.Tensor) -> tf.Tensor:
        """Covariances of g at the neighbors of each row and at the row."""
        if self._table is not None:
            own = tf.transpose(self.base.features(X))[:, None]
            rows = tf.concat([tf.gather(self._table, neighbors), own], axis=1)  # [n, H + 1, M]
            return tf.linalg.matmul(rows, rows, transpose_b=True)
        touched, positions = tf.unique(tf.reshape(neighbors, [-1]))
        places = tf.concat([tf.gather(self.Z, touched), X], axis=0)  # [u + n, D]
        positions = tf.reshape(positions, tf.shape(neighbors))
        own = tf.size(touched) + tf.range(tf.shape(X)[0])
        columns = tf.concat([positions, own[:, None]], axis=1)  # [n, H + 1]
        return grouped_products(self.base.features(places), columns)

    def between(self, Z: tf.Tensor, X: tf.Tensor | None = None) -> tf.Tensor:
        A_Z = self.base.features(Z)
        A_X = A_Z if X is None else self.base.features(X)
        return super().between(Z, X) - tf.linalg.matmul(A_Z, A_X, transpose_a=True)

    def row_size(self, num_neighbors: int) -> int:
        """
        A quarter of the entries for each row in the largest tensor: with smaller blocks of rows a
        pass takes 1.7 times as long, since many short operations are started one by one.
        """
        M = int(self.base.q_mu.shape[0])
        return max(1, num_neighbors * (num_neighbors + M) // 4)

    def start_moments(self, X: tf.Tensor, num_outputs: int) -> tuple[tf.Tensor, tf.Tensor]:
        mean, explained, spread = gaussian_moments(self.base.features(X), *self.base[-2:])
        residual = tf.maximum(self.kernel(X, full_cov=False) - explained, 0.0)
        return mean, residual[:, None] + spread

    def conditional(
        self,
        X: tf.Tensor,
        neighbors: tf.Tensor,
        q: GaussianRows | DenseGaussian,
        with_kl: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor | None]:
        mean, var, residual, kl = super().conditional(X, neighbors, q, with_kl)
        base_mean, spread = self.base.moments(X)
        return mean + base_mean, var + spread, residual, kl

    def joint(self, X: tf.Tensor, active: tf.Tensor, q: GaussianRows) -> JointConditional:
        """All rows conditioned on w and on one set of points: the variables are ``(w, u_A)``."""
        own, (*_, q_mu, q_sqrt) = super().joint(X, active, q), self.base
        A, M = self.base.features(X), tf.shape(q_mu)[0]
        identity = tf.linalg.LinearOperatorIdentity(M, dtype=A.dtype)
        full = tf.linalg.LinearOperatorFullMatrix(own.L)
        L = tf.linalg.LinearOperatorBlockDiag([identity, full]).to_dense()
        rows = tf.transpose(q_sqrt, [1, 0, 2])  # [M, P, M]
        size, (_, scales, factors) = tf.shape(own.L)[0], q
        if scales is not None:
            scales = tf.concat([tf.zeros_like(q_mu), scales], axis=0)
        if factors is None:
            rows = tf.pad(rows, [[0, size], [0, 0], [0, 0]])
        else:
            rows = tf.concat(
                [
                    tf.pad(rows, [[0, 0], [0, 0], [0, tf.shape(factors)[2]]]),
                    tf.pad(factors, [[0, 0], [0, 0], [M, 0]]),
                ],
                axis=0,
            )
        both = GaussianRows(tf.concat([q_mu, q.mean], axis=0), scales, rows)
        return JointConditional(
            L, tf.concat([A, own.A], axis=0), tf.concat([A, own.W], axis=0), both
        )


class ResidualNeighborPosterior(NeighborPosterior):
    """
    Posterior of ``f = g + r``: g of the base set, with a full whitened q, and r conditioned on its
    values at the points of O near each row, with a q of its own.

    ``q_mu`` is a pair: means of the base set ``[M, P]`` and of r at O ``[M2, P]``; ``q_sqrt`` is a
    pair of lower factors ``[P, M, M]`` and what :class:`NeighborPosterior` takes; or a function
    that returns the current pair.

    Rows predicted together (``full_cov``) share g and the union of their neighbors. Functions drawn
    are ``g(x) + r_prior(x) + a(x)^T (v_I - r_prior(O_I))``. Time O(n (H + 1) M^2 + n H^3).
    """

    @property
    def _points(self) -> NeighborInducingPoints:
        return self.X_data.sets[1]

    @property
    def input_dim(self) -> int | None:
        return int(self._points.Z.shape[1])

    @property
    def _pairs(self) -> list[tuple[Any, Any]]:
        """``q_mu`` and ``q_sqrt`` of the base set, and of r."""
        q_mu: Any = self._q_mu
        q_sqrt: Any = self._q_sqrt() if callable(self._q_sqrt) else self._q_sqrt
        return list(zip(q_mu, q_sqrt, strict=True))

    @property
    def _q(self) -> GaussianRows:
        return as_rows(*self._pairs[1])

    def _prior_from(self, cache: Cache | None) -> ResidualPrior:
        q_base = self._pairs[0] if cache is None else cache[:3]
        prior = ResidualPrior(self.X_data, self.kernel, self.jitter, q_base)
        return prior if cache is None else prior.with_table(cache[3])

    def _tensors(self) -> list[tf.Tensor]:
        """``m``, ``R`` and ``Luu`` of the base set, A at all points, and the tensors of r."""
        prior = self._prior_from(None).with_table()
        *_, Luu, q_mu, q_sqrt = prior.base
        nothing = tf.zeros([0, 0], q_mu.dtype)
        Luu = nothing if Luu is None else Luu
        return [q_mu, q_sqrt, Luu, prior.table, *super()._tensors()]

    def _q_from(self, cache: Cache | None, full_cov: bool) -> Any:
        return super()._q_from(None if cache is None else cache[4:], full_cov)

    def terms(self, X: tf.Tensor) -> Terms:
        """Terms whose KL sums the KL of the neighbors of every row, plus the KL of the base set."""
        terms = super().terms(X)
        base_kl = kl_from_standard_normal(*map(tf.convert_to_tensor, self._pairs[0]))
        return terms._replace(kl=terms.kl + base_kl)

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """
        Paths with ``w ~ q``, ``v ~ q`` and ``w_0 = Luu^-1 (f_prior(Z) + sqrt(eps) zeta)`` of a draw
        from the prior,

            f(x) = f_prior(x) + A(x)^T (w - w_0) + a_I(x)^T (v_I - r_prior(O_I) - sqrt(eps) zeta'),
            r_prior(x) = f_prior(x) - A(x)^T w_0.
        """
        require_points(self.X_data.sets[:1])
        sets, P = gpflow.utilities.freeze(self.X_data), self._q.mean.shape[1]
        find = self.find_neighbors
        points: NeighborInducingPoints = sets.sets[1]
        paths = PriorPaths(self.kernel, P, points.Z.shape[1], sampler)
        q_base = [tf.convert_to_tensor(part) for part in self._pairs[0]]
        prior = ResidualPrior(sets, paths.kernel, self.jitter, q_base)
        base, root = prior.base, tf.sqrt(prior.nugget)

        def updated(whitened: tf.Tensor) -> PosteriorPaths:
            """``f_prior(x) + A(x)^T whitened``."""
            c = linalg.solve_triangular(base.Luu[None], whitened, adjoint=True)
            return PosteriorPaths(paths, sets.sets[:1], [c])

        at_base = paths(base.inducing_set.Z)  # [S, M, P]
        at_base += root * sampler.normal(at_base.shape, at_base.dtype)
        w_0 = linalg.solve_triangular(base.Luu[None], at_base)
        w, v = sampler.gaussian(base.q_mu, base.q_sqrt), draw_inducing(self._q, sampler)
        values = v - updated(-w_0)(prior.Z) - root * sampler.normal(v.shape, v.dtype)

        def weights(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            neighbors = find(points, X, paths.kernel)
            a, _ = neighborhoods.conditional_weights(*prior.covariances(X, neighbors))
            return neighbors, a[:, :, None]

        return LocalPaths(updated(w - w_0), values, weights, int(points.num_neighbors))


def _plus_one(size: int | None) -> int | None:
    return None if size is None else size + 1
