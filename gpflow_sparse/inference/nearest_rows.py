"""Exact Gaussian process predictions of each row from its nearest training rows."""

import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import local_covariances
from gpflow_sparse.inference.neighborhoods import conditional_weights
from gpflow_sparse.numerics import linalg


def nearest_rows_moments(
    kernel: Kernel,
    noise_variance: tf.Tensor,
    X: tf.Tensor,
    places: tf.Tensor,
    values: tf.Tensor,
    *,
    jitter: float | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean ``[n, P]`` and variance ``[n]`` of f at each row given noisy observations around it.

        mean = k^T (K + s2 I)^-1 y,      var = k(x, x) - k^T (K + s2 I)^-1 k,

    with the covariances k and K of the H neighbors of that row. Time O(n H^3), memory O(n H^2).

    :param noise_variance: a scalar, or one for each neighbor ``[n, H]``: for a mean of c
        observations at one place, the noise variance divided by c.
    :param X: ``[n, D]``.
    :param places: inputs of the neighbors, ``[n, H, D]``.
    :param values: their outputs minus the prior mean, ``[n, H, P]``.
    :param jitter: smallest relative jitter; None leaves it to the float type.
    """
    K, k, diagonal = local_covariances(kernel, X, places)
    # the jitter matters for tiny noise only, where neighbors coincide
    K = linalg.add_jitter(K, noise_variance + linalg.jitter(diagonal, jitter))
    weights, var = conditional_weights(K, k, diagonal)  # [n, H], [n]
    return tf.linalg.matvec(values, weights, transpose_a=True), var
