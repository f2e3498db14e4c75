"""The hash, bit for bit against uint64, and its numbers against the laws they should follow."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics import counters
from tests.oracles import counters as oracle

INDICES = np.array([0, 1, 2, 7, 12345, 10_000_000, 2**31, 2**40 + 3, 2**62])
SEEDS = (0, 1, 2, 2**31, 2**32 - 1)


def test_the_oracle_is_splitmix64():
    """The outputs for seed 1234567 that are published to check implementations by."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert oracle.stream(1234567, np.arange(5)).tolist() == expected


@pytest.mark.parametrize(
    ("seed", "how"),
    [*((seed, "graph") for seed in SEEDS), (SEEDS[-1], "eager"), (SEEDS[-1], "xla")],
)
def test_uniforms_are_those_of_the_oracle_to_the_bit(seed, how):
    def both(indices):
        return tuple(
            counters.uniforms(seed, indices, 5, dtype, 3) for dtype in (tf.float64, tf.float32)
        )

    if how != "eager":
        both = tf.function(both, autograph=False, jit_compile=how == "xla")
    double, single = both(tf.constant(INDICES))
    lanes = np.arange(3, 8)
    np.testing.assert_array_equal(double, oracle.uniforms(seed, INDICES, lanes))
    expected = oracle.uniforms(seed, INDICES, lanes, bits=23)
    np.testing.assert_array_equal(single.numpy().astype(np.float64), expected)
    assert single.dtype == tf.float32
