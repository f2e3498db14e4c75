"""Cholesky factors and projections of covariances that come in blocks.

A *block matrix* is a sequence of rows, ``K[i][j]`` for ``j <= i``: the lower triangle of a
symmetric matrix. A *block column* is a sequence ``F[i]`` with the same row heights.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from gpflow_sparse import linalg

BlockMatrix = Sequence[Sequence[tf.Tensor]]
BlockColumn = Sequence[tf.Tensor]


def block_cholesky(K: BlockMatrix, names: Sequence[str]) -> list[list[tf.Tensor]]:
    """
    Lower Cholesky factor of a block matrix, by block elimination.

    The diagonal blocks are the factors of the successive Schur complements. The work is that of one
    factor of the whole matrix, (sum M_i)^3 / 3, but mostly in matmuls.

    :param K: blocks ``K[i][j] [..., M_i, M_j]``, ``j <= i``.
    :param names: one per diagonal block, for the error.
    :return: blocks ``L[i][j]``, ``j <= i``.
    :raises FactorizationError: see :func:`gpflow_sparse.linalg.cholesky`.
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


def project(K: BlockMatrix, F: BlockColumn, names: Sequence[str]) -> list[tf.Tensor]:
    """
    ``A = chol(K)^-1 F`` by blocks, with one hand-written gradient for factor and solve together.

    Writing ``dA`` for the gradient at ``A`` and ``Phi`` for "lower triangle, half the diagonal",

        dF = L^-T dA,      dK = sym( L^-T (-Phi(dA A^T)) L^-1 ),

    because ``L^T tril(L^-T dA A^T)`` and ``dA A^T`` have the same lower triangle: the gradient at
    ``L`` is never formed. Time O((sum M_i)^2 n + (sum M_i)^3), a third of it forward.

    :param K: blocks ``K[i][j] [..., M_i, M_j]``, ``j <= i``, jitter included.
    :param F: ``F[i] [..., M_i, n]``.
    :param names: one per diagonal block of ``K``, for the error.
    :return: blocks ``A[i] [..., M_i, n]``.
    :raises FactorizationError: see :func:`gpflow_sparse.linalg.cholesky`.
    """
    size = len(F)

    @tf.custom_gradient
    def projection(*flat: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
        rows, rhs = _unflatten(flat, size)
        L = block_cholesky(rows, names)
        A = block_solve(L, rhs)

        def gradient(*dA: tf.Tensor) -> list[tf.Tensor]:
            return [*_gradient_at_matrix(L, A, dA), *_block_solve_adjoint(L, dA)]

        return A, gradient

    return list(projection(*(block for row in K for block in row), *F))


def _unflatten(
    flat: Sequence[tf.Tensor], size: int
) -> tuple[list[list[tf.Tensor]], list[tf.Tensor]]:
    blocks = iter(flat)
    return [[next(blocks) for _ in range(i + 1)] for i in range(size)], list(blocks)


def _gradient_at_matrix(L: BlockMatrix, A: BlockColumn, dA: BlockColumn) -> list[tf.Tensor]:
    """Gradient at the lower blocks of ``K``, row by row; see :func:`project` for the formula."""
    size = len(A)
    # U = S L^-1, lower triangular by blocks, with S = -Phi(dA A^T)
    U: list[list[Any]] = [[None] * (i + 1) for i in range(size)]
    for i in range(size):
        for j in reversed(range(i + 1)):
            if i == j:
                S = -linalg.half_lower(linalg.lower_outer(dA[i], A[i]))
            else:
                S = -tf.linalg.matmul(dA[i], A[j], transpose_b=True)
            for k in range(j + 1, i + 1):
                S = S - tf.linalg.matmul(U[i][k], L[k][j])
            U[i][j] = linalg.solve_right(S, L[j][j])
    # Y = L^-T U, a full matrix
    Y: list[list[Any]] = [[None] * size for _ in range(size)]
    for j in range(size):
        for i in reversed(range(size)):
            rhs = U[i][j] if j <= i else tf.zeros_like(tf.linalg.matrix_transpose(U[j][i]))
            for k in range(i + 1, size):
                rhs = rhs - tf.linalg.matmul(L[k][i], Y[k][j], transpose_a=True)
            Y[i][j] = linalg.solve_triangular(L[i][i], rhs, adjoint=True)
    # an off-diagonal block stands for itself and for its mirror image
    return [
        (0.5 if i == j else 1.0) * (Y[i][j] + tf.linalg.matrix_transpose(Y[j][i]))
        for i in range(size)
        for j in range(i + 1)
    ]


def _block_solve_adjoint(L: BlockMatrix, F: BlockColumn) -> list[tf.Tensor]:
    """``L^-T F`` by back substitution over blocks."""
    size = len(F)
    G: list[Any] = [None] * size
    for i in reversed(range(size)):
        rhs = F[i]
        for k in range(i + 1, size):
            rhs = rhs - tf.linalg.matmul(L[k][i], G[k], transpose_a=True)
        G[i] = linalg.solve_triangular(L[i][i], rhs, adjoint=True)
    return G


def _sum_products(left: Sequence[tf.Tensor], right: Sequence[tf.Tensor]) -> tf.Tensor | float:
    """``sum_k left[k] right[k]^T`` over the blocks both rows have."""
    terms = [tf.linalg.matmul(a, b, transpose_b=True) for a, b in zip(left, right, strict=False)]
    return sum(terms) if terms else 0.0
