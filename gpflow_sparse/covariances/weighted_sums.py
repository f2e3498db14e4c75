"""Weighted sums of covariances over the patches of images.

A batch has tens of millions of covariances of two patches, so every pass over them counts. For
kernels with a :class:`~gpflow_sparse.covariances.stationary.Profile` gradients are written by hand,
without passes for the variance.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.kernels import Kernel, Stationary

from gpflow_sparse.covariances.stationary import Profile, covariance, profile_of
from gpflow_sparse.numerics import devices

# Number of strips in which the lower half of a symmetric matrix is computed.
_STRIPS = 6


def cross_sums(kernel: Kernel, X: tf.Tensor, Z: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """
    ``sum_p weights[p, m] k(X_np, Z_m)  [n, M]``.

    :param X: ``[n, P, L]``.
    :param Z: ``[M, L]``.
    :param weights: ``[P, M]``; or ``[P, 1]``, the same for all of Z.
    """
    profile = profile_of(kernel)
    if profile is None:
        K = covariance(kernel, tf.reshape(X, [-1, X.shape[-1]]), Z)
        return _weighted(tf.reshape(K, [-1, X.shape[1], tf.shape(Z)[0]]), weights)
    left, right = _features(kernel, X, Z, profile.scale)
    return kernel.variance * _cross_sums(profile, left, right, weights)


def lower_strips(weights: tf.Tensor) -> list[tf.Tensor]:
    """
    Strips of columns of the lower half of a symmetric matrix, entries below the diagonal doubled.

    A diagonal block is in its strip with both halves. On a GPU the whole matrix is one strip.

    :param weights: ``[P, P]``.
    :return: ``[P - start, h]`` for each strip of h columns from ``start`` on.
    """
    if devices.sees_gpu():
        return [weights]
    P = weights.shape[0]
    height = -(-P // _STRIPS)
    strips = [weights[start:, start : start + height] for start in range(0, P, height)]
    return [tf.concat([part[:height], 2.0 * part[height:]], axis=0) for part in strips]


def own_sums(kernel: Kernel, X: tf.Tensor, strips: Sequence[tf.Tensor]) -> tf.Tensor:
    """
    ``sum_pq weights[p, q] k(X_np, X_nq)  [n]``.

    For kernels with a profile only the strips are computed: 0.6 of the exponentials.

    :param X: ``[n, P, L]``.
    :param strips: strips of ``weights [P, P]``, see :func:`lower_strips`.
    """
    profile, sums, start = profile_of(kernel), [], 0
    if profile is None:
        K = covariance(kernel, X)
    else:
        left, right = _features(kernel, X, X, profile.scale)
        parts = tf.split(right, [strip.shape[1] for strip in strips], axis=1)
    for i, strip in enumerate(strips):
        end = start + strip.shape[1]
        if profile is None:
            sums.append(tf.reduce_sum(K[:, start:, start:end] * strip, axis=[-2, -1]))
        else:
            sums.append(_strip_sums(profile, left[:, start:], parts[i], strip))
        start = end
    total = tf.add_n(sums)
    return total if profile is None else kernel.variance * total


def _features(
    kernel: Stationary, X: tf.Tensor, X2: tf.Tensor, scale: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Rows whose inner products are ``scale r^2``, with distances in lengthscales.

    A single lengthscale is in the second alone, whose gradient has fewer rows.

    :return: ``[..., N, L + 2]`` and ``[..., N2, L + 2]``.
    """
    X, X2 = kernel.slice(X, X2)
    lengthscales = tf.convert_to_tensor(kernel.lengthscales)
    if lengthscales.shape.rank:
        X, X2, factor = X / lengthscales, X2 / lengthscales, tf.constant(scale, X.dtype)
    else:
        factor = scale / tf.square(lengthscales)
    # distances do not depend on a common shift, so it needs no gradient
    center = tf.stop_gradient(tf.reduce_mean(X2, axis=-2, keepdims=True))
    X, X2 = X - center, X2 - center
    norms, norms2 = (tf.reduce_sum(tf.square(part), axis=-1, keepdims=True) for part in (X, X2))
    left = tf.concat([X, norms, tf.ones_like(norms)], axis=-1)
    right = tf.concat([-2.0 * X2, tf.ones_like(norms2), norms2], axis=-1)
    return left, factor * right


def _weighted(K: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """``sum_p weights[p, m] K[n, p, m]  [n, M]``, for ``weights [P, M]`` or ``[P, 1]``."""
    if weights.shape[1] == 1:
        return tf.linalg.matmul(weights, K, transpose_a=True)[:, 0]
    return tf.reduce_sum(K * weights, axis=1)


def _cross_sums(
    profile: Profile, left: tf.Tensor, right: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor:
    """
    :func:`cross_sums` of a kernel of variance 1.

    :param left: ``[n, P, F]``.
    :param right: ``[M, F]``.
    """

    @tf.custom_gradient
    def sums(left: tf.Tensor, right: tf.Tensor, weights: tf.Tensor) -> Any:
        rows = tf.reshape(left, [-1, left.shape[-1]])
        shape = [-1, left.shape[1], tf.shape(right)[0]]
        inner = tf.linalg.matmul(rows, right, transpose_b=True)
        K, slope = profile.evaluate(tf.reshape(inner, shape))  # [n, P, M]

        def gradient(above: tf.Tensor) -> tuple[tf.Tensor, ...]:
            upstream = above[:, None, :]
            of_weights = K * upstream
            inside = of_weights if slope is K else slope * upstream
            dweights = tf.reduce_sum(of_weights, axis=0)  # [P, M]
            if weights.shape[1] == 1:
                dweights = tf.reduce_sum(dweights, axis=1, keepdims=True)
            flat = tf.reshape(inside * weights, [-1, shape[-1]])  # [n P, M]
            dleft = tf.reshape(tf.linalg.matmul(flat, right), tf.shape(left))
            return dleft, tf.linalg.matmul(flat, rows, transpose_a=True), dweights

        return _weighted(K, weights), gradient

    return sums(left, right, weights)


def _strip_sums(
    profile: Profile, left: tf.Tensor, right: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor:
    """
    ``sum_qh weights[q, h] k  [n]`` of a kernel of variance 1.

    :param left: ``[n, q, F]``.
    :param right: ``[n, h, F]``.
    :param weights: ``[q, h]``.
    """

    @tf.custom_gradient
    def sums(left: tf.Tensor, right: tf.Tensor, weights: tf.Tensor) -> Any:
        K, slope = profile.evaluate(tf.linalg.matmul(left, right, transpose_b=True))  # [n, q, h]
        flat = tf.reshape(K, [-1, weights.shape[0] * weights.shape[1]])

        def gradient(above: tf.Tensor) -> tuple[tf.Tensor, ...]:
            dweights = tf.linalg.matmul(above[None, :], flat)
            inside, each = slope * weights, above[:, None, None]
            dleft = each * tf.linalg.matmul(inside, right)
            dright = each * tf.linalg.matmul(inside, left, transpose_a=True)
            return dleft, dright, tf.reshape(dweights, weights.shape)

        return tf.linalg.matmul(flat, tf.reshape(weights, [-1, 1]))[:, 0], gradient

    return sums(left, right, weights)
