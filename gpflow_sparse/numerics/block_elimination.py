"""Cholesky factors and projections of covariances that come in blocks.

A *block matrix* is a sequence of rows, ``K[i][j]`` for ``j <= i``: the lower triangle of a
symmetric matrix. A *block column* is a sequence ``F[i]`` with the same row heights.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from gpflow_sparse.numerics import linalg

BlockMatrix = Sequence[Sequence[tf.Tensor]]
BlockColumn = Sequence[tf.Tensor]


def block_cholesky(K: BlockMatrix, names: Sequence[str]) -> list[list[tf.Tensor]]:
    """
    Lower Cholesky factor of a block matrix, by block elimination.

    The diagonal blocks are the factors of the successive Schur complements. It takes the operations
    of a factorization of the whole matrix, (sum M_i)^3 / 3, but mostly in matrix products.

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
        # K_ii - sum_k<i L_ik L_ik^T, with both triangles: the gradient at it is symmetric
        schur = row[i] - sum(linalg.gram(block) for block in L[i])
        L[i].append(linalg.cholesky(schur, names[i]))
    return L


def cast(blocks: BlockMatrix, dtype: tf.DType) -> list[list[tf.Tensor]]:
    """The blocks in another float type."""
    return [[tf.cast(block, dtype) for block in row] for row in blocks]


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
    :param F: ``F[i] [..., M_i, n]``; if these are float32 and ``K`` is float64, everything with n
        columns or a sum over them is in float32, and the factor and the gradient at ``K`` are not.
    :param names: names of the diagonal blocks of ``K``, for the error.
    :return: blocks ``A[i] [..., M_i, n]``.
    :raises FactorizationError: see :func:`gpflow_sparse.numerics.linalg.cholesky`.
    """
    parts = ([list(row) for row in K], list(F))

    @tf.custom_gradient
    def projection(*flat: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
        rows, rhs = tf.nest.pack_sequence_as(parts, flat)
        L = block_cholesky(rows, names)
        factor = cast(L, rhs[0].dtype)
        A = block_solve(factor, rhs)

        def gradient(*dA: tf.Tensor) -> list[tf.Tensor]:
            dF = block_solve_adjoint(factor, dA)
            return [*_gradient_at_matrix(L, A, dF), *dF]

        return A, gradient

    return list(projection(*tf.nest.flatten(parts)))


def _gradient_at_matrix(L: BlockMatrix, A: BlockColumn, dF: BlockColumn) -> list[tf.Tensor]:
    """Gradient at the lower blocks of ``K``, row by row; see :func:`project` for the formula."""
    size = len(A)
    # upper blocks U_ji = L_ij^T and their gradients, -A_j dF_i^T; of diagonal blocks -tril(dF A^T)
    U = [[tf.linalg.matrix_transpose(block) for block in row[:-1]] for row in L]
    dU = [[-tf.linalg.matmul(A[j], dF[i], transpose_b=True) for j in range(i)] for i in range(size)]
    dL = [-linalg.lower_outer(f, a) for f, a in zip(dF, A, strict=True)]
    dU, (dL,) = cast(dU, L[0][0].dtype), cast([dL], L[0][0].dtype)
    # the operations of the factorization in reverse order, see `linalg.cholesky_gradient`
    for i in reversed(range(size)):
        dL[i] = linalg.cholesky_gradient(L[i][i], dL[i])
        for j in range(i):
            dU[i][j] -= 2.0 * tf.linalg.matmul(U[i][j], dL[i])
        for j in reversed(range(i)):
            V = dU[i][j] = linalg.solve_triangular(L[j][j], dU[i][j], adjoint=True)
            for k in range(j):
                dU[i][k] -= tf.linalg.matmul(U[j][k], V)
                dU[j][k] -= tf.linalg.matmul(U[i][k], V, transpose_b=True)
            dL[j] -= linalg.lower_outer(V, U[i][j])
    dK = [[*map(tf.linalg.matrix_transpose, row), own] for row, own in zip(dU, dL, strict=True)]
    return [block for row in dK for block in row]


def _sum_products(left: Sequence[tf.Tensor], right: Sequence[tf.Tensor]) -> tf.Tensor | float:
    """``sum_k left[k] right[k]^T`` over the blocks that both rows have."""
    terms = [tf.linalg.matmul(a, b, transpose_b=True) for a, b in zip(left, right, strict=False)]
    return sum(terms) if terms else 0.0
