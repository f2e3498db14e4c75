"""Calibration of variances in naive NumPy: loops over rows, a search on a grid, no gradients."""

import math

import numpy as np


def log_density(y, mean, var):
    return -0.5 * ((y - mean) ** 2 / var + math.log(2.0 * math.pi * var))


def objective(log_function, log_noise, Y, mean, var, noise):
    """Log likelihood of held-out outputs, plus the log prior of both factors without constants."""
    total = -0.5 * (log_function**2 + log_noise**2)
    for n in range(Y.shape[0]):
        for p in range(Y.shape[1]):
            spread = math.exp(log_function) * var[n, p] + math.exp(log_noise) * noise[n]
            total += log_density(Y[n, p], mean[n, p], spread)
    return total


def best_factors(Y, mean, var, noise):
    """The maximum on grids that shrink around the best point, to 1e-7 in both logarithms."""
    center, width = np.zeros(2), 4.0
    while width > 1e-7:
        steps = width * np.linspace(-1.0, 1.0, 9)
        points = [(center[0] + a, center[1] + b) for a in steps for b in steps]
        values = [objective(a, b, Y, mean, var, noise) for a, b in points]
        center = np.array(points[int(np.argmax(values))])
        width *= 0.5
    return np.exp(center)


def radius(Y, mean, std, coverage):
    """Distance in standard deviations of the k-th nearest row, k = ceil((n + 1) coverage)."""
    distances = sorted(abs(y - m) / s for y, m, s in zip(Y, mean, std, strict=True))
    return distances[math.ceil((len(Y) + 1) * coverage) - 1]
