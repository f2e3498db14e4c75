"""The posterior process of SOLVE-GP: one whitened Gaussian block per inducing set."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.posteriors import PrecomputedValue

from gpflow_sparse.inducing_variables.covariances import (
    Kuv,
    cross_covariance,
    joined,
    joint_covariances,
    set_covariance,
)
from gpflow_sparse.inference.blocks import Block, kl_from_standard_normal
from gpflow_sparse.models.solvegp.rotated import is_rotatable, rotated, rotated_marginals
from gpflow_sparse.numerics import block_elimination, linalg
from gpflow_sparse.posteriors.base import BlockPosterior, Cache, MeanAndVariance, precomputed
from gpflow_sparse.posteriors.pathwise import (
    Paths,
    PosteriorPaths,
    PriorPaths,
    Sampler,
    require_points,
    stack,
    unstack,
)

# The name in error messages of the matrix of all sets.
_UNION = "Kuu (covariance of all inducing sets)"
# Mean and factor of q for each set.
QMoments = Sequence[tuple[tf.Tensor, tf.Tensor | None]]


class Prior(NamedTuple):
    """The covariance of all sets."""

    K: block_elimination.BlockMatrix
    """``[[Kuu], [Kvu, Kvv], ...]``, jitter included."""
    names: list[str]
    """Names of the diagonal blocks in error messages."""
    jitter: tf.Tensor
    """What is added to the diagonal, a scalar."""


class OrthogonalPosterior(BlockPosterior):
    r"""
    The posterior process of SOLVE-GP.

    In the notation of ``docs/notation.md``, with jitter in ``Kuu`` and ``Cvv``,

        Luu = chol(Kuu),               A = Luu^-1 Kuf
        B   = Luu^-1 Kuv,              Cvv = Kvv - B^T B
        Lvv = chol(Cvv),               D = Lvv^-1 (Kvf - B^T A)

    and ``A`` and ``D`` are the two blocks: exactly ``chol([Z; O])^-1 k([Z; O], X)`` by block
    elimination, so whitened SOLVE-GP is whitened SVGP on ``[Z; O]`` with a block-diagonal
    ``q_sqrt``. Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), eqs. (31)-(34) and algorithm 1,
    with the order of operations re-derived (``docs/errata.md``, S1 and S2).

    ``q_mu`` is one ``[M_b, P]`` per set, or all sets stacked, ``[M + M2 + ..., P]``; ``q_sqrt`` is
    one lower triangular ``[P, M_b, M_b]`` per set, or stacked as stock SVGP holds it, ``[P, M',
    M']`` (only diagonal blocks count) or ``[M', P]`` standard deviations; None for a fixed mean.

    Time O(N (M + M2)^2 + (M + M2)^3), memory O((N + M + M2)(M + M2)). A cached posterior keeps the
    inverse factor and needs matmuls only.
    """

    @inherit_check_shapes
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """KL of all blocks, which are independent under prior and posterior; X is not used."""
        q = self._q() if cache is None else self._cached_q(cache)
        if cache is None and not self.whiten:
            q = self._whitened(self._factor(), q)
        return tf.add_n([kl_from_standard_normal(m, R) for m, R in q])

    @property
    def block_sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(self.X_data.sizes)

    def blocks(self, cache: Cache | None, X: tf.Tensor) -> list[Block]:
        """One block for each set: A, D, ... with the whitened mean and factor."""
        if cache is None:
            return self._projected(X)
        A = self._cached_projection(cache, self._cross_covariances(X, X.dtype))
        return [Block(a, m, R) for a, (m, R) in zip(A, self._cached_q(cache), strict=True)]

    def _projected(self, X: tf.Tensor) -> list[Block]:
        """:meth:`blocks` of the current parameters; by one factor of all sets on a GPU."""
        dtype = linalg.batch_dtype(X.dtype)
        union = joined(self.X_data.sets) if self.whiten and dtype == X.dtype else None
        if union is None:
            return self.project(self._cross_covariances(X, dtype))
        K, F = joint_covariances(union, self.kernel, X, self.jitter)
        (A,) = block_elimination.project([[K]], [F], [_UNION])
        parts = tf.split(A, self.X_data.sizes, axis=0)
        return [Block(part, m, R) for part, (m, R) in zip(parts, self._q(), strict=True)]

    def _cross_covariances(self, X: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """``[Kuf, Kvf, ...]``, ``[M_b, n]`` each."""
        union = joined(self.X_data.sets)
        if union is not None:
            F = cross_covariance(union, self.kernel, X, dtype)
            return tf.split(F, self.X_data.sizes, axis=0)
        return [cross_covariance(s, self.kernel, X, dtype) for s in self.X_data.sets]

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        if cache is None or not self._is_rotated(cache):
            return super()._marginals(cache, X)
        A = self._cached_projection(cache, self._cross_covariances(X, X.dtype))
        size = len(A)
        blocks = list(map(Block, A, cache[size : 2 * size], cache[2 * size :]))
        return rotated_marginals(self._prior_variances(X, blocks), blocks)

    def _cached_projection(self, cache: Cache, F: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """``A, D, ...`` from rows of the inverse factor, which are dense if rotated."""
        if self._is_rotated(cache):
            return [
                tf.linalg.matmul(R, tf.concat(F[: i + 1], axis=0))
                for i, R in enumerate(cache[: len(F)])
            ]
        A = []
        for i, rows in enumerate(cache[: len(F)]):
            *before, own = tf.split(rows, self.X_data.sizes[: i + 1], axis=1)
            parts = [tf.linalg.matmul(R, f) for R, f in zip(before, F, strict=False)]
            A.append(tf.add_n([*parts, linalg.lower_matmul(own, F[i])]))
        return A

    def project(
        self, F: Sequence[tf.Tensor], q: QMoments | None = None, prior: Prior | None = None
    ) -> list[Block]:
        """
        Blocks with ``chol(K)^-1 F``.

        :param F: ``[Kuf, Kvf, ...]``, or other columns.
        :param q: :meth:`_q`, where it has been read already.
        :param prior: :meth:`prior`, where it has been computed already.
        """
        q = self._q() if q is None else q
        prior = self.prior() if prior is None else prior
        # block elimination: chol(K) = [[Luu, 0], [B^T, Lvv]], solved for [A, D]
        if self.whiten:
            A = block_elimination.project(prior.K, F, prior.names)
        else:
            L = block_elimination.block_cholesky(prior.K, prior.names)
            factor = block_elimination.cast(L, F[0].dtype)
            A, q = block_elimination.block_solve(factor, F), self._whitened(L, q)
        return [Block(a, m, R) for a, (m, R) in zip(A, q, strict=True)]

    def prior(self) -> Prior:
        """The covariance of all sets, with the same jitter on every diagonal block."""
        sets = self.X_data.sets
        diagonal = [set_covariance(s, self.kernel) for s in sets]
        rough = [i for i, s in enumerate(sets) if getattr(s, "needs_jitter", True)]
        scale = tf.concat([tf.linalg.diag_part(diagonal[i]) for i in rough or [0]], axis=0)
        amount = linalg.jitter(scale, self.jitter)
        for i in rough:
            diagonal[i] = linalg.add_jitter(diagonal[i], amount)
        K = [[*(Kuv(s, t, self.kernel) for t in sets[:i]), diagonal[i]] for i, s in enumerate(sets)]
        names = [f"Cvv (residual covariance of orthogonal set {i})" for i in range(1, len(sets))]
        return Prior(K, ["Kuu (covariance of the base inducing set)", *names], amount)

    def _factor(self) -> block_elimination.BlockMatrix:
        """``chol(K)``: ``[[Luu], [B^T, Lvv], ...]``."""
        K, names, _ = self.prior()
        return block_elimination.block_cholesky(K, names)

    def _tensors(self) -> list[tf.Tensor]:
        """Rows of the inverse factor of ``K([Z; O; ...])``, then whitened means, then factors."""
        sizes, q = self.X_data.sizes, self._q()
        eye = tf.eye(sum(sizes), dtype=q[0][0].dtype)
        blocks = self.project(tf.split(eye, sizes, axis=0), q)
        rows = [block.A[:, :end] for block, end in zip(blocks, np.cumsum(sizes), strict=True)]
        factors = [block.q_sqrt for block in blocks if block.q_sqrt is not None]
        return [*rows, *(block.q_mu for block in blocks), *factors]

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        """:meth:`_tensors`, rotated so that factors are standard deviations, if that is quick."""
        tensors, size = self._tensors(), len(self.X_data.sets)
        q = self._cached_q(tensors)
        blocks = [Block(rows, m, R) for rows, (m, R) in zip(tensors[:size], q, strict=True)]
        if all(map(is_rotatable, blocks)):
            tensors = [part for parts in zip(*map(rotated, blocks), strict=True) for part in parts]
        return precomputed(tensors)

    def _is_rotated(self, cache: Cache) -> bool:
        """Whether it ends with standard deviations ``[M_b, 1]``, not with factors or means."""
        return len(cache) == 3 * len(self.X_data.sets) and cache[-1].shape.rank == 2

    def _cached_q(self, cache: Cache) -> QMoments:
        size = len(self.X_data.sets)
        factors = cache[2 * size :] or (None,) * size
        if self._is_rotated(cache):
            factors = [tf.linalg.diag(tf.transpose(scales)) for scales in factors]
        return list(zip(cache[size : 2 * size], factors, strict=True))

    def mean_through(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """
        The means, one ``[M_b, P]`` per set, with which ``E[f]`` at the inducing inputs of all sets,
        the mean function excluded, is ``values`` but for jitter.

        :param values: one ``[M_b, P]`` per set.
        """
        L = self._factor()
        means = block_elimination.block_solve(L, values)
        if self.whiten:
            return means
        return [tf.linalg.matmul(row[-1], m) for row, m in zip(L, means, strict=True)]

    def prior_factors(self) -> list[tf.Tensor]:
        """``Luu, Lvv, ...``: the un-whitened ``q_sqrt`` at which q is the prior."""
        return [row[-1] for row in self._factor()]

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """
        Paths in whitened form, with ``xi, zeta ~ N(0, I)``,

            c = L^-T ( m + R xi - L^-1 (f_prior(U) + sqrt(eps) zeta) ).
        """
        sets = self.X_data.sets
        require_points(sets)
        L, U = self._factor(), [tf.convert_to_tensor(s.Z) for s in sets]
        q = self._q() if self.whiten else self._whitened(L, self._q())
        prior = PriorPaths(self.kernel, q[0][0].shape[1], U[0].shape[1], sampler)
        eps = linalg.jitter(self.kernel(tf.concat(U, axis=0), full_cov=False), self.jitter)
        values, drawn = [], []
        for points, (m, R) in zip(U, q, strict=True):
            f = prior(points)  # [S, M_b, P]
            values.append(stack(f + tf.sqrt(eps) * sampler.normal(f.shape, f.dtype)))
            drawn.append(stack(sampler.gaussian(m, R)))
        whitened = block_elimination.block_solve(L, values)
        errors = [v - w for v, w in zip(drawn, whitened, strict=True)]
        coefficients = block_elimination.block_solve_adjoint(L, errors)
        return PosteriorPaths(prior, sets, [unstack(c, prior.shape) for c in coefficients])

    def _q(self) -> QMoments:
        # one conversion each: reading a GPflow Parameter recomputes its transform
        return [
            (tf.convert_to_tensor(m), None if R is None else tf.convert_to_tensor(R))
            for m, R in zip(*self._per_set(), strict=True)
        ]

    def _whitened(self, L: block_elimination.BlockMatrix, q: QMoments) -> QMoments:
        """``L^-1 m`` and ``L^-1 R`` for each block, of q that is not whitened."""
        return [
            (
                linalg.solve_triangular(row[-1], m),
                None if R is None else linalg.solve_triangular(row[-1][None], R),
            )
            for row, (m, R) in zip(L, q, strict=True)
        ]

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        if not callable(self._q_mu):  # to compute q may take a pass over all rows
            require_sizes(*self._per_set(), self.X_data.sizes)

    def _per_set(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Current means and factors of each set, as tuples."""
        (q_mu, q_sqrt), sizes = self._current_q(), self.X_data.sizes
        return (
            tuple(q_mu if isinstance(q_mu, Sequence) else tf.split(q_mu, sizes, axis=0)),
            tuple(q_sqrt) if isinstance(q_sqrt, Sequence) else _split_sqrt(q_sqrt, sizes),
        )


def require_sizes(q_mu: Sequence[Any], q_sqrt: Sequence[Any], sizes: Sequence[int]) -> None:
    """Refuse q of other sizes than the sets, which may have been replaced after construction."""
    found = [None if m is None else tuple(m.shape) for m in q_mu]
    widths = {shape[1] for shape in found if shape is not None}
    wanted = [None if m is None else (s, *widths) for m, s in zip(q_mu, sizes, strict=False)]
    factors = [None if R is None else tuple(R.shape) for R in q_sqrt]
    wanted_factors = [
        None if R is None else (*widths, s, s) for R, s in zip(q_sqrt, sizes, strict=False)
    ]
    if len(q_mu) != len(sizes) or found != wanted or factors != wanted_factors:
        raise ValueError(
            f"q_mu and q_sqrt must fit the inducing sets, of sizes {tuple(sizes)}; got q_mu of "
            f"shapes {found} and q_sqrt of shapes {factors}. Build a new model for other sets."
        )


def _split_sqrt(q_sqrt: tf.Tensor | None, sizes: Sequence[int]) -> tuple[tf.Tensor | None, ...]:
    if q_sqrt is None:
        return (None,) * len(sizes)
    dense = tf.convert_to_tensor(q_sqrt)
    if dense.shape.rank == 2:  # standard deviations [M', P]
        return tuple(tf.linalg.diag(tf.transpose(s)) for s in tf.split(dense, sizes, axis=0))
    ends = np.cumsum(sizes)
    return tuple(
        dense[:, end - size : end, end - size : end] for size, end in zip(sizes, ends, strict=True)
    )
