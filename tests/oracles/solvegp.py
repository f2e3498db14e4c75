"""SOLVE-GP in naive NumPy: inverses and determinants, straight from the equations.

Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), eqs. (8), (31)-(35), un-whitened, with the errata
of ``docs/errata.md`` applied (S1: the dimension of the KL of ``v`` is M2).
"""

import numpy as np
from scipy.spatial.distance import cdist


def matern52(X1, X2, variance=1.0, lengthscale=1.0):
    r = np.sqrt(5.0) * cdist(X1, X2) / lengthscale
    return variance * (1.0 + r + r**2 / 3.0) * np.exp(-r)


def squared_exponential(X1, X2, variance=1.0, lengthscale=1.0):
    return variance * np.exp(-0.5 * cdist(X1, X2) ** 2 / lengthscale**2)


def prior_blocks(k, Z, O, eps):
    """Kuu, Kuv and Cvv with jitter in Kuu and in Cvv."""
    Kuu = k(Z, Z) + eps * np.eye(len(Z))
    Kuv = k(Z, O)
    Cvv = k(O, O) - Kuv.T @ np.linalg.inv(Kuu) @ Kuv + eps * np.eye(len(O))
    return Kuu, Kuv, Cvv


def unwhiten(k, Z, O, eps, q_mu, q_sqrt):
    """From whitened means [M] and factors [M, M] of both sets to m and S of u and v."""
    Kuu, _, Cvv = prior_blocks(k, Z, O, eps)
    factors = [np.linalg.cholesky(Kuu), np.linalg.cholesky(Cvv)]
    means = [L @ m for L, m in zip(factors, q_mu, strict=True)]
    covs = [L @ R @ R.T @ L.T for L, R in zip(factors, q_sqrt, strict=True)]
    return means, covs


def predict(k, Z, O, eps, m, S, X):
    """Mean [N] and covariance [N, N] of q(f(X)); m, S are those of u and v, un-whitened."""
    Kuu, Kuv, Cvv = prior_blocks(k, Z, O, eps)
    Kuu_inv, Cvv_inv = np.linalg.inv(Kuu), np.linalg.inv(Cvv)
    Kfu = k(X, Z)
    Cfv = k(X, O) - Kfu @ Kuu_inv @ Kuv
    mean = Kfu @ Kuu_inv @ m[0] + Cfv @ Cvv_inv @ m[1]
    cov = (
        k(X, X)
        - Kfu @ Kuu_inv @ (Kuu - S[0]) @ Kuu_inv @ Kfu.T
        - Cfv @ Cvv_inv @ (Cvv - S[1]) @ Cvv_inv @ Cfv.T
    )
    return mean, cov


def gaussian_kl(m, S, K):
    """KL[N(m, S) || N(0, K)]."""
    K_inv = np.linalg.inv(K)
    log_dets = np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
    return 0.5 * (np.trace(K_inv @ S) + m @ K_inv @ m - len(m) + log_dets)


def prior_kl(k, Z, O, eps, m, S):
    Kuu, _, Cvv = prior_blocks(k, Z, O, eps)
    return gaussian_kl(m[0], S[0], Kuu) + gaussian_kl(m[1], S[1], Cvv)


def gaussian_elbo(k, Z, O, eps, m, S, X, y, noise, scale=1.0):
    """Eq. (8) for Gaussian noise: closed-form expectations of log N(y | f, noise)."""
    mean, cov = predict(k, Z, O, eps, m, S, X)
    expectations = -0.5 * np.log(2 * np.pi * noise) - ((y - mean) ** 2 + np.diag(cov)) / (2 * noise)
    return scale * expectations.sum() - prior_kl(k, Z, O, eps, m, S)


def log_evidence(k, X, y, noise):
    K = k(X, X) + noise * np.eye(len(X))
    return -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + len(y) * np.log(2 * np.pi))
