"""Compiled functions: what a trace leaves in the tables of the process, and for how long."""

import gc
import threading
import weakref
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow_probability import bijectors

import gpflow_sparse
from bench.steps import megabytes
from gpflow_sparse.numerics.streaming import streamed_sum
from gpflow_sparse.numerics.tracing import compiled, frees_graphs, with_gradients

X = tf.constant([1.0, 2.0], tf.float64)


@tf.custom_gradient
def cube(x):
    return x**3, lambda upstream: 3.0 * upstream * x**2


def entries():
    """Names of the gradients of custom functions, and the number of cached values in graphs."""
    gc.collect()
    names = {name for name in ops.gradient_registry.list() if name.startswith("CustomGradient")}
    keys = [key() for key in list(bijectors.Bijector._cache.storage)]
    return names, sum(tf.is_symbolic_tensor(key) for key in keys)


def with_parameter():
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    return parameter, compiled(lambda x: tf.reduce_sum(cube(x) * parameter))


def test_a_trace_ends_with_its_function():
    before = entries()
    _parameter, function = with_parameter()
    assert function(X).numpy() == pytest.approx(18.0)
    graph = weakref.ref(function.get_concrete_function(X).graph)
    names, cached = entries()
    assert names - before[0]
    assert cached == before[1]
    del function
    assert entries() == before
    assert graph() is None


def test_gradients_of_both_orders_and_of_other_shapes_after_all_else_is_freed():
    _parameter, function = with_parameter()
    function(X)
    entries()
    for x in (X, tf.constant([1.0, 2.0, 3.0], tf.float64)):  # the second is traced again
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                value = function(x)
            slope = inner.gradient(value, x)
        np.testing.assert_allclose(slope, 6.0 * x**2)
        np.testing.assert_allclose(outer.gradient(slope, x), 12.0 * x)


def test_traces_of_other_threads_keep_their_gradients():
    started, ended, others = threading.Event(), threading.Event(), []

    def trace(x):
        value = cube(x)
        started.set()
        ended.wait(60.0)
        return value

    thread = threading.Thread(
        target=lambda: others.append(
            tf.function(trace, autograph=False).get_concrete_function(
                tf.TensorSpec([2], tf.float64)
            )
        )
    )

    def during(x):
        thread.start()
        started.wait(60.0)
        return cube(x)

    function = compiled(during)
    function(X)
    del function
    gc.collect()
    ended.set()
    thread.join()
    with tf.GradientTape() as tape:
        tape.watch(X)
        value = tf.reduce_sum(others[0](X))
    np.testing.assert_allclose(tape.gradient(value, X), 3.0 * X**2)


def test_a_loss_in_the_tape_of_an_optimizer_keeps_no_blocks_of_rows():
    rows, scales = tf.random.Generator.from_seed(0).normal([100_000, 1]), tf.Variable(tf.ones(400))

    def gram(blocks, _):
        waves = tf.sin(blocks[0] * scales)  # [n, 400], 1.6 MB in a block and 160 MB in all
        return [tf.matmul(waves, waves, transpose_a=True)]

    def loss():
        return tf.reduce_sum(streamed_sum(gram, [rows], block_rows=1000)[0])

    closure, before = with_gradients(loss, [scales]), megabytes("VmRSS")
    with tf.GradientTape() as tape:
        value = closure()
    assert megabytes("VmRSS") - before < 40.0
    with tf.GradientTape() as of_loss:
        wanted = loss()
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    slopes = tape.gradient(value, scales), of_loss.gradient(wanted, scales)
    np.testing.assert_allclose(*slopes, rtol=1e-3)


def test_graphs_are_collected_once_and_only_after_a_trace(monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda: found.append("collected"))
    function, found = compiled(cube), []

    @frees_graphs
    def inner():
        return function(X)

    @frees_graphs
    def outer():
        inner()
        found.append("returned")

    outer()
    assert found == ["collected", "returned"]
    outer()  # the trace is there
    assert found == ["collected", "returned", "returned"]


def test_a_saved_function_has_its_gradient(tmp_path):
    module = tf.Module()
    module.f = compiled(lambda x: cube(x), input_signature=[tf.TensorSpec([2], tf.float64, "x")])
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(tmp_path), options=options)
    del module
    gc.collect()
    loaded = tf.saved_model.load(str(tmp_path))
    with tf.GradientTape() as tape:
        tape.watch(X)
        value = tf.reduce_sum(loaded.f(X))
    np.testing.assert_allclose(tape.gradient(value, X), 3.0 * X**2)


def test_the_package_compiles_and_calls_python_in_no_other_way():
    package = Path(gpflow_sparse.__file__).parent
    files = {path.relative_to(package) for path in package.rglob("*.py")}
    texts = {path: (package / path).read_text() for path in files}
    calls = {str(path) for path in files if "tf.numpy_function(" in texts[path]}
    assert calls == {"numerics/tracing.py"}
    found = {str(path) for path in files if "tf.function(" in texts[path]}
    # one function of the whole process, and a model of GPflow's that needs AutoGraph
    apart = {"numerics/tracing.py", "numerics/cosines.py", "persistence/exporting.py"}
    assert {path for path in found if not path.startswith("bench")} == apart
