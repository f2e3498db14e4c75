"""Reproducible random draws in blocks of code with a seed.

TensorFlow's generators advance with every draw of the process, so that what one model draws
depends on whatever else has run. Inside of :func:`seeded`, the draws of this module depend on the
given seed and on their order in the block alone: the training loop gives each step a seed made of
the seed of the run and the number of the step, so that a step can be repeated by itself, from a
checkpoint or beside another training run in a thread. Outside of such a block,
``tf.random.set_seed`` decides, as in all of TensorFlow.

TensorFlow chooses the algorithm, since to name it takes five times as many operations a draw. Its
kernels for CPUs, which a test compares, and for GPUs take Philox (2.21); XLA makes other draws.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from gpflow_sparse.numerics import devices

# All integers are sorted by random keys where at least one in so many is drawn.
_MAX_SORTED = 4


# The seed of a block and the numbers of its draws, for the thread that runs or traces the block.
_CURRENT: ContextVar[tuple[tf.Tensor, Iterator[int]] | None] = ContextVar(
    "gpflow_sparse_draws", default=None
)

# First row of a block `of_rows`, and the number of rows of the whole batch.
_ROWS: ContextVar[tuple[Any, Any] | None] = ContextVar("gpflow_sparse_rows", default=None)


@contextlib.contextmanager
def seeded(seed: Any) -> Iterator[None]:
    """
    Draw from ``seed`` in this block, in this thread, eagerly or while tracing.

    Draws are numbered while the block is traced, so all iterations of a TensorFlow loop inside a
    block would have the same draws: enter the block within the loop.

    :param seed: two integers, or an int32 or int64 tensor ``[2]`` that may change between the calls
        of a compiled function.
    """
    token = _CURRENT.set((tf.convert_to_tensor(seed), itertools.count()))
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextlib.contextmanager
def of_rows(start: Any, total: Any) -> Iterator[None]:
    """
    Draw in this block for some rows of a batch what they have in the draws for the whole batch.

    The draws of the block are numbered from 0 again, so that several such blocks one after the
    other have the same draws.

    :param start: number of the first row.
    :param total: number of all rows.
    """
    current = _CURRENT.get()
    seed = _CURRENT.set(None if current is None else (current[0], itertools.count()))
    rows = _ROWS.set((start, total))
    try:
        yield
    finally:
        _ROWS.reset(rows)
        _CURRENT.reset(seed)


def num_rows(X: tf.Tensor) -> Any:
    """Number of rows of the whole batch that ``X`` is a part of, as a number where it is known."""
    rows = _ROWS.get()
    if rows is not None:
        return rows[1]
    return tf.shape(X)[0] if X.shape[0] is None else X.shape[0]


def next_seed() -> tf.Tensor:
    """The seed ``[2]`` of the next draw, for TensorFlow's stateless operations."""
    current = _CURRENT.get()
    if current is None:
        return tf.random.uniform([2], tf.int32.min, tf.int32.max, dtype=tf.int32)
    seed, numbers = current
    number = tf.constant(next(numbers), seed.dtype)
    return tf.random.experimental.stateless_fold_in(seed, number)


def normal(shape: Any, dtype: tf.DType) -> tf.Tensor:
    """Standard normal draws of this shape."""
    return tf.random.stateless_normal(shape, next_seed(), dtype=dtype)


def normal_of_rows(X: tf.Tensor, shape: Any, dtype: tf.DType) -> tf.Tensor:
    """Standard normal draws of this shape for each row of ``X [n, D]``; see :func:`of_rows`."""
    drawn = normal([num_rows(X), *shape], dtype)
    rows = _ROWS.get()
    return drawn if rows is None else drawn[rows[0] : rows[0] + tf.shape(X)[0]]


def rademacher(shape: Any, dtype: tf.DType) -> tf.Tensor:
    """Draws that are -1 or 1 with equal probability."""
    bits = tf.random.stateless_uniform(shape, next_seed(), 0, 2, tf.int32)
    return 2.0 * tf.cast(bits, dtype) - 1.0


def categorical(log_weights: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Independent indices ``[count]`` with probabilities proportional to the weights ``[K]``."""
    return tf.random.stateless_categorical(log_weights[None], count, next_seed())[0]


def different(size: int, count: int | tf.Tensor, num_sets: int = 1) -> list[tf.Tensor]:
    """
    Independent sets of different integers from 0 to ``size - 1``, int32 ``[count]`` each, all
    subsets equally likely.

    Fewer than a quarter of all are drawn independently, and repeats are drawn again until there are
    none: all are treated alike, so all subsets are equally likely. This takes O(count log count)
    for any size; otherwise all are sorted by random keys. TensorFlow's own shuffles have kernels on
    CPUs only, and none for XLA.
    """
    seeds = [next_seed() for _ in range(num_sets)]
    if tf.is_tensor(count) or size <= _MAX_SORTED * count:
        keys = [tf.random.stateless_uniform([size], seed, dtype=tf.float64) for seed in seeds]
        return [tf.argsort(part)[:count] for part in keys]

    # one loop for all sets has fewer operations, a loop for each uses another core
    groups = [seeds] if devices.sees_gpu() else [[seed] for seed in seeds]
    return [drawn for group in groups for drawn in _without_repeats(size, count, group)]


def _without_repeats(size: int, count: int, seeds: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """A set of different integers, int32 ``[count]``, for each seed, in one loop."""

    def drawn_again(drawn: tf.Tensor, repeated: tf.Tensor, tries: tf.Tensor) -> Sequence[tf.Tensor]:
        own = [tf.random.experimental.stateless_fold_in(seed, tries) for seed in seeds]
        fresh = [tf.random.stateless_uniform([count], seed, 0, size, tf.int32) for seed in own]
        drawn = tf.where(repeated, tf.stack(fresh), drawn)
        return drawn, _repeated(drawn), tries + 1

    shape = [len(seeds), count]
    start = tf.zeros(shape, tf.int32), tf.ones(shape, tf.bool), tf.zeros([], seeds[0].dtype)
    drawn, _, _ = tf.while_loop(lambda _, again, __: tf.reduce_any(again), drawn_again, start)
    return tf.unstack(drawn)


def _repeated(values: tf.Tensor) -> tf.Tensor:
    """Whether each of ``values [s, k]`` stands at an earlier place of its row too, ``[s, k]``."""
    order = tf.argsort(values, stable=True)
    ordered = tf.gather(values, order, batch_dims=1)
    same = tf.pad(ordered[:, 1:] == ordered[:, :-1], [[0, 0], [1, 0]])
    return tf.gather(same, tf.argsort(order), batch_dims=1)
