"""Sums over rows, block by block, in the memory of one block; nothing here knows what is summed."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Tensors = Sequence[tf.Tensor]


def streamed_sum(
    statistics: Callable[[Tensors, Tensors], Tensors],
    data: Tensors | tf.data.Dataset,
    tensors: Tensors = (),
    *,
    block_rows: int,
) -> list[tf.Tensor]:
    """
    ``sum_b statistics(block b of data, tensors)``, whose gradient is a second pass over the rows.

    Automatic differentiation would keep what every block computed until the gradient is taken, O(N)
    memory. Here each block is computed again when its gradient is due, so that memory is that of
    one block for any N, for a third or so more time. Inside ``tf.function`` both passes are loops:
    the graph does not grow with N, and N may be unknown while tracing.

    Gradients flow to ``tensors`` and to every trainable ``tf.Variable`` read inside ``statistics``.
    None flows to ``data``, nor to other tensors that ``statistics`` captures: whatever is to be
    differentiated and is no variable must come through ``tensors``. First derivatives only.

    :param statistics: from the blocks of all parts of ``data`` (at least one row each, at most
        ``block_rows``) and ``tensors`` to floating tensors whose shapes do not depend on the block.
        A sum over rows, for the result not to depend on ``block_rows``.
    :param data: tensors with the same number of rows N >= 1; or a ``tf.data.Dataset`` of batches of
        such, finite and the same in every pass, which may come from files that do not fit into
        memory. All axes but the first are known.
    :param tensors: floating tensors that every block sees whole.
    :param block_rows: rows per block; one block has what is left over.
    :return: the sums, in the order and the float types of ``statistics``.
    """

    @tf.custom_gradient
    def total(*tensors: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> Any:
            watched = list(variables or ())

            def pull_back(blocks: Tensors) -> list[tf.Tensor]:
                # copies made in here: inside a loop, a tape does not see through its inputs
                local = [tf.identity(tensor) for tensor in tensors]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch([*local, *watched])
                    sums = list(statistics(blocks, local))
                sources = [*local, *watched]
                gradients = tape.gradient(sums, sources, list(upstream), "zero")
                # those of gathers come sparse, and cannot be added up; those of batches of unknown
                # height may not know their own shape
                return [
                    tf.ensure_shape(tf.convert_to_tensor(part), source.shape)
                    for part, source in zip(gradients, sources, strict=True)
                ]

            slopes = _sum_over_blocks(pull_back, data, block_rows)
            at_tensors, at_variables = slopes[: len(tensors)], slopes[len(tensors) :]
            return (at_tensors, at_variables) if watched else at_tensors

        # eagerly, tapes outside would record what happens in here, and keep it: pause them
        with tf.init_scope() if tf.executing_eagerly() else contextlib.nullcontext():
            sums = _sum_over_blocks(lambda blocks: statistics(blocks, tensors), data, block_rows)
        return sums, gradient

    return list(total(*tensors))


def _sum_over_blocks(
    function: Callable[[Tensors], Tensors], data: Tensors | tf.data.Dataset, block_rows: int
) -> list[tf.Tensor]:
    """The first block takes the rows left over, so that no block is ever empty or needs padding."""
    if isinstance(data, tf.data.Dataset):
        return _sum_over_batches(function, data.rebatch(block_rows))
    if not tf.executing_eagerly():
        # its own function, not inlined: in a loop, TensorFlow turns sums of large tensors into
        # temporary variables that outlive the loop and fail the next call (TensorFlow issue 23780)
        function = tf.function(
            function, autograph=False, experimental_attributes={"_noinline": True}
        )
    known = data[0].shape[0]
    num_rows = tf.shape(data[0])[0] if known is None else known
    first = (num_rows - 1) % block_rows + 1
    sums = list(function([part[:first] for part in data]))
    if known is not None and known == first:
        return sums

    def add_block(start: tf.Tensor, sums: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        more = function([_rows(part, start, block_rows) for part in data])
        return start + block_rows, [a + b for a, b in zip(sums, more, strict=True)]

    _, sums = tf.while_loop(
        lambda start, sums: start < num_rows, add_block, (first, sums), parallel_iterations=1
    )
    return list(sums)


def _sum_over_batches(
    function: Callable[[Tensors], Tensors], batches: tf.data.Dataset
) -> list[tf.Tensor]:
    traced = tf.function(lambda *blocks: list(function(blocks)), autograph=False)
    concrete = traced.get_concrete_function(*batches.element_spec)
    zeros = [tf.zeros(spec.shape, spec.dtype) for spec in concrete.structured_outputs]
    return list(
        batches.reduce(
            tuple(zeros),
            lambda sums, blocks: tuple(a + b for a, b in zip(sums, traced(*blocks), strict=True)),
        )
    )


def read_in_blocks(arrays: Sequence[np.ndarray], block_rows: int) -> tf.data.Dataset:
    """
    A data set of consecutive rows of arrays, read when their turn comes: for ``np.memmap``.

    :param arrays: of the same number of rows.
    """
    num_rows = len(arrays[0])
    types = [tf.as_dtype(array.dtype) for array in arrays]

    def read(start: np.ndarray) -> list[np.ndarray]:
        # in the byte order of this machine, which a file need not have
        return [
            np.array(array[start : start + block_rows], kind.as_numpy_dtype)
            for array, kind in zip(arrays, types, strict=True)
        ]

    def block(start: tf.Tensor) -> tuple[tf.Tensor, ...]:
        parts = tf.numpy_function(read, [start], types)
        for part, array in zip(parts, arrays, strict=True):
            part.set_shape([None, *array.shape[1:]])
        return tuple(parts)

    starts = tf.data.Dataset.range(0, num_rows, block_rows)
    return starts.map(block, num_parallel_calls=1).prefetch(1)


def _rows(part: tf.Tensor, start: tf.Tensor, count: int) -> tf.Tensor:
    """``part[start : start + count]`` with a known number of rows, as XLA needs it."""
    rank = len(part.shape)
    return tf.slice(part, [start, *[0] * (rank - 1)], [count, *part.shape[1:]])
