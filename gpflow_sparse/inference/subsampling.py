"""Estimators of a Gaussian model's objective from some of its data and some of its functions.

Evans and Nair, "Quadruply Stochastic Gaussian Processes" (2020), re-derived. A sum over m functions
is the sum over the h of the *head*, which are always taken, plus ``(m - h) / k`` times that over k
functions of the *tail*, drawn without replacement. A square needs two draws that do not know of
each other. Here are the estimators for given draws: what is random is decided by the caller.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from gpflow_sparse.numerics import random_draws

# Where an estimated variance is cut off: below, the square root in a quadrature has no slope.
_LEAST_VARIANCE = 1e-10
# The cipher that shuffles indices is not uniform over small ranges with TensorFlow's 4 rounds
# (chi-square 59 on 19 degrees of freedom for 40,000 subsets of 3 out of 6); with 16 it is (21).
_ROUNDS = 16

Pair = tuple[tf.Tensor, tf.Tensor]


def draw_indices(size: int, num_drawn: int | tf.Tensor) -> tf.Tensor:
    """
    Different integers from 0 to ``size - 1``, ``[num_drawn]``, every subset as likely as another.

    O(num_drawn) for any size: no permutation is made. All of them come in order, without a random
    number. XLA has no kernel for this operation.
    """
    if not tf.is_tensor(num_drawn) and num_drawn == size:
        return tf.range(size)
    return tf.raw_ops.RandomIndexShuffle(
        index=tf.range(num_drawn),
        seed=random_draws.integers([3]),
        max_index=tf.constant(size - 1),
        rounds=_ROUNDS,
    )


class Anchor(NamedTuple):
    """What is known exactly of the tail's projections, at other places than the batch."""

    weights: tf.Tensor | None
    """``W [n, p]``: how much of a place's sampling error a row of the batch shares; None for 1."""
    estimates: Pair
    """``G [p, Q]``: the projections there as the two draws estimate them."""
    exact: tf.Tensor
    """``a [p, Q]``, what they estimate."""


def anchored(estimates: Pair, anchor: Anchor | None) -> Pair:
    """
    Both draws' projections of the tail ``F [n, Q]``, each less the share of its error that the
    places of an anchor know: ``F - W (G - a)``.

    On average the same for any W, as ``E G = a``. The gradient through a, which moves with the
    weights, is taken from the *other* draw: through the same one it would be biased, and without
    it too. Our own; the paper's control variate, eq. (3), corrects the square instead.
    """
    if anchor is None:
        return estimates
    W, (G_i, G_j), a = anchor.weights, anchor.estimates, tf.stop_gradient(anchor.exact)

    def correct(F: tf.Tensor, own: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        error = own - (a + (other - tf.stop_gradient(other)))
        return F - (error if W is None else tf.linalg.matmul(W, error))

    F_i, F_j = estimates
    return correct(F_i, G_i, G_j), correct(F_j, G_j, G_i)


def product(raw: Pair, value: Pair) -> tf.Tensor:
    """
    ``value_i * value_j``, elementwise, with the gradient of ``raw_i value_j + raw_j value_i``
    at fixed values.

    If both estimate f from draws that do not know of each other, this is ``f^2`` on average, and
    its gradient that of ``f^2``.
    """
    fixed_i, fixed_j = (tf.stop_gradient(part) for part in value)
    slope = raw[0] * fixed_j + raw[1] * fixed_i
    return fixed_i * fixed_j + (slope - tf.stop_gradient(slope))


def printed_control_variate(anchor: Anchor) -> tf.Tensor:
    """
    ``a^2 - G_i G_j [p, Q]``, zero on average: eq. (3) of the paper but for its factor.

    The gradient of ``a^2`` is ``2 a^T Phi_p``, for the drawn functions alone and scaled by how
    rarely they are drawn. Appendix F.1 divides by the size of their union; twice the size of a
    draw, with repetitions counted, does as well.
    """
    (G_i, G_j), a = anchor.estimates, tf.stop_gradient(anchor.exact)
    fixed_i, fixed_j = tf.stop_gradient(G_i), tf.stop_gradient(G_j)
    slope = (a - fixed_j) * G_i + (a - fixed_i) * G_j
    return tf.square(a) - fixed_i * fixed_j + (slope - tf.stop_gradient(slope))


def gaussian_expectations(
    residual_products: tf.Tensor, variance: tf.Tensor, noise_variance: tf.Tensor
) -> tf.Tensor:
    """
    ``E_q[log N(y | f, noise)]`` of each row, ``[n]``.

    Eq. (2) of the paper, estimated as in its theorems 1 and 2 but for two things that make their
    variance needless: y stands in both factors of the square, and sums over single functions
    (here: the diagonal part of the variance) are sampled once and not twice.

    :param residual_products: ``[n, Q]``, estimates of ``(mean - y)^2`` and of the squares of the
        dense columns' projections.
    :param variance: ``[n, L]``, of the rest.
    :param noise_variance: ``[n, 1]`` or broadcast to it.
    """
    num_outputs = tf.cast(tf.shape(variance)[1], variance.dtype)
    squares = tf.reduce_sum(residual_products, axis=1) + tf.reduce_sum(variance, axis=1)
    noise = tf.broadcast_to(noise_variance, [tf.shape(variance)[0], 1])[:, 0]
    return -0.5 * (num_outputs * tf.math.log(2.0 * math.pi * noise) + squares / noise)


def sampling_variance(Phi: tf.Tensor, vectors: tf.Tensor, size: int) -> tf.Tensor:
    """
    Unbiased estimate of the variance of ``(size / k) Phi v`` over draws of k functions, ``[n, Q]``.

    Var[size * mean] of a draw without replacement: ``size^2 / k (1 - k / size)`` times the
    variance of one summand, estimated from the k that were drawn (k >= 2).

    :param Phi: ``[n, k]``.
    :param vectors: v, ``[k, Q]``.
    :param size: of the tail that was drawn from.
    """
    k = tf.cast(tf.shape(vectors)[0], Phi.dtype)
    sums = tf.linalg.matmul(Phi, vectors)
    squares = tf.linalg.matmul(tf.square(Phi), tf.square(vectors))
    scatter = (squares - tf.square(sums) / k) / (k - 1.0)
    return size * (size / k - 1.0) * scatter


def site_expectations(
    expectation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], means: Pair, variances: Pair
) -> tf.Tensor:
    """
    ``E_q[log p(y | f)]`` of each row, on average over both draws.

    :param expectation: from mean and variance ``[n, L]`` to ``[n]``.
    :param variances: ``variances[0]`` belongs to ``means[0]``, whatever it was made of.
    """
    first, second = (
        expectation(mean, tf.maximum(variance, tf.cast(_LEAST_VARIANCE, variance.dtype)))
        for mean, variance in zip(means, variances, strict=True)
    )
    return 0.5 * (first + second)
