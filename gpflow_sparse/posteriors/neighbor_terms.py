"""What is known of f at some rows from the inducing points that they see, for given rows of q."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel, Stationary

from gpflow_sparse.covariances.stationary import covariance, local_covariances
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inference import neighborhoods
from gpflow_sparse.inference.neighborhoods import Local, Products, Rows
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.base import spread_outputs
from gpflow_sparse.posteriors.pathwise import in_blocks


class NeighborTerms:
    """
    Moments and KL terms from neighbors, prior mean excluded.

    Every method takes places of inducing points, int32, and the same places as rows of q, which is
    another number where q is given for some points only.
    """

    def __init__(
        self, kernel: Kernel, inducing_variable: NeighborInducingPoints, jitter: float | None
    ) -> None:
        """
        :param jitter: smallest relative jitter, as of a posterior.
        """
        self.kernel = kernel
        self._inducing_variable, self._jitter = inducing_variable, jitter

    def local(self, X: tf.Tensor, neighbors: tf.Tensor, q: Rows, rows: tf.Tensor) -> Local:
        """
        Moments and KL of every row, each from neighbors of its own.

        :param neighbors: ``[n, H]``; ``rows`` the same.
        """
        K, k, diagonal = self._covariances(X, neighbors)
        S, half_log_det = q.covariances(rows)
        found = neighborhoods.conditionals(K, k, diagonal, tf.gather(q.mean, rows), S)
        return found._replace(kl=found.kl - half_log_det)

    def moments(
        self, X: tf.Tensor, neighbors: tf.Tensor, q: Rows | Products, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of :meth:`local`, ``[n, P]`` each, without what only the KL needs."""
        a, residual = neighborhoods.weights(*self._covariances(X, neighbors))
        mean = tf.linalg.matvec(tf.gather(q.mean, rows), a, transpose_a=True)
        return mean, residual[:, None] + q.variances(rows, a)

    def weights(self, X: tf.Tensor, neighbors: tf.Tensor) -> tf.Tensor:
        """``a = K_I^-1 k_I  [n, H]``, whose sum with u_I is the mean of f given u_I."""
        return neighborhoods.weights(*self._covariances(X, neighbors))[0]

    def inverse(self, X: tf.Tensor, neighbors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """``a = K_I^-1 k_I  [n, H]`` and ``K_I^-1  [n, H, H]``."""
        K, k, _ = self._covariances(X, neighbors)
        inverse, _ = neighborhoods.inverse_of(K)
        return tf.linalg.matvec(inverse, k), inverse

    def chained(
        self, drawn: tf.Tensor, before: tf.Tensor, q: Rows, rows: tuple[tf.Tensor, tf.Tensor]
    ) -> tf.Tensor:
        """
        Terms of ``KL[q(u) || prod_j p(u_j | u_before(j))]``, one for each j drawn, ``[n]``; their
        sum over all j is that KL.

        For a covariance without a diagonal part, its factors are taken to be rows of a lower
        triangular matrix, whose diagonal has ``log |S| / 2``; with both parts there is no such sum.

        :param drawn: ``[n]``.
        :param before: some points before each of them, ``[n, H]``; -1 for none.
        :param rows: both as rows of q, any of which stands for none.
        """
        a, v = self.conditional(drawn, before)
        v = v[:, None]
        all_rows = tf.concat([rows[0][:, None], rows[1]], axis=1)
        contrast = tf.concat([tf.ones_like(v), -a], axis=1)  # u_j - a^T u_before
        error = tf.linalg.matvec(tf.gather(q.mean, all_rows), contrast, transpose_a=True)
        spread = q.variances(all_rows, contrast)
        terms = 0.5 * (tf.math.log(v) + (tf.square(error) + spread) / v - 1.0)
        return tf.reduce_sum(terms - tf.math.log(_own_scales(q, rows[0], drawn)), axis=1)

    def conditional(self, drawn: tf.Tensor, others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        ``u_j`` given ``u_others`` under the prior: weights ``[n, H]`` and variances ``[n]``.

        :param drawn: ``[n]``.
        :param others: ``[n, H]``, not j; -1 for none, whose weight is zero.
        """
        exists = others >= 0
        Z = tf.convert_to_tensor(self._inducing_variable.Z)
        places = tf.where(exists, others, drawn[:, None])
        K, k, diagonal = self._covariances(tf.gather(Z, drawn), places)
        mask = tf.cast(exists, K.dtype)
        # those that are none are independent of all others, and of u_j
        own = tf.where(exists, tf.linalg.diag_part(K), tf.ones_like(k))
        K = tf.linalg.set_diag(K * mask[:, :, None] * mask[:, None, :], own)
        a, residual = neighborhoods.weights(K, k * mask, diagonal)
        return a, residual + self.nugget

    def union(self, X: tf.Tensor, active: tf.Tensor, q: Rows, rows: tf.Tensor) -> "Union":
        """
        All rows from one set of points.

        :param active: ``[m]``; ``rows`` the same.
        """
        Z = tf.gather(tf.convert_to_tensor(self._inducing_variable.Z), active)  # [m, D]
        L = self._factor(Z)
        A = linalg.solve_triangular(L, covariance(self.kernel, Z, X))  # [m, n]
        W = linalg.solve_triangular(L, A, adjoint=True)  # K_A^-1 k_A
        return Union(L, A, W, q, rows)

    def prior_factor(self) -> tf.Tensor:
        """Of the prior covariance of all M points, ``[M, M]``."""
        return self._factor(tf.convert_to_tensor(self._inducing_variable.Z))

    def _factor(self, Z: tf.Tensor) -> tf.Tensor:
        K = linalg.add_jitter(covariance(self.kernel, Z), self.nugget)
        return linalg.cholesky(K, "K_A (covariance of the active inducing points)")

    def _covariances(
        self, X: tf.Tensor, places: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        Z = tf.gather(tf.convert_to_tensor(self._inducing_variable.Z), places)  # [n, H, D]
        K, k, diagonal = local_covariances(self.kernel, X, Z)
        return linalg.add_jitter(K, self.nugget), k, diagonal

    @functools.cached_property
    def nugget(self) -> tf.Tensor:
        """Jitter of every point, the same in every set that it is in: a part of the prior of u."""
        Z = tf.convert_to_tensor(self._inducing_variable.Z)
        if isinstance(self.kernel, Stationary):
            Z = Z[:1]
        return linalg.jitter(self.kernel(Z, full_cov=False), self._jitter)


def marginals_in_blocks(
    moments: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    Xnew: tf.Tensor,
    numbers_per_row: int,
    full_output_cov: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance of the rows of ``Xnew [..., N, D]``, some rows at a time; in GPflow's shapes.

    :param moments: both ``[n, P]``, of ``[n, D]``.
    :param numbers_per_row: of the largest tensors that it makes.
    """
    flat = tf.reshape(Xnew, [-1, Xnew.shape[-1]])
    both = in_blocks(lambda X: tf.stack(list(moments(X))), flat, numbers_per_row)  # [2, n, P]
    shape = tf.concat([tf.shape(Xnew)[:-1], tf.shape(both)[2:]], axis=0)
    mean, var = tf.reshape(both[0], shape), tf.reshape(both[1], shape)
    return mean, spread_outputs(var, False) if full_output_cov else var


class Union(NamedTuple):
    """Rows that see one set of m points."""

    L: tf.Tensor
    """Factor of ``K_A [m, m]``."""
    A: tf.Tensor
    """``L^-1 k_A [m, n]``"""
    W: tf.Tensor
    """``K_A^-1 k_A [m, n]``"""
    q: Rows
    rows: tf.Tensor

    def mean(self) -> tf.Tensor:
        """``[n, P]``"""
        return tf.linalg.matmul(self.W, tf.gather(self.q.mean, self.rows), transpose_a=True)

    def variances(self, diagonal: tf.Tensor) -> tf.Tensor:
        """``[n, P]``, from ``k(x, x) [n]``."""
        residual = tf.maximum(diagonal - tf.reduce_sum(tf.square(self.A), axis=0), 0.0)
        spread = [tf.reduce_sum(tf.square(half), axis=1) for half in self._halves()]  # [P, n]
        return residual[:, None] + tf.transpose(tf.add_n(spread))

    def covariance(self, prior: tf.Tensor) -> tf.Tensor:
        """``[P, n, n]``, from ``k(X, X) [n, n]``."""
        residual = prior - tf.linalg.matmul(self.A, self.A, transpose_a=True)
        spread = [tf.linalg.matmul(half, half, transpose_a=True) for half in self._halves()]
        return residual + tf.add_n(spread)

    def kl(self) -> tf.Tensor:
        """``KL[q(u_A) || p(u_A)]`` summed over outputs."""
        S, half_log_det = self.q.covariances(self.rows[None])
        mean = linalg.solve_triangular(self.L, tf.gather(self.q.mean, self.rows))
        eye = tf.eye(tf.shape(self.L)[0], dtype=self.L.dtype)
        inverse = tf.linalg.cholesky_solve(self.L, eye)
        if S.shape.rank == 3:
            trace = tf.reduce_sum(tf.linalg.diag_part(inverse)[:, None] * S[0])
        else:
            trace = tf.reduce_sum(inverse * S[0])
        outputs = tf.cast(tf.shape(mean)[1], mean.dtype)
        numbers = tf.cast(tf.size(mean), mean.dtype)
        log_det = outputs * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self.L)))
        squares = tf.reduce_sum(tf.square(mean))
        return 0.5 * (trace + squares - numbers) + log_det - half_log_det[0]

    def _halves(self) -> list[tf.Tensor]:
        """What the covariance of q adds, ``half^T half``: ``[P, ., n]`` each."""
        found = []
        if self.q.scales is not None:
            scales = tf.transpose(tf.gather(self.q.scales, self.rows))  # [P, m]
            found.append(scales[:, :, None] * self.W)
        if self.q.factors is not None:
            factors = tf.transpose(tf.gather(self.q.factors, self.rows), [1, 2, 0])  # [P, R, m]
            found.append(
                tf.linalg.matmul(
                    factors,
                    tf.broadcast_to(
                        self.W, tf.concat([tf.shape(factors)[:1], tf.shape(self.W)], axis=0)
                    ),
                )
            )
        return found


def _own_scales(q: Rows, rows: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
    """What ``|S|^(1/2)`` has as its factor for each of the points drawn, ``[n, P]``."""
    if q.factors is None:
        return tf.gather(q.scales, rows)
    factors = tf.gather(q.factors, rows)  # [n, P, M]
    return tf.abs(tf.gather(factors, drawn, axis=2, batch_dims=1))
