"""Calibration of variances in naive NumPy: a search on a grid, no gradients, loops over folds."""

import math

import numpy as np


def log_density(y, mean, var):
    return -0.5 * ((y - mean) ** 2 / var + np.log(2.0 * math.pi * var))


def densities(log_function, log_noise, Y, mean, var, noise):
    """Of the rows, ``[N]``."""
    spread = math.exp(log_function) * var + math.exp(log_noise) * noise[:, None]
    return log_density(Y, mean, spread).sum(axis=1)


def most_probable(densities, rows, deviations, width=4.0):
    """
    Two logarithms: the maximum of the log likelihood plus the log prior, on grids that shrink
    around the best point, to 1e-7.
    """
    center = np.zeros(2)
    while width > 1e-7:
        steps = width * np.linspace(-1.0, 1.0, 9)
        points = [center + np.array([a, b]) for a in steps for b in steps]
        values = [
            densities(*at, *rows).sum() - 0.5 * np.sum((at / deviations) ** 2) for at in points
        ]
        center = points[int(np.argmax(values))]
        width *= 0.5
    return center


def shrunk(densities, rows, deviations, width=4.0):
    """Shrunk by the gain of each row from what nine folds of the others give."""
    count = len(rows[0])
    gains = np.empty(count)
    for fold in range(10):
        seen = [n for n in range(count) if n % 10 != fold]
        logs = most_probable(densities, [part[seen] for part in rows], deviations, width)
        own = [part[fold::10] for part in rows]
        gains[fold::10] = densities(*logs, *own) - densities(0.0, 0.0, *own)
    gain, error = gains.mean(), math.sqrt(gains.var() / count)
    share = 1.0 - (error / gain) ** 2 if gain > error else 0.0
    return share * most_probable(densities, rows, deviations, width)


def best_factors(Y, mean, var, noise):
    """Factors of the variance of f and of the noise."""
    return np.exp(shrunk(densities, (Y, mean, var, noise), np.ones(2)))


def shaped(skewness, log_tail, residuals):
    """Densities of standardized sinh-arcsinh variables, by SciPy's derivative of the map."""
    tail = np.exp(log_tail)
    z = np.linspace(-9.0, 9.0, 2001)
    x, w = np.sinh((np.arcsinh(z) + skewness) / tail), np.exp(-0.5 * z**2)
    mean = np.sum(w * x) / w.sum()
    deviation = np.sqrt(np.sum(w * (x - mean) ** 2) / w.sum())
    x = mean + deviation * residuals
    angle = tail * np.arcsinh(x) - skewness
    slope = deviation * tail * np.cosh(angle) / np.sqrt(1.0 + x**2)
    return log_density(np.sinh(angle), 0.0, 1.0) + np.log(slope)


def best_shape(residuals):
    """Skewness and logarithm of the tail."""
    return shrunk(shaped, (residuals,), np.array([0.3, 0.5]), width=0.5)


def tempered(P, temperature):
    """Probabilities ``[..., C]`` proportional to ``P^(1 / T)``."""
    raised = P ** (1.0 / temperature)
    return raised / raised.sum(axis=-1, keepdims=True)


def best_temperature(P, labels):
    """Shrunk as the factors are; the prior of log T is N(0, 0.5^2)."""
    logs = np.linspace(-3.0, 3.0, 12001)
    rows = np.arange(len(labels))
    values = np.array([np.log(tempered(P, np.exp(log))[rows, labels]) for log in logs])
    best = lambda seen: np.argmax(values[:, seen].sum(axis=1) - 2.0 * logs**2)  # noqa: E731
    gains = np.empty(len(labels))
    for fold in range(10):
        inside = rows % 10 == fold
        gains[inside] = (values[best(~inside)] - values[6000])[inside]
    gain, error = gains.mean(), math.sqrt(gains.var() / len(labels))
    share = 1.0 - (error / gain) ** 2 if gain > error else 0.0
    return np.exp(share * logs[best(rows >= 0)])


def radius(Y, mean, std, coverage):
    """Distance in standard deviations of the k-th nearest row, k = ceil((n + 1) coverage)."""
    distances = sorted(abs(y - m) / s for y, m, s in zip(Y, mean, std, strict=True))
    return distances[math.ceil((len(Y) + 1) * coverage) - 1]
