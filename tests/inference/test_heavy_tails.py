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
