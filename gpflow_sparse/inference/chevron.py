"""Gaussian weights whose covariance has a factor with few dense columns.

    q(w) = N(mu, C C^T),        C = [[B, 0], [D, diag(c)]]

The first h weights are the *head*, the others the *tail*. B is lower triangular; where D is zero
the covariance is a dense block and a diagonal; where h is zero it is a diagonal. Each of L latent
functions has its own weights.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from gpflow_sparse.numerics import devices, linalg
from gpflow_sparse.numerics.streaming import streamed_sum

Columns = Callable[[tf.Tensor], tf.Tensor]
"""A function of indices of basis functions ``[k]`` that returns ``Phi [N, k]``."""
Sums = Sequence[tf.Tensor]

# The largest number of basis functions for which a square matrix over all of them is formed.
MAX_DENSE = 4096
# Entries of the largest tensor of one chunk of functions: 32 MiB in float32, 64 in float64.
_CHUNK_ENTRIES = 2**23


class Head(NamedTuple):
    """Parameters of q of the head."""

    mu: tf.Tensor
    """``[h, L]``."""
    B: tf.Tensor
    """``[L, h, h]``, lower triangular."""


class Tail(NamedTuple):
    """Parameters of q of some weights of the tail."""

    mu: tf.Tensor
    """``[k, L]``."""
    log_c: tf.Tensor
    """``[k, L]``."""
    D: tf.Tensor | None
    """``[k, L, h]``; None for zero."""


def chunk_size(num_rows: Any) -> Any:
    """The number of functions in a chunk whose values at N rows take bounded memory."""
    entries = devices.block_entries(_CHUNK_ENTRIES)
    if isinstance(num_rows, int):
        return max(1, entries // max(num_rows, 1))
    return tf.maximum(1, entries // tf.maximum(num_rows, 1))


def head_vectors(head: Head) -> tf.Tensor:
    """Mean and columns of the head side by side, ``[h, L (1 + h)]``: means, then by latent."""
    L, h = head.B.shape[:2]
    return tf.concat([head.mu, tf.reshape(tf.transpose(head.B, [1, 0, 2]), [h, L * h])], axis=1)


def tail_vectors(tail: Tail) -> tf.Tensor:
    """Mean and columns of the tail, ``[k, L (1 + h)]``; without D its mean alone, ``[k, L]``."""
    if tail.D is None:
        return tail.mu
    L, h = tail.D.shape[1:]
    return tf.concat([tail.mu, tf.reshape(tail.D, [-1, L * h])], axis=1)


def add_projections(head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
    """``[n, L (1 + h)]`` of the head plus ``[n, L]`` or ``[n, L (1 + h)]`` of the tail."""
    return head + tf.pad(tail, [[0, 0], [0, head.shape[1] - tail.shape[1]]])


def split_projections(projections: tf.Tensor, num_latent: int) -> tuple[tf.Tensor, tf.Tensor]:
    """``[n, L (1 + h)]`` as the mean ``[n, L]`` and the dense columns ``[n, L, h]``."""
    L = num_latent
    h = projections.shape[1] // L - 1
    rows = tf.shape(projections)[0]  # -1 would be wrong where h is zero
    return projections[:, :L], tf.reshape(projections[:, L:], [rows, L, h])


def head_kl(head: Head, precision: tf.Tensor) -> tf.Tensor:
    """
    The head's part of ``KL[q(w) || N(0, diag(precision)^-1)]``, a scalar.

        1/2 sum_i [ s_i (mu_i^2 + sum_r B_ir^2) - log s_i - 2 log |B_ii| - 1 ]

    :param precision: s, ``[h]``.
    """
    squares = tf.square(head.mu) + tf.transpose(tf.reduce_sum(tf.square(head.B), axis=-1))
    logs = 2.0 * tf.math.log(tf.abs(tf.linalg.diag_part(head.B)))  # [L, h]
    s = precision[:, None]
    return 0.5 * tf.reduce_sum(s * squares - tf.math.log(s) - tf.transpose(logs) - 1.0)


def tail_kl(tail: Tail, precision: tf.Tensor, *, with_mean: bool = True) -> tf.Tensor:
    """
    The term of each weight of the tail in the KL, ``[k]``.

        1/2 [ s_i (mu_i^2 + sum_r D_ir^2 + c_i^2) - log s_i - 2 log c_i - 1 ]

    :param precision: s, ``[k]``, the diagonal of the prior precision.
    :param with_mean: whether to include ``s_i mu_i^2 - log s_i``; False where the precision is not
        diagonal and the caller adds ``mu^T S mu``.
    """
    s = precision[:, None]
    squares = tf.exp(2.0 * tail.log_c)
    if tail.D is not None:
        squares = squares + tf.reduce_sum(tf.square(tail.D), axis=-1)
    terms = s * squares - 2.0 * tail.log_c - 1.0
    if with_mean:
        terms = terms + s * tf.square(tail.mu) - tf.math.log(s)
    return 0.5 * tf.reduce_sum(terms, axis=1)


def best_factor(
    basis: Any, X: tf.Tensor, weight: tf.Tensor, *, num_head: int, with_columns: bool
) -> tuple[Any, Any, tf.Tensor]:
    """
    The factor of the given structure that maximizes the elbo for Gaussian noise and any mean.

    With ``A = Phi^T Phi / noise + S``: proposition 1 of Evans and Nair (2020) for the diagonal,
    and the lower factor of the inverse of the head's part of A or, for dense columns, of all of A:
    its column r is ``A[r:, r:]^-1 e_1`` over the root of its first element, which is the optimal
    column of a chevron whichever others are dense. O(N m + N h^2 + h^3), or O(N m^2 + m^3).

    :param basis: m functions.
    :param X: training inputs ``[N, D]``, all or a random subset.
    :param weight: number of training rows per row of X, divided by the noise variance.
    :param with_columns: whether D is not zero.
    :return: ``B [h, h]`` or None, ``D [m - h, h]`` or None, and ``log c [m - h]``.
    :raises ValueError: for dense columns over more than 4,096 functions.
    """
    h, m = num_head, basis.num_basis
    if with_columns and m > MAX_DENSE:
        raise ValueError(
            "the best columns of a chevron need the precision of all weights, so at most "
            f"{MAX_DENSE} functions; the basis has {m}. Take covariance='block', or train the "
            "columns."
        )

    def summed(function: Callable[[tf.Tensor], tf.Tensor], chosen: tf.Tensor) -> tf.Tensor:
        """Sum over all rows of a function of ``Phi [n, k]``, by blocks of rows."""
        rows = chunk_size(int(chosen.shape[0]))
        sums = streamed_sum(lambda X, _: [function(basis(X[0], chosen))], [X], block_rows=rows)
        return weight * sums[0]

    chunks = [tf.range(start, min(start + 2**14, m)) for start in range(h, m, 2**14)]
    squares = [summed(lambda Phi: tf.reduce_sum(tf.square(Phi), axis=0), part) for part in chunks]
    A_diag = tf.concat(squares, axis=0) + basis.precision_diagonal(tf.range(h, m))
    log_c = -0.5 * tf.math.log(A_diag)
    if not h:
        return None, None, log_c
    dense = tf.range(m if with_columns else h)
    A = summed(lambda Phi: tf.linalg.matmul(Phi, Phi, transpose_a=True), dense)
    A = A + basis.prior_precision(dense, dense)
    G = linalg.inverse_factor(A, "the precision of the weights")
    return G[:h, :h], G[h:, :h] if with_columns else None, log_c


def best_mean(basis: Any, X: tf.Tensor, errors: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """
    The mean of the weights that maximizes the elbo for Gaussian noise and any covariance.

    ``mu = A^-1 Phi^T e / noise`` with A as in :func:`best_factor`; O(N m^2 + m^3).

    :param X: training inputs ``[N, D]``, all or a random subset.
    :param errors: e, the outputs less the prior mean, ``[N, L]``.
    :param weight: number of training rows per row of X, divided by the noise variance.
    :return: ``[m, L]``
    :raises ValueError: for more than 4,096 functions.
    """
    m = int(basis.num_basis)
    if m > MAX_DENSE:
        raise ValueError(
            f"the best mean needs the precision of all weights, so at most {MAX_DENSE} functions; "
            f"the basis has {m}. Train the mean."
        )
    every = tf.range(m)

    def sums(rows: Sequence[tf.Tensor], _: Any) -> list[tf.Tensor]:
        Phi = basis(rows[0], every)  # [n, m]
        return [tf.linalg.matmul(Phi, part, transpose_a=True) for part in (Phi, rows[1])]

    squares, products = streamed_sum(sums, [X, errors], block_rows=chunk_size(m))
    A = weight * squares + basis.prior_precision(every, every)  # [m, m]
    scale = tf.math.rsqrt(tf.linalg.diag_part(A))[:, None]  # functions differ in size
    try:
        L = linalg.cholesky(scale * A * tf.transpose(scale), "the precision of the weights")
    except linalg.FactorizationError:
        if basis.precision != "dense":
            raise
        # Phi^T Phi and S are singular together where centers are close: whiten by S + jitter I
        (R,) = basis.precompute()
        half = linalg.solve_triangular(R, weight * squares)  # [m, m]
        A = linalg.solve_triangular(R, tf.transpose(half)) + tf.eye(m, dtype=half.dtype)
        L = linalg.cholesky(A, "the precision of the whitened weights")
        v = tf.linalg.cholesky_solve(L, linalg.solve_triangular(R, weight * products))
        return linalg.solve_triangular(R, v, adjoint=True)
    return scale * tf.linalg.cholesky_solve(L, scale * weight * products)


def moments(
    columns: Columns,
    head: Head,
    tail: Tail,
    num_rows: tf.Tensor,
    *,
    full_cov: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and (co)variance of ``phi(x)^T w``, computed in chunks of functions.

    Time O(N m (1 + h) L), with ``full_cov`` O(N^2 m L); memory O(N h L) and the result.

    :param num_rows: N.
    :return: mean ``[N, L]``, and variance ``[N, L]`` or covariance ``[L, N, N]``.
    """
    L, h = head.B.shape[:2]
    head_Phi = columns(tf.range(h)) if h else tf.zeros([num_rows, 0], dtype=head.mu.dtype)
    projections = tf.linalg.matmul(head_Phi, head_vectors(head))  # [N, L (1 + h)]
    shape = tf.stack([L, num_rows, num_rows]) if full_cov else tf.stack([num_rows, L])
    spread = tf.zeros(shape, dtype=head.mu.dtype)

    present = [part for part in tail if part is not None]

    def add(Phi: tf.Tensor, parts: Sums, sums: Sums) -> Sums:
        part = Tail(parts[0], parts[1], None if tail.D is None else parts[2])
        projected = tf.linalg.matmul(Phi, tail_vectors(part))
        if full_cov:  # Phi diag(c^2) Phi^T  [L, N, N]
            scaled = Phi[None] * tf.exp(tf.transpose(part.log_c))[:, None, :]  # [L, N, chunk]
            spread = tf.linalg.matmul(scaled, scaled, transpose_b=True)
        else:
            spread = tf.linalg.matmul(tf.square(Phi), tf.exp(2.0 * part.log_c))
        return add_projections(sums[0], projected), sums[1] + spread

    start = projections, spread
    projections, spread = _over_chunks(columns, h, present, num_rows, add, start)
    mean, dense = split_projections(projections, L)
    if full_cov:
        P = tf.transpose(dense, [1, 0, 2])  # [L, N, h]
        return mean, spread + tf.linalg.matmul(P, P, transpose_b=True)
    return mean, spread + tf.reduce_sum(tf.square(dense), axis=-1)


def tail_projections(
    columns: Columns, num_head: int, weights: Sums, num_rows: tf.Tensor
) -> tf.Tensor:
    """
    ``Phi V`` over the whole tail, ``[N, Q]``; O(N m Q).

    :param weights: parts of V, side by side, ``[m - h, ...]`` each.
    """
    num_vectors = sum(math.prod(part.shape[1:]) for part in weights)

    def add(Phi: tf.Tensor, parts: Sums, sums: Sums) -> Sums:
        flat = [tf.reshape(part, [tf.shape(part)[0], -1]) for part in parts]
        return (sums[0] + tf.linalg.matmul(Phi, tf.concat(flat, axis=1)),)

    start = tf.zeros(tf.stack([num_rows, num_vectors]), dtype=weights[0].dtype)
    return _over_chunks(columns, num_head, weights, num_rows, add, (start,))[0]


def _over_chunks(
    columns: Columns,
    num_head: int,
    weights: Sums,
    num_rows: Any,
    add: Callable[[tf.Tensor, Sums, Sums], Sums],
    sums: Sums,
) -> Sums:
    """
    Loop over chunks of the tail with ``sums = add(Phi, weights of the chunk, sums)``.

    All chunks have one size and the rest another, neither of which depends on where a chunk begins,
    as XLA requires.
    """
    size, chunk = tf.shape(weights[0])[0], chunk_size(num_rows)
    whole = size // chunk * chunk

    def added(start: tf.Tensor, count: tf.Tensor, sums: Sums) -> Sums:
        Phi = columns(num_head + start + tf.range(count))  # [N, count]
        parts = [tf.gather(part, start + tf.range(count)) for part in weights]
        return add(Phi, parts, sums)

    def body(start: tf.Tensor, *sums: tf.Tensor) -> Sums:
        more = added(start, chunk, sums)
        kept = (tf.ensure_shape(a, b.shape) for a, b in zip(more, sums, strict=True))
        return start + chunk, *kept

    last = tf.while_loop(
        lambda start, *_: start < whole, body, (tf.constant(0), *sums), parallel_iterations=1
    )
    return added(whole, size - whole, last[1:])
