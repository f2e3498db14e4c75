"""Densities of counts and of ordered levels by SciPy, and averages over a Gaussian f."""

import numpy as np
from scipy import stats


def negative_binomial(f, y, a):
    """A gamma mixture of Poisson counts: SciPy's density by number of failures."""
    return stats.nbinom.logpmf(y, 1.0 / a, 1.0 / (1.0 + a * np.exp(f)))


def zero_inflated_poisson(f, y, w):
    poisson = stats.poisson.logpmf(y, np.exp(f))
    return np.logaddexp(np.log(w), np.log1p(-w) + poisson) if y == 0 else np.log1p(-w) + poisson


def ordered_probit(f, y, edges):
    """By survival functions above the median, so that differences keep their digits."""
    low, high = (np.r_[-np.inf, edges, np.inf][y + k] - f for k in (0, 1))
    above = stats.norm.sf(low) - stats.norm.sf(high)
    return np.log(np.where(low > 0, above, stats.norm.cdf(high) - stats.norm.cdf(low)))


def average(function, mean, variance):
    """E function(f) by ten nodes of Gauss-Legendre in each 200th of a standard deviation."""
    x, w = np.polynomial.legendre.leggauss(10)
    starts = np.arange(-12.0, 12.0, 0.005)
    z = (starts[:, None] + 0.0025 * (x + 1.0)).ravel()
    values = function(mean + np.sqrt(variance) * z) * stats.norm.pdf(z)
    return 0.0025 * np.sum(np.tile(w, len(starts)) * values)
