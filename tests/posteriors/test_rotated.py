"""Blocks in coordinates in which the covariance of q is diagonal, against blocks as they were."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference.blocks import Block, marginals
from gpflow_sparse.models.solvegp.rotated import is_rotatable, rotated, rotated_marginals


def block(rng, M=6, N=5, P=1, dtype=np.float64):
    parts = 0.3 * rng.normal(size=(M, N)), rng.normal(size=(M, P)), rng.normal(size=(P, M, M))
    return Block(*(tf.constant(part, dtype) for part in (*parts[:2], np.tril(parts[2]))))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_moments_do_not_depend_on_the_coordinates(rng, dtype, tolerance):
    blocks = [block(rng, dtype=dtype), block(rng, 3, dtype=dtype)]
    prior = tf.constant(rng.uniform(0.1, 4.0, size=5), dtype)  # some residuals are below zero
    found = rotated_marginals(prior, [rotated(b) for b in blocks])
    expected = marginals(prior, blocks)
    assert (expected[2].numpy() == 0.0).any()
    assert (expected[2].numpy() > 0.0).any()
    for one, other in zip(found, expected, strict=False):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_variances_that_are_nearly_zero_stay_positive(rng):
    """A difference of two large sums would leave the rounding of 1, 1e-16."""
    one = block(rng)
    small = one._replace(q_sqrt=1e-12 * one.q_sqrt)
    prior = tf.reduce_sum(tf.square(one.A), axis=0)  # no residual
    var = rotated_marginals(0.99 * prior, [rotated(small)])[1]
    np.testing.assert_allclose(var, marginals(0.99 * prior, [small])[1], rtol=1e-9)


def test_only_one_output_of_few_variables_is_rotated(rng):
    assert is_rotatable(block(rng))
    assert not is_rotatable(block(rng, P=2))
    assert not is_rotatable(block(rng)._replace(q_sqrt=None))
    assert not is_rotatable(Block(tf.zeros([1025, 1]), tf.zeros([1025, 1]), tf.zeros([1, 1, 1])))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_factor_that_is_not_finite_is_named(rng, value):
    A, q_mu, q_sqrt = block(rng)[:3]
    spoiled = tf.tensor_scatter_nd_update(q_sqrt, [[0, 2, 1]], [value])
    with pytest.raises(ValueError, match="q_sqrt must be finite"):
        rotated(Block(A, q_mu, spoiled))
