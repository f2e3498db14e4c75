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


@pytest.mark.parametrize(("dtype", "relative"), [(tf.float64, 1e-6), (tf.float32, 1e-4)])
def test_jitter_is_relative_and_by_precision(dtype, relative):
    diagonal = tf.constant([2.0, 4.0], dtype=dtype)
    np.testing.assert_allclose(linalg.jitter(diagonal), 3.0 * relative, rtol=1e-6)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-3)):
        np.testing.assert_allclose(linalg.jitter(diagonal), 3e-3, rtol=1e-6)


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
