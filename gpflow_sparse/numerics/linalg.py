"""Dense linear algebra with checked factorizations and hand-written gradients.

Two facts about TensorFlow shape this file. A failed ``tf.linalg.cholesky`` returns NaN without
raising, so every factorization here is checked and the error names the matrix. And on a CPU one
Cholesky or triangular solve runs on a single core far below matmul speed, and the registered
gradient of a Cholesky costs several times its forward pass; so factors are built recursively,
solves are split over columns, and the gradient is written by hand. On a GPU nothing is split, see
:mod:`gpflow_sparse.numerics.devices`.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_jitter

from gpflow_sparse.numerics import devices

# Leaf of the recursive factorization. Measured on two cores, float64: a 1024 x 1024 factor takes
# 22 ms in one call, 9.9 ms with leaves of 64 or 128, 11.2 ms with 256.
_LEAF = 128
# Independent column groups of one triangular solve; groups run on different cores.
_COLUMN_GROUPS = 4
# Height of the strips in which a triangle is multiplied.
_STRIP = 128
_MIN_GROUP_WIDTH = 64

# Whether a graph that is traced has no checks.
_UNCHECKED: ContextVar[bool] = ContextVar("gpflow_sparse_unchecked", default=False)
# Whether products with the rows of a batch are in float32.
_MIXED: ContextVar[bool] = ContextVar("gpflow_sparse_mixed", default=False)


class FactorizationError(ValueError):
    """Failure of a factorization; the message names the matrix that is not positive definite."""


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Trace without checks in this block: a factorization that fails returns NaN, as under XLA."""
    token = _UNCHECKED.set(True)
    try:
        yield
    finally:
        _UNCHECKED.reset(token)


@contextlib.contextmanager
def mixed_precision(is_mixed: bool = True) -> Iterator[None]:
    """Trace with products of a batch in float32 in this block; see :func:`batch_dtype`."""
    token = _MIXED.set(is_mixed)
    try:
        yield
    finally:
        _MIXED.reset(token)


def batch_dtype(dtype: tf.DType) -> tf.DType:
    """The float type of matrices with a column for each row of a batch, given the parameters'."""
    return tf.float32 if _MIXED.get() else dtype


def relative_jitter(dtype: tf.DType, at_least: float | None = None) -> float:
    """
    Jitter as a fraction of a covariance's scale: ``max(1e-6, default_jitter())`` in float64, at
    least ``1e-4`` in float32.

    GPflow's fixed ``1e-6`` is too small in float32 (measured: squared exponential kernels fail from
    M = 200 on) and does not depend on the kernel's scale.

    :param at_least: a larger fraction, set for one model.
    """
    return max(1e-6 if dtype == tf.float64 else 1e-4, default_jitter(), at_least or 0.0)


def largest_radius(dtype: tf.DType) -> float:
    """
    The largest distance of inputs from their mean, in lengthscales, at which squared distances from
    differences of squares still have rounding errors below the jitter: 29 in float32.
    """
    return float((relative_jitter(dtype) / np.finfo(dtype.as_numpy_dtype).eps) ** 0.5)


def jitter(diagonal: tf.Tensor, at_least: float | None = None) -> tf.Tensor:
    """
    Jitter for the diagonal of a covariance: :func:`relative_jitter` times its scale.

    :param diagonal: diagonal of the covariance, any shape; its mean is the scale.
    :param at_least: a larger fraction, set for one model.
    :return: scalar of the same dtype.
    """
    relative = tf.constant(relative_jitter(diagonal.dtype, at_least), dtype=diagonal.dtype)
    return relative * tf.reduce_mean(diagonal)


def add_jitter(matrix: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """``matrix + diag(amount)`` for ``matrix [..., M, M]``, ``amount`` a scalar or ``[..., M]``."""

    @tf.custom_gradient
    def add(matrix: tf.Tensor, amount: tf.Tensor) -> Any:
        def gradient(dK: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            own = tf.linalg.diag_part(dK)  # TensorFlow's gradient copies the matrix
            return dK, own if amount.shape.rank else tf.reduce_sum(own)

        return tf.linalg.set_diag(matrix, tf.linalg.diag_part(matrix) + amount), gradient

    return add(matrix, amount)


def solve_triangular(L: tf.Tensor, B: tf.Tensor, *, adjoint: bool = False) -> tf.Tensor:
    """
    ``L^-1 B``, or ``L^-T B`` if ``adjoint``; wide right-hand sides are split over cores.

    Time O(M^2 n). Measured on two cores, M = 512, n = 1024, float64: 3.3 ms against 5.0 ms.

    :param L: lower triangular, ``[..., M, M]``.
    :param B: right-hand sides, ``[..., M, n]``.
    :return: ``[..., M, n]``.
    """
    width = B.shape[-1]
    groups = 1 if width is None else min(_COLUMN_GROUPS, width // _MIN_GROUP_WIDTH)
    if groups < 2 or devices.sees_gpu():
        return tf.linalg.triangular_solve(L, B, adjoint=adjoint)
    sizes = [width // groups + (k < width % groups) for k in range(groups)]
    parts = [
        tf.linalg.triangular_solve(L, part, adjoint=adjoint) for part in tf.split(B, sizes, axis=-1)
    ]
    return tf.concat(parts, axis=-1)


def cholesky(matrix: tf.Tensor, name: str) -> tf.Tensor:
    """
    Lower Cholesky factor, checked, with a gradient at matmul speed.

    Time O(M^3 / 3) forward, O(2 M^3 / 3) backward.

    :param matrix: symmetric positive definite, ``[..., M, M]``, jitter included; only its lower
        triangle is read.
    :param name: name of the matrix in the error.
    :return: ``[..., M, M]``, zeros above the diagonal.
    :raises FactorizationError: eagerly, if the factor is not finite. Inside ``tf.function`` the
        same message is raised as ``tf.errors.InvalidArgumentError``; XLA has no checks, and the
        factor is NaN.
    """

    @tf.custom_gradient
    def factor(matrix: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        L = _checked(_recursive_cholesky(matrix), matrix, name)

        return L, lambda dL: cholesky_gradient(L, dL)

    return factor(matrix)


def cholesky_gradient(L: tf.Tensor, dL: tf.Tensor) -> tf.Tensor:
    """
    Gradient at a symmetric matrix from the gradient at its factor, by the operations of the
    factorization in reverse order; time O(2 M^3 / 3).

    For ``L = [[L1, 0], [U^T, L2]]``, with ``G`` the symmetric gradient of a diagonal block,

        G2 = gradient(L2, dL2),                          V = L1^-T (dU - 2 U G2),
        G1 = gradient(L1, dL1 - V U^T),                  G = [[G1, V / 2], [V^T / 2, G2]].

    Murray, "Differentiation of the Cholesky decomposition" (2016, arXiv:1602.07527), section 4.

    :param L: lower triangular, ``[..., M, M]``.
    :param dL: ``[..., M, M]``; entries above the diagonal do not count.
    :return: symmetric, ``[..., M, M]``.
    """
    size = L.shape[-1]
    if _is_leaf(size):
        P = half_lower(tf.linalg.matmul(L, dL, transpose_a=True))  # Phi(L^T dL)
        dK = solve_right(solve_triangular(L, P, adjoint=True), L)  # L^-T P L^-1
        return 0.5 * (dK + tf.linalg.matrix_transpose(dK))
    k = size // 2
    L1, U, dU = L[..., :k, :k], *(tf.linalg.matrix_transpose(X[..., k:, :k]) for X in (L, dL))
    G2 = cholesky_gradient(L[..., k:, k:], dL[..., k:, k:])
    V = solve_triangular(L1, dU - 2.0 * tf.linalg.matmul(U, G2), adjoint=True)
    G1 = cholesky_gradient(L1, dL[..., :k, :k] - lower_outer(V, U))
    top = tf.concat([G1, 0.5 * V], axis=-1)
    return tf.concat([top, tf.concat([0.5 * tf.linalg.matrix_transpose(V), G2], -1)], axis=-2)


def inverse_factor(matrix: tf.Tensor, name: str) -> tf.Tensor:
    """
    Lower triangular ``R`` with ``R R^T = A^-1``, which is never formed; ``A [m, m]``.

    Reversing rows and columns turns lower triangles into upper ones: ``A = U U^T`` with U upper
    triangular, and ``R = U^-T``.
    """
    reversed_factor = cholesky(tf.reverse(matrix, [0, 1]), name)
    inverse = solve_lower(reversed_factor, tf.eye(tf.shape(matrix)[0], dtype=matrix.dtype))
    return tf.linalg.matrix_transpose(tf.reverse(inverse, [0, 1]))


def cholesky_or(matrix: tf.Tensor, fallback: Callable[[], tf.Tensor], name: str) -> tf.Tensor:
    """
    Factor of each matrix of a batch, or of ``fallback()`` where it is not positive definite.

    For matrices that may be indefinite in a correct run, such as the precision after a long step.
    Not differentiable.

    :param matrix: ``[..., M, M]``.
    :param fallback: function that returns a positive definite batch, called only if needed.
    :param name: name of the matrix in the error, should the fallback fail too.
    :return: ``[..., M, M]``.
    """
    L = _recursive_cholesky(matrix)
    good = tf.reduce_all(tf.math.is_finite(L), axis=[-2, -1], keepdims=True)

    def repaired() -> tf.Tensor:
        return tf.where(good, L, _recursive_cholesky(fallback()))

    return _checked(tf.cond(tf.reduce_all(good), lambda: L, repaired), matrix, name)


def lower_matmul(R: tf.Tensor, B: tf.Tensor, *, adjoint: bool = False) -> tf.Tensor:
    """
    ``R B``, or ``R^T B`` if ``adjoint``, without most of the multiplications by R's zeros.

    Computed in strips of rows; three quarters of the multiplications with two strips, about
    half with many.

    :param R: lower triangular, ``[..., M, M]``.
    :param B: ``[..., M, n]``.
    :return: ``[..., M, n]``.
    """
    strips, ranges = [], _strips(R.shape[-1])
    if len(ranges) == 1:
        return tf.linalg.matmul(R, B, transpose_a=adjoint)
    for start, end in ranges:
        if adjoint:
            column = R[..., start:, start:end]
            strips.append(tf.linalg.matmul(column, B[..., start:, :], transpose_a=True))
        else:
            strips.append(tf.linalg.matmul(R[..., start:end, :end], B[..., :end, :]))
    return tf.concat(strips, axis=-2)


def lower_outer(A: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """
    The lower triangle of ``A B^T``; entries above the diagonal are undefined. So are gradients of
    what takes the result for a symmetric matrix, as :func:`cholesky` does.

    :param A: ``[..., M, n]``.
    :param B: ``[..., M, n]``.
    :return: ``[..., M, M]``.
    """
    size, strips = A.shape[-2], []
    ranges = _strips(size)
    if len(ranges) == 1:
        return tf.linalg.matmul(A, B, transpose_b=True)
    for start, end in ranges:
        strip = tf.linalg.matmul(A[..., start:end, :], B[..., :end, :], transpose_b=True)
        right = [0, 0 if end is None else size - end]
        strips.append(tf.pad(strip, [[0, 0]] * (A.shape.rank - 1) + [right]))
    return tf.concat(strips, axis=-2)


def lower_adjoint_product(R: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """
    The lower triangle of ``R^T B``, zeros above it, for lower triangular ``R`` and ``B``.

    About a third of the multiplications of a full product with many strips.

    :param R: ``[..., M, M]``.
    :param B: ``[..., M, M]``; entries above the diagonal do not count.
    :return: ``[..., M, M]``.
    """
    size, strips = R.shape[-1], []
    ranges = _strips(size)
    if len(ranges) == 1:
        return tf.linalg.band_part(tf.linalg.matmul(R, B, transpose_a=True), -1, 0)
    for start, end in ranges:
        column = R[..., start:, start:end]
        strip = tf.linalg.matmul(column, B[..., start:, :end], transpose_a=True)
        right = [0, 0 if end is None else size - end]
        strips.append(tf.pad(strip, [[0, 0]] * (R.shape.rank - 1) + [right]))
    return tf.linalg.band_part(tf.concat(strips, axis=-2), -1, 0)


def solve_lower(L: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """
    ``L^-1 B`` for lower triangular ``L`` and ``B``, ``[..., M, M]``: half of the operations of
    :func:`solve_triangular`, since the result is lower triangular.
    """
    columns, ranges = [], _strips(L.shape[-1])
    if len(ranges) == 1:
        return tf.linalg.triangular_solve(L, B)
    for start, end in ranges:
        part = tf.linalg.triangular_solve(L[..., start:, start:], B[..., start:, start:end])
        columns.append(tf.pad(part, [[0, 0]] * (L.shape.rank - 2) + [[start, 0], [0, 0]]))
    return tf.concat(columns, axis=-1)


def gram(A: tf.Tensor) -> tf.Tensor:
    """
    ``A A^T``, computed below the diagonal only; its gradient is one product.

    Measured on two cores, 1000 x 4000, float64: 45 ms against 69 ms of ``tf.linalg.matmul``.

    :param A: ``[M, n]``.
    :return: ``[M, M]``, exactly symmetric.
    """

    @tf.custom_gradient
    def product(A: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        half = half_lower(lower_outer(A, A))

        def gradient(dG: tf.Tensor) -> tf.Tensor:
            return tf.linalg.matmul(dG + tf.linalg.matrix_transpose(dG), A)

        return half + tf.linalg.matrix_transpose(half), gradient

    return product(A)


def _recursive_cholesky(matrix: tf.Tensor) -> tf.Tensor:
    size = matrix.shape[-1]
    if _is_leaf(size):
        return tf.linalg.cholesky(matrix)
    half = size // 2
    top = _recursive_cholesky(matrix[..., :half, :half])
    right = solve_triangular(top, tf.linalg.matrix_transpose(matrix[..., half:, :half]))
    left = tf.linalg.matrix_transpose(right)
    schur = matrix[..., half:, half:] - lower_outer(left, left)
    bottom = _recursive_cholesky(schur)
    upper = tf.concat([top, tf.zeros_like(right)], axis=-1)
    return tf.concat([upper, tf.concat([left, bottom], axis=-1)], axis=-2)


def _is_leaf(size: int | None) -> bool:
    """Whether a matrix of this size is factorized by one operation."""
    return size is None or size <= _LEAF or devices.sees_gpu()


def require_finite(matrix: tf.Tensor, message: str) -> tf.Tensor:
    """
    The matrix itself, if all its entries are finite.

    :raises FactorizationError: eagerly; inside ``tf.function`` the same message is raised as
        ``tf.errors.InvalidArgumentError``.
    """
    if not tf.executing_eagerly():
        return matrix if _UNCHECKED.get() else tf.debugging.check_numerics(matrix, message)
    if not bool(tf.reduce_all(tf.math.is_finite(matrix))):
        raise FactorizationError(f"{message}.")
    return matrix


def _checked(L: tf.Tensor, matrix: tf.Tensor, name: str) -> tf.Tensor:
    """A Cholesky factor, if it is finite; else an error with the likely causes."""
    message = (
        f"Cholesky factorization of {name} failed: it is not positive definite in {L.dtype.name}. "
        "Likely causes: NaN or infinity in the data or in a parameter; duplicated or nearly "
        "coinciding inducing points; a lengthscale far larger than the spread of the data; too "
        "little jitter (raise it with gpflow.config.set_default_jitter), above all in float32"
    )
    if tf.executing_eagerly() and not bool(tf.reduce_all(tf.math.is_finite(L))):
        cause = (
            f"Cholesky factorization of {name} failed: it holds NaN or infinity. Likely causes: "
            f"NaN, infinity or values beyond the range of {L.dtype.name} in a parameter of the "
            "kernel or in the inducing inputs"
        )
        require_finite(matrix, cause)
        raise FactorizationError(f"{message}.")
    if tf.executing_eagerly():
        return L
    # a value in a row that is not finite makes the diagonal of that row so
    with tf.control_dependencies([require_finite(tf.linalg.diag_part(L), f"{message}.")]):
        return tf.identity(L)


def solve_right(X: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """``X L^-1`` for ``X [..., n, M]`` and a lower triangular ``L [..., M, M]``."""
    transposed = solve_triangular(L, tf.linalg.matrix_transpose(X), adjoint=True)
    return tf.linalg.matrix_transpose(transposed)


def half_lower(X: tf.Tensor) -> tf.Tensor:
    """``Phi``: the lower triangle of a square matrix with half its diagonal."""
    lower = tf.linalg.band_part(X, -1, 0)
    return tf.linalg.set_diag(lower, 0.5 * tf.linalg.diag_part(X))


def _strips(size: int | None) -> list[tuple[int | None, int | None]]:
    """Row ranges of nearly equal height; one range where the size is unknown, and on a GPU."""
    if size is None:
        return [(0, None)]
    count = 1 if devices.sees_gpu() else max(1, size // _STRIP)
    ends = [size * (i + 1) // count for i in range(count)]
    return list(zip([0, *ends[:-1]], ends, strict=True))
