"""ELBOs whose q shrinks the residual process, in naive NumPy: N x N matrices and inverses.

One output, Gaussian noise; un-whitened q(u) = N(m, S) over inducing points Z with jitter ``eps``.
``V`` is the matrix of ``q(r) = N(0, D^1/2 V D^1/2)``; its KL to ``N(0, D)`` is that of two
Gaussians of full size.
"""

import numpy as np
from scipy.linalg import sqrtm

from tests.oracles.solvegp import gaussian_kl


def residual(k, Z, eps, X):
    """``D = Kff - Qff``, and the weights ``Kfu Kuu^-1``."""
    Kuu = k(Z, Z) + eps * np.eye(len(Z))
    W = k(X, Z) @ np.linalg.inv(Kuu)
    return k(X, X) - W @ k(Z, X), W, Kuu


def best_blocks(D, noise, groups):
    """The optimal block-diagonal V: ``(I + D_bb / noise)^-1`` in each group of rows."""
    V = np.zeros_like(D)
    for rows in groups:
        block = np.ix_(rows, rows)
        V[block] = np.linalg.inv(np.eye(len(rows)) + D[block] / noise)
    return V


def elbo(k, Z, eps, X, y, noise, m, S, V):
    """``E_q log N(y | f, noise) - KL[q(u) || p(u)] - KL[q(r) || p(r)]``, for any V."""
    D, W, Kuu = residual(k, Z, eps, X)
    root = np.real(sqrtm(D))
    R = root @ V @ root
    mean, var = W @ m, np.diag(W @ S @ W.T + R)
    expected = -0.5 * np.sum(np.log(2.0 * np.pi * noise) + ((y - mean) ** 2 + var) / noise)
    return expected - gaussian_kl(m, S, Kuu) - gaussian_kl(np.zeros(len(y)), R, D)


def optimal_q(k, Z, eps, X, y, noise):
    """The best q(u), which does not depend on V."""
    _, W, Kuu = residual(k, Z, eps, X)
    S = np.linalg.inv(np.linalg.inv(Kuu) + W.T @ W / noise)
    return S @ W.T @ y / noise, S
