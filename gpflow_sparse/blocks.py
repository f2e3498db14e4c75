"""A whitened sparse posterior is a list of independent Gaussian blocks.

SVGP is one block, SOLVE-GP two, a finite basis with standard normal weights one whose residual is
zero. Marginals, joint distribution and KL are the same few lines for all of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class Block(NamedTuple):
    """One independent whitened Gaussian, and how strongly each input feels it."""

    A: tf.Tensor
    """``[..., M, N]``: covariance of the whitened variables with ``f``, such as ``Luu^-1 Kuf``."""
    q_mu: tf.Tensor
    """``[M, P]``: mean of the whitened variables."""
    q_sqrt: tf.Tensor | None
    """``[P, M, M]``: lower factor of their covariance; None where they are fixed at the mean."""


def marginals(Kff_diag: tf.Tensor, blocks: Sequence[Block]) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance of ``f`` at each input.

        mean = sum_b A_b^T m_b
        var  = [k(x, x) - sum_b |A_b|^2]  +  sum_b |R_b^T A_b|^2

    The bracket is a Nystrom residual, at least zero but for rounding: it is formed first and
    clipped, so the variance cannot turn negative. Time O(N sum_b M_b^2 P).

    :param Kff_diag: prior variances, ``[N]``.
    :param blocks: with ``A [M_b, N]``.
    :return: mean ``[N, P]`` and variance ``[N, P]``, prior mean and noise excluded.
    """
    residual = Kff_diag
    for block in blocks:
        residual = residual - tf.reduce_sum(tf.square(block.A), axis=-2)
    mean = _mean(blocks)
    var = tf.zeros_like(mean) + tf.maximum(residual, 0.0)[:, None]
    for block in blocks:
        if block.q_sqrt is not None:
            RA = tf.linalg.matmul(block.q_sqrt, block.A[None], transpose_a=True)  # R^T A  [P, M, N]
            var = var + tf.transpose(tf.reduce_sum(tf.square(RA), axis=-2))
    return mean, var


def joint(Kff: tf.Tensor, blocks: Sequence[Block]) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and covariance of ``f`` at all inputs together; leading batch dimensions are allowed.

        cov = k(X, X) - sum_b A_b^T A_b + sum_b A_b^T R_b R_b^T A_b

    Time O(N^2 sum_b M_b P).

    :param Kff: prior covariance, ``[..., N, N]``.
    :param blocks: with ``A [..., M_b, N]``.
    :return: mean ``[..., N, P]`` and covariance ``[..., P, N, N]``.
    """
    residual = Kff
    for block in blocks:
        residual = residual - tf.linalg.matmul(block.A, block.A, transpose_a=True)
    mean = _mean(blocks)
    num_outputs = tf.shape(mean)[-1]
    cov = tf.repeat(residual[..., None, :, :], num_outputs, axis=-3)
    for block in blocks:
        if block.q_sqrt is not None:
            A = block.A[..., None, :, :]  # [..., 1, M, N]
            RA = tf.linalg.matmul(block.q_sqrt, A, transpose_a=True)  # R^T A  [..., P, M, N]
            cov = cov + tf.linalg.matmul(RA, RA, transpose_a=True)
    return mean, cov


def kl_from_standard_normal(q_mu: tf.Tensor, q_sqrt: tf.Tensor) -> tf.Tensor:
    """
    KL[ N(q_mu, q_sqrt q_sqrt^T) || N(0, I) ], summed over outputs.

        KL = ( ||R||_F^2 + ||m||^2 - dim ) / 2 - sum log |diag R|

    :param q_mu: ``[M, P]``.
    :param q_sqrt: lower triangular, ``[P, M, M]``.
    :return: scalar.
    """
    dim = tf.cast(tf.size(q_mu), q_mu.dtype)
    log_det = tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(q_sqrt))))
    squares = tf.reduce_sum(tf.square(q_sqrt)) + tf.reduce_sum(tf.square(q_mu))
    return 0.5 * (squares - dim) - log_det


def _mean(blocks: Sequence[Block]) -> tf.Tensor:
    return tf.add_n([tf.linalg.matmul(b.A, b.q_mu, transpose_a=True) for b in blocks])
