"""GPnn in naive NumPy: one exact Gaussian process a row, by a matrix inverse.

Allison, Stephenson, Samuel F and Pyzer-Knapp, "Leveraging Locality and Robustness to Achieve
Massively Scalable Gaussian Process Regression" (2023); the leave-one-out log density is that of
Jankowiak and Pleiss, arXiv:2105.11535. ``k(X1, X2)`` is a function, Y has the prior mean removed.
"""

import numpy as np


def nearest(X, x, H, scales):
    """The H rows of X nearest to x in lengthscales, lower index first where equal."""
    return np.argsort((((X - x) / scales) ** 2).sum(1), kind="stable")[:H]


def moments(k, X, Y, x, around, noise):
    """Mean [P] and variance of f at x given the rows ``around``."""
    inverse = np.linalg.inv(k(X[around], X[around]) + noise * np.eye(len(around)))
    cross = k(X[around], x[None])[:, 0]
    return cross @ inverse @ Y[around], k(x[None], x[None])[0, 0] - cross @ inverse @ cross


def predict(k, X, Y, new, H, scales, noise):
    """Mean [n, P] and variance [n, P] of f."""
    found = [moments(k, X, Y, x, nearest(X, x, H, scales), noise) for x in new]
    mean = np.array([part[0] for part in found])
    return mean, np.repeat([[part[1]] for part in found], Y.shape[1], axis=1)


def leave_one_out(k, X, Y, rows, H, scales, noise, jitter):
    """The sum over ``rows`` of the log density of each given its H nearest other rows."""
    total = 0.0
    for i in rows:
        others = np.delete(np.arange(len(X)), i)
        around = others[nearest(X[others], X[i], H, scales)]
        # jitter is added where the covariance of the neighbors is factored
        mean, var = moments(k, X, Y, X[i], around, noise + jitter)
        var = var + noise
        total -= 0.5 * np.sum(np.log(2.0 * np.pi * var) + (Y[i] - mean) ** 2 / var)
    return total


def left_out_residuals(k, X, Y, H, scales, noise, jitter):
    """Errors in standard deviations [N, P] of each row given the others at the H nearest places."""
    residuals = []
    for i in range(len(X)):
        others = np.delete(np.arange(len(X)), i)
        places = np.unique(X[others], axis=0)
        near = places[nearest(places, X[i], H, scales)]
        around = [j for j in others if any((X[j] == place).all() for place in near)]
        mean, var = moments(k, X, Y, X[i], around, noise + jitter)
        residuals.append((Y[i] - mean) / np.sqrt(var + noise))
    return np.array(residuals)


def local_factor(X, residuals, x, num_nearest, strength, scales, left_out=None, own_counts=False):
    """The factor at x from the residuals of rows at the nearest places, one row left out.

    :param own_counts: whether the place of the left-out row is one of the nearest.
    """
    kept = [j for j in range(len(X)) if j != left_out]
    places = np.unique(X if own_counts else X[kept], axis=0)
    near = places[nearest(places, x, num_nearest, scales)]
    sizes = np.abs(residuals).mean(1)
    q, level = sizes.mean(), (residuals**2).mean()
    total, count = 0.0, 0
    for j in kept:
        if any((X[j] == place).all() for place in near):
            total, count = total + sizes[j] / q, count + 1
    return level * ((strength + total) / (strength + count)) ** 2


def local_gain(X, residuals, num_nearest, strength, scales, own_counts):
    """Mean gain of the log density of left-out rows by the factors, beside a factor of 1."""
    gains = []
    for i, u in enumerate(residuals):
        g = local_factor(X, residuals, X[i], num_nearest, strength, scales, i, own_counts)
        gains.append(0.5 * np.sum(u**2 - u**2 / g - np.log(g)))
    return np.mean(gains), np.std(gains) / len(gains) ** 0.5
