"""The posterior process of ODVGP: a Gaussian on the base set, and a mean on the other set."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inducing_variables.covariances import (
    Kuv,
    cross_covariance,
    joined,
    set_covariance,
)
from gpflow_sparse.inducing_variables.orthogonal import OrthogonalInducingVariables
from gpflow_sparse.inference.blocks import Block, kl_from_standard_normal, marginals
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.models.solvegp.posterior import OrthogonalPosterior, Prior
from gpflow_sparse.numerics import linalg, random_draws
from gpflow_sparse.posteriors.base import BlockPosterior, Cache, MeanAndVariance
from gpflow_sparse.posteriors.pathwise import Paths, PosteriorPaths, Sampler, require_points


class Covariances(NamedTuple):
    """Covariances of the sets Z and O, of some points O_J of the second, and of f at rows."""

    prior: Prior
    """``Kuu [M, M]``."""
    Kuv: tf.Tensor
    """``[M, M2]``."""
    Kuj: tf.Tensor
    """``[M, s]``."""
    Kuf: tf.Tensor
    """``[M, n]``."""
    Kvj: tf.Tensor
    """``[M2, s]``."""
    Kvf: tf.Tensor
    """``[M2, n]``."""


class DecoupledPosterior(BlockPosterior):
    r"""
    The posterior process of orthogonally decoupled variational GPs (ODVGP).

    SOLVE-GP whose orthogonal set O has its prior covariance, ``Sv = Cvv``, and a mean with weights
    ``alpha = Cvv^-1 mv``:

        mean = Kfu Kuu^-1 mu + Cfv alpha        var = variance of SVGP on Z
        KLv  = (alpha^T Cvv alpha) / 2          Cvv = Kvv - Kvu Kuu^-1 Kuv + eps I

    ``Cvv`` is neither factored nor formed. With ``b = Luu^-1 Kuv alpha`` and the projection
    ``A = Luu^-1 Kuf``,

        Kfu Kuu^-1 mu + Cfv alpha = A^T (Luu^-1 mu - b) + Kfv alpha
        alpha^T Cvv alpha         = alpha^T Kvv alpha - |b|^2 + eps |alpha|^2,

    and only ``alpha^T Kvv alpha`` costs M2^2. From s columns j drawn without replacement,

        (M2 / s) sum_j alpha_j (Cvv alpha)_j

    is an unbiased estimate of the whole at cost s M2. Salimbeni, Cheng, Boots and Deisenroth,
    "Orthogonally decoupled variational Gaussian processes" (2018); as a case of SOLVE-GP: Shi,
    Titsias and Mnih (2020, arXiv:1910.10596v5), section 5. ``docs/errata.md``, S12: the cost is
    linear in M2 in these weights only.

    Time O(n M (M + M2) + M^3 + M2 s), memory O((n + M + s) (M + M2)).
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: OrthogonalInducingVariables,
        q_mu: Sequence[Any],
        q_sqrt: Sequence[Any],
        whiten: bool = True,
        mean_function: MeanFunction | None = None,
        *,
        num_penalty_samples: int | None = None,
        jitter: float | None = None,
        **options: Any,
    ) -> None:
        """
        :param inducing_variable: a base set and one orthogonal set.
        :param q_mu: ``mu [M, P]`` and ``alpha [M2, P]``.
        :param q_sqrt: ``q_sqrt [P, M, M]`` of the base set, lower triangular; the only entry.
        :param whiten: ``mu`` and ``q_sqrt`` are relative to ``Luu``; ``alpha`` is as above.
        :param num_penalty_samples: columns drawn for the KL of each ``terms``; None for all.
        """
        mu, self._alpha = q_mu
        self.num_penalty_samples = num_penalty_samples
        self._base_set, self._orthogonal_set = inducing_variable.sets
        base = OrthogonalInducingVariables(self._base_set)
        self._base = OrthogonalPosterior(kernel, base, (mu,), q_sqrt, whiten, jitter=jitter)
        parts = (kernel, inducing_variable, q_mu, q_sqrt, whiten, mean_function)
        super().__init__(*parts, jitter=jitter, **options)

    @inherit_check_shapes
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """The KL with all columns; X is not used."""
        every = tf.range(self.X_data.sizes[1])
        return self._block_and_kl(self._covariances(self._no_rows(), every), every)[1]

    def terms(self, X: tf.Tensor) -> Terms:
        columns = tf.range(self.X_data.sizes[1])
        if self.num_penalty_samples is not None:
            M2 = self.X_data.sizes[1]
            (columns,) = random_draws.different(M2, self.num_penalty_samples)
        K = self._covariances(X, columns)
        block, kl = self._block_and_kl(K, columns)
        mean, var, residual = marginals(self.kernel(X, full_cov=False), [block])
        extra = tf.linalg.matmul(K.Kvf, tf.convert_to_tensor(self._alpha), transpose_a=True)
        mean = self._add_mean_function(X, mean + extra)
        return Terms(mean, var, kl, residual[:, None] + tf.zeros_like(mean))

    def blocks(self, cache: Cache | None, X: tf.Tensor) -> list[Block]:
        """The block of the base set, whose mean is shifted by ``-b``."""
        F = cross_covariance(self._base_set, self.kernel, X)  # [M, n]
        if cache is None:
            return [self._block(F)]
        inverse_factor, q_mu, q_sqrt, _ = cache
        return [Block(linalg.lower_matmul(inverse_factor, F), q_mu, q_sqrt)]

    def _conditional_with_precompute(
        self, cache: Cache | None, Xnew: tf.Tensor, *flags: Any, **options: Any
    ) -> MeanAndVariance:
        mean, cov = super()._conditional_with_precompute(cache, Xnew, *flags, **options)
        alpha = self._alpha if cache is None else cache[-1]
        extra = self._extra_mean(tf.reshape(Xnew, [-1, Xnew.shape[-1]]), alpha)
        return mean + tf.reshape(extra, tf.shape(mean)), cov

    def _tensors(self) -> list[tf.Tensor]:
        """``Luu^-1``, the shifted whitened mean, its factor, and ``alpha``."""
        alpha = tf.convert_to_tensor(self._alpha)
        return [*self._block(tf.eye(self.X_data.sizes[0], dtype=alpha.dtype)), alpha]

    def _draw_paths(self, sampler: Sampler) -> Paths:
        require_points([self._orthogonal_set])
        _, q_mu, q_sqrt = self._block(self._no_columns())
        base = OrthogonalPosterior(
            self.kernel, self._base.X_data, (q_mu,), (q_sqrt,), jitter=self.jitter
        )
        paths = base._draw_paths(sampler)
        return PosteriorPaths(
            paths, [self._orthogonal_set], [tf.convert_to_tensor(self._alpha)[None]]
        )

    def _no_rows(self) -> tf.Tensor:
        return tf.zeros([0, self.input_dim or 1], self._alpha.dtype)

    def _no_columns(self) -> tf.Tensor:
        return tf.zeros([self.X_data.sizes[0], 0], self._alpha.dtype)

    def _extra_mean(self, X: tf.Tensor, alpha: Any) -> tf.Tensor:
        """``Kfv alpha [n, P]`` at ``X [n, D]``."""
        Kvf = cross_covariance(self._orthogonal_set, self.kernel, X)  # [M2, n]
        return tf.linalg.matmul(Kvf, tf.convert_to_tensor(alpha), transpose_a=True)

    def _block(self, F: tf.Tensor) -> Block:
        """The block of the base set for ``F [M, n]``, its mean shifted by ``-b``."""
        alpha = tf.convert_to_tensor(self._alpha)
        b, block = self._project([tf.linalg.matmul(self._cross_sets(), alpha), F])
        return block._replace(q_mu=block.q_mu - b)

    def _block_and_kl(self, K: Covariances, columns: tf.Tensor) -> tuple[Block, tf.Tensor]:
        """The base set's block, and the KL from some columns of ``Cvv``, by one factorization."""
        alpha = tf.convert_to_tensor(self._alpha)
        chosen = tf.gather(alpha, columns)  # alpha_J  [s, P]
        sides = [tf.linalg.matmul(K.Kuv, alpha), tf.linalg.matmul(K.Kuj, chosen), K.Kuf]
        b, b_chosen, block = self._project(sides, K.prior)
        Kvj_chosen = tf.linalg.matmul(K.Kvj, chosen)  # [M2, P]
        # sum_j alpha_j (Cvv alpha)_j, with Cvv alpha = Kvv alpha - B^T b + eps alpha
        quadratic = tf.reduce_sum(Kvj_chosen * alpha) - tf.reduce_sum(b_chosen * b)
        quadratic += K.prior.jitter * tf.reduce_sum(tf.square(chosen))
        share = self.X_data.sizes[1] / tf.cast(tf.size(columns), alpha.dtype)
        kl = kl_from_standard_normal(block.q_mu, block.q_sqrt) + 0.5 * share * quadratic
        return block._replace(q_mu=block.q_mu - b), kl

    def _covariances(self, X: tf.Tensor, columns: tf.Tensor) -> Covariances:
        """What the terms of an ELBO need; of points by one evaluation on a GPU."""
        (Z, O), kernel = self.X_data.sets, self.kernel
        M, M2 = self.X_data.sizes
        union = joined([Z, O]) if self.whiten else None
        if type(union) is not InducingPoints:
            Kuv, Kvj = self._cross_sets(), self._Kvv_columns(columns)
            Kuf, Kvf = (cross_covariance(part, kernel, X) for part in (Z, O))
            prior, Kuj = self._base.prior(), tf.gather(Kuv, columns, axis=1)
            return Covariances(prior, Kuv, Kuj, Kuf, Kvj, Kvf)
        first, second = tf.split(union.Z, [M, M2], axis=0)
        others = tf.concat([first, tf.gather(second, columns), X], axis=0)
        rows = tf.split(covariance(kernel, union.Z, others), [M, M2], axis=0)
        sizes = [M, columns.shape[0], -1]
        (Kuu, Kuj, Kuf), (Kvu, Kvj, Kvf) = (tf.split(row, sizes, axis=1) for row in rows)
        diagonal = kernel(first, full_cov=False)
        jitter = linalg.jitter(diagonal, self.jitter)
        Kuu = tf.linalg.set_diag(Kuu, diagonal + jitter)
        prior = Prior([[Kuu]], ["Kuu (covariance of the base inducing set)"], jitter)
        return Covariances(prior, tf.transpose(Kvu), Kuj, Kuf, Kvj, Kvf)

    def _project(self, columns: list[tf.Tensor], prior: Prior | None = None) -> list[Any]:
        """``Luu^-1`` times all but the last group of columns, and the block for the last group."""
        (block,) = self._base.project([tf.concat(columns, axis=1)], prior=prior)
        *parts, A = tf.split(block.A, [c.shape[1] for c in columns[:-1]] + [-1], axis=1)
        return [*parts, block._replace(A=A)]

    def _cross_sets(self) -> tf.Tensor:
        return Kuv(self._base_set, self._orthogonal_set, self.kernel)

    def _Kvv_columns(self, columns: tf.Tensor) -> tf.Tensor:
        """Columns of Kvv, ``[M2, s]``; only these are computed where O are inputs of f."""
        orthogonal = self._orthogonal_set
        if type(orthogonal) is InducingPoints:
            return covariance(self.kernel, orthogonal.Z, tf.gather(orthogonal.Z, columns))
        return tf.gather(set_covariance(orthogonal, self.kernel), columns, axis=1)
