"""Posterior given the neighbors of each row."""

from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inference import neighborhoods
from gpflow_sparse.inference.neighborhoods import DenseGaussian, GaussianRows, NeighborPrior
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.posteriors.base import Cache, MeanAndVariance, SparsePosterior, by_batches
from gpflow_sparse.posteriors.pathwise import (
    LocalPaths,
    Paths,
    PriorPaths,
    Sampler,
    in_blocks,
)
from gpflow_sparse.validation import checks
from gpflow_sparse.validation.public_methods import public_method

# Entries of the covariances [n, H, H] in one block of inducing points.
_BLOCK = 2**20
# Number of neighbors from which starting values of variances are computed.
_NEAREST = 16


class NeighborPosterior(SparsePosterior):
    """
    ``f(x) | u_I`` of the prior, with ``q(u) = N(q_mu, S)`` of all M inducing variables and ``I``
    the H neighbors of x.

    Time O(n H^3) for n rows, and a search for neighbors. Every row is predicted from neighbors of
    its own; rows that are predicted together (``full_cov``) share the union of their neighbors, so
    that their means and variances depend on the other rows: section 4.5 of Tran, Milios, Michiardi
    and Filippone, "Sparse within Sparse Gaussian Processes using Neighbor Information".

    Functions drawn (:meth:`sample_functions`) use the neighbors of each x, ``f(x) = f_prior(x) +
    a(x)^T (u_I - f_prior(Z_I))`` with one draw of u for each function. Their mean and variance
    equal :meth:`predict_f` without ``full_cov``; their covariance between two rows differs from
    ``full_cov``, which uses the neighbors of both for each row, unless H = M.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: NeighborInducingPoints,
        q_mu: Any,
        q_sqrt: Any,
        whiten: bool = False,
        mean_function: MeanFunction | None = None,
        *,
        chain: bool = False,
        **options: Any,
    ) -> None:
        """
        :param q_mu: ``[M, P]``.
        :param q_sqrt: standard deviations ``[M, P]``; lower factors ``[P, M, M]``; None for a fixed
            mean. Or a function that returns the current value.
        :param whiten: must be False: neighborhoods overlap, and a variable cannot be relative to
            all of them.
        :param chain: whether :meth:`terms` has the KL of :meth:`prior_kl` without rows: for layers
            of a deep model, whose inputs are random.
        :param options: further arguments of :class:`SparsePosterior`.
        :raises ValueError: for q of a shape that does not fit the points, and wrong options.
        """
        if whiten is not False:
            require_not_whitened(whiten)
        self.chain = chain
        super().__init__(kernel, inducing_variable, q_mu, q_sqrt, False, mean_function, **options)

    @public_method()
    @check_shapes("return: []")
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """
        Without X ``KL[q(u) || prod_j p(u_j | its H nearest predecessors)]``, O(M H^3) and a search
        in O(M^2 D): with it stock ``gpflow.models.SVGP`` has a lower bound on the evidence of the
        model with that prior, which is ``SWSGP(kl_weighting="chain")`` with all its terms.

        :param X: rows ``[n, D]``: the sum of the KL of their neighbors in its place, which is not a
            KL divergence, see SWSGP; with ``chain`` they do not count.
        """
        if self.chain or X is None:
            return chain_kl(self.X_data, self._prior, self._q)
        return self.terms(X).kl

    def terms(self, X: tf.Tensor) -> Terms:
        neighbors, prior = self.X_data.neighbors(X, self.kernel), self._prior
        arguments = X, neighbors, self._q.take(neighbors)
        if self.chain:
            mean, variance, residual = prior.conditional(*arguments)
            kl = self.prior_kl()
        else:
            mean, variance, residual, of_rows = prior.conditional_and_kl(*arguments)
            kl = tf.reduce_sum(of_rows)
        residual = residual[:, None] + tf.zeros_like(mean)
        return Terms(self._add_mean_function(X, mean), variance, kl, residual)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        _require_shapes(self._q, int(self.X_data.Z.shape[0]))

    @property
    def _prior(self) -> NeighborPrior:
        """The prior of f at rows and at the inducing points near them."""
        return NeighborPrior(self.kernel, self.X_data.Z, self.jitter)

    @property
    def _q(self) -> GaussianRows:
        """The current q(u)."""
        return _as_rows(self._q_mu, self._q_sqrt() if callable(self._q_sqrt) else self._q_sqrt)

    def _tensors(self) -> list[tf.Tensor]:
        """The current q, with a dense covariance also in full; all else depends on the row."""
        q = self._q
        dense = [DenseGaussian.of(q).S] if q.scales is None else []
        return [part for part in q if part is not None] + dense

    def _q_from(self, cache: Cache | None, full_cov: bool) -> Any:
        """q from the cache, in the form that takes least time."""
        if cache is None:
            return self._q
        mean, second, *full = cache
        if second.shape.rank == 2:
            return GaussianRows(mean, second, None)
        return GaussianRows(mean, None, second) if full_cov else DenseGaussian(mean, full[0])

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        q, prior = self._q_from(cache, False), self._prior
        H = int(self.X_data.num_neighbors)
        if isinstance(q, DenseGaussian):
            size = H**2 * int(q.S.shape[0])
        else:
            size = H * (1 if q.factors is None else int(np.prod(q.factors.shape[1:])))
        size = max(size, H**2, self.X_data.entries_of_search)

        def moments(X: tf.Tensor) -> MeanAndVariance:
            neighbors = self.X_data.neighbors(X, self.kernel)
            return prior.conditional(X, neighbors, q.take(neighbors))[:2]

        return moments_in_blocks(moments, X, size)

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        """One joint distribution for each batch of rows, over the union of their neighbors."""
        q, prior = self._q_from(cache, True), self._prior

        def moments(X: tf.Tensor) -> MeanAndVariance:
            active, _ = tf.unique(tf.reshape(self.X_data.neighbors(X, self.kernel), [-1]))
            joint = prior.joint(X, active, q.take(active))
            return joint.mean(), joint.covariance(covariance(self.kernel, X))

        return by_batches(moments, X)

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """
        ``f_prior(x) + k_I^T (K_I + eps I)^-1 (u_I - f_prior(Z_I) - sqrt(eps) zeta_I)``, ``u ~ q``.

        At each x by itself mean and variance are ``a^T m_I`` and ``k(x, x) - a^T k_I + a^T S_I a``.
        """
        q, points = self._q, gpflow.utilities.freeze(self.X_data)
        u = _draw_inducing(q, sampler)
        zeta = sampler.normal(u.shape, u.dtype)
        paths = PriorPaths(self.kernel, q.mean.shape[1], points.Z.shape[1], sampler)
        prior = NeighborPrior(paths.kernel, points.Z, self.jitter)
        values = u - paths(prior.Z) - tf.sqrt(prior.nugget) * zeta

        def weights(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            neighbors = points.neighbors(X, paths.kernel)
            a, _ = neighborhoods.conditional_weights(*prior.covariances(X, neighbors))
            return neighbors, a[:, :, None]

        return LocalPaths(paths, values, weights, int(points.num_neighbors))


def _as_rows(q_mu: Any, q_sqrt: Any) -> GaussianRows:
    """
    q by rows, from means ``[M, P]``.

    :param q_sqrt: as in :class:`NeighborPosterior`, but no function.
    """
    q_mu = tf.convert_to_tensor(q_mu)
    if q_sqrt is None:  # a fixed mean
        return GaussianRows(q_mu, tf.zeros_like(q_mu), None)
    if isinstance(q_sqrt, tuple):
        raise ValueError(
            "q_sqrt must be standard deviations [M, P] or factors [P, M, M], got a tuple."
        )
    q_sqrt = tf.convert_to_tensor(q_sqrt)
    if q_sqrt.shape.rank == 2:
        return GaussianRows(q_mu, q_sqrt, None)
    return GaussianRows(q_mu, None, tf.transpose(q_sqrt, [1, 0, 2]))


def chain_kl(
    points: NeighborInducingPoints,
    prior: NeighborPrior,
    q: GaussianRows,
    columns: slice | None = None,
) -> tf.Tensor:
    """
    ``KL[q(u) || prod_j p(u_j | its H nearest predecessors)]``, in blocks of points.

    :param columns: outputs that count; None for all.
    """
    total = tf.zeros([], q.mean.dtype)
    for drawn in point_blocks(prior, points.num_neighbors):
        links = points.links(drawn, prior.kernel)
        total += tf.reduce_sum(prior.chain_terms(links, q.take(links, columns)))
    return total


def independent_scales(points: NeighborInducingPoints, prior: NeighborPrior) -> np.ndarray:
    """
    Standard deviations ``[M]`` of the independent u_j that are closest to the prior in ``KL[q ||
    p]``: the standard deviations of u_j given its 16 nearest neighbors. O(M 16^3).
    """
    found, H = [], min(int(prior.Z.shape[0]), _NEAREST)
    for drawn in point_blocks(prior, H):
        around = points.closest(tf.gather(prior.Z, drawn), prior.kernel, H)
        found.append(np.sqrt(prior.point_conditional(drawn, around)[1]))
    return np.concatenate(found)


def point_blocks(prior: NeighborPrior, num_neighbors: int) -> Iterator[tf.Tensor]:
    """Indices of consecutive points, in blocks that bound the memory of their covariances."""
    num_points = int(prior.Z.shape[0])
    rows = max(1, _BLOCK // int(num_neighbors) ** 2)
    for start in range(0, num_points, rows):
        yield tf.range(start, min(start + rows, num_points))


def moments_in_blocks(
    moments: Callable[[tf.Tensor], MeanAndVariance], X: tf.Tensor, size_of_row: int
) -> MeanAndVariance:
    """
    Mean and variance at the rows of ``X [N, D]``, some rows at a time.

    :param moments: both ``[n, P]``, of ``[n, D]``.
    :param size_of_row: entries for each row in the largest tensor that it makes.
    """
    mean, var = tf.unstack(in_blocks(lambda X: tf.stack(moments(X)), X, size_of_row))
    return mean, var


def _draw_inducing(q: GaussianRows, sampler: Sampler) -> tf.Tensor:
    """Draws of u from q, ``[S, M, P]``; O(S M P R)."""
    S, (M, P) = sampler.num_samples, q.mean.shape
    u = tf.broadcast_to(q.mean, [S, M, P])
    if q.scales is not None:
        u = u + q.scales * sampler.normal((S, M, P), u.dtype)
    if q.factors is not None:
        xi = sampler.normal((S, P, q.factors.shape[2]), u.dtype)
        u = u + tf.einsum("mpr,spr->smp", q.factors, xi)
    return u


def _require_shapes(q: GaussianRows, num_inducing: int) -> None:
    """:raises ValueError: unless q has this number of variables and its parts fit each other."""
    if q.mean.shape.rank != 2 or q.mean.shape[0] != num_inducing:
        raise ValueError(
            f"q_mu must have shape [M, P] with M = {num_inducing} inducing points, got "
            f"{tuple(q.mean.shape)}."
        )
    shape = tuple(q.mean.shape)
    wrong = [part.shape for part in q[1:] if part is not None and tuple(part.shape[:2]) != shape]
    short = q.factors is not None and q.factors.shape[2] != num_inducing
    if wrong or short:
        M, P = shape
        raise ValueError(
            f"q_sqrt must be standard deviations [{M}, {P}] or lower factors [{P}, {M}, {M}]."
        )


def require_not_whitened(whiten: Any) -> None:
    """:raises ValueError: for ``whiten=True``."""
    checks.require_flag(whiten, "whiten")
    if whiten:
        raise ValueError(
            "whiten must be False for NeighborInducingPoints, since each row has the covariance of "
            "its own neighbors and no coordinates of u are white in all of them: write "
            "gpflow.models.SVGP(kernel, likelihood, inducing_variable, q_diag=True, whiten=False)."
        )
