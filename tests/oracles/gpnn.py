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
