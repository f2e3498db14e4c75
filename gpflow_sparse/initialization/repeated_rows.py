"""Tables whose inputs repeat: distinct rows, how often each occurs, and the mean of its outputs.

Given Gaussian noise of variance s2, the c outputs of one row of inputs depend on f there through
their mean, which is an observation of f with noise s2 / c. With their squared deviations from it,
``d``, their joint density is exactly

    N(mean; f, s2 / c)  (2 pi s2)^(-(c - 1) / 2)  c^(-1/2)  exp(-d / (2 s2)),

whose later factors are evidence for the noise alone. Rows of any positive weights ``w_i`` are the
same with their sum for c, their weighted mean, and weighted deviations: a row of weight w counts as
w rows that are equal to it.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics.row_table import group_rows
from gpflow_sparse.validation import checks

Array = np.ndarray


def distinct_rows(X: Array) -> Array:
    """The distinct rows of ``X [N, D]`` in the order in which they occur first."""
    groups = group_rows(X)
    return X[groups.first] if groups.any_repeats else X


def held_out(num_rows: int, most: int, seed: int) -> tuple[Array, Array]:
    """Indices of other rows and of held-out rows, at most a fifth, in random order."""
    order = np.random.default_rng(checks.require_seed(seed)).permutation(num_rows)
    count = num_rows - min(most, num_rows // 5)
    return order[:count], order[count:]


def rows_not_held_out(X: Array, most: int, seed: int) -> Array:
    """Indices of the rows of ``X [N, D]`` that are equal to none of the distinct rows held out."""
    groups = group_rows(X)
    return np.flatnonzero(np.isin(groups.of_row, held_out(len(groups.first), most, seed)[0]))


class Rows(NamedTuple):
    """Rows ``[..., n, .]`` with their outputs, or distinct rows with statistics of repeats."""

    X: tf.Tensor
    """``[..., n, D]``"""
    Y: tf.Tensor
    """Outputs, or their means, ``[..., n, P]``."""
    counts: tf.Tensor | None = None
    """How often each row occurs, or the sum of the weights of equal rows, ``[..., n]``; None where
    none is repeated and rows have no weights."""
    deviations: tf.Tensor | None = None
    """Squared deviations from the means, summed over repeats and outputs, ``[..., n]``; or None."""

    def take(self, indices: Any) -> "Rows":
        """Some of the rows, of indices of any shape."""
        return Rows(*(None if part is None else tf.gather(part, indices) for part in self))

    def noises(self, noise_variance: tf.Tensor) -> tf.Tensor:
        """The noise variance of the outputs: one, or one for each mean ``[..., n]``."""
        return noise_variance if self.counts is None else noise_variance / self.counts

    def within(self, noise_variance: tf.Tensor) -> tf.Tensor:
        """Log density of all outputs less the log density of the means, ``[..., n]``, or 0."""
        if self.counts is None:
            return tf.zeros([], self.Y.dtype)
        num_outputs = tf.cast(tf.shape(self.Y)[-1], self.Y.dtype)
        logs = (self.counts - 1.0) * tf.math.log(2.0 * math.pi * noise_variance)
        logs += tf.math.log(self.counts)
        return -0.5 * (num_outputs * logs + self.deviations / noise_variance)

    def standardized(
        self, noise_variance: tf.Tensor, mean: tf.Tensor, var: tf.Tensor
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Errors of all outputs in predicted standard deviations: those of the means, and root mean
        squares of the outputs around these; and how many each stands for.

        :param mean: predicted ``[n, P]``.
        :param var: of the means, noise included ``[n, 1]``.
        """
        errors = ((self.Y - mean) / tf.sqrt(var)).numpy()
        each = errors.ravel(), np.ones(errors.size)
        if self.counts is None:
            return each
        around = errors.shape[1] * np.maximum(self.counts.numpy() - 1.0, 0.0)
        repeated = around > 0.0
        squares = (self.deviations / noise_variance).numpy()[repeated] / around[repeated]
        return np.append(each[0], np.sqrt(squares)), np.append(each[1], around[repeated])


def merge_rows(X: tf.Tensor, Y: tf.Tensor, row_weights: tf.Tensor | None = None) -> Rows:
    """
    The distinct rows of a table, in the order in which they occur first; the tensors themselves
    where none is repeated.

    :param X: ``[N, D]``.
    :param Y: ``[N, P]``.
    :param row_weights: positive ``[N]``: as how many rows each counts; None for 1.
    """
    groups = group_rows(X.numpy())
    if not groups.any_repeats:
        return Rows(X, Y, row_weights, None if row_weights is None else tf.zeros_like(row_weights))
    weights = tf.ones_like(Y[:, 0]) if row_weights is None else row_weights
    of_row, num_groups = tf.constant(groups.of_row), len(groups.counts)
    counts = tf.math.unsorted_segment_sum(weights, of_row, num_groups)
    # from the first output of each, since sums of large outputs lose digits
    first = tf.gather(Y, groups.first)
    rest = weights[:, None] * (Y - tf.gather(first, of_row))
    means = first + tf.math.unsorted_segment_sum(rest, of_row, num_groups) / counts[:, None]
    squares = weights * tf.reduce_sum(tf.square(Y - tf.gather(means, of_row)), axis=1)
    deviations = tf.math.unsorted_segment_sum(squares, of_row, num_groups)
    return Rows(tf.gather(X, groups.first), means, counts, deviations)
