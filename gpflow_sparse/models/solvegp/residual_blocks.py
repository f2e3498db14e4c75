"""The bound "block" of SOLVEGPR: q shrinks the residual process in blocks of neighboring rows.

See :mod:`gpflow_sparse.inference.residual_bounds`.
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf

from gpflow_sparse.inference import collapsed
from gpflow_sparse.inference.blocks import grouped_products
from gpflow_sparse.numerics import linalg


class Groups(NamedTuple):
    """Disjoint groups of equally many rows; some entries may be missing."""

    rows: tf.Tensor
    """Indices of rows ``[g, s]``; 0 where there is none."""
    exists: tf.Tensor
    """Whether there is a row, ``[g, s]``."""


def with_block_bound(
    sums: collapsed.RowSums, A: tf.Tensor, Kff: tf.Tensor, groups: Groups, noise: tf.Tensor
) -> collapsed.RowSums:
    """
    The sums of some rows for the bound "block".

    :param A: ``[M, N]``.
    :param Kff: prior covariances ``[g, s, s]`` of groups of rows.
    :param noise: noise variance, a float64 scalar.
    """
    products = grouped_products(tf.cast(A, tf.float64), groups.rows)
    D = tf.cast(Kff, tf.float64) - products
    gain = tf.reduce_sum(block_gain(D, noise, groups))
    return sums._replace(residual=sums.residual - 2.0 * noise * gain)


def block_gain(covariance: tf.Tensor, noise: tf.Tensor, groups: Groups) -> tf.Tensor:
    """
    ``(tr(D_bb / s2) - log |I + D_bb / s2|) / 2`` for each group, ``[g]``; O(g s^3).

    :param covariance: ``D_bb [g, s, s]``.
    :param noise: s2, a scalar.
    """
    exists = tf.cast(groups.exists, covariance.dtype)
    ratio = covariance / noise * exists[:, :, None] * exists[:, None, :]
    one = tf.eye(tf.shape(ratio)[-1], dtype=ratio.dtype)
    L = linalg.cholesky(ratio + one, "I + D / noise (residual of a block)")
    return 0.5 * tf.linalg.trace(ratio) - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=1)


def neighbor_groups(X: tf.Tensor, size: int) -> Groups:
    """
    Groups of at most ``size`` neighboring rows: halves of halves of the rows, each cut at the
    median of the column in which they extend furthest. O(n log(n) log(n / size)).

    :param X: ``[n, D]``, in units in which distances count.
    """
    X = tf.stop_gradient(X)
    known = X.shape[0] is not None
    n = X.shape[0] if known else tf.shape(X)[0]
    pieces = -(-n // size)
    # a power of two at least as large, of groups of equal size, the last of which are not full
    depth = (pieces - 1).bit_length() if known else _log2_rounded_up(pieces)
    count = 2**depth
    width = -(-n // count)
    rows = tf.range(count * width)

    def halve(level: Any, rows: tf.Tensor) -> tuple[Any, tf.Tensor]:
        grouped = tf.reshape(rows, [2**level, -1])  # [groups, members]
        points = tf.gather(X, tf.minimum(grouped, n - 1))  # [groups, members, D]
        extent = tf.reduce_max(points, axis=1) - tf.reduce_min(points, axis=1)
        widest = tf.argmax(extent, axis=1)  # [groups]
        values = tf.gather(points, widest, axis=2, batch_dims=1)  # [groups, members]
        order = tf.argsort(values, axis=1)
        return level + 1, tf.reshape(tf.gather(grouped, order, batch_dims=1), [-1])

    if known:  # XLA compiles no loop over changing shapes
        for level in range(depth):
            _, rows = halve(level, rows)
    else:
        shapes = tf.TensorShape([]), tf.TensorShape([None])
        _, rows = tf.while_loop(
            lambda level, _: level < depth, halve, (0, rows), shape_invariants=shapes
        )
    rows = tf.reshape(rows, [count, width])
    return Groups(tf.minimum(rows, n - 1), rows < n)


def _log2_rounded_up(count: tf.Tensor) -> tf.Tensor:
    logarithm = tf.math.log(tf.cast(count, tf.float64)) / math.log(2.0)
    return tf.cast(tf.math.ceil(logarithm - 1e-9), tf.int32)
