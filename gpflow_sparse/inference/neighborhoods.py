"""Gaussian conditionals of a function given its values at a few places, one set of places a row.

For a row x with places ``Z_I [H, D]``: ``u_I ~ N(m_I, S_I)`` before, ``p(u_I) = N(0, K_I)``, and

    mean = a^T m_I,      var = [k(x, x) - k_I^T a] + a^T S_I a,      a = K_I^-1 k_I,
    KL   = ( log |K_I| - log |S_I| + tr(K_I^-1 S_I) + m_I^T K_I^-1 m_I - H ) / 2,

for a batch of n rows at once and P outputs that share K. Their gradient is written by hand around
the inverse ``K_I^-1 [n, H, H]``: one product of such matrices, where automatic differentiation of a
batched Cholesky factor takes several triangular solves, which are slow in TensorFlow.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from gpflow_sparse.numerics import linalg

# Relative to the diagonal; a covariance of rows of a long factor is definite but for rounding.
_TINY = {tf.float64: 1e-12, tf.float32: 1e-6}


class Rows(NamedTuple):
    """
    ``q(u) = N(mean, S)`` of some inducing variables, ``S = diag(scales^2) + factors factors^T``,
    by rows, so that q of a few of them is a few rows of each.
    """

    mean: tf.Tensor
    """``[M, P]``"""
    scales: tf.Tensor | None
    """``[M, P]``; None for no diagonal part."""
    factors: tf.Tensor | None
    """``[M, P, R]``; None for a diagonal covariance."""

    def covariances(self, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        :param places: sets of different rows, ``[n, H]``.
        :return: variances ``[n, H, P]`` or covariances ``[n, P, H, H]`` of each set, and
            ``log |S_I| / 2  [n]`` summed over outputs.
        """
        scales = None if self.scales is None else tf.gather(self.scales, places)  # [n, H, P]
        if self.factors is None:
            return tf.square(scales), tf.reduce_sum(tf.math.log(scales), axis=[1, 2])
        S = self._from_factors(places)
        diagonal = tf.linalg.diag_part(S)
        if scales is None:
            S = tf.linalg.set_diag(S, diagonal * (1.0 + _TINY[S.dtype]))
        else:
            own = tf.square(tf.linalg.matrix_transpose(scales))
            S = tf.linalg.set_diag(S, diagonal + own)
        L = linalg.cholesky(S, "S_I (covariance of q at the neighbors)")
        return S, tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=[1, 2])

    def variances(self, places: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
        """``a^T S_I a  [n, P]`` for ``a [n, H]``; O(n H R), and no ``S_I``."""
        total = tf.zeros([], a.dtype)
        if self.scales is not None:
            halves = tf.gather(self.scales, places) * a[:, :, None]
            total += tf.reduce_sum(tf.square(halves), axis=1)
        if self.factors is not None:
            rows = tf.gather(self.factors, places)  # [n, H, P, R]
            total += tf.reduce_sum(tf.square(tf.einsum("nhpr,nh->npr", rows, a)), axis=2)
        return total

    def _from_factors(self, places: tf.Tensor) -> tf.Tensor:
        """``factors_I factors_I^T  [n, P, H, H]``."""
        rows = tf.transpose(tf.gather(self.factors, places), [0, 2, 1, 3])  # [n, P, H, R]
        return tf.linalg.matmul(rows, rows, transpose_b=True)


class Products(NamedTuple):
    """``q(u) = N(mean, S)`` with S in full, for predictions from small sets."""

    mean: tf.Tensor
    """``[M, P]``"""
    S: tf.Tensor
    """``[P, M, M]``"""

    @classmethod
    def of(cls, q: Rows) -> "Products":
        """O(P M^2 R), of rows without a diagonal part."""
        factors = tf.transpose(q.factors, [1, 0, 2])  # [P, M, R]
        return cls(q.mean, tf.linalg.matmul(factors, factors, transpose_b=True))

    def variances(self, places: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
        """``a^T S_I a  [n, P]``, O(n P H^2)."""
        size = tf.shape(self.S)[-1]
        flat = places[:, :, None] * size + places[:, None, :]  # [n, H, H]
        S = tf.gather(tf.reshape(self.S, [tf.shape(self.S)[0], -1]), flat, axis=1)  # [P, n, H, H]
        return tf.einsum("pnhg,nh,ng->np", S, a, a)


class Local(NamedTuple):
    """What a sparse posterior says at each of n rows, from the places of that row."""

    mean: tf.Tensor
    """``[n, P]``, prior mean excluded."""
    var: tf.Tensor
    """``[n, P]``"""
    kl: tf.Tensor
    """``[n]``, summed over outputs; without ``-log |S_I| / 2``, see :func:`conditionals`."""


def conditionals(K: tf.Tensor, k: tf.Tensor, kdiag: tf.Tensor, m: tf.Tensor, S: tf.Tensor) -> Local:
    """
    Moments and KL of every row, the latter up to the entropy of q, which is the caller's:
    ``-log |S_I| / 2`` depends on how S is parametrized.

    Time O(n H^2 (H + P)), and O(n P H^2) more for S in full.

    :param K: ``[n, H, H]``, jitter included.
    :param k: ``[n, H]``.
    :param kdiag: ``k(x, x) [n]``.
    :param m: ``[n, H, P]``.
    :param S: variances ``[n, H, P]``, or covariances ``[n, P, H, H]``.
    """
    diagonal = S.shape.rank == 3

    @tf.custom_gradient
    def local(K: tf.Tensor, k: tf.Tensor, kdiag: tf.Tensor, m: tf.Tensor, S: tf.Tensor) -> Any:
        inverse, half_log_det = inverse_of(K)
        a = tf.linalg.matvec(inverse, k)  # [n, H]
        alpha = tf.linalg.matmul(inverse, m)  # K^-1 m  [n, H, P]
        Sa = S * a[:, :, None] if diagonal else tf.einsum("nphg,ng->nhp", S, a)  # [n, H, P]
        mean = tf.linalg.matvec(m, a, transpose_a=True)
        residual = kdiag - tf.reduce_sum(k * a, axis=1)
        spread = tf.linalg.matvec(Sa, a, transpose_a=True)
        outputs = tf.cast(tf.shape(m)[2], m.dtype)
        total = tf.reduce_sum(S, axis=2) if diagonal else tf.reduce_sum(S, axis=1)  # over outputs
        weights = tf.linalg.diag_part(inverse) if diagonal else inverse
        trace = tf.reduce_sum(weights * total, axis=range(1, total.shape.rank))
        dim = outputs * tf.cast(tf.shape(k)[1], m.dtype)
        kl = outputs * half_log_det + 0.5 * (trace + tf.reduce_sum(m * alpha, axis=[1, 2]) - dim)

        def gradient(gm: tf.Tensor, gr: tf.Tensor, gs: tf.Tensor, gk: tf.Tensor) -> Any:
            t = tf.linalg.matvec(m, gm) + 2.0 * tf.linalg.matvec(Sa, gs)
            by_a = tf.linalg.matvec(inverse, t)
            scale = (0.5 * gk)[:, None, None]
            middle, by_S = _of_trace(inverse, total, diagonal)
            own = tf.square(a)[:, :, None] if diagonal else _outer(a, a)[:, None]
            dS = (
                own * (gs[:, None, :] if diagonal else gs[:, :, None, None])
                + (scale if diagonal else scale[:, None]) * by_S
            )
            across = tf.linalg.matmul(alpha, alpha, transpose_b=True)
            dK = _outer(gr[:, None] * a - by_a, a) + scale * (outputs * inverse - middle - across)
            dm = a[:, :, None] * gm[:, None, :] + gk[:, None, None] * alpha
            return dK, by_a - 2.0 * gr[:, None] * a, gr, dm, dS

        return (mean, residual, spread, kl), gradient

    mean, residual, spread, kl = local(K, k, kdiag, m, S)
    return Local(mean, tf.maximum(residual, 0.0)[:, None] + spread, kl)


def _of_trace(inverse: tf.Tensor, total: tf.Tensor, diagonal: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """``K^-1 S K^-1`` for S summed over outputs, and ``K^-1`` in the shape of S."""
    if diagonal:
        middle = tf.linalg.matmul(inverse * total[:, None, :], inverse)
        return middle, tf.linalg.diag_part(inverse)[:, :, None]
    return tf.linalg.matmul(tf.linalg.matmul(inverse, total), inverse), inverse[:, None]


def weights(K: tf.Tensor, k: tf.Tensor, kdiag: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    ``a = K^-1 k  [n, H]`` and ``k(x, x) - k^T a  [n]``: the conditional given u_I, without q.

    Arguments as :func:`conditionals`, gradient by hand. Time O(n H^3) for the factor only.
    """

    @tf.custom_gradient
    def solve(K: tf.Tensor, k: tf.Tensor, kdiag: tf.Tensor) -> Any:
        L = linalg.cholesky(K, "K_I (covariance of the neighbors of a row)")
        a = tf.linalg.cholesky_solve(L, k[:, :, None])[:, :, 0]
        residual = kdiag - tf.reduce_sum(k * a, axis=1)

        def gradient(ga: tf.Tensor, gr: tf.Tensor) -> tuple[tf.Tensor, ...]:
            by_a = tf.linalg.cholesky_solve(L, ga[:, :, None])[:, :, 0]
            total = gr[:, None]
            return _outer(total * a - by_a, a), by_a - 2.0 * total * a, gr

        return (a, residual), gradient

    a, residual = solve(K, k, kdiag)
    return a, tf.maximum(residual, 0.0)


def inverse_of(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """``K^-1 [n, H, H]`` and ``log |K| / 2  [n]``."""
    L = linalg.cholesky(K, "K_I (covariance of the neighbors of a row)")
    eye = tf.eye(tf.shape(K)[-1], batch_shape=tf.shape(K)[:1], dtype=K.dtype)
    half = tf.linalg.triangular_solve(L, eye)
    inverse = tf.linalg.matmul(half, half, transpose_a=True)
    return inverse, tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=1)


def _outer(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """``[n, H, H]`` of ``[n, H]`` each."""
    return x[:, :, None] * y[:, None, :]
