"""Values of random draws; that they follow the seed is tested with the training loop."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics import random_draws


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_random_signs_are_signs(dtype):
    with random_draws.seeded([1, 2]):
        drawn = random_draws.rademacher([4000], dtype)
    assert drawn.dtype == dtype
    np.testing.assert_array_equal(np.unique(drawn), [-1.0, 1.0])
    assert abs(np.mean(drawn)) < 5 / 4000**0.5


def test_normal_draws_are_standard():
    with random_draws.seeded([1, 2]):
        drawn = random_draws.normal([4000], tf.float64).numpy()
    assert abs(drawn.mean()) < 5 / 4000**0.5
    assert abs(drawn.var() - 1.0) < 5 * (2 / 4000) ** 0.5


def test_draws_are_those_of_philox_with_the_seed_and_the_number_of_the_draw():
    seed = tf.constant([-3, 2**40 + 1], tf.int64)
    with random_draws.seeded(seed):
        drawn = [random_draws.normal([5], tf.float64) for _ in range(2)]
    for number, found in enumerate(drawn):
        own = tf.random.experimental.stateless_fold_in(
            seed, tf.constant(number, tf.int64), "philox"
        )
        expected = tf.random.stateless_normal([5], own, dtype=tf.float64, alg="philox")
        np.testing.assert_array_equal(found, expected)
