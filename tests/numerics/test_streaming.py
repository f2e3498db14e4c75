"""Streamed sums against the same sums over all rows at once."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics.streaming import read_in_blocks, streamed_sum
from gpflow_sparse.numerics.tracing import compiled

BLOCK = 4


def operands(N, seed=0):
    rng = np.random.default_rng(seed)
    X, Y = tf.constant(rng.normal(size=(N, 3))), tf.constant(rng.normal(size=(N, 2)))
    W, unused = tf.constant(rng.normal(size=(3, 2))), tf.constant(rng.normal(size=5))
    return X, Y, W, unused


class Scale:
    """Statistics that read variables, as kernels do."""

    def __init__(self):
        self.scale = tf.Variable(1.7, dtype=tf.float64)
        self.unused = tf.Variable(0.3, dtype=tf.float64)

    def statistics(self, blocks, tensors):
        (X, Y), (W, unused) = blocks, tensors
        F = tf.tanh(self.scale * tf.linalg.matmul(X, W))
        tf.reduce_sum(unused) * self.unused  # read, and of no consequence
        return [tf.linalg.matmul(F, Y, transpose_a=True), tf.reduce_sum(tf.square(F))]


def value_and_gradients(total, W, unused, variables):
    """Of a scalar that weights all entries of the sums differently."""
    with tf.GradientTape() as tape:
        tape.watch([W, unused])
        matrix, squares = total(W, unused)
        weights = tf.constant([[1.0, -2.0], [0.5, 3.0]], tf.float64)
        loss = tf.reduce_sum(weights * tf.square(matrix)) + tf.sin(squares)
    return loss, tape.gradient(loss, [W, unused, *variables], unconnected_gradients="zero")


def assert_same(got, expected, rtol=1e-12):
    for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize(
    ("N", "mode"),
    [
        *((N, "graph") for N in (1, 3, 4, 5, 8, 14)),
        *((N, mode) for N in (3, 14) for mode in ("eager", "xla", "unknown N")),
    ],
)
def test_values_and_gradients_are_those_of_one_block(N, mode):
    X, Y, W, unused = operands(N)
    model = Scale()
    variables = [model.scale, model.unused]

    def streamed(X, Y):
        def total(*tensors):
            return streamed_sum(model.statistics, (X, Y), tensors, block_rows=BLOCK)

        return value_and_gradients(total, W, unused, variables)

    rows = [tf.TensorSpec([None, 3], tf.float64), tf.TensorSpec([None, 2], tf.float64)]
    call = {
        "eager": streamed,
        "graph": tf.function(streamed, autograph=False),
        "xla": tf.function(streamed, autograph=False, jit_compile=True),
        "unknown N": tf.function(streamed, autograph=False, input_signature=rows),
    }[mode]
    at_once = lambda *tensors: model.statistics((X, Y), tensors)  # noqa: E731
    assert_same(call(X, Y), value_and_gradients(at_once, W, unused, variables))


def test_blocks_cover_every_row_once_and_none_is_empty_or_too_large():
    for N in range(1, 14):
        seen = []

        def statistics(blocks, tensors, seen=seen):
            seen.append(blocks[0].numpy().ravel())
            return [tf.reduce_sum(blocks[0])]

        data = tf.reshape(tf.range(float(N)), [-1, 1])
        (total,) = streamed_sum(statistics, (data,), block_rows=BLOCK)
        assert float(total) == N * (N - 1) / 2
        np.testing.assert_array_equal(np.concatenate(seen), np.arange(N))
        assert all(1 <= len(block) <= BLOCK for block in seen)


@pytest.mark.nightly
def test_the_gradient_keeps_no_block_alive():
    """What a block computes is gone before the next one, and computed again when it is needed."""
    scale, alive, peak = tf.Variable(1.0), weakref.WeakSet(), []

    class Kept:
        """Stands for what automatic differentiation keeps of a block."""

    @tf.custom_gradient
    def keep(x):
        kept = Kept()
        alive.add(kept)
        return tf.identity(x), lambda dy: dy if kept in alive else None

    def statistics(blocks, tensors):
        kept = keep(scale * blocks[0])
        gc.collect()
        peak.append(len(alive))
        return [tf.reduce_sum(kept)]

    with tf.GradientTape() as tape:
        (total,) = streamed_sum(statistics, (tf.ones([40, 1]),), block_rows=BLOCK)
    assert float(tape.gradient(total, scale)) == 40.0
    assert len(peak) == 20  # ten blocks, twice
    assert max(peak) <= 2


def test_no_gradient_flows_to_the_data():
    X, _, W, _ = operands(10)
    with tf.GradientTape() as tape:
        tape.watch([X, W])
        (total,) = streamed_sum(
            lambda b, t: [tf.reduce_sum(b[0] @ t[0])], (X,), (W,), block_rows=BLOCK
        )
    at_data, at_tensor = tape.gradient(total, [X, W])
    assert at_data is None
    np.testing.assert_allclose(at_tensor, np.repeat(X.numpy().sum(0)[:, None], 2, 1), rtol=1e-12)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_arrays_read_in_blocks_are_freed_with_what_reads_them(mode):
    def total(rows):
        sums = [lambda blocks, _: [tf.reduce_sum(blocks[0])], rows]
        return lambda: streamed_sum(*sums, block_rows=4)[0]

    graphs, array = _graphs(), np.arange(10.0)[:, None]
    freed, run = weakref.ref(array), total(read_in_blocks([array], 3))
    if mode == "compiled":  # of which the graph alone is left
        run = compiled(run).get_concrete_function()
    del array
    gc.collect()
    assert float(run()) == 45.0
    del run
    assert _graphs() == graphs
    assert freed() is None


def _graphs():
    gc.collect()
    return sum(isinstance(item, tf.__internal__.FuncGraph) for item in gc.get_objects())
