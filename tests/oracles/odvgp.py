"""ODVGP in naive NumPy: SOLVE-GP whose orthogonal set keeps its prior covariance.

Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), section 5, with the mean of the orthogonal set in
the weights ``alpha = Cvv^-1 mv``.
"""

import numpy as np

from tests.oracles.solvegp import gaussian_kl, prior_blocks


def predict(k, Z, O, eps, m, S, alpha, X):
    """Mean [N] and covariance [N, N] of q(f(X)); m, S are those of u, un-whitened."""
    Kuu, Kuv, _ = prior_blocks(k, Z, O, eps)
    Kuu_inv, Kfu = np.linalg.inv(Kuu), k(X, Z)
    Cfv = k(X, O) - Kfu @ Kuu_inv @ Kuv
    mean = Kfu @ Kuu_inv @ m + Cfv @ alpha
    return mean, k(X, X) - Kfu @ Kuu_inv @ (Kuu - S) @ Kuu_inv @ Kfu.T


def prior_kl(k, Z, O, eps, m, S, alpha):
    Kuu, _, Cvv = prior_blocks(k, Z, O, eps)
    return gaussian_kl(m, S, Kuu) + 0.5 * alpha @ Cvv @ alpha


def gaussian_elbo(k, Z, O, eps, m, S, alpha, X, y, noise):
    mean, cov = predict(k, Z, O, eps, m, S, alpha, X)
    expectations = -0.5 * np.log(2 * np.pi * noise) - ((y - mean) ** 2 + np.diag(cov)) / (2 * noise)
    return expectations.sum() - prior_kl(k, Z, O, eps, m, S, alpha)
