"""The inverse of a finite basis's covariance, as a preconditioner of conjugate gradients."""

from typing import Any

import tensorflow as tf

from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks


class Preconditioner:
    """
    ``Q^-1`` with ``Q = A^T A + noise_variance I``, A the m whitened functions at N rows.

    By the matrix inversion lemma ``Q^-1 = (I - R^T R) / noise_variance`` with ``R = L^-1 A /
    sqrt(noise_variance)`` and ``L L^T = I + A A^T / noise_variance``. A call takes row vectors, as
    the preconditioner of GPflow's ``cglb_conjugate_gradient`` does. Computed in float64 whatever
    the type of the vectors: ``I - R^T R`` has eigenvalues below float32's rounding.

    Evans and Nair, "Scalable Gaussian Processes with Grid-Structured Eigenfunctions" (2018),
    section 4.1. Time O(N m^2 + m^3) once and O(N m) per vector; memory O(N m).
    """

    def __init__(self, A: tf.Tensor, noise_variance: float) -> None:
        """
        :param A: the functions, ``[m, N]``.
        :param noise_variance: positive, in units of Y squared.
        :raises FactorizationError: if ``I + A A^T / noise_variance`` has no Cholesky factor.
        """
        self._noise = noise_variance
        scaled = tf.cast(A, tf.float64) / noise_variance**0.5  # A / sigma  [m, N]
        precision = linalg.add_jitter(linalg.gram(scaled), tf.ones([], tf.float64))  # [m, m]
        L = linalg.cholesky(precision, "I + A A^T / noise")
        self._R = linalg.solve_triangular(L, scaled)  # [m, N]

    def __call__(self, v: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """
        :param v: ``[B, N]``.
        :return: ``v Q^-1 [B, N]``, and the sum of ``v Q^-1 v^T`` over the B rows of v.
        :raises ValueError: for another shape, and for vectors that are not finite.
        """
        v = checks.require_matrix(v, "v", v.dtype if tf.is_tensor(v) else None)
        if v.shape[1] not in (None, self._R.shape[1]):
            raise ValueError(
                f"v must be row vectors [B, {self._R.shape[1]}], with an entry for each row of X, "
                f"got shape {tuple(v.shape)}; transpose column vectors."
            )
        wide = tf.cast(v, tf.float64)
        inside = tf.linalg.matmul(wide, self._R, transpose_b=True)  # v R^T  [B, m]
        solved = (wide - tf.linalg.matmul(inside, self._R)) / self._noise  # [B, N]
        return tf.cast(solved, v.dtype), tf.cast(tf.reduce_sum(solved * wide), v.dtype)
