"""Theorems 1 and 2 of Evans and Nair (2020) as they are printed, to compare with."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gpflow_sparse.inference import subsampling
from gpflow_sparse.models.estimates import Drawn


def elbo(
    model: Any,
    X: tf.Tensor,
    Y: tf.Tensor,
    draws: Sequence[tf.Tensor],
    drawn: Sequence[Drawn],
) -> tf.Tensor:
    """
    Unbiased, with the variance that
    :func:`~gpflow_sparse.inference.subsampling.gaussian_expectations` does without: y in one of two
    factors, and sums over functions that count only where both draws (for the covariance: all
    three) meet. O(k^2) for k drawn functions, diagonal covariance.

    :param draws: i, j and r of the paper, ``[k]`` each.
    """
    noise = model.likelihood.variance
    target = Y - model._mean(X)
    scale = tf.constant(model.num_tail / model.basis_batch_size, X.dtype)
    both = _members(draws[0], draws[1], X.dtype)[:, None]
    all_three = both * _members(draws[0], draws[2], X.dtype)[:, None]

    first = model.basis(X, draws[0])
    F_i = scale * tf.linalg.matmul(first, drawn[0].tail.mu)
    F_j = scale * tf.linalg.matmul(model.basis(X, draws[1]), drawn[1].tail.mu)
    c2 = tf.exp(2.0 * drawn[0].tail.log_c)
    spread = scale**3 * tf.linalg.matmul(tf.square(first), all_three * c2)
    squares = tf.square(target) - 2.0 * target * F_i + F_i * F_j
    terms = subsampling.gaussian_expectations(squares, spread, noise)
    expected = model.num_data / tf.cast(tf.shape(X)[0], X.dtype) * tf.reduce_sum(terms)

    s = drawn[0].precision[:, None]
    log_c, log_s = drawn[2].tail.log_c, tf.math.log(drawn[2].precision)[:, None]
    penalties = scale**2 * both * s * tf.square(drawn[0].tail.mu) + scale**3 * all_three * s * c2
    logs = scale * tf.reduce_sum(2.0 * log_c + log_s + 1.0)
    return expected - 0.5 * (tf.reduce_sum(penalties) - logs)


def _members(values: tf.Tensor, others: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """1 for each of ``values [k]`` that is among ``others [l]``, 0 for the rest."""
    return tf.cast(tf.reduce_any(values[:, None] == others[None, :], axis=1), dtype)
