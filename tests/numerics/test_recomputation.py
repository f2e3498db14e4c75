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
