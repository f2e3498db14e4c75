"""Functions of many rows, evaluated in blocks and evaluated again for their gradients.

Automatic differentiation keeps the intermediate results of the forward pass for the backward pass.
Where that is too much memory, they are computed again: with a third more multiplications, the
memory is one block of rows. :func:`streamed_sum` is for sums over rows, which may be in files, and
:func:`by_chunks` for functions that act on each row.
"""

import contextlib
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics.tracing import compiled, numpy_function

Tensors = Sequence[tf.Tensor]
OfRows = Callable[[Tensors, Tensors], tf.Tensor]
# AutoGraph would convert all functions that a loop calls, at every call.
_PLAIN = tf.autograph.experimental.do_not_convert
# Function that adds the sums of all processes to the sums of this one.
_TOTAL: ContextVar[Callable[[Tensors], Tensors] | None] = ContextVar(
    "gpflow_sparse_total", default=None
)


@contextlib.contextmanager
def totals_by(total: Callable[[Tensors], Tensors]) -> Iterator[None]:
    """
    In this block, :func:`streamed_sum` has the rows of all processes; each holds some of them.

    :param total: returns sums of tensors over all processes, which must be the same in all.
    """
    token = _TOTAL.set(total)
    try:
        yield
    finally:
        _TOTAL.reset(token)


def has_all_rows() -> bool:
    """Whether this process holds all rows: false inside of :func:`totals_by`."""
    return _TOTAL.get() is None


def streamed_sum(
    statistics: Callable[[Tensors, Tensors], Tensors],
    data: Tensors | tf.data.Dataset,
    tensors: Tensors = (),
    *,
    block_rows: int,
) -> list[tf.Tensor]:
    """
    ``sum_b statistics(block b of data, tensors)``, whose gradient is a second pass over the rows.

    Rows that fit into one block are evaluated once, and automatic differentiation keeps their
    intermediate results. For more rows, memory is one block for any N; inside ``tf.function`` both
    passes are loops: the graph does not grow with N, and N may be unknown while tracing.

    Gradients flow to ``tensors`` and to every trainable ``tf.Variable`` read inside ``statistics``,
    and none to ``data``. With several blocks none flows to other tensors that ``statistics``
    captures, and there are first derivatives only: a tensor to be differentiated must come through
    ``tensors``.

    :param statistics: function of blocks of all parts of ``data`` (at least one row each, at most
        ``block_rows``) and of ``tensors`` that returns floating tensors whose shapes do not depend
        on the block. The result depends on ``block_rows`` unless it is a sum over rows.
    :param data: tensors with the same number of rows N >= 1; or a ``tf.data.Dataset`` of batches of
        such, finite and the same in every pass, which may come from files that do not fit into
        memory. All axes but the first are known.
    :param tensors: floating tensors, whole for every block.
    :param block_rows: rows per block; one block has the remaining rows.
    :return: the sums, in the order and the float types of ``statistics``.
    """

    if _fit_into_one(data, block_rows):
        return list(statistics([tf.stop_gradient(part) for part in data], tensors))

    @tf.custom_gradient
    def total(*tensors: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> Any:
            watched = _by_creation(variables or ())

            def pull_back(blocks: Tensors) -> list[tf.Tensor]:
                # copies made here: inside a loop, a tape does not record the loop's inputs
                local = [tf.identity(tensor) for tensor in tensors]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch([*local, *watched])
                    sums = list(statistics(blocks, local))
                sources = [*local, *watched]
                gradients = tape.gradient(sums, sources, list(upstream), "zero")
                # gradients of gathers are sparse, and cannot be added; gradients of batches of
                # unknown height may have unknown shapes
                return [
                    tf.ensure_shape(tf.convert_to_tensor(part), source.shape)
                    for part, source in zip(gradients, sources, strict=True)
                ]

            slopes = _sum_over_blocks(pull_back, data, block_rows)
            at_tensors, at_variables = slopes[: len(tensors)], slopes[len(tensors) :]
            if not watched:
                return at_tensors
            known = {v.ref(): slope for v, slope in zip(watched, at_variables, strict=True)}
            return at_tensors, [known[v.ref()] for v in variables or ()]

        # eagerly, outer tapes would record and keep all intermediate results: pause them
        with tf.init_scope() if tf.executing_eagerly() else contextlib.nullcontext():
            sums = _sum_over_blocks(lambda blocks: statistics(blocks, tensors), data, block_rows)
        return sums, gradient

    return list(total(*tensors))


def _fit_into_one(data: Tensors | tf.data.Dataset, block_rows: int) -> bool:
    """Whether this process has all rows, and they are at most one block."""
    if isinstance(data, tf.data.Dataset) or not has_all_rows():
        return False
    known = data[0].shape[0]
    return known is not None and known <= block_rows


def _by_creation(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Variables in an order that other processes share; TensorFlow orders them by address."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
    return list(tape.watched_variables())


def _sum_over_blocks(
    function: Callable[[Tensors], Tensors], data: Tensors | tf.data.Dataset, block_rows: int
) -> list[tf.Tensor]:
    """Sums over the blocks of all processes."""
    if isinstance(data, tf.data.Dataset):
        sums = _sum_over_batches(function, data.rebatch(block_rows))
    else:
        sums = _sum_over_slices(function, data, block_rows)
    total = _TOTAL.get()
    # a tape must not record the communication: `streamed_sum` has the gradient
    return sums if total is None else list(total([tf.stop_gradient(part) for part in sums]))


def _sum_over_slices(
    function: Callable[[Tensors], Tensors], data: Tensors, block_rows: int
) -> list[tf.Tensor]:
    """Sums over blocks; the first has the remaining rows, so that none needs padding."""
    if not tf.executing_eagerly():
        # its own function, not inlined: in a loop, TensorFlow turns sums of large tensors into
        # temporary variables that outlive the loop and fail the next call (TensorFlow issue 23780)
        function = compiled(function, experimental_attributes={"_noinline": True})
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
    traced = compiled(lambda *blocks: list(function(blocks)))
    concrete = traced.get_concrete_function(*batches.element_spec)
    zeros = [tf.zeros(spec.shape, spec.dtype) for spec in concrete.structured_outputs]

    def add(sums: Tensors, blocks: Tensors) -> tuple[tf.Tensor, ...]:
        return tuple(a + b for a, b in zip(sums, traced(*blocks), strict=True))

    if not tf.executing_eagerly():
        return list(batches.reduce(tuple(zeros), lambda sums, blocks: add(sums, blocks)))
    # eagerly, TensorFlow's `reduce` adds its function to a graph that lasts as long as the process
    sums: Tensors = zeros
    for blocks in batches:
        sums = add(sums, blocks)
    return list(sums)


def read_in_blocks(arrays: Sequence[np.ndarray], block_rows: int) -> tf.data.Dataset:
    """
    A data set of consecutive rows of arrays on disk (``np.memmap``), read block by block.

    :param arrays: arrays with the same number of rows.
    """
    num_rows = len(arrays[0])
    types = [tf.as_dtype(array.dtype) for array in arrays]

    def read(start: np.ndarray) -> list[np.ndarray]:
        # in the byte order of this machine, which a file need not have
        blocks = [
            np.array(array[start : start + block_rows], kind.as_numpy_dtype)
            for array, kind in zip(arrays, types, strict=True)
        ]
        release_pages(arrays)
        return blocks

    def block(start: tf.Tensor) -> tuple[tf.Tensor, ...]:
        parts = numpy_function(read, [start], types)
        for part, array in zip(parts, arrays, strict=True):
            part.set_shape([None, *array.shape[1:]])
        return tuple(parts)

    starts = tf.data.Dataset.range(0, num_rows, block_rows)
    return keeping(read, starts.map(block, num_parallel_calls=1).prefetch(1))


def release_pages(arrays: Sequence[np.ndarray]) -> None:
    """
    Take what was read of arrays on disk out of the memory of the process, where the system can: it
    would grow to the size of the file.
    """
    for array in arrays:
        base: Any = array if getattr(array, "mode", "c") != "c" else None  # "c" holds changes
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


def keeping(function: Callable[..., Any], batches: tf.data.Dataset) -> tf.data.Dataset:
    """The data set, which keeps the Python function that its graph calls, in other graphs too."""
    tf.data.experimental.to_variant(batches).function = function  # what a graph captures of it
    return batches


def _rows(part: tf.Tensor, start: tf.Tensor, count: int) -> tf.Tensor:
    """``part[start : start + count]`` with a known number of rows, as XLA needs it."""
    rank = len(part.shape)
    return tf.slice(part, [start, *[0] * (rank - 1)], [count, *part.shape[1:]])


def by_chunks(function: OfRows, rows: Tensors, shared: Tensors, *, size: int) -> tf.Tensor:
    """
    ``function(rows, shared)``, at most ``size`` rows at a time, with the same gradients.

    Gradients flow to ``rows``, to ``shared`` and to variables that the function reads; tensors of
    any other origin must come in ``shared``. Not differentiable twice.

    :param function: function of lists of tensors, the first of n rows each; its result has n rows,
        which depend on those rows alone, and the float type of the first.
    :param rows: ``[N, ...]`` each, floats.
    :param shared: tensors that all rows need, floats.
    :return: ``[N, ...]``.
    """
    known = rows[0].shape[0]
    if known is not None and known <= size:
        return function(rows, shared)
    # chunks of nearly equal height, which cover the rows and some copies of the last one
    num_rows = tf.shape(rows[0])[0] if known is None else known
    count = tf.maximum(-(-num_rows // size), 1) if known is None else -(-known // size)
    height = -(-num_rows // count)

    def split(part: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        padding = tf.repeat(last, count * height - num_rows, axis=0)
        return tf.reshape(tf.concat([part, padding], axis=0), [count, height, *part.shape[1:]])

    def join(stacked: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
        return tf.ensure_shape(tf.reshape(stacked, [-1, *shape])[:num_rows], [known, *shape])

    @tf.custom_gradient
    def chunked(*arguments: tf.Tensor) -> Any:
        own, others = arguments[: len(rows)], arguments[len(rows) :]
        # padded with a real row, since a kernel need not be differentiable at zeros
        chunks = [split(part, part[-1:]) for part in own]

        def gradient(upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            above = split(upstream, tf.zeros_like(upstream[-1:]))
            of_rows, sums = _gradients(function, chunks, others, variables, above)
            joined = [join(part, like.shape[1:]) for part, like in zip(of_rows, own, strict=True)]
            found = [*joined, *sums[: len(others)]]
            return (found, sums[len(others) :]) if variables else found

        results = tf.map_fn(
            _PLAIN(lambda chunk: function(chunk, others)),
            chunks,
            fn_output_signature=own[0].dtype,
            parallel_iterations=1,
        )
        return join(results, results.shape[2:]), gradient

    return chunked(*rows, *shared)


def _gradients(
    function: OfRows,
    chunks: Tensors,
    shared: Tensors,
    variables: Sequence[tf.Variable],
    upstream: tf.Tensor,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Gradients of the chunks, stacked as they are, and of ``shared`` and ``variables``."""
    count, sources = tf.shape(upstream)[0], [*shared, *variables]

    def add(i: tf.Tensor, made: Any, sums: Any) -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            chunk = [part[i] for part in chunks]
            tape.watch([*chunk, *sources])
            result = function(chunk, shared)
        slopes = tape.gradient(result, [*chunk, *sources], upstream[i], "zero")
        dense = [tf.convert_to_tensor(slope) for slope in slopes]  # gradients of gathers are sparse
        made = [array.write(i, slope) for array, slope in zip(made, dense, strict=False)]
        return i + 1, made, [s + d for s, d in zip(sums, dense[len(chunks) :], strict=True)]

    made = [tf.TensorArray(part.dtype, count) for part in chunks]
    _, made, sums = tf.while_loop(
        _PLAIN(lambda i, *_: i < count),
        _PLAIN(add),
        (tf.constant(0), made, [tf.zeros_like(source) for source in sources]),
        parallel_iterations=1,
        maximum_iterations=count,
    )
    return [array.stack() for array in made], sums
