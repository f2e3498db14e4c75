"""Passes over the rows that a model holds or is given: the sums that its weights depend on."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.functions import MeanFunction

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.inference import collapsed
from gpflow_sparse.models.held_data import HeldData, read
from gpflow_sparse.numerics.streaming import streamed_sum
from gpflow_sparse.validation import checks, component_checks

Tensors = Sequence[tf.Tensor]
# Numbers that the features of one block make on their way, 64 MiB of float64; its fewest rows.
_BLOCK_NUMBERS, _FEWEST_ROWS = 2**23, 256


def streamed(
    statistics: Callable[[Tensors, Tensors, Tensors], Any],
    basis: FiniteBasis,
    data: HeldData,
    mean_function: MeanFunction,
    dtype: tf.DType,
) -> list[tf.Tensor]:
    """
    Sums over rows in blocks that keep the memory of features bounded; gradients flow to all
    parameters.

    :param statistics: of ``X [n, D]`` and the errors of the prior mean ``[n, P]``, both in
        ``dtype``, and what the basis precomputes; see
        :func:`gpflow_sparse.numerics.streaming.streamed_sum`.
    """
    data = read(data, dtype)

    def of_block(blocks: Tensors, tables: Tensors) -> Any:
        X, Y = (tf.cast(part, dtype) for part in blocks)
        if isinstance(data, tf.data.Dataset):
            X = checks.require_finite_in_graph(X, "X of data")
            Y = checks.require_finite_in_graph(Y, "Y of data")
        mean = component_checks.require_mean(mean_function(X), Y, mean_function)
        return statistics(X, Y - mean, tables)

    block_rows = max(_FEWEST_ROWS, _BLOCK_NUMBERS // basis.numbers_per_row)
    return streamed_sum(of_block, data, basis.precompute(), block_rows=block_rows)


def row_sums(
    basis: FiniteBasis,
    data: HeldData,
    mean_function: MeanFunction,
    dtype: tf.DType,
    kernel_diagonal: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> collapsed.RowSums:
    """
    :func:`gpflow_sparse.inference.collapsed.row_sums` of a basis over all rows.

    :param kernel_diagonal: ``k(x, x) [n]`` of the kernel whose bound is sought; None for a finite
        sum, which leaves nothing.
    """

    def sums(X: tf.Tensor, errors: tf.Tensor, tables: Tensors) -> collapsed.RowSums:
        A = basis.features(X, tables)
        diagonal = tf.zeros_like(X[:, 0]) if kernel_diagonal is None else kernel_diagonal(X)
        return collapsed.row_sums(A, errors, diagonal)

    return collapsed.RowSums(*streamed(sums, basis, data, mean_function, dtype))
