"""Eigensystems of one-dimensional covariance matrices on a grid, in float64, safe to differentiate.

The computed eigenvalues of a smooth kernel carry an absolute error of about ``eps`` times the
largest, and a third of them may come out negative. Those below the floor are masked, not raised:
their log is ``-inf`` and their eigenvector zero, and no gradient passes through their root.

The sign of an eigenvector is nobody's choice: it differs between compilers and may flip as a
parameter moves, which would turn the meaning of a trained weight around. Here it is a rule.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.bases.product import ProductFactors
from gpflow_sparse.numerics import linalg

# Entries of a unit eigenvector below this, relative to its largest, may be rounding.
_CLEAR = 1e-6


class Eigensystem(NamedTuple):
    """Of ``k_i`` on the nodes of one column, in float64, the largest eigenvalue first."""

    log_eigenvalues: tf.Tensor
    """``[m]``; ``-inf`` where the eigenvalue is lost to rounding."""
    table: tf.Tensor
    """``[m, m]``: ``k_i(x, nodes) table`` are the scaled eigenfunctions at x; columns of lost
    eigenvalues are zero."""


def eigensystem(
    factors: ProductFactors, column: int, nodes: np.ndarray, shares: np.ndarray | None
) -> Eigensystem:
    """
    Eigenvalues and scaled eigenvectors ``q / sqrt(lam)`` of ``K = k_i(nodes, nodes)``.

    With shares ``omega`` the matrix is ``D^1/2 K D^1/2``, ``D = m diag(omega)``, and ``D^1/2 q``
    takes the place of q: its spectrum is that of the measure that omega stands for. An eigenvalue
    is kept if it is above ``m eps`` times the largest. Gradients reach the parameters of the kernel
    by the perturbation formula over all eigenvectors, the lost ones included. Time O(m^3).

    :param shares: ``[m]``, positive, with sum 1; None for the matrix as it is.
    """
    size = len(nodes)
    u = tf.constant(nodes, tf.float64)
    K = factors.factor(column, u, u)
    K = _require_finite(0.5 * (K + tf.transpose(K)), column)
    roots = None if shares is None else tf.constant(np.sqrt(size * shares), tf.float64)
    if roots is not None:
        K = roots[:, None] * K * roots[None, :]
    ascending, vectors = tf.linalg.eigh(K)
    lam, Q = tf.reverse(ascending, [0]), _with_signs(tf.reverse(vectors, [1]))
    kept = tf.stop_gradient(lam > size * factors.precision(column, tf.float64) * lam[0])
    safe = tf.where(kept, lam, tf.ones_like(lam))  # nothing to divide by, nor its gradient
    table = tf.where(kept, Q / tf.sqrt(safe), tf.zeros_like(Q))
    if roots is not None:
        table = roots[:, None] * table
    nothing = tf.constant(-np.inf, tf.float64)
    return Eigensystem(tf.where(kept, tf.math.log(safe), nothing), table)


def _require_finite(K: tf.Tensor, column: int) -> tf.Tensor:
    """An eigendecomposition of NaN would fail without saying of what."""
    message = (
        f"The covariance of column {column} on the grid must be finite, look at the parameters of "
        "the kernel: its lengthscales may be NaN or have underflowed to zero"
    )
    if not tf.executing_eagerly():
        return tf.debugging.check_numerics(K, message)
    if not bool(tf.reduce_all(tf.math.is_finite(K))):
        raise linalg.FactorizationError(f"{message}.")
    return K


def _with_signs(Q: tf.Tensor) -> tf.Tensor:
    """
    Columns with the last entry that is above rounding positive.

    The j-th eigenvector of the usual kernels crosses zero j times and never at the end of the grid
    (they are totally positive), so this sign does not change with the parameters.
    """
    sizes = tf.abs(Q)
    clear = sizes > _CLEAR * tf.reduce_max(sizes, axis=0)
    last = (
        tf.shape(Q)[0]
        - 1
        - tf.argmax(tf.reverse(tf.cast(clear, tf.int32), [0]), axis=0, output_type=tf.int32)
    )
    chosen = tf.one_hot(last, tf.shape(Q)[0], axis=0, dtype=Q.dtype)  # [m, m]
    return Q * tf.stop_gradient(tf.sign(tf.reduce_sum(chosen * Q, axis=0)))
