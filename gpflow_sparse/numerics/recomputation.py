"""Functions of many rows, some rows at a time, whose intermediate results are made twice.

Automatic differentiation keeps what the forward pass made for the backward pass. Where that is too
much to keep, it is made again: a third of the multiplications more, and the memory of one chunk.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Tensors = Sequence[tf.Tensor]
OfRows = Callable[[Tensors, Tensors], Tensors]


def by_chunks(
    function: OfRows,
    rows: Tensors,
    shared: Tensors,
    *,
    size: int,
    shapes: Sequence[Sequence[int]],
) -> list[tf.Tensor]:
    """
    ``function(rows, shared)``, at most ``size`` rows at a time, with the same gradients.

    Gradients flow to ``rows``, to ``shared`` and to variables that the function reads; tensors of
    any other origin must come in ``shared``. Not differentiable twice.

    :param function: of lists of tensors, the first of n rows each; its results have n rows, which
        depend on those rows alone.
    :param rows: ``[N, ...]`` each, floats.
    :param shared: what all rows need, floats.
    :param shapes: of the results, without the axis of rows.
    :return: results ``[N, ...]``, of the type of the first rows.
    """
    num_rows = rows[0].shape[0]
    if num_rows is not None and num_rows <= size:
        return list(function(rows, shared))
    chunks = _Chunks(function, rows, size, shapes)

    @tf.custom_gradient
    def chunked(*arguments: tf.Tensor) -> Any:
        own, others = arguments[: len(rows)], arguments[len(rows) :]

        def gradient(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            sources = [*others, *variables]
            of_rows, of_sources = chunks.backward(own, others, list(variables), upstream)
            assert len(of_sources) == len(sources)
            found = [*of_rows, *of_sources[: len(others)]]
            return (found, of_sources[len(others) :]) if variables else found

        return chunks.forward(own, others), gradient

    return list(chunked(*rows, *shared))


class _Chunks:
    """Rows padded to whole chunks of nearly equal size, by repeating the last one."""

    def __init__(
        self, function: OfRows, rows: Tensors, size: int, shapes: Sequence[Sequence[int]]
    ) -> None:
        # AutoGraph would rewrite all that is called, at every call
        self._function = tf.autograph.experimental.do_not_convert(function)
        self._shapes, self._dtype = shapes, rows[0].dtype
        static = rows[0].shape[0]
        self._num_rows = tf.shape(rows[0])[0] if static is None else static
        self._count = (
            tf.maximum(-(-self._num_rows // size), 1) if static is None else -(-static // size)
        )
        self._size = -(-self._num_rows // self._count)

    def forward(self, rows: Tensors, shared: Tensors) -> list[tf.Tensor]:
        results = tf.map_fn(
            tf.autograph.experimental.do_not_convert(
                lambda part: list(self._function(part, shared))
            ),
            self._split(rows),
            fn_output_signature=[self._dtype] * len(self._shapes),
            parallel_iterations=1,
        )
        return [self._join(r, shape) for r, shape in zip(results, self._shapes, strict=True)]

    def backward(
        self,
        rows: Tensors,
        shared: Tensors,
        variables: Sequence[tf.Variable],
        upstream: Tensors,
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Gradients of the rows, and of ``shared`` and ``variables`` together."""
        parts, above = self._split(rows), self._split(upstream, zeros=True)
        sources = [*shared, *variables]
        made = [tf.TensorArray(row.dtype, self._count) for row in rows]

        def add(i: tf.Tensor, made: Any, sums: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                own = [part[i] for part in parts]
                tape.watch([*own, *sources])
                results = self._function(own, shared)
            gradients = tape.gradient(
                results, [*own, *sources], [part[i] for part in above],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )  # fmt: skip
            dense = [tf.convert_to_tensor(g) for g in gradients]
            made = [array.write(i, g) for array, g in zip(made, dense, strict=False)]
            return i + 1, made, [s + g for s, g in zip(sums, dense[len(rows) :], strict=True)]

        start = (tf.constant(0), made, [tf.zeros_like(source) for source in sources])
        _, made, sums = tf.while_loop(
            tf.autograph.experimental.do_not_convert(lambda i, *_: i < self._count),
            tf.autograph.experimental.do_not_convert(add),
            start,
            parallel_iterations=1,
            maximum_iterations=self._count,
        )
        stacked = [array.stack() for array in made]
        return [self._join(s, r.shape[1:]) for s, r in zip(stacked, rows, strict=True)], sums

    def _split(self, rows: Tensors, *, zeros: bool = False) -> list[tf.Tensor]:
        """``[count, size, ...]`` each."""
        padding = self._count * self._size - self._num_rows
        padded = []
        for row in rows:
            # copies of a real row, since a kernel need not be smooth at a made up one
            last = tf.zeros_like(row[-1:]) if zeros else row[-1:]
            full = tf.concat([row, tf.repeat(last, padding, axis=0)], axis=0)
            padded.append(tf.reshape(full, [self._count, self._size, *_known(row)]))
        return padded

    def _join(self, stacked: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
        joined = tf.reshape(stacked, [-1, *shape])[: self._num_rows]
        return tf.ensure_shape(joined, [_static(self._num_rows), *shape])


def _known(row: tf.Tensor) -> list[int]:
    return list(row.shape[1:])


def _static(number: Any) -> int | None:
    return number if isinstance(number, int) else None
