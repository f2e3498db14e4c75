"""Tables whose inputs repeat: distinct rows, how often each occurs, and the mean of its outputs.

Given Gaussian noise of variance s2, the c outputs of one row of inputs depend on f there through
their mean, which is an observation of f with noise s2 / c. With their squared deviations from it,
``d``, their joint density is exactly

    N(mean; f, s2 / c)  (2 pi s2)^(-(c - 1) / 2)  c^(-1/2)  exp(-d / (2 s2)),

whose later factors are evidence for the noise alone.

A row of weight w, of weights with a mean p of at most 1, has noise of variance s2 / w, and its
density the power p: c is then the sum of w over the rows of equal inputs, d is weighted by w, and
the exponent -(c - 1) / 2 above becomes -(r p - 1) / 2 for r rows. The density of weighted rows is
one up to a constant.

Rows that are equal in inputs and outputs are r measurements for a model, as for any exact GP. For
starting values and for tables they are copies, see :func:`copies_of`: as measurements with the same
result they would be evidence for a noise of zero, which no likelihood of other rows outweighs.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics.row_groups import RowGroups, group_rows
from gpflow_sparse.validation import checks

Array = np.ndarray
# Difference of two values of a column that counts as rounding, in units in the last place.
_ROUNDING = 8.0
# Outputs of fewer values than this share of the observations are taken for discrete.
_CONTINUOUS = 0.5
# Share of equal pairs, among rows of equal inputs, above which discrete outputs are copies.
_COPIED = 0.9


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
    groups = group_rows(without_rounding(X))
    return np.flatnonzero(np.isin(groups.of_row, held_out(len(groups.first), most, seed)[0]))


class Rows(NamedTuple):
    """Rows ``[..., n, .]`` with their outputs, or distinct rows with statistics of repeats."""

    X: tf.Tensor
    """``[..., n, D]``"""
    Y: tf.Tensor
    """Outputs, or their means, ``[..., n, P]``."""
    counts: tf.Tensor | None = None
    """How often inputs occur, or sums of the weights of equal ones, ``[..., n]``; None where none
    repeat and rows have no weights."""
    deviations: tf.Tensor | None = None
    """Squared deviations from the means, summed over repeats and outputs, ``[..., n]``; or None."""
    powers: tf.Tensor | None = None
    """Sum of the powers of the densities of equal inputs: their number where rows have no weights,
    ``[..., n]``; or None."""
    known: tf.Tensor | None = None
    """Known noise variances of rows that are not merged, ``[..., n]``; None for 0."""

    def take(self, indices: Any) -> "Rows":
        """The rows with these indices, which may have any shape."""
        return Rows(*(None if part is None else tf.gather(part, indices) for part in self))

    def noises(self, noise_variance: tf.Tensor) -> tf.Tensor:
        """The noise variance of the outputs: one, or one for each row ``[..., n]``."""
        shared = noise_variance if self.counts is None else noise_variance / self.counts
        return shared if self.known is None else shared + self.known

    def within(self, noise_variance: tf.Tensor) -> tf.Tensor:
        """Log density of all outputs less the log density of the means, ``[..., n]``, or 0."""
        if self.counts is None or self.powers is None:
            return tf.zeros([], self.Y.dtype)
        num_outputs = tf.cast(tf.shape(self.Y)[-1], self.Y.dtype)
        logs = (self.powers - 1.0) * tf.math.log(2.0 * math.pi * noise_variance)
        logs += tf.math.log(self.counts)
        return -0.5 * (num_outputs * logs + self.deviations / noise_variance)

    def standardized(
        self, noise_variance: tf.Tensor, mean: tf.Tensor, var: tf.Tensor
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Errors of all outputs in predicted standard deviations: errors of the means, and root mean
        squares of the outputs around the means; and how many outputs each stands for.

        :param mean: predicted ``[n, P]``.
        :param var: of the means, noise included ``[n, 1]``.
        """
        errors = ((self.Y - mean) / tf.sqrt(var)).numpy()
        each = errors.ravel(), np.ones(errors.size)
        if self.counts is None or self.powers is None:
            return each
        around = errors.shape[1] * np.maximum(self.powers.numpy() - 1.0, 0.0)
        repeated = around > 0.0
        squares = (self.deviations / noise_variance).numpy()[repeated] / around[repeated]
        return np.append(each[0], np.sqrt(squares)), np.append(each[1], around[repeated])


def copies_of(X: Array, Y: Array) -> RowGroups | None:
    """
    Groups of rows that are equal in ``X [N, D]`` and in ``Y [N, P]``; None where no row is a copy.

    Outputs of few values, such as ratings, are equal by chance. They are not copies unless nearly
    all pairs of rows of equal inputs have them.
    """
    X, Y = without_rounding(X), without_rounding(Y)
    found = of_inputs = group_rows(X)
    if of_inputs.any_repeats:
        found = group_rows(np.concatenate([X, Y], axis=1))
    if not found.any_repeats:
        return None
    if len(group_rows(Y).first) < _CONTINUOUS * len(found.first):
        pairs, equal = (np.sum(g.counts * (g.counts - 1.0)) for g in (of_inputs, found))
        if equal < _COPIED * pairs:
            return None
    return found


def without_rounding(X: Array) -> Array:
    """
    ``X [N, D]``, where values of a column that differ by a few units in the last place of the
    largest one are made equal.
    """
    tolerances = _ROUNDING * np.finfo(X.dtype).eps * np.max(np.abs(X), axis=0, initial=0.0)
    found = X
    for column, tolerance in enumerate(tolerances):
        gaps = np.diff(np.sort(X[:, column]))
        if np.any((gaps > 0.0) & (gaps <= tolerance)):
            found = X.copy() if found is X else found
            order = np.argsort(X[:, column], kind="stable")
            starts = np.append(0, 1 + np.flatnonzero(gaps > tolerance))
            sizes = np.diff(np.append(starts, len(X)))
            found[order, column] = np.repeat(X[order[starts], column], sizes)
    return found


def merge_rows(
    X: tf.Tensor,
    Y: tf.Tensor,
    row_weights: tf.Tensor | None = None,
    known_variance: tf.Tensor | None = None,
) -> Rows:
    """
    The distinct rows of a table, in the order in which they occur first; the tensors themselves
    where none is repeated. See :mod:`gpflow_sparse.initialization.repeated_rows`.

    :param X: ``[N, D]``.
    :param Y: ``[N, P]``.
    :param row_weights: positive ``[N]``, with a mean of at most 1; None for 1.
    :param known_variance: of the noise of each row ``[N]``, with which rows stay as they are: how
        outputs of equal inputs are weighed depends on the noise that is learned; None for 0.
    :raises ValueError: for rows that also have weights.
    """
    if known_variance is not None:
        if row_weights is not None:
            raise ValueError("row_weights must be None for rows with a known_variance.")
        return Rows(X, Y, known=known_variance)
    groups = group_rows(without_rounding(X.numpy()))
    if not groups.any_repeats and row_weights is None:
        return Rows(X, Y)
    weights = tf.ones_like(Y[:, 0]) if row_weights is None else row_weights
    powers = tf.fill(tf.shape(weights), tf.reduce_mean(weights))
    of_row, num_groups = tf.constant(groups.of_row), len(groups.counts)

    def total(of_rows: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(of_rows, of_row, num_groups)

    counts = total(weights)
    # from the first output of each, since sums of large outputs lose digits
    first = tf.gather(Y, groups.first)
    means = first + total(weights[:, None] * (Y - tf.gather(first, of_row))) / counts[:, None]
    squares = weights * tf.reduce_sum(tf.square(Y - tf.gather(means, of_row)), axis=1)
    return Rows(tf.gather(X, groups.first), means, counts, total(squares), total(powers))
