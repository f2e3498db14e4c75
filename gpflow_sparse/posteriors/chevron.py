"""The posterior over the weights of a basis, whose functions are computed in chunks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.posteriors import PrecomputeCacheType, PrecomputedValue

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.inducing_variables.basis_features import BasisFeatures
from gpflow_sparse.inference import chevron
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.kernels import Basis
from gpflow_sparse.numerics import linalg, streaming
from gpflow_sparse.posteriors.base import SparsePosterior, spread_outputs
from gpflow_sparse.posteriors.pathwise import ColumnPaths, FunctionDraws

# Training inputs in a block.
_BLOCK_ROWS = 2048


class ChevronPosterior(SparsePosterior):
    """
    ``f = phi(x)^T w``, ``q(w) = N(mu, C C^T)``, ``C = [[B, 0], [D, diag(c)]]``; see
    ``gpflow_sparse.inference.chevron``.

    Time O(N m (1 + h) L) and that of the basis, with ``full_cov`` O(N^2 m L); memory independent of
    m but for the weights themselves, of which a cached posterior keeps a copy.
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
        """
        self._q_block, self._q_log_scale, self._q_columns = q_block, q_log_scale, q_columns
        self._augmentation = augmentation
        features, cache = BasisFeatures(kernel.basis), precompute_cache
        super().__init__(
            kernel, features, q_mu, mean_function=mean_function, precompute_cache=cache
        )

    @property
    def basis(self) -> FiniteBasis:
        """The basis that the weights belong to."""
        return self.kernel.basis

    @property
    def input_dim(self) -> int | None:
        return self.basis.input_dim

    def prior_kl(self, X: tf.Tensor | None = None) -> tf.Tensor:
        """
        KL of the weights, O(m (1 + h)); X is not used.

        :raises ValueError: for a dense prior precision of more than 4,096 functions.
        """
        head, tail = self._parts(self._q())
        h, dense = head.mu.shape[0], self.basis.precision == "dense"
        precision = self.basis.precision_diagonal()
        kl = chevron.head_kl(head, precision[:h])
        kl += tf.reduce_sum(chevron.tail_kl(tail, precision[h:], with_mean=not dense))
        return kl + self._dense_terms(tail.mu) if dense else kl

    def marginals_and_kl(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        mean, var = self._conditional_fused(X)
        return self._add_mean_function(X, mean), var, self.prior_kl()

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        """mu, log c, then B and D where there are any."""
        return tuple(PrecomputedValue(value, (False,) * value.shape.rank) for value in self._q())

    def _conditional(
        self, cache: Sequence[tf.Tensor] | None, X: tf.Tensor, full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        q = self._q() if cache is None else tuple(cache)
        if X.shape.rank != 2:
            return self._predict_batches(q, X, full_cov, full_output_cov)
        head, tail = self._parts(q)
        mean, cov = chevron.moments(
            lambda indices: self.basis(X, indices),
            head,
            tail,
            tf.shape(X)[0],
            full_cov=full_cov,
        )
        if self._augmentation is not None:
            cov = self._augment(X, cov, self._augmentation, full_cov)
        return mean, spread_outputs(cov, full_cov) if full_output_cov else cov

    def _predict_batches(
        self, q: tuple[tf.Tensor, ...], X: tf.Tensor, full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """``X [..., N, D]``: all rows together, or one batch after the other for covariances."""

        def predict(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return self._conditional(q, rows, full_cov, full_output_cov)

        if full_cov:
            lead = tf.shape(X)[:-2]
            found = tf.map_fn(
                tf.autograph.experimental.do_not_convert(predict),
                tf.reshape(X, [-1, *X.shape[-2:]]),
                fn_output_signature=(X.dtype, X.dtype),
                parallel_iterations=1,
            )
        else:
            lead, found = tf.shape(X)[:-1], predict(tf.reshape(X, [-1, X.shape[-1]]))
        mean, cov = (tf.reshape(v, tf.concat([lead, tf.shape(v)[1:]], axis=0)) for v in found)
        return mean, cov

    def _augment(
        self, X: tf.Tensor, variance: tf.Tensor, augmentation: tuple[Any, Any], full_cov: bool
    ) -> tf.Tensor:
        """
        The variance plus ``noise k(x, x)^2 / (|k(x, X_train)|^2 + noise k(x, x))``.

        :raises ValueError: for covariances: each test point would be augmented by all others.
        """
        if full_cov:
            raise ValueError(
                "full_cov must be False with augmentation: it adds a function at each test point, "
                "so that the covariance of some would depend on the others."
            )
        inputs, noise = (tf.convert_to_tensor(part) for part in augmentation)
        kernel = self.basis.kernel

        def squares(blocks: Any, tensors: Any) -> list[tf.Tensor]:
            return [tf.reduce_sum(tf.square(kernel(blocks[0], tensors[0])), axis=0)]

        (sums,) = streaming.streamed_sum(squares, [inputs], [X], block_rows=_BLOCK_ROWS)
        prior = kernel(X, full_cov=False)
        return variance + (noise * tf.square(prior) / (sums + noise * prior))[:, None]

    def _draw_functions(
        self, num_samples: int, num_features: int, generator: np.random.Generator
    ) -> FunctionDraws:
        """Exact draws of the weights; ``num_features`` is not used."""
        if self._augmentation is not None:
            raise ValueError(
                "functions cannot be drawn with augmentation, which adds one at each test point; "
                "build the model without it, or draw values: predict_f_samples(full_cov=False)."
            )
        head, tail = self._parts(self._q())
        h, L = head.mu.shape

        def normals(*shape: int) -> tf.Tensor:
            return tf.constant(generator.normal(size=shape), dtype=head.mu.dtype)

        shared = normals(num_samples, h, L)
        spread = tf.exp(tail.log_c) * normals(num_samples, *tail.mu.shape)
        if tail.D is not None:
            spread = spread + tf.einsum("tlh,shl->stl", tail.D, shared)
        first = head.mu + tf.einsum("lij,sjl->sil", head.B, shared)
        weights = tf.concat([first, tail.mu + spread], axis=1)  # [S, m, L]
        return FunctionDraws([ColumnPaths(self.basis, weights)], self.mean_function, self.input_dim)

    def _dense_terms(self, mu: tf.Tensor) -> tf.Tensor:
        """``(mu^T S mu - log |S|) / 2`` for a prior precision that is not diagonal."""
        m, L = mu.shape
        if m > chevron.MOST_DENSE:
            raise ValueError(
                f"the KL divergence needs the determinant of a dense precision of {m} functions: "
                f"at most {chevron.MOST_DENSE}. Steps and predictions do not need it."
            )
        S = self.basis.prior_precision()
        jittered = linalg.add_jitter(S, linalg.jitter(tf.linalg.diag_part(S)))
        factor = linalg.cholesky(jittered, "the prior precision of the weights")
        logs = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))
        quadratic = tf.reduce_sum(mu * tf.linalg.matmul(S, mu))
        return 0.5 * (quadratic - L * logs)

    def _parts(self, q: tuple[tf.Tensor, ...]) -> tuple[Head, Tail]:
        """Head and tail, from :meth:`_q` or the cache."""
        mu, log_c, *rest = q
        h = 0 if self._q_block is None else rest[0].shape[-1]
        B = rest[0] if h else tf.zeros([mu.shape[1], 0, 0], mu.dtype)
        D = rest[-1] if self._q_columns is not None else None
        return Head(mu[:h], B), Tail(mu[h:], log_c, D)

    def _q(self) -> tuple[tf.Tensor, ...]:
        """The current parameters of q."""
        values = (self._q_mu, self._q_log_scale, self._q_block, self._q_columns)
        return tuple(tf.convert_to_tensor(value) for value in values if value is not None)
