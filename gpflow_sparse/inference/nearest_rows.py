"""Exact Gaussian process predictions of each row from its nearest training rows."""

import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import local_covariances
from gpflow_sparse.inference.neighborhoods import conditional_weights
from gpflow_sparse.numerics import linalg

# Precision in place of zero: an observation without effect.
_LEAST_PRECISION = 1e-12


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


def nearest_sites_moments(
    kernel: Kernel, X: tf.Tensor, places: tf.Tensor, targets: tf.Tensor, precisions: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance of f ``[n, P]`` at each row given Gaussian sites around it, each with a
    precision for each output:

        mean = k^T (K + diag(1 / tau))^-1 t,      var = k(x, x) - k^T (K + diag(1 / tau))^-1 k.

    Time O(n P H^3), memory O(n P H^2).

    :param X: ``[n, D]``.
    :param places: inputs of the neighbors, ``[n, H, D]``.
    :param targets: t ``[n, H, P]``, minus the prior mean.
    :param precisions: tau ``[n, H, P]``, at least zero; a site of zero has no effect.
    """
    K, k, diagonal = local_covariances(kernel, X, places)
    _, H, P = precisions.shape
    noise = 1.0 / tf.maximum(precisions, tf.constant(_LEAST_PRECISION, precisions.dtype))
    noise = tf.reshape(tf.transpose(noise, [0, 2, 1]), [-1, H])  # [n P, H]
    weights, var = conditional_weights(
        linalg.add_jitter(tf.repeat(K, P, axis=0), noise),
        tf.repeat(k, P, axis=0),
        tf.repeat(diagonal, P),
    )
    weights, var = tf.reshape(weights, [-1, P, H]), tf.reshape(var, [-1, P])
    return tf.einsum("nph,nhp->np", weights, targets), var
