"""Draws of functions without replacement."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference.subsampling import draw_indices


@pytest.mark.parametrize(("size", "num_drawn"), [(6, 3), (9, 2), (33, 1)])
def test_every_subset_is_as_likely_as_another(size, num_drawn):
    """Chi-square below its mean plus 4 standard deviations, here and for pairs of draws."""
    tf.random.set_seed(1)

    @tf.function(autograph=False)
    def many():
        return tf.map_fn(lambda _: draw_indices(size, num_drawn)[0], tf.range(8_000))

    drawn = np.sort(many().numpy(), axis=1)
    keys = {tuple(c): i for i, c in enumerate(itertools.combinations(range(size), num_drawn))}
    codes, count = np.array([keys[tuple(row)] for row in drawn]), len(keys)
    for found, cells in [(codes, count), (codes[::2] * count + codes[1::2], count**2)]:
        expected = len(found) / cells
        if expected > 5:
            chi_square = np.sum((np.bincount(found, minlength=cells) - expected) ** 2) / expected
            assert chi_square < cells - 1 + 4.0 * np.sqrt(2.0 * (cells - 1))
