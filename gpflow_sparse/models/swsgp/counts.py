"""Counts of the training rows that have each inducing point of SWSGP as a neighbor, for "counts".

``count_neighbors``, ``set_neighbors`` and ``prepare_data`` are methods of SWSGP.
"""

import contextlib
import weakref
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.covariances.stationary import is_map
from gpflow_sparse.validation import checks, component_checks

# Rows whose neighbors are counted together.
_ROWS = 1024


class _Counted(NamedTuple):
    """The state of a model and the inputs at the last count by `prepare_data`."""

    state: tuple[Any, ...]
    X: weakref.ref[Any]


# By model. It saves a pass over the data and is not part of the model, which may be saved.
_COUNTED: weakref.WeakKeyDictionary[Any, _Counted] = weakref.WeakKeyDictionary()


def count_neighbors(model: Any, X: Any) -> None:
    """
    Count the rows that have each inducing point as a neighbor, for "counts".

    `training.fit` calls it, and again when neighbors have changed. O(N) searches in blocks. The
    neighbors found are stored for later steps, see ``num_remembered`` of
    :class:`~gpflow_sparse.inducing_variables.NeighborInducingPoints`.

    :param X: all training inputs ``[N, D]``, an array or memory map; or a ``tf.data.Dataset``
        of batches ``(X, Y)`` or ``X``, finite.
    :raises ValueError: for inputs that do not fit the model.
    """
    _count(model, X)


def set_neighbors(model: Any, num_neighbors: int) -> None:
    """
    Set the number of neighbors: to predict from more than in training, for example. "counts" has
    to be counted again before training continues, and functions compiled earlier keep the old one.

    :param num_neighbors: H, at most M, more than there are global points.
    :raises ValueError: for other numbers.
    """
    iv = model.points
    before, iv.num_neighbors = iv.num_neighbors, num_neighbors
    try:
        iv.validate_neighbors()
    except ValueError:
        iv.num_neighbors = before
        raise
    model.usage.assign(tf.zeros_like(model.usage))
    _COUNTED.pop(model, None)


def prepare_data(model: Any, data: Any) -> None:
    """
    Call :meth:`count_neighbors` with "counts", unless neither the inputs nor the neighbors have
    changed since the last call. Endless data cannot be counted; existing counts stay.

    :param data: as `training.fit` was given them.
    """
    if not _needs_counts(model):
        return
    is_dataset = isinstance(data, tf.data.Dataset)
    X = data if is_dataset else data[0]
    now, before = _state(model), _COUNTED.get(model)
    if before is not None and before.state == now and before.X() is X:
        return
    if is_dataset and _is_endless(data) and bool(tf.reduce_any(model.usage > 0.0)):
        return
    most = int(model.num_data) if is_dataset and model.num_data is not None else None
    _count(model, X, most)
    with contextlib.suppress(TypeError):  # a list, which is counted at every call
        _COUNTED[model] = _Counted(now, weakref.ref(X))


def _count(model: Any, X: Any, most: int | None = None) -> None:
    """:param most: number of rows that there are, if X is a data set that may not end."""
    model._require_parts(model.input_dim, model.dtype)
    component_checks.validate_components(model.kernel)
    component_checks.validate_components(model.points)
    counts, rows = np.zeros(model.usage.shape), 0
    for block in _blocks(X, model.input_dim, model.usage.dtype):
        rows += int(block.shape[0])
        if most is not None and rows > most:
            raise ValueError(
                f"data has more than the {most} rows that num_data counts, perhaps without end: "
                "leave out repeat(), or call model.count_neighbors(X) with all training inputs "
                "and choose another kl_weighting for data that differ in every pass."
            )
        for i, (kernel, _) in enumerate(model._latents):
            neighbors = model.points.training_neighbors(block, kernel).numpy()
            counts[:, i] += np.bincount(neighbors.ravel(), minlength=len(counts))
    if not rows:
        raise ValueError("X is an empty data set.")
    model.usage.assign(counts)


def counts_at(model: Any, neighbors: tf.Tensor, latent: int) -> tf.Tensor:
    """
    Counts of the neighbors of the rows of a batch: training rows that have each, ``[n, H]``.

    Before they have been counted, the batch itself is counted, if it is all the data.

    :param neighbors: ``[n, H]``, indices of inducing points.
    :param latent: index of the latent kernel.
    :raises ValueError: for a minibatch before they have been counted.
    """
    if _is_counted(model):
        return tf.gather(model.usage, neighbors)[:, :, latent]
    require_counted(model, is_all(model, neighbors.shape[0]))
    flat, dtype = tf.reshape(neighbors, [-1]), model.usage.dtype
    counts = tf.math.unsorted_segment_sum(tf.ones_like(flat, dtype), flat, model.usage.shape[0])
    return tf.gather(counts, neighbors)


def is_all(model: Any, num_rows: int | None) -> bool:
    """Whether a batch of this number of rows, None if it is not known, is all the data."""
    total = model.num_data
    return total is None or (not tf.is_tensor(total) and num_rows == total)


def require_counted(model: Any, all_rows: bool = False) -> None:
    """
    :param all_rows: whether all rows are there, to be counted.
    :raises ValueError: if the model needs counts and has none, unless all rows are there.
    """
    if _needs_counts(model) and not all_rows and not _is_counted(model):
        raise ValueError(
            "the rows that use each inducing point have not been counted, and a batch of some rows "
            "does not tell: call model.count_neighbors(X) with all training inputs, as "
            "training.fit does, or choose another kl_weighting."
        )


def _needs_counts(model: Any) -> bool:
    return model.kl_weighting == "counts" and model.sums_over_rows


def _is_counted(model: Any) -> bool:
    with tf.init_scope():  # when a compiled elbo is traced: it cannot check values
        return bool(tf.reduce_any(model.usage > 0.0))


def _blocks(X: Any, input_dim: int, dtype: tf.DType) -> Iterator[tf.Tensor]:
    """
    Inputs ``[n, D]``, some rows at a time.

    :raises ValueError: for anything but a matrix or a finite data set, for another number of
        columns, and for values that are not finite.
    """
    if isinstance(X, tf.data.Dataset):
        _require_batches(X)
        parts: Any = (element[0] if isinstance(element, tuple) else element for element in X)
    else:
        if not isinstance(X, np.memmap):
            X = checks.require_inputs(X, input_dim, dtype, "X")
        if len(X.shape) != 2:
            raise ValueError(f"X must be a matrix [N, D], got shape {tuple(X.shape)}.")
        parts = (X[start : start + _ROWS] for start in range(0, X.shape[0], _ROWS))
    for part in parts:
        yield checks.require_inputs(tf.cast(part, dtype), input_dim, dtype, "X")


def _require_batches(X: tf.data.Dataset) -> None:
    spec = X.element_spec[0] if isinstance(X.element_spec, tuple) else X.element_spec
    numbers = isinstance(spec, tf.TensorSpec) and (spec.dtype.is_floating or spec.dtype.is_integer)
    if not numbers or spec.shape.rank not in (None, 2):
        raise ValueError(
            "X must be a data set of batches [n, D] of numbers, or of pairs (X, Y) of them, got "
            f"{spec}; use data.batch(1024)."
        )
    if _is_endless(X):
        raise ValueError(
            "X is a data set without end: leave out repeat(), or call model.count_neighbors(X) "
            "with all training inputs before training."
        )


def _is_endless(data: tf.data.Dataset) -> bool:
    """Whether a data set declares that it has no end; others may have none undeclared."""
    return int(data.cardinality()) == tf.data.INFINITE_CARDINALITY


def _state(model: Any) -> tuple[Any, ...]:
    """Equal only where all neighbors are equal: a hash of Z, and the metric of each kernel."""
    iv = model.points
    found: list[Any] = [zlib.crc32(iv.Z.numpy().tobytes())]
    for kernel, _ in model._latents:
        metric = iv.metric(kernel)
        parts = kernel.parameters if metric is None or is_map(kernel) else [metric]
        found.append(b"".join(np.asarray(part).tobytes() for part in parts))
    return tuple(found)
