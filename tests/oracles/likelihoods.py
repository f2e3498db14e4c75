"""Sites in naive NumPy: the definition as a sum over many nodes, in float64."""

import itertools
import math

import numpy as np
from scipy import integrate, special


def laplace_log_prob(f, y, b):
    return -np.log(2 * b) - np.abs(y - f) / b


def logit_log_prob(f, y):
    return -np.logaddexp(0.0, -(2 * y - 1) * f)


def expectation(function, mean, variance, kink=0.0):
    """E function(f), f ~ N(mean, variance): Gauss-Legendre on both sides of ``kink``."""
    s = np.sqrt(variance)
    low, high = mean - 14 * s, mean + 14 * s
    x, w = np.polynomial.legendre.leggauss(400)
    total = 0.0
    ends = [low, min(max(kink, low), high), high]
    for a, b in itertools.pairwise(ends):
        f = a + (b - a) * (x + 1) / 2
        density = np.exp(-0.5 * ((f - mean) / s) ** 2) / (s * np.sqrt(2 * np.pi))
        total += (b - a) / 2 * np.sum(w * density * function(f))
    return total


def logit_expectation(mean, deviation, y):
    """By 14001 trapezoids, summed exactly."""
    z = np.linspace(-14.0, 14.0, 14001)
    density = np.exp(-0.5 * z**2) * (28.0 / 14000.0) / np.sqrt(2 * np.pi)
    return math.fsum(density * logit_log_prob(mean + deviation * z, y))


def student_t_log_prob(f, y, scale, df):
    constant = special.gammaln(0.5 * (df + 1)) - special.gammaln(0.5 * df)
    constant -= 0.5 * np.log(df * np.pi) + np.log(scale)
    return constant - 0.5 * (df + 1) * np.log1p((y - f) ** 2 / (df * scale**2))


def student_t_averages(mean, variance, y, scale, df):
    """Expected log density and log of the expected density, by adaptive quadrature over pieces."""
    s = math.sqrt(variance)
    center, width = (y - mean) / s, scale / s
    around = [center + sign * k * width for k in (0, 1, 5, 30, 200) for sign in (-1, 1)]
    inner = {*around, center / 2, center / 3, *np.linspace(-12.0, 12.0, 9)}
    ends = sorted({-38.0, 38.0, *(z for z in inner if abs(z) < 38.0)})

    def log_density(z):
        return student_t_log_prob(mean + s * z, y, scale, df)

    nodes = np.linspace(-38.0, 38.0, 20001)
    peak = np.max(log_density(nodes) - 0.5 * nodes**2)

    def total(function):
        tolerances = {"epsabs": 1e-15, "epsrel": 1e-13, "limit": 400}
        pieces = itertools.pairwise(ends)
        return math.fsum(integrate.quad(function, a, b, **tolerances)[0] for a, b in pieces)

    expected = total(lambda z: math.exp(-0.5 * z**2) * log_density(z)) / math.sqrt(2 * math.pi)
    density = total(lambda z: math.exp(log_density(z) - 0.5 * z**2 - peak))
    return expected, math.log(density / math.sqrt(2 * math.pi)) + peak
