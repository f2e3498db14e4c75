"""Conditional weights from factors in halves against those of one factorization."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import neighborhoods
from gpflow_sparse.inference.neighborhoods import conditional_weights


def covariances(size, rng):
    """Of a squared exponential, with eigenvalues down to 1e-4."""
    X = rng.normal(size=(5, size + 1, 2))
    both = np.exp(-0.5 * np.sum(np.square(X[:, :, None] - X[:, None]), axis=-1))
    K = both[:, :-1, :-1] + 1e-4 * np.eye(size)
    return [tf.constant(part) for part in (K, both[:, :-1, -1], both[:, -1, -1])]


def evaluate(parts, upstream):
    with tf.GradientTape() as tape:
        tape.watch(parts)
        found = conditional_weights(*parts)
        total = tf.add_n([tf.reduce_sum(u * part) for u, part in zip(upstream, found, strict=True)])
    return [*found, *tape.gradient(total, parts)]


@pytest.mark.parametrize("size", [32, 37, 48])
def test_halves_have_the_weights_and_gradients_of_the_whole(size, rng, monkeypatch):
    parts = covariances(size, rng)
    upstream = rng.normal(size=(5, size)), rng.normal(size=5)
    halves = evaluate(parts, upstream)
    monkeypatch.setattr(neighborhoods, "_MOST", 0)
    for found, wanted in zip(halves, evaluate(parts, upstream), strict=True):
        # condition numbers are near 1e6, and gradients have the square of an inverse
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9 * np.abs(wanted).max())
    a = np.linalg.solve(parts[0], parts[1][:, :, None])[:, :, 0]
    np.testing.assert_allclose(halves[0], a, rtol=1e-8, atol=1e-10)
