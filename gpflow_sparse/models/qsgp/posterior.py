"""The posterior over the weights of a basis, whose functions are computed in chunks."""

from functools import partial
from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.functions import MeanFunction
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inducing_variables.basis_features import BasisFeatures
from gpflow_sparse.inference import chevron
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.kernels import Basis
from gpflow_sparse.numerics import linalg, streaming
from gpflow_sparse.posteriors.base import Cache, MeanAndVariance, SparsePosterior, by_batches
from gpflow_sparse.posteriors.pathwise import ColumnPaths, Paths, Sampler

# Training inputs in a block.
_BLOCK_ROWS = 2048


class ChevronPosterior(SparsePosterior):
    """
    ``f = phi(x)^T w``, ``q(w) = N(mu, C C^T)``, ``C = [[B, 0], [D, diag(c)]]``; see
    ``gpflow_sparse.inference.chevron``.

    Time O(N m (1 + h) L) plus the evaluation of the basis, with ``full_cov`` O(N^2 m L); memory
    independent of m but for the weights themselves; a cached posterior keeps a copy of them.
    """

    def __init__(
        self,
        kernel: Basis,
        q_mu: Any,
        q_block: Any,
        q_log_scale: Any,
        q_columns: Any,
        mean_function: MeanFunction | None = None,
        *,
        augmentation: tuple[Any, Any] | None = None,
        precompute_cache: PrecomputeCacheType | str | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """
        :param kernel: kernel of the basis that the weights belong to.
        :param q_mu: ``[m, L]``.
        :param q_block: B, ``[L, h, h]``; None for ``h = 0``.
        :param q_log_scale: ``log c``, ``[m - h, L]``.
        :param q_columns: D, ``[m - h, L, h]``; None for zero.
        :param augmentation: training inputs ``[N, D]`` and the noise variance, for one more
            function at each test point (Evans and Nair, "Quadruply Stochastic Gaussian Processes"
            (2020), proposition 4, whose formula is the variance of f and not, as printed, of y).
        :param calibration: factors of predictive variances.
        """
        self._q_block, self._q_log_scale, self._q_columns = q_block, q_log_scale, q_columns
        self._augmentation = augmentation
        self.basis = kernel.basis
        super().__init__(
            kernel,
            BasisFeatures(kernel.basis),
            q_mu,
            mean_function=mean_function,
            precompute_cache=precompute_cache,
            calibration=calibration,
        )

    @inherit_check_shapes
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """
        KL of the weights, O(m (1 + h)); X is not used.

        :raises ValueError: for a dense prior precision of more than 4,096 functions.
        """
        head, tail = self._parts(cache)
        h, dense = head.mu.shape[0], self.basis.precision == "dense"
        precision = self.basis.precision_diagonal()
        kl = chevron.head_kl(head, precision[:h])
        kl += tf.reduce_sum(chevron.tail_kl(tail, precision[h:], with_mean=not dense))
        return kl + self._dense_terms(tail.mu) if dense else kl

    def _tensors(self) -> list[tf.Tensor]:
        """mu, log c, then B and D where there are any."""
        values = (self._q_mu, self._q_log_scale, self._q_block, self._q_columns)
        return [tf.convert_to_tensor(value) for value in values if value is not None]

    def _parts(self, cache: Cache | None) -> tuple[Head, Tail]:
        mu, log_c, *rest = self._tensors() if cache is None else cache
        h = 0 if self._q_block is None else rest[0].shape[-1]
        B = rest[0] if h else tf.zeros([mu.shape[1], 0, 0], mu.dtype)
        D = rest[-1] if self._q_columns is not None else None
        return Head(mu[:h], B), Tail(mu[h:], log_c, D)

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        mean, var = self._moments(cache, X, full_cov=False)
        if self._augmentation is not None:
            var = var + self._added_variance(X, *self._augmentation)
        return mean, var

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        if self._augmentation is not None:
            raise ValueError(
                "full_cov must be False with augmentation: it adds a function at each test point, "
                "so that the covariance of some would depend on the others."
            )
        return by_batches(partial(self._moments, cache, full_cov=True), X)

    def _moments(self, cache: Cache | None, X: tf.Tensor, full_cov: bool) -> MeanAndVariance:
        head, tail = self._parts(cache)
        columns = partial(self.basis, X)
        return chevron.moments(columns, head, tail, tf.shape(X)[0], full_cov=full_cov)

    def _added_variance(self, X: tf.Tensor, inputs: Any, noise: Any) -> tf.Tensor:
        """``noise k(x, x)^2 / (|k(x, inputs)|^2 + noise k(x, x))  [n, 1]``."""
        kernel = self.basis.kernel

        def squares(blocks: Any, tensors: Any) -> list[tf.Tensor]:
            return [tf.reduce_sum(tf.square(covariance(kernel, blocks[0], tensors[0])), axis=0)]

        (sums,) = streaming.streamed_sum(
            squares, [tf.convert_to_tensor(inputs)], [X], block_rows=_BLOCK_ROWS
        )
        prior, noise = kernel(X, full_cov=False), tf.convert_to_tensor(noise)
        return (noise * tf.square(prior) / (sums + noise * prior))[:, None]

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """Exact draws of the weights; ``num_features`` is not used."""
        if self._augmentation is not None:
            raise ValueError(
                "functions cannot be drawn with augmentation, which adds one at each test point; "
                "build the model without it, or draw values: predict_f_samples(full_cov=False)."
            )
        head, tail = self._parts(None)
        shapes = [(sampler.num_samples, *part.mu.shape) for part in (head, tail)]
        shared, own = (sampler.normal(shape, head.mu.dtype) for shape in shapes)
        spread = tf.exp(tail.log_c) * own
        if tail.D is not None:
            spread = spread + tf.einsum("tlh,shl->stl", tail.D, shared)
        first = head.mu + tf.einsum("lij,sjl->sil", head.B, shared)
        weights = tf.concat([first, tail.mu + spread], axis=1)  # [S, m, L]
        return ColumnPaths(self.basis, weights)

    def _dense_terms(self, mu: tf.Tensor) -> tf.Tensor:
        """``(mu^T S mu - log |S|) / 2`` for a prior precision that is not diagonal."""
        m, L = mu.shape
        if m > chevron.MAX_DENSE:
            raise ValueError(
                f"the KL divergence needs the determinant of a dense precision of {m} functions: "
                f"at most {chevron.MAX_DENSE}. Steps and predictions do not need it."
            )
        S = self.basis.prior_precision()
        jittered = linalg.add_jitter(S, linalg.jitter(tf.linalg.diag_part(S)))
        factor = linalg.cholesky(jittered, "the prior precision of the weights")
        logs = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))
        quadratic = tf.reduce_sum(mu * tf.linalg.matmul(S, mu))
        return 0.5 * (quadratic - L * logs)
