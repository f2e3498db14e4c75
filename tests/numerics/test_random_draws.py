"""Values of random draws; that they follow the seed is tested with the training loop."""

import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics import random_draws


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
