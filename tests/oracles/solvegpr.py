"""Collapsed bounds of SOLVE-GP in naive NumPy: N x N matrices and inverses, one output.

Shi, Titsias and Mnih (2020, arXiv:1910.10596v5): Titsias' bound is eq. (3), (10), (14) and (28) to
(30) as printed. Un-whitened, with jitter ``eps`` in Kuu and Cvv.
"""

import numpy as np
from scipy.spatial.distance import cdist

from tests.oracles.solvegp import gaussian_kl, prior_blocks


def matern12(X1, X2, variance=1.0, lengthscale=1.0):
    return variance * np.exp(-cdist(X1, X2) / lengthscale)


def matern32(X1, X2, variance=1.0, lengthscale=1.0):
    r = np.sqrt(3.0) * cdist(X1, X2) / lengthscale
    return variance * (1.0 + r) * np.exp(-r)


def log_normal(y, mean, cov):
    d = y - mean
    log_det = np.linalg.slogdet(cov)[1]
    return -0.5 * (d @ np.linalg.inv(cov) @ d + log_det + len(y) * np.log(2 * np.pi))


class Matrices:
    """Every matrix of the paper, by its name."""

    def __init__(self, k, Z, O, eps, X, noise):
        Kuu, Kuv, self.Cvv = prior_blocks(k, Z, O, eps)
        self.Kuu, self.Kuf, self.Kff = Kuu, k(Z, X), k(X, X)
        Kuu_inv = np.linalg.inv(Kuu)
        self.Cvv_inv = np.linalg.inv(self.Cvv)
        self.Qff = self.Kuf.T @ Kuu_inv @ self.Kuf
        self.Cff = self.Kff - self.Qff
        self.Cfv = k(X, O) - self.Kuf.T @ Kuu_inv @ Kuv
        self.B = self.Cfv @ self.Cvv_inv @ self.Cfv.T
        self.A = self.Qff + noise * np.eye(len(X))
        self.A_inv = np.linalg.inv(self.A)
        self.noise = noise

    def optimal_mv(self, y):
        """Eq. (28)."""
        inner = self.Cvv + self.Cfv.T @ self.A_inv @ self.Cfv
        return self.Cvv @ np.linalg.inv(inner) @ self.Cfv.T @ self.A_inv @ y


def titsias(k, Z, eps, X, y, noise):
    """Eq. (3)."""
    K = k(Z, Z) + eps * np.eye(len(Z))
    Q = k(Z, X).T @ np.linalg.inv(K) @ k(Z, X)
    return log_normal(y, 0.0, Q + noise * np.eye(len(X))) - np.trace(k(X, X) - Q) / (2 * noise)


def structured(k, Z, O, eps, X, y, noise):
    """Eq. (30), with (28) and (29)."""
    t = Matrices(k, Z, O, eps, X, noise)
    m = t.optimal_mv(y)
    S = t.Cvv @ np.linalg.inv(t.Cvv + t.Cfv.T @ t.Cfv / noise) @ t.Cvv
    shrunk = t.B @ np.linalg.inv(t.B + noise * np.eye(len(X))) @ t.B
    trace = np.trace(t.Cff - shrunk) / (2 * noise)
    return log_normal(y, t.Cfv @ t.Cvv_inv @ m, t.A) - trace - gaussian_kl(m, S, t.Cvv)


def prior_covariance(k, Z, O, eps, X, y, noise):
    """Eq. (10): q(v) with the prior's covariance, at its best mean, which is (28) again."""
    t = Matrices(k, Z, O, eps, X, noise)
    m = t.optimal_mv(y)
    trace = np.trace(t.Kff - t.Qff) / (2 * noise)
    return log_normal(y, t.Cfv @ t.Cvv_inv @ m, t.A) - trace - 0.5 * m @ t.Cvv_inv @ m


def tighter(k, Z, eps, X, y, noise):
    """Eq. (14)."""
    K = k(Z, Z) + eps * np.eye(len(Z))
    Q = k(Z, X).T @ np.linalg.inv(K) @ k(Z, X)
    A = Q + noise * np.eye(len(X))
    return log_normal(y, 0.0, A) - 0.5 * np.trace(np.linalg.inv(A) @ (k(X, X) - Q))


def coupled(k, Z, O, eps, X, y, noise, m=None, S=None):
    """``E_q(f_perp) log N(y | f_perp, A) - KL[q(v) || p(v)]``, at the best q(v) by default."""
    t = Matrices(k, Z, O, eps, X, noise)
    if m is None:
        m = t.optimal_mv(y)
        S = t.Cvv @ np.linalg.inv(t.Cvv + t.Cfv.T @ t.A_inv @ t.Cfv) @ t.Cvv
    cov = t.Cff - t.B + t.Cfv @ t.Cvv_inv @ S @ t.Cvv_inv @ t.Cfv.T  # of f_perp
    expected = log_normal(y, t.Cfv @ t.Cvv_inv @ m, t.A) - 0.5 * np.trace(t.A_inv @ cov)
    return expected - gaussian_kl(m, S, t.Cvv)


def optimal_q(k, Z, O, eps, X, y, noise):
    """Means and covariances of u and v at which (30) is attained, un-whitened."""
    t = Matrices(k, Z, O, eps, X, noise)
    m_v = t.optimal_mv(y)
    S_v = t.Cvv @ np.linalg.inv(t.Cvv + t.Cfv.T @ t.Cfv / noise) @ t.Cvv
    S_u = t.Kuu @ np.linalg.inv(t.Kuu + t.Kuf @ t.Kuf.T / noise) @ t.Kuu
    m_u = S_u @ np.linalg.inv(t.Kuu) @ t.Kuf @ (y - t.Cfv @ t.Cvv_inv @ m_v) / noise
    return [m_u, m_v], [S_u, S_v]
