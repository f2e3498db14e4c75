"""Training data of a regression model, and the sums over their rows that its weights depend on.

The data are tensors, variables whose values may be assigned, or a data set read in every pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.inference import collapsed
from gpflow_sparse.numerics import devices
from gpflow_sparse.numerics.streaming import read_in_blocks, streamed_sum
from gpflow_sparse.validation import checks, component_checks

Tensors = Sequence[tf.Tensor]

TrainingData = Any  # (X [N, D], Y [N, P]) tensors or variables, or a tf.data.Dataset of tensors
# Entries of one block that is read from a file: 8 MiB of float64.
_FILE_BLOCK = 2**20
# Entries of the tensors from which a block's features are computed, 64 MiB of float64; and the
# smallest number of rows in a block.
_BLOCK_ENTRIES, _FEWEST_ROWS = 2**23, 256


def keep_training_data(
    data: Any,
    *,
    batches: bool,
    copy: bool = True,
    dtype: tf.DType | None = None,
    missing: bool = False,
) -> TrainingData:
    """
    Training data in the form in which a model keeps them.

    :param data: ``(X [N, D], Y [N, P])``. Arrays become tensors. A ``tf.Variable`` or
        ``gpflow.Parameter`` is kept: :func:`read` returns its current values. Memory maps
        (``np.load(path, mmap_mode="r")``) stay on disk and become a data set, as does a
        ``tf.data.Dataset`` of batches ``(X, Y)``, which must be finite and the same in every pass.
    :param batches: whether the model can read its data in passes.
    :param copy: whether arrays in memory become tensors; if not they are read like files, for a
        model that does not keep them.
    :param dtype: float type of the tensors; None for GPflow's default.
    :param missing: whether entries of Y may be NaN.
    :raises ValueError: for anything else, and for batches if the model cannot.
    """
    kind = np.memmap if copy else np.ndarray
    mapped = isinstance(data, Sequence) and any(isinstance(part, kind) for part in data)
    if batches and mapped:
        X, Y = _require_files(data)
        data = read_in_blocks((X, Y), max(1, _FILE_BLOCK // X.shape[1]))
    if isinstance(data, tf.data.Dataset):
        if not batches:
            raise ValueError("data must be arrays (X [N, D], Y [N, P]), got a tf.data.Dataset.")
        return _require_dataset(data)
    X, Y = checks.require_data(data, dtype=dtype, missing=missing)
    return variable_or(X, data[0], "X"), variable_or(Y, data[1], "Y")


def variable_or(tensor: tf.Tensor, given: Any, name: str) -> Any:
    """``given`` if it is a variable, else ``tensor``, its conversion."""
    if not _live([given]):
        return tensor
    if given.shape.rank != 2 or given.shape[1] is None:
        raise ValueError(
            f"{name} must be a variable with a known number of columns, got shape {given.shape}; "
            f"make it tf.Variable({name}, shape=[None, {tensor.shape[1]}])."
        )
    return given


def read(data: TrainingData, dtype: tf.DType) -> TrainingData:
    """
    The current rows: variables are converted to tensors, and their values are checked again.

    :param data: result of :func:`keep_training_data`; tensors and data sets are returned unchanged.
    :param dtype: type to which variables are converted.
    :raises ValueError: for values that are not finite, and X and Y with different numbers of rows,
        eagerly and while tracing; assigned later, when the graph runs, they raise
        ``tf.errors.InvalidArgumentError``.
    """
    if not _live(data):
        return data
    if not tf.executing_eagerly():
        with tf.init_scope():  # the present values, for a plain ValueError
            if tf.executing_eagerly():
                read(data, dtype)
    X, Y = checks.require_data(data, dtype=dtype)
    if not tf.executing_eagerly():
        tf.debugging.assert_positive(tf.shape(X)[0], "X must have at least one row")
    return checks.require_finite_in_graph(X, "X"), checks.require_finite_in_graph(Y, "Y")


def with_rows(data: TrainingData, rows: tuple[tf.Tensor, tf.Tensor]) -> TrainingData:
    """
    The training data with more rows behind them; a data set has one batch more.

    :param rows: ``(X [n, D], Y [n, P])``.
    :raises ValueError: for variables, whose values the caller assigns.
    """
    if _live(data):
        raise ValueError(
            "data must not be variables for condition_on: assign all rows to the variables that "
            "the model was given."
        )
    spec = data.element_spec if isinstance(data, tf.data.Dataset) else data
    rows = tuple(tf.cast(new, old.dtype) for new, old in zip(rows, spec, strict=True))
    if isinstance(data, tf.data.Dataset):
        return data.concatenate(tf.data.Dataset.from_tensors(rows))
    return tuple(tf.concat(pair, axis=0) for pair in zip(data, rows, strict=True))


def with_weights(row_weights: tf.Tensor | None, count: int) -> tf.Tensor | None:
    """Weights of rows with weights of 1 for ``count`` more, ``[N + count]``; None stays None."""
    if row_weights is None:
        return None
    return tf.concat([row_weights, tf.ones([count], row_weights.dtype)], axis=0)


def fingerprint(data: TrainingData) -> tf.Tensor:
    """
    A hash of the present values of the variables in ``data``, uint8 ``[8]`` for each; ``[0]`` for
    data that cannot be assigned. O(N D), also in a graph.
    """
    parts = [tf.fingerprint(tf.reshape(part, [1, -1]))[0] for part in _live(data)]
    return tf.concat([tf.zeros([0], tf.uint8), *parts], axis=0)


def are_same(first: TrainingData, second: TrainingData) -> bool:
    """Whether two training data are the same objects, whatever values variables have."""
    if isinstance(first, tf.data.Dataset) or isinstance(second, tf.data.Dataset):
        return first is second
    return all(a is b for a, b in zip(first, second, strict=True))


def columns(data: TrainingData) -> tuple[int, int]:
    """
    The numbers D and P of columns of X and Y.

    :raises ValueError: if ``data``, which may be assigned, is not a pair of arrays or batches.
    """
    try:
        X, Y = data.element_spec if isinstance(data, tf.data.Dataset) else data
        return int(X.shape[1]), int(Y.shape[1])
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            "data must be (X [N, D], Y [N, P]) as when the model was made, got "
            f"{type(data).__name__}; make a new model."
        ) from error


def count_rows(X: Any) -> int:
    """Rows of an array, or of a finite ``tf.data.Dataset`` of batches, which is read once."""
    if not isinstance(X, tf.data.Dataset):
        return len(X) if hasattr(X, "__len__") else int(tf.shape(X)[0])  # a variable has no length
    return sum(len(tf.nest.flatten(batch)[0]) for batch in X)


def some_inputs(data: TrainingData, most: int = 200_000) -> np.ndarray:
    """
    Evenly spaced rows of X; a data set is read once.

    :return: ``[n, D]``; all rows if at most ``most``, else between ``most / 2`` and ``most`` rows.
    """
    if not isinstance(data, tf.data.Dataset):
        X = data[0].numpy()
        return X[:: -(-len(X) // most)]
    kept: list[np.ndarray] = []
    stride, count, seen = 1, 0, 0
    for X, _ in data.as_numpy_iterator():
        part = X[-seen % stride :: stride]
        kept, count, seen = [*kept, part], count + len(part), seen + len(X)
        while count > most:
            stride *= 2
            kept = [np.concatenate(kept)[::2]]
            count = len(kept[0])
    return np.concatenate(kept).astype(np.float64)


def streamed(
    statistics: Callable[[Tensors, Tensors, Tensors], Any],
    basis: FiniteBasis,
    data: TrainingData,
    mean_function: MeanFunction,
    dtype: tf.DType,
) -> list[tf.Tensor]:
    """
    Sums over rows in blocks that keep the memory of features bounded; gradients flow to all
    parameters.

    :param statistics: function of ``X [n, D]`` and the errors of the prior mean ``[n, P]``, both in
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

    block_rows = max(_FEWEST_ROWS, devices.block_entries(_BLOCK_ENTRIES) // basis.numbers_per_row)
    return streamed_sum(of_block, data, basis.precompute(), block_rows=block_rows)


def row_sums(
    basis: FiniteBasis,
    data: TrainingData,
    mean_function: MeanFunction,
    dtype: tf.DType,
    kernel_diagonal: Callable[[tf.Tensor], tf.Tensor] | None = None,
    bounded: Callable[..., collapsed.RowSums] | None = None,
) -> collapsed.RowSums:
    """
    :func:`gpflow_sparse.inference.collapsed.row_sums` of a basis over all rows.

    :param kernel_diagonal: ``k(x, x) [n]`` of the kernel whose bound is sought; None for a finite
        sum, which has no residual.
    :param bounded: the sums for another bound, from the sums of some rows, ``X`` and features.
    """

    def sums(X: tf.Tensor, errors: tf.Tensor, tables: Tensors) -> collapsed.RowSums:
        A = basis.features(X, tables)
        diagonal = tf.zeros_like(X[:, 0]) if kernel_diagonal is None else kernel_diagonal(X)
        found = collapsed.row_sums(A, errors, diagonal)
        return found if bounded is None else bounded(found, X, A)

    return collapsed.RowSums(*streamed(sums, basis, data, mean_function, dtype))


def _live(data: TrainingData) -> list[Any]:
    """The parts of ``data`` whose values can be assigned."""
    if isinstance(data, tf.data.Dataset):
        return []
    return [part for part in data if isinstance(part, tf.Variable | gpflow.Parameter)]


def _require_files(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Check the shapes of memory maps; whether values are finite is checked in each pass."""
    if len(data) != 2 or not all(isinstance(part, np.ndarray) for part in data):
        raise ValueError("data must be (X [N, D], Y [N, P]): two arrays, in memory or mapped.")
    for name, part in zip("XY", data, strict=True):
        known = part.dtype.kind in "fiu" and part.dtype.itemsize <= 8  # TensorFlow's limit
        if part.ndim != 2 or 0 in part.shape or not known:
            raise ValueError(
                f"{name} must be a matrix of numbers of at most 64 bits, got shape {part.shape} of "
                f"{part.dtype}."
            )
    if len(data[0]) != len(data[1]):
        raise ValueError(
            f"X and Y must have the same number of rows, got {len(data[0])} and {len(data[1])}."
        )
    return data[0], data[1]


def _require_dataset(data: tf.data.Dataset) -> tf.data.Dataset:
    spec = data.element_spec
    pair = isinstance(spec, tuple) and len(spec) == 2
    if not pair or not all(isinstance(part, tf.TensorSpec) for part in spec):
        raise ValueError(f"data must yield pairs (X [n, D], Y [n, P]), got {spec}.")
    for name, part in zip("XY", spec, strict=True):
        if part.shape.rank != 2 or part.shape[1] is None:
            raise ValueError(
                f"{name} of data must be batches [n, D] with a known number of columns, got shape "
                f"{part.shape}; use data.batch(1024)."
            )
        if not (part.dtype.is_floating or part.dtype.is_integer or part.dtype == tf.bool):
            raise ValueError(f"{name} of data must hold real numbers, got {part.dtype.name}.")
    empty = next(iter(data.take(1)), None) is None
    if empty or int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("data must be a finite data set that is not empty; leave out repeat().")
    return data
