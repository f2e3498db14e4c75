"""Sites in naive NumPy: the definition as a sum over many nodes, in float64."""

import itertools
import math

import numpy as np


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
