"""The log marginal likelihood of exact Gaussian processes, with its gradient in closed form."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics import linalg


@tf.custom_gradient
def log_density(K: tf.Tensor, error: tf.Tensor) -> Any:
    """
    Sum of the log densities of the columns of ``error [..., n, P]`` under ``N(0, K [..., n, n])``.

    The gradient ``(a a^T - P K^-1) / 2``, ``a = K^-1 error``, takes one inverse of the factor;
    gradients of the factorization and of the solve would take about twice the operations.
    """
    L = linalg.cholesky(K, "K + s2 I (covariance of the rows)")
    white = linalg.solve_triangular(L, error)  # [..., n, P]

    def gradient(dvalue: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        R = linalg.solve_triangular(L, tf.eye(tf.shape(K)[-1], dtype=K.dtype) + tf.zeros_like(K))
        a = tf.linalg.matmul(R, white, transpose_a=True)  # K^-1 error  [..., n, P]
        inverse = linalg.gram(tf.linalg.matrix_transpose(R))  # K^-1  [..., n, n]
        num_outputs = tf.cast(tf.shape(error)[-1], error.dtype)
        dK = 0.5 * (tf.linalg.matmul(a, a, transpose_b=True) - num_outputs * inverse)
        return dvalue * dK, -dvalue * a

    return tf.reduce_sum(log_density_of_factor(L, white)), gradient


def log_density_of_factor(L: tf.Tensor, white: tf.Tensor) -> tf.Tensor:
    """
    Log densities ``[...]`` of columns under ``N(0, L L^T)``, summed over columns.

    :param L: lower factors ``[..., n, n]``.
    :param white: ``L^-1 error [..., n, P]``.
    """
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=-1)
    num_rows, num_outputs = tf.unstack(tf.cast(tf.shape(white)[-2:], white.dtype))
    constant = num_rows * num_outputs * np.log(2.0 * np.pi)
    squares = tf.reduce_sum(tf.square(white), axis=[-2, -1])
    return -0.5 * (squares + num_outputs * log_det + constant)
