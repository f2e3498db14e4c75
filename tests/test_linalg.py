"""Blocked and guarded linear algebra against NumPy and against TensorFlow's own gradients."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse import linalg

NAMES = ["first", "second", "third"]


def positive_definite(rng, size):
    A = rng.normal(size=(size, size))
    return A @ A.T / size + np.eye(size)


def lower_blocks(K, sizes):
    ends = np.cumsum([0, *sizes])
    return [
        [tf.constant(K[ends[i] : ends[i + 1], ends[j] : ends[j + 1]]) for j in range(i + 1)]
        for i in range(len(sizes))
    ]


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


@pytest.mark.parametrize("sizes", [(7,), (4, 3), (5, 2, 6)])
def test_block_factor_and_solve_equal_the_dense_ones(rng, sizes):
    total = sum(sizes)
    K, F = positive_definite(rng, total), rng.normal(size=(total, 9))
    L = linalg.block_cholesky(lower_blocks(K, sizes), NAMES)
    rows = [np.concatenate([block.numpy() for block in row], axis=1) for row in L]
    dense = np.linalg.cholesky(K)
    for row, end, size in zip(rows, np.cumsum(sizes), sizes, strict=True):
        np.testing.assert_allclose(row, dense[end - size : end, :end], atol=1e-12)
    A = linalg.block_solve(L, tf.split(tf.constant(F), sizes, axis=0))
    np.testing.assert_allclose(tf.concat(A, axis=0), np.linalg.solve(dense, F), atol=1e-12)


@pytest.mark.parametrize("sizes", [(7,), (4, 3), (5, 2, 6)])
def test_projection_gradient_equals_the_one_tensorflow_derives(rng, sizes):
    """`project` is differentiated by hand, its two halves by TensorFlow."""
    total = sum(sizes)
    K = lower_blocks(positive_definite(rng, total), sizes)
    F = tf.split(tf.constant(rng.normal(size=(total, 9))), sizes, axis=0)
    W = tf.split(tf.constant(rng.normal(size=(total, 9))), sizes, axis=0)
    inputs = [*(block for row in K for block in row), *F]

    def gradients(function):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            # a symmetric diagonal block, as covariances are: its gradient is symmetrized
            loss = tf.add_n(
                [tf.reduce_sum(w * tf.sin(a)) for w, a in zip(W, function(), strict=True)]
            )
        return tape.gradient(loss, inputs)

    ours = gradients(lambda: linalg.project(K, F, NAMES))
    theirs = gradients(lambda: linalg.block_solve(linalg.block_cholesky(K, NAMES), F))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_projection_gradient_equals_finite_differences(rng):
    """Independent of any Cholesky gradient: perturb one entry and its mirror image."""
    sizes, step = (4, 3), 1e-6
    K, F, W = positive_definite(rng, 7), rng.normal(size=(7, 5)), rng.normal(size=(7, 5))
    blocks = lower_blocks(K, sizes)
    with tf.GradientTape() as tape:
        tape.watch(blocks)
        A = linalg.project(blocks, tf.split(tf.constant(F), sizes, axis=0), NAMES)
        loss = tf.reduce_sum(W * tf.concat(A, axis=0))
    flat = [g for row in tape.gradient(loss, blocks) for g in row]

    def value(K):
        return np.sum(W * np.linalg.solve(np.linalg.cholesky(K), F))

    for (i, j), gradient in {
        (1, 0): flat[0][1, 0] + flat[0][0, 1],
        (2, 2): flat[0][2, 2],
        (5, 1): flat[1][1, 1],
        (6, 4): flat[2][2, 0] + flat[2][0, 2],
    }.items():
        E = np.zeros((7, 7))
        E[i, j] = E[j, i] = step
        numeric = (value(K + E) - value(K - E)) / (2 * step)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6)


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
