r"""Bounds that let q shrink the residual process, by a closed form of its covariance.

``f = g + r`` with the residual process r of the prior given the inducing variables, ``r(X) ~ N(0,
D)`` at the data, ``D = Kff - Qff``. The usual ELBO keeps ``q(r) = p(r)``. With ``q(r(X)) = N(0,
D^1/2 V D^1/2)`` and Gaussian noise of variance s2 the best block-diagonal V, ``(I + D_bb /
s2)^-1``, replaces the trace term of every block b of rows,

    - tr(D_bb) / (2 s2)    by    - log |I + D_bb / s2| / 2:

"log" has one row in each block, "block" has neighboring rows. ``docs/bounds.md`` has the derivation
and says for which models these are lower bounds. Titsias, "New bounds for sparse variational
Gaussian processes" (2025, arXiv:2502.08730); Bui, Ashman and Turner, "Tighter sparse variational
Gaussian processes" (2025, arXiv:2502.04750).
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.likelihoods import Likelihood

from gpflow_sparse.numerics import linalg

BOUNDS = ("standard", "log", "block")


class ElboTerms(NamedTuple):
    """What an ELBO needs of a posterior at the rows of a batch."""

    mean: tf.Tensor
    """``[n, P]``, mean function included."""
    var: tf.Tensor
    """``[n, P]``, with the residual process at its prior."""
    kl: tf.Tensor
    """KL divergence of the inducing variables to their prior, a scalar."""
    residual: tf.Tensor
    """Variances of the residual process ``[n, P]``; or, for groups of rows, see below."""
    covariance: tf.Tensor | None = None
    """Covariances ``D_bb [g, P or 1, s, s]`` of the residual process in groups of rows."""


class Groups(NamedTuple):
    """Disjoint groups of equally many rows; some entries may be missing."""

    rows: tf.Tensor
    """Indices of rows ``[g, s]``; 0 where there is none."""
    exists: tf.Tensor
    """Whether there is a row, ``[g, s]``."""


def sum_over_rows(
    bound: str,
    likelihood: Likelihood,
    data: tuple[tf.Tensor, tf.Tensor],
    terms: ElboTerms,
    *,
    groups: Groups | None = None,
    scale: Any = None,
    num_latent_gps: int = 1,
) -> tf.Tensor:
    """
    ``sum_n E_q[log p(y_n | f_n)] - KL[q(r) || p(r)]``, a scalar in nats.

    :param bound: one of ``BOUNDS``.
    :param data: ``(X [n, D], Y [n, P])``.
    :param groups: the rows of ``terms.covariance``, for "block".
    :param scale: v, for "log" with other than Gaussian noise: ``q(r) = N(0, v D)``, one v for all
        rows, since the KL is then n times a function of v whatever D is.
    :param num_latent_gps: number of independent residual processes, for ``scale``.
    """
    (X, Y), (mean, var, _, residual, covariance) = data, terms
    if bound == "log" and scale is not None:
        v = tf.convert_to_tensor(scale)
        expectations = likelihood.variational_expectations(X, mean, var - (1.0 - v) * residual, Y)
        count = tf.cast(tf.shape(X)[0] * num_latent_gps, v.dtype)
        return tf.reduce_sum(expectations) - 0.5 * count * (v - 1.0 - tf.math.log(v))
    total = tf.reduce_sum(likelihood.variational_expectations(X, mean, var, Y))
    if bound == "standard":
        return total
    noise = likelihood.variance_at(X) + tf.zeros_like(mean)  # [n, P]
    if bound == "log":
        return total + tf.reduce_sum(log_gain(residual / noise))
    assert groups is not None  # as of `covariance`
    return total + tf.reduce_sum(block_gain(covariance, noise, groups))


def log_gain(ratio: tf.Tensor) -> tf.Tensor:
    """
    ``(x - log(1 + x)) / 2`` for each ``x = d / s2``, at least zero: by how much "log" exceeds the
    standard bound.
    """
    return 0.5 * (ratio - tf.math.log1p(ratio))


def block_gain(covariance: tf.Tensor, noise: tf.Tensor, groups: Groups) -> tf.Tensor:
    """
    ``(tr(D_bb / s2) - log |I + D_bb / s2|) / 2`` for each group and output, ``[g, P]``; O(g s^3).

    :param covariance: ``[g, P or 1, s, s]``; 1 where all outputs have one.
    :param noise: ``[n, P]``.
    """
    roots = tf.gather(tf.math.rsqrt(noise), groups.rows)  # [g, s, P]
    roots *= tf.cast(groups.exists, noise.dtype)[:, :, None]
    roots = tf.linalg.matrix_transpose(roots)  # [g, P, s]
    ratio = covariance * roots[..., :, None] * roots[..., None, :]  # D / s2  [g, P, s, s]
    half_log_det = half_log_det_of_one_plus(ratio)
    return 0.5 * tf.linalg.trace(ratio) - half_log_det


def half_log_det_of_one_plus(ratio: tf.Tensor) -> tf.Tensor:
    """``log |I + D / s2| / 2`` of each matrix ``[..., s, s]``."""
    size = tf.shape(ratio)[-1]
    L = linalg.cholesky(
        ratio + tf.eye(size, dtype=ratio.dtype), "I + D / noise (residual of a block)"
    )
    return tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=-1)


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
