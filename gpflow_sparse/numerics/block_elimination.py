"""Cholesky factors and projections of covariances that come in blocks.

A *block matrix* is a sequence of rows, ``K[i][j]`` for ``j <= i``: the lower triangle of a
symmetric matrix. A *block column* is a sequence ``F[i]`` with the same row heights.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from gpflow_sparse.numerics import linalg

# Diagonal blocks above this size are congruence-transformed in halves.
_LEAF = 256

BlockMatrix = Sequence[Sequence[tf.Tensor]]
BlockColumn = Sequence[tf.Tensor]


def block_cholesky(K: BlockMatrix, names: Sequence[str]) -> list[list[tf.Tensor]]:
    """
    Lower Cholesky factor of a block matrix, by block elimination.

    The diagonal blocks are the factors of the successive Schur complements. The operations are
    those of a factorization of the whole matrix, (sum M_i)^3 / 3, but mostly in matrix products.

    :param K: blocks ``K[i][j] [..., M_i, M_j]``, ``j <= i``.
    :param names: names of the diagonal blocks, for the error.
    :return: blocks ``L[i][j]``, ``j <= i``.
    :raises FactorizationError: see :func:`gpflow_sparse.numerics.linalg.cholesky`.
    """
    L: list[list[tf.Tensor]] = []
    for i, row in enumerate(K):
        L.append([])
        for j in range(i):
            C = row[j] - _sum_products(L[i], L[j])  # K_ij - sum_k<j L_ik L_jk^T
            transposed = linalg.solve_triangular(L[j][j], tf.linalg.matrix_transpose(C))
            L[i].append(tf.linalg.matrix_transpose(transposed))  # C L_jj^-T
        schur = row[i] - _sum_products(L[i], L[i])  # K_ii - sum_k<i L_ik L_ik^T
        L[i].append(linalg.cholesky(schur, names[i]))
    return L


def block_solve(L: BlockMatrix, F: BlockColumn) -> list[tf.Tensor]:
    """
    ``L^-1 F`` by forward substitution over blocks; time O((sum M_i)^2 n).

    :param L: blocks of a lower factor, as :func:`block_cholesky` returns them.
    :param F: right-hand sides ``F[i] [..., M_i, n]``.
    :return: blocks ``A[i] [..., M_i, n]``.
    """
    A: list[tf.Tensor] = []
    for i, rhs in enumerate(F):
        for k in range(i):
            rhs = rhs - tf.linalg.matmul(L[i][k], A[k])
        A.append(linalg.solve_triangular(L[i][i], rhs))
    return A


def block_solve_adjoint(L: BlockMatrix, F: BlockColumn) -> list[tf.Tensor]:
    """
    ``L^-T F`` by back substitution over blocks; time O((sum M_i)^2 n).

    :param L: blocks of a lower factor, as :func:`block_cholesky` returns them.
    :param F: right-hand sides ``F[i] [..., M_i, n]``.
    :return: blocks ``G[i] [..., M_i, n]``.
    """
    G: list[tf.Tensor] = []
    for i in reversed(range(len(F))):
        rhs = F[i]
        for row, below in zip(L[i + 1 :], G, strict=True):
            rhs = rhs - tf.linalg.matmul(row[i], below, transpose_a=True)
        G.insert(0, linalg.solve_triangular(L[i][i], rhs, adjoint=True))
    return G


def project(K: BlockMatrix, F: BlockColumn, names: Sequence[str]) -> list[tf.Tensor]:
    """
    ``A = chol(K)^-1 F`` by blocks, with one hand-written gradient for factor and solve together.

    Writing ``dA`` for the gradient at ``A`` and ``Phi`` for "lower triangle, half the diagonal",

        dF = L^-T dA,      dK = sym( L^-T (-Phi(dA A^T)) L^-1 ),

    because ``L^T tril(L^-T dA A^T)`` and ``dA A^T`` have the same lower triangle: the gradient at
    ``L`` is never formed. Time O((sum M_i)^2 n + (sum M_i)^3), a third of it forward.

    :param K: blocks ``K[i][j] [..., M_i, M_j]``, ``j <= i``, jitter included.
    :param F: ``F[i] [..., M_i, n]``.
    :param names: names of the diagonal blocks of ``K``, for the error.
    :return: blocks ``A[i] [..., M_i, n]``.
    :raises FactorizationError: see :func:`gpflow_sparse.numerics.linalg.cholesky`.
    """
    parts = ([list(row) for row in K], list(F))

    @tf.custom_gradient
    def projection(*flat: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
        rows, rhs = tf.nest.pack_sequence_as(parts, flat)
        L = block_cholesky(rows, names)
        A = block_solve(L, rhs)

        def gradient(*dA: tf.Tensor) -> list[tf.Tensor]:
            return [*_gradient_at_matrix(L, A, dA), *block_solve_adjoint(L, dA)]

        return A, gradient

    return list(projection(*tf.nest.flatten(parts)))


def _gradient_at_matrix(L: BlockMatrix, A: BlockColumn, dA: BlockColumn) -> list[tf.Tensor]:
    """Gradient at the lower blocks of ``K``, row by row; see :func:`project` for the formula."""
    size = len(A)
    H: list[list[tf.Tensor]] = []  # S + S^T, with S = -Phi(dA A^T)
    for i in range(size):
        S = -linalg.half_lower(linalg.lower_outer(dA[i], A[i]))
        left = [-tf.linalg.matmul(dA[i], A[j], transpose_b=True) for j in range(i)]
        H.append([*left, S + tf.linalg.matrix_transpose(S)])
    W = _congruence(L, H)
    # an off-diagonal block counts for its transpose too
    return [(0.5 if i == j else 1.0) * W[i][j] for i in range(size) for j in range(i + 1)]


def _congruence(L: BlockMatrix, H: BlockMatrix) -> list[list[tf.Tensor]]:
    """
    Lower blocks of the symmetric ``W = L^-T H L^-1``, that is of the solution of ``L^T W L = H``.

    Symmetry saves a third of the work of two solves. By rows of ``L = [[L1, 0], [L21, L2]]``,

        W2  = L2^-T H2 L2^-1,    T = L2^-T H21,    W21 = (T - W2 L21) L1^-1,
        W1  = L1^-T (H1 - Q - Q^T) L1^-1,          Q   = L21^T (T - W2 L21 / 2).

    :param H: symmetric, its lower blocks ``[..., M_i, M_j]``; diagonal blocks in full.
    """
    if len(L) == 1:
        return [[_dense_congruence(L[0][0], H[0][0])]]
    first, below = L[0][0], [row[0] for row in L[1:]]
    rest = [row[1:] for row in L[1:]]
    W2 = _congruence(rest, [row[1:] for row in H[1:]])
    T = block_solve_adjoint(rest, [row[0] for row in H[1:]])
    V = _symmetric_matmul(W2, below)  # W2 L21
    column = [linalg.solve_right(t - v, first) for t, v in zip(T, V, strict=True)]
    inner = H[0][0]
    for b, t, v in zip(below, T, V, strict=True):
        Q = tf.linalg.matmul(b, t - 0.5 * v, transpose_a=True)
        inner = inner - (Q + tf.linalg.matrix_transpose(Q))
    rows = [[w, *row] for w, row in zip(column, W2, strict=True)]
    return [[_dense_congruence(first, inner)], *rows]


def _dense_congruence(L: tf.Tensor, H: tf.Tensor) -> tf.Tensor:
    """``L^-T H L^-1``, by halves while these are large enough for fast matrix products."""
    size = L.shape[-1]
    if size is None or size <= _LEAF:
        return linalg.solve_right(linalg.solve_triangular(L, H, adjoint=True), L)
    k = size // 2
    halves = [[L[..., :k, :k]], [L[..., k:, :k], L[..., k:, k:]]]
    (W1,), (W21, W2) = _congruence(halves, [[H[..., :k, :k]], [H[..., k:, :k], H[..., k:, k:]]])
    top = tf.concat([W1, tf.linalg.matrix_transpose(W21)], axis=-1)
    return tf.concat([top, tf.concat([W21, W2], axis=-1)], axis=-2)


def _symmetric_matmul(W: BlockMatrix, F: BlockColumn) -> list[tf.Tensor]:
    """``W F`` for a symmetric ``W`` given by its lower blocks."""
    size = len(F)
    products = []
    for i in range(size):
        terms = [tf.linalg.matmul(W[i][j], F[j]) for j in range(i + 1)]
        terms += [tf.linalg.matmul(W[j][i], F[j], transpose_a=True) for j in range(i + 1, size)]
        products.append(tf.add_n(terms))
    return products


def _sum_products(left: Sequence[tf.Tensor], right: Sequence[tf.Tensor]) -> tf.Tensor | float:
    """``sum_k left[k] right[k]^T`` over the blocks that both rows have."""
    terms = [tf.linalg.matmul(a, b, transpose_b=True) for a, b in zip(left, right, strict=False)]
    return sum(terms) if terms else 0.0
