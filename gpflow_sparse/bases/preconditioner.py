"""Conjugate gradients on a full covariance matrix, preconditioned by a finite basis."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from scipy.sparse.linalg import LinearOperator, cg

from gpflow_sparse.bases.base import FiniteBasis, require_basis
from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks, component_checks

# K takes 8 N^2 bytes: 3.2 GB at 20,000 rows.
_MAX_ROWS = 20_000


def grief_preconditioner(basis: FiniteBasis, X: Any, noise_variance: Any) -> LinearOperator:
    """
    ``(Phi Phi^T + noise_variance I)^-1`` with ``Phi^T = basis.features(X)``, exactly.

    By the matrix inversion lemma it is ``(v - Phi P^-1 Phi^T v) / noise_variance`` with ``P =
    noise_variance I + Phi^T Phi [m, m]``. Where ``Phi Phi^T`` holds most of ``K``, conjugate
    gradients on ``K + noise_variance I`` need few iterations with it: Evans and Nair, "Scalable
    Gaussian Processes with Grid-Structured Eigenfunctions" (2018), section 4.1.

    O(N m^2) time once, O(N m) per vector and in memory, in float64 whatever the type of the basis.

    :param basis: any finite basis of m functions.
    :param X: ``[N, D]``.
    :param noise_variance: positive.
    :return: a symmetric operator ``[N, N]``, for vectors ``[N]`` and matrices ``[N, P]``.
    :raises ValueError: for another kind of basis, inputs, or noise.
    :raises FactorizationError: if ``I + Phi^T Phi / noise_variance`` has no Cholesky factor.
    """
    require_basis(basis)
    _require_eager()
    noise = _require_noise(noise_variance)
    A = tf.cast(basis.features(X), tf.float64)  # Phi^T  [m, N]
    B = tf.linalg.matmul(A, A, transpose_b=True) / noise  # P / noise - I  [m, m]
    L = linalg.cholesky(linalg.add_jitter(B, tf.ones([], tf.float64)), "I + Phi^T Phi / noise")
    R = linalg.solve_triangular(L, A / np.sqrt(noise)).numpy()  # R^T R = Phi P^-1 Phi^T  [m, N]

    def apply(V: np.ndarray) -> np.ndarray:
        return (V - R.T @ (R @ V)) / noise

    shape = (R.shape[1], R.shape[1])
    return LinearOperator(shape, matvec=apply, rmatvec=apply, matmat=apply, dtype=np.float64)


def conjugate_gradients(
    kernel: Kernel,
    X: Any,
    B: Any,
    noise_variance: Any,
    *,
    preconditioner: LinearOperator | None = None,
    tolerance: float = 1e-8,
    max_iterations: int | None = None,
) -> tuple[np.ndarray, int]:
    """
    Solve ``(k(X, X) + noise_variance I) V = B``, column by column, in float64; the entries of
    ``k(X, X)`` are as exact as the kernel's own float type.

    K is formed once, O(N^2 D) time and 8 N^2 bytes; an iteration costs O(N^2).

    :param X: ``[N, D]``, N at most 20,000.
    :param B: right-hand sides ``[N, P]``.
    :param noise_variance: positive.
    :param preconditioner: close to the inverse of the matrix, see :func:`grief_preconditioner`.
    :param tolerance: a column is solved when ``|B - (K + noise_variance I) V|`` is at most this
        times ``|B|``.
    :param max_iterations: the most per column; 10 N by default.
    :return: ``V [N, P]`` and the iterations of the column that took the most.
    :raises ValueError: for anything else, too many rows, or a column that is not solved by then.
    """
    _require_eager()
    X, B = checks.require_matrix(X, "X"), checks.require_matrix(B, "B")
    if len(X) > _MAX_ROWS:
        raise ValueError(
            f"X must have at most {_MAX_ROWS} rows, got {len(X)}: K would take "
            f"{8e-9 * len(X) ** 2:.0f} GB; use a finite basis or inducing points instead."
        )
    if len(B) != len(X):
        raise ValueError(f"B must have as many rows as X, {len(X)}; got {len(B)}.")
    component_checks.require_single(kernel, X.shape[1])
    if preconditioner is not None and getattr(preconditioner, "shape", None) != (len(X), len(X)):
        raise ValueError(
            f"preconditioner must be a LinearOperator of shape {(len(X), len(X))}, got "
            f"{type(preconditioner).__name__} of shape {getattr(preconditioner, 'shape', None)}; "
            "make it for these rows."
        )
    if not (isinstance(tolerance, int | float | np.number) and 0.0 < tolerance < 1.0):
        raise ValueError(f"tolerance must be a number between 0 and 1, got {tolerance!r}.")
    if max_iterations is not None:
        checks.require_count(max_iterations, "max_iterations")
    K = tf.cast(covariance(kernel, X), tf.float64).numpy()  # [N, N]
    K[np.diag_indices_from(K)] += _require_noise(noise_variance)
    columns = tf.cast(B, tf.float64).numpy().T
    solved = [_solve(K, column, preconditioner, tolerance, max_iterations) for column in columns]
    return np.stack([solution for solution, _ in solved], axis=1), max(n for _, n in solved)


def _solve(
    K: np.ndarray,
    b: np.ndarray,
    preconditioner: LinearOperator | None,
    tolerance: float,
    max_iterations: int | None,
) -> tuple[np.ndarray, int]:
    steps: list[None] = []
    options = {"rtol": tolerance, "atol": 0.0, "maxiter": max_iterations}
    solution, failed = cg(K, b, M=preconditioner, callback=lambda _: steps.append(None), **options)
    if failed:
        residual = np.linalg.norm(b - K @ solution) / np.linalg.norm(b)
        raise ValueError(
            f"max_iterations: the residual is {residual:.1e} of B after {len(steps)} iterations, "
            f"tolerance {tolerance:.1e}; allow more, pass a better preconditioner, raise "
            "noise_variance, or be content with a larger tolerance."
        )
    return solution, len(steps)


def _require_eager() -> None:
    if not tf.executing_eagerly():
        raise ValueError(
            "preconditioned solves are SciPy's, which tf.function cannot trace: call this outside."
        )


def _require_noise(value: Any) -> float:
    """:raises ValueError: unless ``value`` is one positive number, with any number of axes."""
    noise = checks.as_tensor(value, "noise_variance", tf.float64)
    if noise.shape.num_elements() != 1:
        raise ValueError(f"noise_variance must be one positive number, got {value!r}.")
    noise = tf.reshape(noise, [])
    return float(checks.require_positive(noise, "noise_variance", dtype=tf.float64))
