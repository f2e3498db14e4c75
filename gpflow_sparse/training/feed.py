"""Sources of the batches of training: arrays, memory-mapped arrays, and data sets."""

import contextlib
import functools
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization

from gpflow_sparse.numerics.streaming import release_pages
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.validation import checks

Data = tuple[tf.Tensor, tf.Tensor]

# Rows of a file on disk from which its checksum is computed.
_SAMPLED_ROWS = 1000
_GATHERED_ROWS = 512


class Feed(NamedTuple):
    """Batches by step: arguments of a compiled step, and the function that gathers its rows."""

    at: Callable[[int], tuple[Any, ...]]
    """Arguments of step 0, 1, ..., in any order; consecutive steps are the cheapest."""
    lookup: Callable[..., Any]
    """The batch ``(X, Y)`` of these arguments, inside the compiled step; None of held data."""
    num_rows: int | None
    """N, or None where the source does not say."""
    batch_size: int | None
    """Rows per step, or None where the source decides."""
    fingerprint: str
    """Types, shapes and a checksum of the data; of data on disk or in a dataset, of a sample."""


HELD = Feed(lambda step: (), lambda: None, None, None, "held by the model")
"""The feed of a model that holds its data."""


def open_feed(
    data: Any, batch_size: int | None, seed: int, validate: Callable[[Any], Data]
) -> Feed:
    """
    A feed over arrays, memory-mapped arrays or a batched ``tf.data.Dataset``.

    Arrays become tensors once and are gathered in the graph; a full batch is not
    gathered at all. ``np.memmap`` arrays stay on disk and are gathered on the host. Rows come in
    the order of a fresh permutation per epoch. A dataset is repeated; its own order is kept.

    :param validate: check of ``(X, Y)``, which returns them as tensors.
    :raises ValueError: for a ``batch_size`` that does not fit.
    """
    if isinstance(data, tf.data.Dataset):
        return _dataset_feed(data, batch_size, validate)
    if isinstance(data, tuple | list) and any(isinstance(part, np.memmap) for part in data):
        return _memmap_feed(data, batch_size, seed, validate)
    X, Y = validate(data)
    size = _batch_size(batch_size, X.shape[0])
    fingerprint = f"arrays {tuple(X.shape)} {tuple(Y.shape)} {_checksum(X, Y)}"
    if size == X.shape[0]:
        return Feed(lambda step: (X, Y), lambda X, Y: (X, Y), X.shape[0], size, fingerprint)
    rows = RowBatches(X.shape[0], size, seed)

    def gather(indices: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Data:
        return tf.gather(X, indices), tf.gather(Y, indices)

    def at(step: int) -> tuple[tf.Tensor, ...]:
        return tf.constant(rows(step)), X, Y

    return Feed(at, gather, X.shape[0], size, fingerprint)


def require_rows(feed: Feed, num_replicas: int) -> Feed:
    """
    A feed whose batches have a row for each replica.

    :raises ValueError: for arrays at once, for a dataset at a batch that has fewer.
    """
    if num_replicas == 1 or feed is HELD:
        return feed
    size, wanted = feed.batch_size, f"a row for each of the {num_replicas} replicas"
    if size is not None:
        if size < num_replicas:
            raise ValueError(f"batch_size must be at least {num_replicas}, {wanted}; got {size}.")
        return feed

    def at(step: int) -> tuple[Any, ...]:
        X, Y = feed.at(step)
        if len(X) < num_replicas:
            raise ValueError(f"data must have {wanted} in every batch; batch {step} has {len(X)}")
        return X, Y

    return feed._replace(at=at)


class RowBatches:
    """
    Row numbers of every batch: consecutive pieces of an endless sequence of permutations.

    A batch may continue into the next epoch, so every row is used equally
    often. The permutation of an epoch depends only on the seed and the number of the epoch, so a
    resumed run continues without replaying earlier steps.
    """

    def __init__(self, num_rows: int, batch_size: int, seed: int) -> None:
        self._num_rows, self._batch_size, self._seed = num_rows, batch_size, seed
        self._epoch = functools.lru_cache(maxsize=2)(self._permutation)

    def __call__(self, step: int) -> np.ndarray:
        """:return: the ``batch_size`` row numbers of step 0, 1, ..."""
        start = step * self._batch_size
        first, offset = divmod(start, self._num_rows)
        last = (start + self._batch_size - 1) // self._num_rows
        parts, missing = [], self._batch_size
        for epoch in range(first, last + 1):
            parts.append(self._epoch(epoch)[offset : offset + missing])
            missing, offset = missing - len(parts[-1]), 0
        return np.concatenate(parts).astype(np.int64)

    def _permutation(self, epoch: int) -> np.ndarray:
        # with four bytes for each of at most 2^31 rows
        rows = np.arange(self._num_rows, dtype=np.min_scalar_type(-self._num_rows))
        np.random.default_rng([self._seed, epoch]).shuffle(rows)
        return rows


class _DatasetReader:
    """
    Elements of a repeated dataset by number, each checked when it is read.

    One iterator is kept, since a second one over a shuffled dataset would have another order. The
    dataset is iterated again only to go back.
    """

    def __init__(self, data: tf.data.Dataset, validate: Callable[[Any], Data]) -> None:
        self._data = data.repeat().prefetch(tf.data.AUTOTUNE)
        self._validate = validate
        self._position = -1  # number of the current element
        self._stream = iter(self._data)
        self._element: Any = None

    def __call__(self, step: int) -> Data:
        if step < self._position:
            self._stream, self._position = iter(self._data), -1
        try:
            while self._position < step:
                self._element = next(self._stream)
                self._position += 1
        except StopIteration:
            raise ValueError("data is an empty tf.data.Dataset.") from None
        except tf.errors.OpError as error:
            reason = (error.message or str(error)).splitlines()[0]
            raise ValueError(f"data could not be read: {reason}.") from error
        return self._validate(self._element)


def _dataset_feed(data: tf.data.Dataset, batch_size: int | None, validate: Any) -> Feed:
    if batch_size is not None:
        raise ValueError("batch_size must be None for a tf.data.Dataset: batch the dataset itself.")
    spec = data.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise ValueError(f"data must yield pairs (X [n, D], Y [n, P]), got elements {spec}.")
    read = _DatasetReader(data, validate)
    first = read(0)  # the only element that can be compared without reading all
    return Feed(read, lambda X, Y: (X, Y), None, None, f"tf.data {spec} {_checksum(*first)}")


def _memmap_feed(data: Any, batch_size: int | None, seed: int, validate: Any) -> Feed:
    if len(data) != 2:
        raise ValueError(f"data must be a pair (X [N, D], Y [N, P]), got {len(data)} parts.")
    X, Y = (part if isinstance(part, np.ndarray) else np.asarray(part) for part in data)
    if X.ndim != 2 or Y.ndim != 2:
        raise ValueError(f"X and Y must be matrices, got shapes {X.shape} and {Y.shape}.")
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have the same number of rows, got {len(X)} and {len(Y)}.")
    size = _batch_size(batch_size, len(X))
    batches = RowBatches(len(X), size, seed)

    def read(step: int) -> Data:
        order = np.sort(batches(step))  # disk reads in order
        batch = _gathered(X, order), _gathered(Y, order)
        try:
            return validate(batch)
        except ValueError as error:
            floats = [part for part in batch if part.dtype.kind == "f"]
            bad = [i for i in range(len(order)) if not all(np.isfinite(p[i]).all() for p in floats)]
            where = f" It is row {order[bad[0]]} of the arrays." if bad else ""
            raise ValueError(f"{error}{where}") from error

    sample = np.linspace(0, len(X) - 1, min(len(X), _SAMPLED_ROWS)).astype(int)
    fingerprint = f"memmap {X.shape} {Y.shape} {_checksum(X[sample], Y[sample])}"
    return Feed(read, lambda X, Y: (X, Y), len(X), size, fingerprint)


def _gathered(part: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """
    Rows of an array that may be on disk: a few at a time, since the system takes some 64 KiB around
    each of them into the memory of the process.
    """
    found = np.empty((len(rows), part.shape[1]), part.dtype)
    for start in range(0, len(rows), _GATHERED_ROWS):
        found[start : start + _GATHERED_ROWS] = part[rows[start : start + _GATHERED_ROWS]]
        release_pages([part])
    return found


def _checksum(X: Any, Y: Any) -> str:
    return f"{zlib.crc32(np.asarray(Y).tobytes(), zlib.crc32(np.asarray(X).tobytes())):08x}"


def _batch_size(batch_size: int | None, num_rows: int) -> int:
    if batch_size is None:
        return min(num_rows, 1024)
    if checks.require_count(batch_size, "batch_size") > num_rows:
        raise ValueError(f"batch_size must be from 1 to N={num_rows}, got {batch_size}.")
    return batch_size


def data_guard(model: Any) -> Callable[[Any], Data]:
    """The check of ``(X, Y)`` for a model of this package or of GPflow."""
    if hasattr(model, "_require_data"):
        return model._require_data
    kernel = getattr(model, "kernel", None)
    num_outputs = getattr(model, "num_latent_gps", None)
    if isinstance(kernel, LinearCoregionalization):  # Y has a column for each mixture
        num_outputs = kernel.W.shape[0]
    likelihood = getattr(model, "likelihood", None)
    return functools.partial(checks.require_data, likelihood=likelihood, num_latent_gps=num_outputs)


class Prefetch:
    """
    A thread that calls ``model.look_ahead(X)`` with each batch one step early; see
    :class:`~gpflow_sparse.models.SWSGP`, whose neighbors are found outside of the compiled step.

    It changes no result: the model uses what was found for the same rows only.
    """

    def __init__(self, model: Any, feed: Feed) -> None:
        self._feed, self._model = feed, model
        self._look = compiled(lambda *at: model.look_ahead(feed.lookup(*at)[0]))
        self._thread = ThreadPoolExecutor(1, "gpflow_sparse-prefetch")
        self._running: Future[Any] | None = None

    @classmethod
    def of(cls, model: Any, feed: Feed) -> "Prefetch | None":
        """A prefetch; None for a model without a search, or data that cannot be read at random."""
        if feed.num_rows is None or not getattr(model, "can_look_ahead", False):
            return None
        return cls(model, feed)

    def begin(self, step: int) -> None:
        """
        Wait for the search in progress, then start the search for the batch of this step, unless
        all rows of the last batch were known.

        An error here is not raised: the step itself fails in the same way, with an explanation.
        """
        self.wait()
        if self._model.knows_rows:
            return
        with contextlib.suppress(ValueError):
            self._running = self._thread.submit(self._look, *self._feed.at(step))

    def wait(self) -> None:
        """Wait for the search in progress, if there is one."""
        if self._running is not None:
            self._running.exception()
            self._running = None
