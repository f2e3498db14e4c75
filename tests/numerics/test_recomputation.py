"""Rows by chunks: the same numbers and gradients, whatever the chunk."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics.streaming import by_chunks


def arrays(rng, N=7):
    return rng.normal(size=(N, 3)), rng.normal(size=N), rng.normal(size=(3, 4)), rng.normal(size=2)


def function(variable):
    """A function ``[n, 2, 4]`` of two kinds of rows, two shared tensors and a variable."""

    def of_rows(rows, shared):
        (x, a), (B, c) = rows, shared
        first = tf.sin(x @ B) * a[:, None] * variable[0]  # [n, 4]
        return first[:, None, :] + (c + variable)[:, None] * tf.square(x @ B)[:, None, :]

    return of_rows


def evaluate(call, values, upstream):
    """The result, and gradients of a weighted sum of it by all there is."""
    sources, variable = [tf.constant(v) for v in values], tf.Variable([0.7, -1.2], dtype=tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(sources)
        result = call(function(variable), sources[:2], sources[2:])
        total = tf.reduce_sum(result * upstream)
    return [result, *tape.gradient(total, [*sources, variable])]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 8])
def test_values_and_gradients_do_not_depend_on_the_chunk(rng, size, compiled):
    values, upstream = arrays(rng), rng.normal(size=(7, 2, 4))
    whole = evaluate(lambda f, rows, shared: f(rows, shared), values, upstream)

    def chunked(f, rows, shared):
        def run(rows, shared):
            return by_chunks(f, rows, shared, size=size)

        return (tf.function(run, autograph=False) if compiled else run)(rows, shared)

    for got, want in zip(evaluate(chunked, values, upstream), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_the_number_of_rows_may_be_unknown_while_tracing(rng):
    """One trace serves them all, none at all included."""
    variable = tf.Variable([0.7, -1.2], dtype=tf.float64)
    of_rows, traces = function(variable), []

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, 3], tf.float64),
            tf.TensorSpec([None], tf.float64),
            tf.TensorSpec([3, 4], tf.float64),
            tf.TensorSpec([2], tf.float64),
        ],
    )
    def run(x, a, B, c):
        traces.append(x)
        with tf.GradientTape() as tape:
            tape.watch([x, B])
            result = by_chunks(of_rows, [x, a], [B, c], size=3)
            total = tf.reduce_sum(tf.square(result))
        return [result, *tape.gradient(total, [x, B, variable])]

    for rows in (0, 1, 2, 3, 4, 6, 7, 11):
        x, a, B, c = (tf.constant(v) for v in arrays(rng, rows))
        with tf.GradientTape() as tape:
            tape.watch([x, B])
            result = of_rows([x, a], [B, c])
            total = tf.reduce_sum(tf.square(result))
        expected = [result, *tape.gradient(total, [x, B, variable])]
        for got, want in zip(run(x, a, B, c), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert len(traces) == 1


def test_unused_sources_have_gradient_zero_and_the_dtype_stays(rng):
    x = tf.constant(rng.normal(size=(5, 2)), tf.float32)
    idle = tf.constant([1.0, 2.0], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([x, idle])
        result = by_chunks(lambda rows, shared: 2.0 * rows[0], [x], [idle], size=2)
    assert result.dtype == tf.float32
    by_x, by_idle = tape.gradient(result, [x, idle])
    np.testing.assert_array_equal(by_x, np.full((5, 2), 2.0))
    np.testing.assert_array_equal(by_idle, np.zeros(2))
