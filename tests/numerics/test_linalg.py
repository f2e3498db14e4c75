"""Blocked and guarded linear algebra against NumPy and against TensorFlow's own gradients."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics import devices, linalg


@pytest.fixture(params=["split for a CPU", "whole, as on a GPU"], autouse=True)
def device(request, monkeypatch):
    monkeypatch.setattr(devices, "sees_gpu", lambda: "GPU" in request.param)
    return request.param


def positive_definite(rng, size):
    A = rng.normal(size=(size, size))
    return A @ A.T / size + np.eye(size)


def test_cholesky_equals_numpy_across_the_recursion(rng):
    for size in (1, 5, 128, 129, 300):
        K = positive_definite(rng, size)
        L = linalg.cholesky(tf.constant(K), "K").numpy()
        np.testing.assert_allclose(L, np.linalg.cholesky(K), atol=1e-12)


def test_batched_cholesky_equals_numpy(rng):
    K = np.stack([positive_definite(rng, 200) for _ in range(3)])
    np.testing.assert_allclose(
        linalg.cholesky(tf.constant(K), "K"), np.linalg.cholesky(K), atol=1e-12
    )


@pytest.mark.parametrize("size", [6, 150])
def test_cholesky_gradient_equals_tensorflows(rng, size):
    K, W = tf.constant(positive_definite(rng, size)), tf.constant(rng.normal(size=(size, size)))

    def gradient(factor):
        with tf.GradientTape() as tape:
            tape.watch(K)
            loss = tf.reduce_sum(W * factor(K))
        return tape.gradient(loss, K)

    ours = gradient(lambda K: linalg.cholesky(K, "K"))
    theirs = gradient(tf.linalg.cholesky)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("width", [1, 127, 128, 601])
def test_split_triangular_solve_equals_numpy(rng, adjoint, width):
    L = np.linalg.cholesky(positive_definite(rng, 20))
    B = rng.normal(size=(20, width))
    X = linalg.solve_triangular(tf.constant(L), tf.constant(B), adjoint=adjoint)
    np.testing.assert_allclose(X, np.linalg.solve(L.T if adjoint else L, B), atol=1e-12)


def test_a_failed_factorization_names_its_matrix_eagerly():
    with pytest.raises(linalg.FactorizationError, match=r"Kuu failed.*duplicated"):
        linalg.cholesky(tf.constant([[1.0, 2.0], [2.0, 1.0]], dtype=tf.float64), "Kuu")


def test_a_failed_factorization_names_its_matrix_when_compiled():
    factor = tf.function(lambda K: linalg.cholesky(K, "Kuu"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Kuu failed"):
        factor(tf.constant([[1.0, 2.0], [2.0, 1.0]], dtype=tf.float64))


@pytest.mark.parametrize(("dtype", "relative"), [(tf.float64, 1e-6), (tf.float32, 1e-4)])
def test_jitter_is_relative_and_by_precision(dtype, relative):
    diagonal = tf.constant([2.0, 4.0], dtype=dtype)
    np.testing.assert_allclose(linalg.jitter(diagonal), 3.0 * relative, rtol=1e-6)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-3)):
        np.testing.assert_allclose(linalg.jitter(diagonal), 3e-3, rtol=1e-6)


def test_add_jitter_touches_the_diagonal_only(rng):
    K = rng.normal(size=(3, 4, 4))
    np.testing.assert_allclose(
        linalg.add_jitter(tf.constant(K), tf.constant(0.5, tf.float64)), K + 0.5 * np.eye(4)
    )


def test_the_gradient_of_added_jitter(rng):
    K, W = tf.constant(rng.normal(size=(4, 4))), rng.normal(size=(4, 4))
    amount = tf.constant(0.5, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([K, amount])
        loss = tf.reduce_sum(W * linalg.add_jitter(K, amount))
    of_matrix, of_amount = tape.gradient(loss, [K, amount])
    np.testing.assert_array_equal(of_matrix, W)
    np.testing.assert_allclose(of_amount, np.trace(W))


@pytest.mark.parametrize("size", [3, 512, 700])
def test_triangular_products_equal_full_ones(rng, size):
    """Across the size at which triangles are cut in two."""
    R, A, B = np.tril(rng.normal(size=(2, size, size))), *rng.normal(size=(2, size, 5))
    for adjoint in (False, True):
        ours = linalg.lower_matmul(tf.constant(R), tf.constant(A[None]), adjoint=adjoint)
        np.testing.assert_allclose(ours, (R.swapaxes(1, 2) if adjoint else R) @ A, atol=1e-10)
    np.testing.assert_allclose(
        np.tril(linalg.lower_outer(tf.constant(A), tf.constant(B))), np.tril(A @ B.T), atol=1e-11
    )


@pytest.mark.parametrize("size", [3, 300])
def test_products_and_solves_of_two_triangles_equal_full_ones(rng, size):
    R, B = (np.tril(rng.normal(size=(2, size, size))) for _ in range(2))
    product = linalg.lower_adjoint_product(tf.constant(R), tf.constant(B))
    np.testing.assert_allclose(product, np.tril(R.swapaxes(1, 2) @ B), atol=1e-11)
    L = np.linalg.cholesky(positive_definite(rng, size))[None]
    solved = linalg.solve_lower(tf.constant(L), tf.constant(B[:1]))
    np.testing.assert_allclose(solved, np.linalg.solve(L, B[:1]), atol=1e-11)


def test_cholesky_or_repairs_only_the_matrices_that_need_it(rng):
    good, bad = positive_definite(rng, 4), -np.eye(4)
    calls = []

    def fallback():
        calls.append(1)
        return tf.constant(np.stack([np.eye(4), 4.0 * np.eye(4)]))

    L = linalg.cholesky_or(tf.constant(np.stack([good, bad])), fallback, "K")
    np.testing.assert_allclose(L[0], np.linalg.cholesky(good), atol=1e-13)
    np.testing.assert_allclose(L[1], 2.0 * np.eye(4), atol=1e-13)
    linalg.cholesky_or(tf.constant(good[None]), fallback, "K")
    assert len(calls) == 1


def test_on_a_gpu_a_factor_and_its_gradient_are_few_operations(device):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([512, 512], tf.float64)])
    def gradient(K):
        return tf.gradients(linalg.cholesky(K, "K"), K)

    operations = [node.op for node in gradient.get_concrete_function().graph.as_graph_def().node]
    counts = [operations.count(name) for name in ("Cholesky", "MatrixTriangularSolve")]
    assert counts == ([1, 2] if "GPU" in device else [4, 32])
