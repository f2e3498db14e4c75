"""The gradient of the conditionals given the neighbors of each row, written by hand.

It uses the inverse ``K_I^-1 [n, H, H]``, and takes one product of such matrices, where automatic
differentiation of a batched Cholesky factor takes several triangular solves, which are slow in
TensorFlow.
"""

import tensorflow as tf


def of_terms(
    values: tuple[tf.Tensor, ...],
    d_mean: tf.Tensor,
    d_residual: tf.Tensor,
    d_spread: tf.Tensor,
    d_kl: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """
    Derivatives by the arguments of :func:`~gpflow_sparse.inference.neighborhoods.local_terms`.

    :param values: ``K^-1``, ``a``, ``alpha``, ``S a``, S summed over outputs, and ``m`` in it.
    :param d_mean: derivatives by its first result, ``[n, P]``, then by the others.
    """
    inverse, a, alpha, Sa, total, m = values
    diagonal = total.shape.rank == 2
    # with respect to a = K^-1 k, through the mean and the spread, times K^-1
    t = tf.linalg.matvec(m, d_mean) + 2.0 * tf.linalg.matvec(Sa, d_spread)
    by_a = tf.linalg.matvec(inverse, t)
    half = (0.5 * d_kl)[:, None, None]
    if diagonal:
        inner = tf.linalg.matmul(inverse * total[:, None, :], inverse)  # K^-1 S K^-1
        of_spread = tf.square(a)[:, :, None] * d_spread[:, None, :]
        dS = of_spread + half * tf.linalg.diag_part(inverse)[:, :, None]
    else:
        inner = tf.linalg.matmul(tf.linalg.matmul(inverse, total), inverse)
        of_spread = outer(a, a)[:, None] * d_spread[:, :, None, None]
        dS = of_spread + half[:, None] * inverse[:, None]
    of_means = tf.linalg.matmul(alpha, alpha, transpose_b=True)  # sum_p alpha alpha^T
    outputs = tf.cast(tf.shape(m)[2], m.dtype)
    dK = outer(d_residual[:, None] * a - by_a, a)
    dK += half * (outputs * inverse - inner - of_means)
    dm = a[:, :, None] * d_mean[:, None, :] + d_kl[:, None, None] * alpha
    return dK, by_a - 2.0 * d_residual[:, None] * a, d_residual, dm, dS


def outer(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """``[n, H, H]`` of ``[n, H]`` each."""
    return x[:, :, None] * y[:, None, :]
