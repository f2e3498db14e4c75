"""Errors under the Student t distribution that fits them best, beside scipy's densities."""

import numpy as np
import pytest
from scipy import optimize, stats

from gpflow_sparse.inference import heavy_tails


@pytest.mark.parametrize("degrees", [2.0, 4.0, 16.0])
def test_the_scale_is_the_most_likely_one(degrees, rng):
    errors = 3.0 * rng.standard_t(degrees, size=200)

    def loss(log_scale):
        return -stats.t.logpdf(errors, degrees, scale=np.exp(log_scale)).sum()

    best = -optimize.minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded").fun
    found = heavy_tails._log_density(errors**2, np.ones(200), degrees)
    np.testing.assert_allclose(found, best, rtol=1e-5)


def test_normal_errors_gain_by_their_scale_alone(rng):
    errors = rng.normal(size=10_000)
    errors /= np.sqrt(np.mean(errors**2))  # of scale 1
    # 0 or more, but for the rounding of two sums of 10,000 terms
    assert -1e-10 <= heavy_tails.improvement(errors) < 3.0
    for scale in (0.5, 4.0):
        normal = stats.norm.logpdf(scale * errors, scale=scale) - stats.norm.logpdf(scale * errors)
        np.testing.assert_allclose(heavy_tails.improvement(scale * errors), normal.sum(), rtol=1e-3)


def test_an_outlier_costs_a_few_nats(rng):
    errors = rng.normal(size=500)
    with_one = np.append(errors, 60.0)
    total = [heavy_tails.improvement(e) + stats.norm.logpdf(e).sum() for e in (errors, with_one)]
    assert stats.norm.logpdf(60.0) < -1800.0
    assert -60.0 < total[1] - total[0] < -5.0


def test_errors_of_zero_have_a_finite_density():
    assert np.isfinite(heavy_tails.improvement(np.zeros(10)))


def test_a_count_is_as_many_equal_errors(rng):
    errors, counts = rng.standard_t(3.0, size=50), rng.integers(0, 4, size=50)
    found = heavy_tails.improvement(errors, counts)
    np.testing.assert_allclose(found, heavy_tails.improvement(np.repeat(errors, counts)))
