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


def near_rows(X, x, H, scales):
    """Numbers of the rows at the H places nearest to x."""
    places = np.unique(X, axis=0)
    near = places[nearest(places, x, H, scales)]
    return [j for j in range(len(X)) if any((X[j] == place).all() for place in near)]


def residual(k, data, x, y, H, scales, noise, jitter):
    """The error [P] of a row in standard deviations of its prediction from rows (X, Y, weights)."""
    X, Y, w = data
    around = near_rows(X, x, H, scales)
    mean, var = moments(k, X, Y, x, around, noise / w[around] + jitter)
    return (y - mean) / np.sqrt(var + noise)


def left_out_residuals(k, data, H, scales, noise, jitter):
    """Errors in standard deviations [N, P] of each row given the others, for weights up to 1."""
    found = []
    for i in range(len(data[0])):
        others = [np.delete(part, i, axis=0) for part in data]
        found.append(residual(k, others, data[0][i], data[1][i], H, scales, noise, jitter))
    return np.array(found)


def local_factor(X, residuals, w, x, num_nearest, strength, scales):
    """The factor of the variance at x from the residuals of the rows at the nearest places."""
    sizes = np.abs(residuals).mean(1)
    q = np.average(sizes, weights=w)
    total, count = strength, strength
    for j in near_rows(X, x, num_nearest, scales):
        total, count = total + w[j] * sizes[j] / q, count + w[j]
    return np.average((residuals**2).mean(1), weights=w) * (total / count) ** 2


def local_gain(known, held, pair, scales):
    """Mean gain of the log density of held-out rows by factors of others, and its standard error.

    :param known: inputs, residuals and weights of the others; held: of the held-out rows.
    """
    gains = []
    for x, u in zip(*held[:2], strict=True):
        g = local_factor(*known, x, *pair, scales)
        gains.append(0.5 * np.sum(u**2 - u**2 / g - np.log(g)))
    mean = np.average(gains, weights=held[2])
    return mean, (np.average((gains - mean) ** 2, weights=held[2]) / held[2].sum()) ** 0.5
