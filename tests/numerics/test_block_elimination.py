"""Block factors and projections against dense NumPy and against TensorFlow's own gradients."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics import block_elimination, linalg
from tests.numerics.test_linalg import positive_definite

NAMES = ["first", "second", "third"]


def lower_blocks(K, sizes):
    ends = np.cumsum([0, *sizes])
    return [
        [tf.constant(K[ends[i] : ends[i + 1], ends[j] : ends[j + 1]]) for j in range(i + 1)]
        for i in range(len(sizes))
    ]


@pytest.mark.parametrize("sizes", [(7,), (4, 3), (5, 2, 6)])
def test_block_factor_and_solve_equal_the_dense_ones(rng, sizes):
    total = sum(sizes)
    K, F = positive_definite(rng, total), rng.normal(size=(total, 9))
    L = block_elimination.block_cholesky(lower_blocks(K, sizes), NAMES)
    rows = [np.concatenate([block.numpy() for block in row], axis=1) for row in L]
    dense = np.linalg.cholesky(K)
    for row, end, size in zip(rows, np.cumsum(sizes), sizes, strict=True):
        np.testing.assert_allclose(row, dense[end - size : end, :end], atol=1e-12)
    A = block_elimination.block_solve(L, tf.split(tf.constant(F), sizes, axis=0))
    np.testing.assert_allclose(tf.concat(A, axis=0), np.linalg.solve(dense, F), atol=1e-12)


@pytest.mark.parametrize("leaf", [256, 2], ids=["whole", "halved"])
@pytest.mark.parametrize("sizes", [(7,), (4, 3), (5, 2, 6)])
def test_projection_gradient_equals_the_one_tensorflow_derives(rng, monkeypatch, sizes, leaf):
    """`project` is differentiated by hand, its two halves by TensorFlow."""
    monkeypatch.setattr(linalg, "_LEAF", leaf)
    monkeypatch.setattr(linalg, "_STRIP", min(leaf, linalg._STRIP))  # several strips, if halved
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

    ours = gradients(lambda: block_elimination.project(K, F, NAMES))
    theirs = gradients(
        lambda: block_elimination.block_solve(block_elimination.block_cholesky(K, NAMES), F)
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
