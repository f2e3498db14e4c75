"""Whitened sparse posteriors as lists of independent Gaussian blocks.

SVGP is one block, SOLVE-GP two, a finite basis with standard normal weights one whose residual is
zero. Marginals, joint distribution and KL are the same formulas for all of them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from gpflow_sparse.numerics import linalg


class Block(NamedTuple):
    """Independent whitened Gaussian variables and their covariance with ``f`` at each input."""

    A: tf.Tensor
    """``[..., M, N]``: covariance of the whitened variables with ``f``, such as ``Luu^-1 Kuf``."""
    q_mu: tf.Tensor
    """``[M, P]``: mean of the whitened variables under q."""
    q_sqrt: tf.Tensor | None
    """``[P, M, M]``: lower factor of their covariance under q; None for a fixed mean."""


def marginals(
    Kff_diag: tf.Tensor, blocks: Sequence[Block]
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    Mean and variance of ``f`` at each input, and variance of ``f`` given the variables.

        mean = sum_b A_b^T m_b
        var  = [k(x, x) - sum_b |A_b|^2]  +  sum_b |R_b^T A_b|^2

    The bracket is a Nystrom residual, at least zero but for rounding: it is formed first and
    clipped, so the variance cannot be negative. Time O(N sum_b M_b^2 P).

    :param Kff_diag: prior variances, ``[N]``.
    :param blocks: blocks with ``A [M_b, N]``.
    :return: mean ``[N, P]`` and variance ``[N, P]``, prior mean and noise excluded; and the
        bracket, ``[N]``.
    """
    means, explained, spreads = [], [], []
    for block in blocks:
        if block.A.dtype != block.q_mu.dtype:
            block = in_batch_precision(block)
        if block.q_sqrt is None:
            mean = tf.linalg.matmul(block.A, block.q_mu, transpose_a=True)
            squares, spread = tf.reduce_sum(tf.square(block.A), axis=-2), tf.zeros_like(mean)
        else:
            mean, squares, spread = gaussian_moments(*block)
        means.append(mean)  # A^T m  [N, P]
        explained.append(squares)  # |A|^2  [N]
        spreads.append(spread)  # |R^T A|^2  [N, P]
    mean, squares, spread = (
        tf.cast(tf.add_n(parts), Kff_diag.dtype) for parts in (means, explained, spreads)
    )
    residual = tf.maximum(Kff_diag - squares, 0.0)
    return mean, residual[:, None] + spread, residual


def in_batch_precision(block: Block) -> Block:
    """The block with q in the float type of ``A``, which may be less precise."""
    return Block(block.A, *(None if q is None else tf.cast(q, block.A.dtype) for q in block[1:]))


@tf.custom_gradient
def grouped_products(A: tf.Tensor, rows: tf.Tensor) -> Any:
    """
    ``A_b^T A_b [g, s, s]`` of the columns of each group, with one product in the gradient where
    TensorFlow's has two.

    :param A: ``[M, N]``.
    :param rows: columns of each group, ``[g, s]``.
    """
    grouped = tf.gather(tf.transpose(A), rows)  # [g, s, M]

    def gradient(dC: tf.Tensor) -> tuple[tf.Tensor, None]:
        dgrouped = tf.linalg.matmul(dC + tf.linalg.matrix_transpose(dC), grouped)
        columns = tf.reshape(dgrouped, [-1, tf.shape(A)[0]])  # [g s, M]
        dA = tf.math.unsorted_segment_sum(columns, tf.reshape(rows, [-1]), tf.shape(A)[1])
        return tf.transpose(dA), None

    return tf.linalg.matmul(grouped, grouped, transpose_b=True), gradient


def joint(Kff: tf.Tensor, blocks: Sequence[Block]) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and joint covariance of ``f`` at all inputs; leading batch dimensions are allowed.

        cov = k(X, X) - sum_b A_b^T A_b + sum_b A_b^T R_b R_b^T A_b

    Time O(N^2 sum_b M_b P).

    :param Kff: prior covariance, ``[..., N, N]``.
    :param blocks: blocks with ``A [..., M_b, N]``.
    :return: mean ``[..., N, P]`` and covariance ``[..., P, N, N]``.
    """
    residual = Kff
    for block in blocks:
        residual = residual - tf.linalg.matmul(block.A, block.A, transpose_a=True)
    mean = tf.add_n([tf.linalg.matmul(b.A, b.q_mu, transpose_a=True) for b in blocks])
    num_outputs = tf.shape(mean)[-1]
    cov = tf.repeat(residual[..., None, :, :], num_outputs, axis=-3)
    for block in blocks:
        if block.q_sqrt is not None:
            A = block.A[..., None, :, :]  # [..., 1, M, N]
            RA = tf.linalg.matmul(block.q_sqrt, A, transpose_a=True)  # R^T A  [..., P, M, N]
            cov = cov + tf.linalg.matmul(RA, RA, transpose_a=True)
    return mean, cov


def draws(
    Kff_diag: tf.Tensor,
    blocks: Sequence[Block],
    noise: tf.Tensor,
    block_noise: Sequence[tf.Tensor],
) -> tf.Tensor:
    """
    Draws of functions, shared by a group of inputs, plus an independent residual at each input.

        f = sum_b A_b^T (m_b + R_b eps_b) + sqrt(k(x, x) - sum_b |A_b|^2) eps

    Covariances within a group are as in :func:`joint`, except for the residual, which is
    independent. Time O(S P sum_b (M_b^2 + N M_b)) for N inputs in a group.

    :param Kff_diag: prior variances ``[..., N]``.
    :param blocks: blocks with ``A [..., M_b, N]`` and factors.
    :param noise: standard normal, ``[..., N, P]``; leading axes are broadcast.
    :param block_noise: standard normal, one ``[..., M_b, P]`` for each block.
    :return: ``[..., N, P]``, prior mean excluded.
    """
    residual, f = Kff_diag, tf.zeros([], noise.dtype)
    for block, eps in zip(blocks, block_noise, strict=True):
        residual = residual - tf.reduce_sum(tf.square(block.A), axis=-2)
        f = f + tf.linalg.matmul(block.A, _drawn(block, eps), transpose_a=True)
    return f + root(residual)[..., None] * noise


def _drawn(block: Block, eps: tf.Tensor) -> tf.Tensor:
    """``m + R eps [..., M, P]``."""
    if block.q_sqrt is None:
        return block.q_mu + tf.zeros_like(eps)
    M, P = eps.shape[-2:]
    columns = tf.transpose(tf.reshape(eps, [-1, M, P]), [2, 1, 0])  # [P, M, n]
    # one matmul: the gradient of an einsum over all axes takes sixty times as long
    spread = tf.transpose(tf.linalg.matmul(block.q_sqrt, columns), [2, 1, 0])
    return block.q_mu + tf.reshape(spread, tf.shape(eps))


def root(variances: tf.Tensor) -> tf.Tensor:
    """Standard deviations; variances below zero by rounding give about 0 without a gradient."""
    least = 1e-18 if variances.dtype == tf.float64 else 1e-12
    return tf.sqrt(tf.maximum(variances, tf.constant(least, variances.dtype)))


def kl_from_standard_normal(q_mu: tf.Tensor, q_sqrt: tf.Tensor) -> tf.Tensor:
    """
    KL[ N(q_mu, q_sqrt q_sqrt^T) || N(0, I) ], summed over outputs.

        KL = ( ||R||_F^2 + ||m||^2 - dim ) / 2 - sum log |diag R|

    :param q_mu: ``[M, P]``.
    :param q_sqrt: lower triangular, ``[P, M, M]``.
    :return: scalar.
    """
    return _kl_from_standard_normal(tf.convert_to_tensor(q_mu), tf.convert_to_tensor(q_sqrt))


@tf.custom_gradient
def _kl_from_standard_normal(q_mu: tf.Tensor, q_sqrt: tf.Tensor) -> Any:
    """The KL with a hand-written gradient; TensorFlow's makes a zero matrix for the diagonal."""
    dim = tf.cast(tf.size(q_mu), q_mu.dtype)
    diagonal = tf.linalg.diag_part(q_sqrt)
    squares = tf.reduce_sum(tf.square(q_sqrt)) + tf.reduce_sum(tf.square(q_mu))
    kl = 0.5 * (squares - dim) - tf.reduce_sum(tf.math.log(tf.abs(diagonal)))

    def gradient(dkl: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        dR = tf.linalg.set_diag(dkl * q_sqrt, dkl * (diagonal - 1.0 / diagonal))
        return dkl * q_mu, dR

    return kl, gradient


@tf.custom_gradient
def gaussian_moments(A: tf.Tensor, q_mu: tf.Tensor, q_sqrt: tf.Tensor) -> Any:
    """
    ``A^T m``, ``|A|^2`` and ``|R^T A|^2``, with a gradient that skips the zeros of ``q_sqrt``,
    unlike TensorFlow's.
    """
    RA = linalg.lower_matmul(q_sqrt, A[None], adjoint=True)  # R^T A  [P, M, N]
    mean = tf.linalg.matmul(A, q_mu, transpose_a=True)
    explained = tf.reduce_sum(tf.square(A), axis=-2)
    spread = tf.transpose(tf.reduce_sum(tf.square(RA), axis=-2))

    def gradient(dmean: tf.Tensor, dexplained: tf.Tensor, dspread: tf.Tensor) -> Any:
        dRA = RA * (2.0 * tf.transpose(dspread)[:, None, :])  # [P, M, N]
        dA = tf.linalg.matmul(q_mu, dmean, transpose_b=True) + A * (2.0 * dexplained)
        dA = dA + tf.reduce_sum(linalg.lower_matmul(q_sqrt, dRA), axis=0)
        dR = linalg.lower_outer(A[None], dRA)  # [P, M, M]
        return dA, tf.linalg.matmul(A, dmean), tf.linalg.band_part(dR, -1, 0)

    return (mean, explained, spread), gradient
