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

# Share of the prior variance that the scales of the orthogonal mean have in addition.
_DAMPING = 0.01


class Covariances(NamedTuple):
    """Covariances of the sets Z and O, some points O_J of O, and f at rows."""

    prior: Prior
    """``Kuu [M, M]``."""
    variances: tf.Tensor
    """Diagonal of ``Kvv``, ``[M2]``."""
    Kuv: tf.Tensor
    """``[M, M2]``."""
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

    The parameter is ``w = (diag(Cvv) + diag(Kvv) / 100) alpha``, which is in the units of f, and is
    nearly ``mv`` where the variables of O are independent given u. A first-order optimizer is slow
    in ``alpha`` itself, whose entries grow as O gets dense: on kin40k, 256 + 256 points, 600 steps
    of Adam end at an RMSE of 0.297 in ``alpha``, 0.267 in ``w`` and 0.265 in ``mv``, which takes a
    factor of ``Cvv``. The hundredth keeps a step small at points of O that are close to Z.

    ``Cvv`` is neither factored nor formed. With the projections ``A = Luu^-1 Kuf`` and
    ``B = Luu^-1 Kuv``, and ``b = B alpha``,

        diag(Cvv)                 = diag(Kvv) - diag(B^T B) + eps
        Kfu Kuu^-1 mu + Cfv alpha = A^T (Luu^-1 mu - b) + Kfv alpha
        alpha^T Cvv alpha         = alpha^T Kvv alpha - |b|^2 + eps |alpha|^2,

    and only ``alpha^T Kvv alpha`` costs M2^2. From s columns j drawn without replacement,

        (M2 / s) sum_j alpha_j (Cvv alpha)_j

    is an unbiased estimate of the whole at cost s M2. Salimbeni, Cheng, Boots and Deisenroth,
    "Orthogonally decoupled variational Gaussian processes" (2018); as a case of SOLVE-GP: Shi,
    Titsias and Mnih (2020, arXiv:1910.10596v5), section 5. ``docs/errata.md``, S12: the cost is
    linear in M2 in these weights only.

    Time O((n + M) M (M + M2) + M2 s), memory O((n + M + s) (M + M2)).
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
        :param q_mu: ``mu [M, P]`` and ``w [M2, P]``.
        :param q_sqrt: ``q_sqrt [P, M, M]`` of the base set, lower triangular; the only entry.
        :param whiten: ``mu`` and ``q_sqrt`` are relative to ``Luu``; ``w`` is as above.
        :param num_penalty_samples: columns drawn for the KL of each ``terms``; None for all.
        """
        mu, self._w = q_mu
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
        return self._block_and_kl(self._covariances(self._no_rows(), every), every)[2]

    def terms(self, X: tf.Tensor) -> Terms:
        columns = tf.range(self.X_data.sizes[1])
        if self.num_penalty_samples is not None:
            M2 = self.X_data.sizes[1]
            (columns,) = random_draws.different(M2, self.num_penalty_samples)
        K = self._covariances(X, columns)
        block, alpha, kl = self._block_and_kl(K, columns)
        mean, var, residual = marginals(self.kernel(X, full_cov=False), [block])
        mean = self._add_mean_function(X, mean + tf.linalg.matmul(K.Kvf, alpha, transpose_a=True))
        return Terms(mean, var, kl, residual[:, None] + tf.zeros_like(mean))

    def blocks(self, cache: Cache | None, X: tf.Tensor) -> list[Block]:
        """The block of the base set, whose mean is shifted by ``-b``."""
        F = cross_covariance(self._base_set, self.kernel, X)  # [M, n]
        inverse_factor, q_mu, q_sqrt, _ = self._tensors() if cache is None else cache
        return [Block(linalg.lower_matmul(inverse_factor, F), q_mu, q_sqrt)]

    def _conditional_with_precompute(
        self, cache: Cache | None, Xnew: tf.Tensor, *flags: Any, **options: Any
    ) -> MeanAndVariance:
        cache = self._tensors() if cache is None else cache
        mean, cov = super()._conditional_with_precompute(cache, Xnew, *flags, **options)
        X = tf.reshape(Xnew, [-1, Xnew.shape[-1]])
        Kvf = cross_covariance(self._orthogonal_set, self.kernel, X)  # [M2, n]
        extra = tf.linalg.matmul(Kvf, cache[-1], transpose_a=True)  # Kfv alpha  [n, P]
        return mean + tf.reshape(extra, tf.shape(mean)), cov

    def _tensors(self) -> list[tf.Tensor]:
        """``Luu^-1``, the shifted whitened mean, its factor, and ``alpha``."""
        K = self._covariances(self._no_rows(), tf.range(0))
        M = self.X_data.sizes[0]
        block, B, alpha = self._project(K._replace(Kuf=tf.eye(M, dtype=self._w.dtype)))
        return [block.A, block.q_mu - tf.linalg.matmul(B, alpha), block.q_sqrt, alpha]

    def _draw_paths(self, sampler: Sampler) -> Paths:
        require_points([self._orthogonal_set])
        _, q_mu, q_sqrt, alpha = self._tensors()
        base = OrthogonalPosterior(
            self.kernel, self._base.X_data, (q_mu,), (q_sqrt,), jitter=self.jitter
        )
        return PosteriorPaths(base._draw_paths(sampler), [self._orthogonal_set], [alpha[None]])

    def _no_rows(self) -> tf.Tensor:
        return tf.zeros([0, self.input_dim or 1], self._w.dtype)

    def _block_and_kl(
        self, K: Covariances, columns: tf.Tensor
    ) -> tuple[Block, tf.Tensor, tf.Tensor]:
        """The base set's block, its mean shifted by ``-b``; alpha; KL from columns of ``Cvv``."""
        block, B, alpha = self._project(K)
        b, chosen = tf.linalg.matmul(B, alpha), tf.gather(alpha, columns)  # alpha_J  [s, P]
        spread = tf.scatter_nd(columns[:, None], chosen, alpha.shape)  # zero but for J  [M2, P]
        b_chosen = tf.linalg.matmul(B, spread)  # [M, P]
        Kvj_chosen = tf.linalg.matmul(K.Kvj, chosen)  # [M2, P]
        # sum_j alpha_j (Cvv alpha)_j, with Cvv alpha = Kvv alpha - B^T b + eps alpha
        quadratic = tf.reduce_sum(Kvj_chosen * alpha) - tf.reduce_sum(b_chosen * b)
        quadratic += K.prior.jitter * tf.reduce_sum(tf.square(chosen))
        share = self.X_data.sizes[1] / tf.cast(tf.size(columns), alpha.dtype)
        kl = kl_from_standard_normal(block.q_mu, block.q_sqrt) + 0.5 * share * quadratic
        return block._replace(q_mu=block.q_mu - b), alpha, kl

    def _project(self, K: Covariances) -> tuple[Block, tf.Tensor, tf.Tensor]:
        """The base set's block for ``Kuf``, not shifted; ``B [M, M2]``; ``alpha [M2, P]``."""
        columns = tf.concat([K.Kuv, K.Kuf], axis=1)
        (block,) = self._base.project([columns], prior=K.prior)
        B, A = tf.split(block.A, [self.X_data.sizes[1], -1], axis=1)
        scales = (1.0 + _DAMPING) * K.variances + K.prior.jitter
        scales -= tf.reduce_sum(tf.square(B), axis=0)  # diag(Cvv) + damping  [M2]
        return block._replace(A=A), B, tf.convert_to_tensor(self._w) / scales[:, None]

    def _covariances(self, X: tf.Tensor, columns: tf.Tensor) -> Covariances:
        """What the terms of an ELBO need; for points, by one evaluation on a GPU."""
        (Z, O), kernel = self.X_data.sets, self.kernel
        M, M2 = self.X_data.sizes
        union = joined([Z, O]) if self.whiten else None
        if type(union) is not InducingPoints:
            Kuf, Kvf = (cross_covariance(part, kernel, X) for part in (Z, O))
            variances, Kvj = self._variances_and_columns(columns)
            return Covariances(self._base.prior(), variances, Kuv(Z, O, kernel), Kuf, Kvj, Kvf)
        first, second = tf.split(union.Z, [M, M2], axis=0)
        others = tf.concat([first, tf.gather(second, columns), X], axis=0)
        rows = tf.split(covariance(kernel, union.Z, others), [M, M2], axis=0)
        sizes = [M, columns.shape[0], -1]
        (Kuu, _, Kuf), (Kvu, Kvj, Kvf) = (tf.split(row, sizes, axis=1) for row in rows)
        diagonal, variances = tf.split(kernel(union.Z, full_cov=False), [M, M2])
        jitter = linalg.jitter(diagonal, self.jitter)
        Kuu = tf.linalg.set_diag(Kuu, diagonal + jitter)
        prior = Prior([[Kuu]], ["Kuu (covariance of the base inducing set)"], jitter)
        return Covariances(prior, variances, tf.transpose(Kvu), Kuf, Kvj, Kvf)

    def _variances_and_columns(self, columns: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The diagonal ``[M2]`` and columns ``[M2, s]`` of Kvv."""
        orthogonal = self._orthogonal_set
        if type(orthogonal) is InducingPoints:
            chosen = covariance(self.kernel, orthogonal.Z, tf.gather(orthogonal.Z, columns))
            return self.kernel(orthogonal.Z, full_cov=False), chosen
        Kvv = set_covariance(orthogonal, self.kernel)
        return tf.linalg.diag_part(Kvv), tf.gather(Kvv, columns, axis=1)
