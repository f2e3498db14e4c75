"""
Blocks of cached posteriors in coordinates in which covariances of q are diagonal.

With ``R R^T = V diag(s^2) V^T`` and ``B = V^T A``, the moments of a block with one output are

    mean = B^T V^T m,      |A|^2 = |B|^2,      |R^T A|^2 = sum_j s_j^2 B_j^2,

so that one product of matrices, with ``V^T`` times the inverse factor, gives all of them. Both sums
of squares have terms of one sign, as before.
"""

from collections.abc import Sequence

import tensorflow as tf

from gpflow_sparse.inference.blocks import Block
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.base import MeanAndVariance

# Variables of a block up to which its eigenvectors are computed: 0.3 s on two cores.
_MOST = 1024


def is_rotatable(block: Block) -> bool:
    """Whether :func:`rotated` is worth its time: one output, and not very many variables."""
    return block.q_sqrt is not None and block.q_mu.shape[1] == 1 and block.q_mu.shape[0] <= _MOST


def rotated(block: Block) -> Block:
    """The block ``V^T A``, ``V^T m``, with standard deviations ``s [M, 1]`` as its ``q_sqrt``."""
    R = tf.cast(tf.convert_to_tensor(block.q_sqrt)[0], tf.float64)
    # with NaN the eigenvectors are NaN, or an error without a name, depending on the processor
    S = linalg.require_finite(
        tf.linalg.matmul(R, R, transpose_b=True),
        "q_sqrt must be finite, got NaN, infinity or values too large to be squared",
    )
    variances, V = tf.linalg.eigh(S)
    scales = tf.sqrt(tf.maximum(variances, 0.0))
    A, q_mu = (tf.linalg.matmul(V, tf.cast(t, V.dtype), transpose_a=True) for t in block[:2])
    return Block(*(tf.cast(t, block.q_mu.dtype) for t in (A, q_mu, scales[:, None])))


def rotated_marginals(Kff_diag: tf.Tensor, blocks: Sequence[Block]) -> MeanAndVariance:
    """:func:`gpflow_sparse.inference.blocks.marginals` of rotated blocks, ``[N, 1]`` each."""
    B, q_mu, scales = (tf.concat(parts, axis=0) for parts in zip(*blocks, strict=True))
    weights = tf.concat([tf.ones_like(scales), tf.square(scales)], axis=1)  # [M, 2]
    sums = tf.linalg.matmul(tf.square(B), weights, transpose_a=True)  # |A|^2, |R^T A|^2  [N, 2]
    residual = tf.maximum(Kff_diag[:, None] - sums[:, :1], 0.0)
    return tf.linalg.matmul(B, q_mu, transpose_a=True), residual + sums[:, 1:]
