"""Exact GPs with hyperparameters integrated by brute force, in NumPy."""

import numpy as np
from scipy import stats


def matern32(X, Z, variance, lengthscales):
    r = np.sqrt((((X[:, None] - Z[None]) / lengthscales) ** 2).sum(-1))
    return variance * (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r)


def table_kernel(X, Z, a, lengthscales, b, c_over_d):
    """``a kappa(x / l) + b / D sum kappa_1(x_d) + c / D x^T z`` of Matern 3/2."""
    D = X.shape[1]
    effects = sum(matern32(X[:, d : d + 1], Z[:, d : d + 1], 1.0, 1.0) for d in range(D)) / D
    return matern32(X, Z, a, lengthscales) + b * effects + c_over_d * X @ Z.T


def log_marginal(K, y, noise):
    """Log density of one output."""
    C = K + noise * np.eye(len(K))
    return stats.multivariate_normal(np.zeros(len(K)), C).logpdf(y)


def predict(K, Kuf, kss, y, noise):
    """Mean and variance of f, by inverses."""
    inverse = np.linalg.inv(K + noise * np.eye(len(K)))
    return Kuf.T @ inverse @ y, kss - np.sum(Kuf * (inverse @ Kuf), axis=0)


def laplace(log_density, mode, least, scales, step=1e-4):
    """
    Covariance and log evidence of Laplace's method with a Hessian by differences of values.

    :param scales: deviations of independent normal priors, in which eigenvalues are bounded.
    """
    p = len(mode)
    H = np.empty((p, p))
    for i in range(p):
        for j in range(p):
            e = [step * scales[k] * np.eye(p)[k] for k in (i, j)]
            values = [
                s * t * log_density(mode + s * e[0] + t * e[1]) for s in (1, -1) for t in (1, -1)
            ]
            H[i, j] = -sum(values) / (4.0 * step**2)
    eigenvalues, V = np.linalg.eigh(H)
    eigenvalues = np.maximum(eigenvalues, least)
    factor = np.diag(scales) @ V / np.sqrt(eigenvalues)
    evidence = log_density(mode) + 0.5 * p * np.log(2 * np.pi)
    return factor @ factor.T, evidence + np.linalg.slogdet(factor)[1]


def yeo_johnson(y, power, center, scale):
    """Transformed outputs, and the logarithm of the derivative."""
    z = stats.yeojohnson(y, power)
    return (z - center) / scale, (power - 1.0) * np.sign(y) * np.log1p(np.abs(y)) - np.log(scale)
