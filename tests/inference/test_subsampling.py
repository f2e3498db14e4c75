"""Draws of functions without replacement."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference.subsampling import draw_indices


@pytest.mark.parametrize(("size", "num_drawn"), [(1, 1), (5, 5), (7, 3), (10_000_000, 1000)])
def test_drawn_indices_are_different_ones_in_range(size, num_drawn):
    drawn = draw_indices(size, num_drawn)[0].numpy()
    assert len(set(drawn.tolist())) == len(drawn) == num_drawn
    assert 0 <= drawn.min() <= drawn.max() < size


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


def test_draws_repeat_with_the_global_seed_and_differ_otherwise():
    def draws():
        tf.random.set_seed(5)
        return [draw_indices(1000, 20)[0].numpy() for _ in range(2)]

    first, second = draws()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(draws(), [first, second])
