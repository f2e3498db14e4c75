"""The search for the largest products against brute force, ties and all."""

import numpy as np
import pytest

from gpflow_sparse.bases.grid_eigenfunctions import top_products, whole_groups
from tests.oracles.grief import top_p_brute_force


def spectra(rng, sizes):
    return [-np.sort(rng.exponential(2.0, size=size)) for size in sizes]


def totals(log_spectra, indices):
    return sum(s[indices[:, i]] for i, s in enumerate(log_spectra))


@pytest.mark.parametrize("sizes", [(7,), (4, 6), (5, 1, 3), (3, 4, 2, 5), (2,) * 7])
@pytest.mark.parametrize("count", [1, 2, 5, 23, 10_000])
def test_the_search_is_brute_force_on_random_spectra(rng, sizes, count):
    for _ in range(5):
        log_spectra = spectra(rng, sizes)
        indices = top_products(log_spectra, count)
        expected, values = top_p_brute_force(log_spectra, count)
        assert len(expected) == min(count, np.prod(sizes))
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_allclose(totals(log_spectra, indices), values, rtol=1e-12)


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (4, 2, 5), (6, 6)])
def test_of_ties_the_lexicographically_first_are_taken(rng, sizes):
    """Few distinct numbers, so that every cut goes through a group."""
    cut = 0
    for _ in range(10):
        log_spectra = [-np.sort(rng.integers(0, 4, size=size)) * 0.25 for size in sizes]
        for count in (1, 2, 5, 9, 17):
            expected = top_p_brute_force(log_spectra, count)[0]
            np.testing.assert_array_equal(top_products(log_spectra, count), expected)
            cut += whole_groups(log_spectra, count) < min(count, np.prod(sizes))
    assert cut > 20


def test_whole_groups_is_the_last_gap_of_all_products(rng):
    for _ in range(20):
        log_spectra = [-np.sort(rng.integers(0, 5, size=4)) * 0.5 for _ in range(3)]
        values = top_p_brute_force(log_spectra, 64)[1]
        for count in (1, 5, 20, 40, 63, 64):
            ends = [k for k in range(1, 65) if k == 64 or values[k] < values[k - 1]]
            expected = max([k for k in ends if k <= count], default=0)
            assert whole_groups(log_spectra, count) == expected
