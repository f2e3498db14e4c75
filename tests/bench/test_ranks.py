"""Mean ranks and critical differences, by hand and by published quantiles."""

import numpy as np
import pytest
from scipy import stats

from bench.papers.ranks import rank


def test_ranks_are_averaged_over_sets_and_shared_by_equal_scores():
    found = rank(np.array([[0.1, 0.3, 0.2], [5.0, 5.0, 7.0]]))
    np.testing.assert_allclose(found.mean, [(1 + 1.5) / 2, (3 + 1.5) / 2, (2 + 3) / 2])
    assert found.num_sets == 2


def test_a_method_that_failed_is_the_last():
    found = rank(np.array([[np.nan, 1e9, -3.0]]))
    np.testing.assert_allclose(found.mean, [3.0, 2.0, 1.0])


@pytest.mark.parametrize(("num_methods", "quantile"), [(2, 1.960), (4, 2.569), (10, 3.164)])
def test_the_critical_difference_has_the_published_quantiles(rng, num_methods, quantile):
    """Demšar (2006), table 5(a)."""
    found = rank(rng.normal(size=(14, num_methods)))
    expected = quantile * np.sqrt(num_methods * (num_methods + 1) / (6.0 * 14))
    np.testing.assert_allclose(found.critical_difference, expected, rtol=5e-4)


def test_the_p_value_is_that_of_friedman(rng):
    N, k = 14, 4
    found = rank(rng.normal(size=(N, k)) + 0.6 * np.arange(k))
    spread = np.sum(found.mean**2) - k * (k + 1) ** 2 / 4.0
    chi_squared = 12.0 * N / (k * (k + 1)) * spread
    np.testing.assert_allclose(found.p_value, stats.chi2.sf(chi_squared, k - 1), rtol=1e-9)
    assert np.isnan(rank(rng.normal(size=(1, 4))).p_value)
