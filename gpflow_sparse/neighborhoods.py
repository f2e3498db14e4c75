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

from gpflow_sparse import linalg


class Local(NamedTuple):
    """What a sparse posterior says at each of n rows, from the places of that row."""

    mean: tf.Tensor
    """``[n, P]``, prior mean excluded."""
    var: tf.Tensor
    """``[n, P]``"""
    kl: tf.Tensor
    """``[n]``, summed over outputs; without ``-log |S_I| / 2``, see :func:`conditionals`."""


def conditionals(
    K: tf.Tensor, k: tf.Tensor, kdiag: tf.Tensor, m: tf.Tensor, S: tf.Tensor
) -> Local:
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
        inverse, half_log_det = _inverse(K)
        a = tf.linalg.matvec(inverse, k)  # [n, H]
        alpha = tf.linalg.matmul(inverse, m)  # K^-1 m  [n, H, P]
        Sa = S * a[:, :, None] if diagonal else tf.einsum("nphg,ng->nhp", S, a)  # [n, H, P]
        mean = tf.linalg.matvec(m, a, transpose_a=True)
        residual = tf.maximum(kdiag - tf.reduce_sum(k * a, axis=1), 0.0)
        var = residual[:, None] + tf.linalg.matvec(Sa, a, transpose_a=True)
        outputs = tf.cast(tf.shape(m)[2], m.dtype)
        total = tf.reduce_sum(S, axis=2) if diagonal else tf.reduce_sum(S, axis=1)  # over outputs
        weights = tf.linalg.diag_part(inverse) if diagonal else inverse
        trace = tf.reduce_sum(weights * total, axis=range(1, total.shape.rank))
        squares = tf.reduce_sum(m * alpha, axis=[1, 2])
        dim = outputs * tf.cast(tf.shape(k)[1], m.dtype)
        kl = outputs * half_log_det + 0.5 * (trace + squares - dim)

        def gradient(gm: tf.Tensor, gv: tf.Tensor, gk: tf.Tensor) -> tuple[tf.Tensor, ...]:
            total_gv = tf.reduce_sum(gv, axis=1)[:, None]  # [n, 1]
            t = tf.linalg.matvec(m, gm) + 2.0 * tf.linalg.matvec(Sa, gv)
            by_a = tf.linalg.matvec(inverse, t)
            dk = by_a - 2.0 * total_gv * a
            dK = _outer(total_gv * a - by_a, a)
            scale = (0.5 * gk)[:, None, None]
            if diagonal:
                middle = tf.linalg.matmul(inverse * total[:, None, :], inverse)
                half = tf.square(a)[:, :, None] * gv[:, None, :]
                dS = half + scale * tf.linalg.diag_part(inverse)[:, :, None]
            else:
                middle = tf.linalg.matmul(tf.linalg.matmul(inverse, total), inverse)
                dS = gv[:, :, None, None] * _outer(a, a)[:, None] + scale[:, None] * inverse[:, None]
            spread = tf.linalg.matmul(alpha, alpha, transpose_b=True)
            dK = dK + scale * (outputs * inverse - middle - spread)
            dm = a[:, :, None] * gm[:, None, :] + gk[:, None, None] * alpha
            return dK, dk, total_gv[:, 0], dm, dS

        return (mean, var, kl), gradient

    return Local(*local(K, k, kdiag, m, S))


def _inverse(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """``K^-1 [n, H, H]`` and ``log |K| / 2  [n]``."""
    L = linalg.cholesky(K, "K_I (covariance of the neighbors of a row)")
    eye = tf.eye(tf.shape(K)[-1], batch_shape=tf.shape(K)[:1], dtype=K.dtype)
    half = tf.linalg.triangular_solve(L, eye)
    inverse = tf.linalg.matmul(half, half, transpose_a=True)
    return inverse, tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=1)


def _outer(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """``[n, H, H]`` of ``[n, H]`` each."""
    return x[:, :, None] * y[:, None, :]
