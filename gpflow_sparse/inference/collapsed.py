"""Collapsed bounds and the optimal q for Gaussian noise, from a few sums over rows.

``f = A^T w + r`` with standard normal weights ``w [M]`` and an independent residual process ``r``,
observed as ``f`` plus noise. ``A [M, N]`` are whitened features: ``chol(Kuu)^-1 Kuf`` of inducing
points, blocks of it for orthogonal sets, or scaled basis functions, whose residual is zero. Results
depend on the rows through the sums in :class:`RowSums` only, so rows can be streamed.

Everything here is in float64 whatever the type of the features, which are cast before they are
multiplied: rounded sums of float32 products may be indefinite. Measured with 64 float32 features
of 10^6 rows: with a smooth kernel and noise 1e-4, ``I + A A^T / noise`` from float32 products could
not be factored, from cast features it could; with a Matern kernel and noise 0.01 the bound is off
by 5e-6 relative against float64 and by 7e-6 from float32 products, which is the rounding of the
features themselves.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from gpflow_sparse.inference import residual_bounds
from gpflow_sparse.numerics import linalg

# The name of the matrix in errors.
_PRECISION = "I + A A^T / noise"


class RowSums(NamedTuple):
    """Sums over all rows, in float64; they may be added. M counts all features, P outputs."""

    AAT: tf.Tensor
    """``A A^T [M, M]``."""
    Ae: tf.Tensor
    """``A e [M, P]`` for the errors ``e = Y - m(X)`` of the prior mean."""
    squares: tf.Tensor
    """``|e|^2``, over all outputs."""
    residual: tf.Tensor
    """
    ``sum_n d_n``, ``d_n = k(x_n, x_n) - |a_n|^2``: the prior variance that the features do not
    explain. For the bound "log" or "block" the smaller ``noise sum_n log(1 + d_n / noise)`` or
    ``noise sum_b log |I + D_bb / noise|`` in its place.
    """
    num_rows: tf.Tensor
    """N."""


def row_sums(A: tf.Tensor, errors: tf.Tensor, Kff_diag: tf.Tensor) -> RowSums:
    """
    Sums over some rows, which add up over all rows; time O(N M (M + P)).

    :param A: ``[M, N]``.
    :param errors: ``Y - m(X) [N, P]``.
    :param Kff_diag: ``k(x, x) [N]``. Each row's residual is clipped at 0, because of rounding.
    """
    A, errors, Kff_diag = (tf.cast(part, tf.float64) for part in (A, errors, Kff_diag))
    residual = tf.maximum(Kff_diag - tf.reduce_sum(tf.square(A), axis=0), 0.0)
    return RowSums(
        AAT=linalg.gram(A),
        Ae=tf.linalg.matmul(A, errors),
        squares=tf.reduce_sum(tf.square(errors)),
        residual=tf.reduce_sum(residual),
        num_rows=tf.cast(tf.shape(A)[1], tf.float64),
    )


def with_log_bound(sums: RowSums, A: tf.Tensor, Kff_diag: tf.Tensor, noise: tf.Tensor) -> RowSums:
    """
    The sums of some rows for the bound "log"; see :mod:`gpflow_sparse.inference.residual_bounds`.

    :param A: as in :func:`row_sums`, as ``Kff_diag``.
    :param noise: noise variance, a float64 scalar.
    """
    A, Kff_diag = tf.cast(A, tf.float64), tf.cast(Kff_diag, tf.float64)
    ratio = tf.maximum(Kff_diag - tf.reduce_sum(tf.square(A), axis=0), 0.0) / noise
    gain = tf.reduce_sum(residual_bounds.log_gain(ratio))
    return sums._replace(residual=sums.residual - 2.0 * noise * gain)


def corrected_row_sums(
    A: tf.Tensor, errors: tf.Tensor, Kff_diag: tf.Tensor, noise: tf.Tensor
) -> tuple[RowSums, tf.Tensor]:
    """
    Sums over rows with noise variances ``noise + k(x, x) - |a|^2``: the residual of the
    features counts as independent noise.

    :return: the sums of rows divided by the root of their noise variance, for
        :func:`log_density` and :func:`optimal_q` with noise 1; and the sum of the logarithms of the
        noise variances, which that log density lacks.
    """
    A, errors, Kff_diag = (tf.cast(part, tf.float64) for part in (A, errors, Kff_diag))
    noises = noise + tf.maximum(Kff_diag - tf.reduce_sum(tf.square(A), axis=0), 0.0)  # [N]
    roots = tf.sqrt(noises)
    sums = row_sums(A / roots, errors / roots[:, None], tf.zeros_like(noises))
    return sums, tf.reduce_sum(tf.math.log(noises))


def reweighted(sums: RowSums, roots: tf.Tensor) -> RowSums:
    """The sums of features times ``roots [M]``, one per feature; the residual is not changed."""
    return sums._replace(
        AAT=roots[:, None] * sums.AAT * roots[None, :], Ae=roots[:, None] * sums.Ae
    )


def log_density(sums: RowSums, noise: tf.Tensor, inflated: tf.Tensor | None = None) -> tf.Tensor:
    """
    ``-(N log 2 pi + log |Qff + noise I| + e^T (Qff + inflated I)^-1 e) / 2``, over all outputs.

    With ``Qff = A^T A`` and ``L(s) = chol(I + A A^T / s)``: ``log |Qff + s I|`` is ``N log s + 2
    sum log diag L(s)``, and ``e^T (Qff + s I)^-1 e = (|e|^2 - |L(s)^-1 A e|^2 / s) / s``. Time
    O(M^3).

    :param noise: variance of the noise, a float64 scalar.
    :param inflated: another variance for the quadratic term; None for ``noise``, which gives
        ``log N(e | 0, Qff + noise I)``.
    :return: scalar, in nats.
    """
    L = _noise_factor(sums.AAT, noise)
    log_det = sums.num_rows * tf.math.log(noise) + 2.0 * _half_log_det(L)
    if inflated is None:
        inflated = noise
    else:
        L = _noise_factor(sums.AAT, inflated)
    explained = tf.reduce_sum(tf.square(linalg.solve_triangular(L, sums.Ae))) / inflated
    constant = sums.num_rows * math.log(2.0 * math.pi) + log_det
    return -0.5 * (_num_outputs(sums) * constant + (sums.squares - explained) / inflated)


def collapsed_bound(sums: RowSums, noise: tf.Tensor, sizes: Sequence[int] = ()) -> tf.Tensor:
    """
    The bound of the optimal q(w) for these features, or of the best that factorizes over sets.

    ``log N(e | 0, Qff + noise I) - residual / (2 noise)``, the residual once for every output, less
    :func:`factorization_gap` for sets. Titsias, "Variational learning of inducing variables in
    sparse Gaussian processes" (2009); eq. (3) and, for two sets, eq. (30) of Shi, Titsias and Mnih
    (2020, arXiv:1910.10596v5), computed without its N x N matrices: the optimal q has the same
    means with and without sets, and, set by set, the precision ``I + A_b A_b^T / noise``. Time
    O(M^3).

    :param sizes: number of features of each independent set, in their order in ``A``; none or one
        for a q(w) that does not factorize.
    :return: scalar, in nats.
    """
    bound = log_density(sums, noise) - _num_outputs(sums) * sums.residual / (2.0 * noise)
    return bound - factorization_gap(sums, noise, sizes)


def factorization_gap(sums: RowSums, noise: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
    """
    Difference of the bounds of the best q(w) and of the best q(w) with independent sets.

    ``(sum_b log |I + A_b A_b^T / noise| - log |I + A A^T / noise|) / 2`` for every output: at least
    0 by Fischer's inequality, and 0 for one set.

    :return: scalar, in nats.
    """
    if len(sizes) <= 1:
        return tf.zeros([], tf.float64)
    blocks = _diagonal_blocks(sums.AAT, sizes)
    parts = tf.add_n([_half_log_det(_noise_factor(block, noise)) for block in blocks])
    return _num_outputs(sums) * (parts - _half_log_det(_noise_factor(sums.AAT, noise)))


def optimal_q(
    sums: RowSums, noise: tf.Tensor, sizes: Sequence[int]
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """
    The optimal q(w) with independent sets, whose bound is :func:`collapsed_bound`.

    The means solve ``(I + A A^T / noise) m = A e / noise`` over all sets together; the covariance
    of a set is ``(I + A_b A_b^T / noise)^-1``, the same for every output. Time O(M^3).

    :return: means ``[M_b, P]`` and lower triangular factors ``[M_b, M_b]`` of the covariances.
    """
    mean = tf.linalg.cholesky_solve(_noise_factor(sums.AAT, noise), sums.Ae) / noise
    factors = [
        linalg.inverse_factor(_precision(block, noise), _PRECISION)
        for block in _diagonal_blocks(sums.AAT, sizes)
    ]
    return tf.split(mean, list(sizes), axis=0), factors


def inner_factor(sums: RowSums, noise: tf.Tensor, inner: int) -> tf.Tensor:
    """``L1 = chol(I + A1 A1^T / noise)`` of the first features, see :func:`tighter_bound`."""
    return _noise_factor(sums.AAT[:inner, :inner], noise)


def tighter_bound(
    sums: RowSums, noise: tf.Tensor, inner: int, projected_trace: tf.Tensor
) -> tf.Tensor:
    """
    The bound of the optimal q in which the first features depend on the residual process.

    Split the features into the first, ``A1 [inner, N]``, and the others, ``A2``. In ``q = q(w2)
    p(r | w2) p(w1 | w2, r, e)`` the weights of the first are conditioned on the residual process at
    the data. With ``S = A1^T A1 + noise I`` and ``R`` the covariance of ``r`` at the data,

        log N(e | 0, Qff + noise I) - tr(S^-1 R) / 2,  the trace once for every output.

    Without ``A2`` it is eq. (14) of Shi, Titsias and Mnih (2020, arXiv:1910.10596v5). With ``A2``
    the optimal Gaussian ``q(w2)`` is included: for a fixed one Jensen's inequality gives ``E log
    N(e | A2^T w2 + r, S) - KL[q(w2) || p(w2)]``, whose expectation over r is ``log N(e | A2^T w2,
    S) - tr(S^-1 R) / 2``, and the optimal q(w2) turns the rest into ``log N(e | 0, S + A2^T A2)``.

    With ``P = L1^-1 A1 / sqrt(noise)``, ``S^-1 = (I - P^T P) / noise``, so of the N x N matrix
    ``R = Kff - A^T A`` only two traces are needed: ``tr R``, which is the residual sum, and ``tr(P
    R P^T) = tr(P Kff P^T) - |P A^T|^2``.

    :param projected_trace: ``tr(P Kff P^T)``, a float64 scalar, computed in O(N^2 inner).
    :return: scalar, in nats.
    """
    # P A^T = L1^-1 A1 A^T / sqrt(noise)  [inner, M]
    PA = linalg.solve_triangular(inner_factor(sums, noise, inner), sums.AAT[:inner])
    explained = tf.reduce_sum(tf.square(PA)) / noise
    trace = (sums.residual - (projected_trace - explained)) / noise  # tr(S^-1 R)
    return log_density(sums, noise) - 0.5 * _num_outputs(sums) * trace


def _num_outputs(sums: RowSums) -> tf.Tensor:
    return tf.cast(tf.shape(sums.Ae)[1], tf.float64)


def _noise_factor(AAT: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """``chol(I + A A^T / noise)``."""
    return linalg.cholesky(_precision(AAT, noise), _PRECISION)


def _precision(AAT: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    return linalg.add_jitter(AAT / noise, tf.ones([], tf.float64))


def _half_log_det(L: tf.Tensor) -> tf.Tensor:
    """``log |L L^T| / 2``."""
    return tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)))


def _diagonal_blocks(matrix: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [matrix[e - size : e, e - size : e] for size, e in zip(sizes, ends, strict=True)]
