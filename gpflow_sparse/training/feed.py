"""Where a training step gets its rows from."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse import checks

Data = tuple[tf.Tensor, tf.Tensor]


class Feed(NamedTuple):
    """An endless stream of step arguments, and how a compiled step turns one into a batch."""

    draw: Iterator[tuple[Any, ...]]
    """Yields the arguments of one step."""
    lookup: Callable[..., Data]
    """From those arguments to ``(X, Y)``, inside the compiled step."""
    num_rows: int | None
    """N, or None where the source does not say."""
    batch_size: int | None
    """Rows per step, or None where the source decides."""


def open_feed(
    data: Any, batch_size: int | None, seed: int, validate: Callable[[Any], Data]
) -> Feed:
    """
    A feed over arrays, memory-mapped arrays or a batched ``tf.data.Dataset``.

    Arrays become tensors once and are gathered in the graph; a batch that is all the data is not
    gathered at all. ``np.memmap`` arrays stay on disk and are gathered on the host. Rows come in
    the order of a fresh permutation per epoch.

    :param validate: the guard for ``(X, Y)``.
    :raises ValueError: for a ``batch_size`` that does not fit.
    """
    if isinstance(data, tf.data.Dataset):
        return _dataset_feed(data, batch_size, validate)
    if isinstance(data, tuple | list) and any(isinstance(part, np.memmap) for part in data):
        return _memmap_feed(data, batch_size, seed, validate)
    X, Y = validate(data)
    size = _batch_size(batch_size, X.shape[0])
    if size == X.shape[0]:
        return Feed(_forever(()), lambda: (X, Y), X.shape[0], size)

    def gather(indices: tf.Tensor) -> Data:
        return tf.gather(X, indices), tf.gather(Y, indices)

    return Feed(_as_arguments(row_batches(X.shape[0], size, seed)), gather, X.shape[0], size)


def row_batches(num_rows: int, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """
    Endless batches of row numbers, a fresh permutation per epoch, all of ``batch_size``.

    The rows left over at the end of an epoch open the next batch, so each row comes up equally
    often.
    """
    rng = np.random.default_rng(seed)
    left = np.empty(0, dtype=np.int64)
    while True:
        while len(left) < batch_size:
            left = np.concatenate([left, rng.permutation(num_rows)])
        yield left[:batch_size]
        left = left[batch_size:]


def _dataset_feed(data: tf.data.Dataset, batch_size: int | None, validate: Any) -> Feed:
    if batch_size is not None:
        raise ValueError("batch_size must be None for a tf.data.Dataset: batch the dataset itself.")
    spec = data.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise ValueError(f"data must yield pairs (X [n, D], Y [n, P]), got elements {spec}.")
    stream = iter(data.repeat().prefetch(tf.data.AUTOTUNE))
    first = next(stream, None)
    if first is None:
        raise ValueError("data is an empty tf.data.Dataset.")
    validate(first)

    def draw() -> Iterator[Data]:
        yield first
        yield from stream

    return Feed(draw(), lambda X, Y: (X, Y), None, None)


def _memmap_feed(data: Any, batch_size: int | None, seed: int, validate: Any) -> Feed:
    X, Y = data
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have the same number of rows, got {len(X)} and {len(Y)}.")
    size = _batch_size(batch_size, len(X))

    def draw() -> Iterator[Data]:
        for rows in row_batches(len(X), size, seed):
            order = np.sort(rows)  # disk reads in order
            yield validate((np.asarray(X[order]), np.asarray(Y[order])))

    return Feed(draw(), lambda X, Y: (X, Y), len(X), size)


def _batch_size(batch_size: int | None, num_rows: int) -> int:
    if batch_size is None:
        return min(num_rows, 1024)
    if checks.require_count(batch_size, "batch_size") > num_rows:
        raise ValueError(f"batch_size must be from 1 to N={num_rows}, got {batch_size}.")
    return batch_size


def _forever(value: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    while True:
        yield value


def _as_arguments(batches: Iterator[np.ndarray]) -> Iterator[tuple[tf.Tensor]]:
    for batch in batches:
        yield (tf.constant(batch),)


def data_guard(model: Any) -> Callable[[Any], Data]:
    """The check of ``(X, Y)`` that fits ``model``, also for models of GPflow's own."""
    own = getattr(model, "_require_data", None)
    if own is not None:
        return own

    def guard(data: Any) -> Data:
        return checks.require_data(
            data,
            likelihood=getattr(model, "likelihood", None),
            num_latent_gps=getattr(model, "num_latent_gps", None),
        )

    return guard
