"""GP-GRIEF in naive NumPy: whole Kronecker products, inverses, determinants, brute force.

Evans and Nair, "Scalable Gaussian Processes with Grid-Structured Eigenfunctions (GP-GRIEF)" (2018),
eq. (13) for the likelihood, otherwise re-derived, with the errata of ``docs/errata.md`` applied. A
kernel is a variance and one function ``k_i(s, t)`` of two columns per dimension, each 1 on its
diagonal. One output.
"""

import itertools
from typing import NamedTuple

import numpy as np

EPS = np.finfo(float).eps


class SE:
    """``exp(-(s - t)^2 / (2 l^2))``, with its derivative."""

    def __init__(self, lengthscale):
        self.lengthscale = lengthscale

    def __call__(self, s, t):
        return np.exp(-0.5 * (np.subtract.outer(s, t) / self.lengthscale) ** 2)

    def derivative(self, s, t):
        """By the lengthscale."""
        return self(s, t) * np.subtract.outer(s, t) ** 2 / self.lengthscale**3


class Matern32(SE):
    def __call__(self, s, t):
        r = np.sqrt(3.0) * np.abs(np.subtract.outer(s, t)) / self.lengthscale
        return (1.0 + r) * np.exp(-r)

    def derivative(self, s, t):
        r = np.sqrt(3.0) * np.abs(np.subtract.outer(s, t)) / self.lengthscale
        return r**2 * np.exp(-r) / self.lengthscale


class PeriodicSE:
    """``exp(-sin^2(pi (s - t) / period) / (2 l^2))``, which is how GPflow scales it."""

    def __init__(self, lengthscale, period):
        self.lengthscale, self.period = lengthscale, period

    def __call__(self, s, t):
        sine = np.sin(np.pi * np.subtract.outer(s, t) / self.period)
        return np.exp(-0.5 * (sine / self.lengthscale) ** 2)


def product_kernel(factors, variance, X, Z):
    """``variance * prod_i k_i(x_i, z_i)``, [N, M]."""
    K = np.full((len(X), len(Z)), float(variance))
    for k, x, z in zip(factors, X.T, Z.T, strict=True):
        K *= k(x, z)
    return K


def is_product_kernel(k, d, rng, tolerance=1e-9):
    """``k(x, z) k(a, b)^(d-1) = prod_i k(a with x_i, b with z_i)`` at random points."""
    for _ in range(5):
        x, z, a, b = rng.normal(size=(4, 1, d))
        right = 1.0
        for i in range(d):
            ai, bi = a.copy(), b.copy()
            ai[0, i], bi[0, i] = x[0, i], z[0, i]
            right *= k(ai, bi)[0, 0]
        left = k(x, z)[0, 0] * k(a, b)[0, 0] ** (d - 1)
        if abs(left - right) > tolerance * max(abs(left), abs(right)):
            return False
    return True


def percentile_grid(column, m_bar):
    """
    Sheet 1.3: distinct quantiles, filled up with quantiles of the distinct values not used yet; all
    distinct values if there are at most ``m_bar``.
    """
    values = np.unique(column)
    if len(values) <= m_bar:
        return values
    nodes = np.unique(np.quantile(column, np.linspace(0.0, 1.0, m_bar)))
    while len(nodes) < m_bar:
        left = np.setdiff1d(values, nodes)
        levels = np.linspace(0.0, 1.0, min(m_bar - len(nodes), len(left)) + 2)[1:-1]
        nodes = np.union1d(nodes, np.quantile(left, levels, method="nearest"))
    return nodes


def cartesian(grid):
    """All nodes, the last dimension fastest, as ``np.kron`` orders them: [m, d]."""
    return np.array(list(itertools.product(*grid)))


class Eigensystem(NamedTuple):
    values: np.ndarray
    """[r], descending."""
    vectors: np.ndarray
    """[m_i, r]"""


def eigensystem(K):
    """Only eigenvalues above the noise (1.4)."""
    values, vectors = np.linalg.eigh(K)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = values > len(K) * EPS * values[0]
    return Eigensystem(values[keep], vectors[:, keep])


def top_p_brute_force(log_values, p, decimals=9):
    """The p largest sums of one number per dimension; ties by the lexicographically first index."""
    every = list(itertools.product(*(range(len(v)) for v in log_values)))
    total = {i: sum(v[j] for v, j in zip(log_values, i, strict=True)) for i in every}
    best = sorted(every, key=lambda i: (-round(total[i], decimals), i))[:p]
    return np.array(best), np.array([total[i] for i in best])


class Basis(NamedTuple):
    factors: list
    variance: float
    grid: list
    systems: list
    idx: np.ndarray
    """[p, d]"""
    log_lam: np.ndarray
    """[p], of the unit-variance product."""

    def features(self, X):
        """[N, p]; an entry is a product over dimensions."""
        Phi = np.full((len(X), len(self.idx)), np.sqrt(self.variance))
        for j, index in enumerate(self.idx):
            for i, (k, nodes, system) in enumerate(
                zip(self.factors, self.grid, self.systems, strict=True)
            ):
                q, lam = system.vectors[:, index[i]], system.values[index[i]]
                Phi[:, j] *= k(X[:, i], nodes) @ q / np.sqrt(lam)
        return Phi

    def kernel(self, X, Z):
        return product_kernel(self.factors, self.variance, X, Z)


def build_basis(factors, variance, grid, p):
    systems = [eigensystem(k(u, u)) for k, u in zip(factors, grid, strict=True)]
    idx, log_lam = top_p_brute_force([np.log(system.values) for system in systems], p)
    return Basis(factors, variance, grid, systems, idx, log_lam)


def explained_variance(basis):
    """Share of the trace of the matrices whose eigenvalues they are."""
    trace = np.prod([system.values.sum() for system in basis.systems])
    return np.exp(basis.log_lam).sum() / trace


def log_normal(y, C):
    """``log N(y | 0, C)``."""
    quadratic = y @ np.linalg.inv(C) @ y
    return -0.5 * (quadratic + np.linalg.slogdet(C)[1] + len(y) * np.log(2.0 * np.pi))


def dense_lml(Phi, w, y, noise):
    return log_normal(y, Phi @ np.diag(w) @ Phi.T + noise * np.eye(len(y)))


def lml_gradient(A, r, yty, n, w, noise):
    """Sheet 1.7: by the weights [p] and by the noise variance."""
    P_inv = np.linalg.inv(noise * np.diag(1.0 / w) + A)
    by_w = (r - A @ P_inv @ r) ** 2 / (2.0 * noise**2)
    by_w -= (np.diag(A) - np.sum(A * (P_inv @ A), axis=0)) / (2.0 * noise)
    quadratic = yty - 2.0 * r @ P_inv @ r + r @ P_inv @ A @ P_inv @ r
    by_noise = quadratic / (2.0 * noise**2) - (n - np.trace(P_inv @ A)) / (2.0 * noise)
    return by_w, by_noise


def predict(Phi, w, y, noise, Phi_new):
    """Mean and covariance of the latent function, from N x N matrices: eq. (2)."""
    C_inv = np.linalg.inv(Phi @ np.diag(w) @ Phi.T + noise * np.eye(len(y)))
    cross = Phi_new @ np.diag(w) @ Phi.T
    prior = Phi_new @ np.diag(w) @ Phi_new.T
    return cross @ C_inv @ y, prior - cross @ C_inv @ cross.T


def predict_with_residual(Phi, y, noise, Phi_new, K_new):
    """As :func:`predict` for w = 1, with the residual process at its prior: that of SGPR."""
    mean, cov = predict(Phi, np.ones(Phi.shape[1]), y, noise, Phi_new)
    return mean, cov + K_new - Phi_new @ Phi_new.T


def collapsed_bound(Phi, k_diag, y, noise):
    """Sheet 1.10: Titsias' bound with ``Kuu = I``."""
    trace = k_diag.sum() - np.trace(Phi @ Phi.T)
    return dense_lml(Phi, np.ones(Phi.shape[1]), y, noise) - trace / (2.0 * noise)


def corrected_covariance(Phi, w, k_diag):
    """``Phi W Phi^T`` with the diagonal of k wherever that is the larger one."""
    Q = Phi @ np.diag(w) @ Phi.T
    return Q + np.diag(np.maximum(k_diag - np.diag(Q), 0.0))


def corrected_lml(Phi, w, k_diag, y, noise):
    return log_normal(y, corrected_covariance(Phi, w, k_diag) + noise * np.eye(len(y)))


def corrected_predict(Phi, w, k_diag, y, noise, Phi_new, k_new_diag):
    """Mean and variance; the correction of a new point is independent of all else."""
    C = corrected_covariance(Phi, w, k_diag) + noise * np.eye(len(y))
    cross = Phi_new @ np.diag(w) @ Phi.T
    prior = np.diag(corrected_covariance(Phi_new, w, k_new_diag))
    explained = np.diag(cross @ np.linalg.inv(C) @ cross.T)
    return cross @ np.linalg.inv(C) @ y, prior - explained


def grief_lml_and_hyper_gradient(basis, X, y, noise):
    """
    The LML with w = 1, and its gradient by every lengthscale, the variance and the noise.

    Perturbation theory of the eigensystems, sheet 1.9: the sum over j runs over all eigenvectors,
    those under the floor included. Unit node weights only.
    """
    Phi = basis.features(X)
    C_inv = np.linalg.inv(Phi @ Phi.T + noise * np.eye(len(y)))
    alpha = C_inv @ y
    by_C = 0.5 * (np.outer(alpha, alpha) - C_inv)
    by_Phi = 2.0 * by_C @ Phi  # [N, p]
    columns, slopes = zip(
        *(_factor_and_derivative(basis, X, i) for i in range(X.shape[1])), strict=True
    )
    by_lengthscale = []
    for i, slope in enumerate(slopes):
        dPhi = np.sqrt(basis.variance) * slope[:, basis.idx[:, i]]
        for other in set(range(X.shape[1])) - {i}:
            dPhi *= columns[other][:, basis.idx[:, other]]
        by_lengthscale.append(np.sum(by_Phi * dPhi))
    by_variance = np.sum(by_C * (Phi @ Phi.T)) / basis.variance
    value = dense_lml(Phi, np.ones(Phi.shape[1]), y, noise)
    return value, np.array(by_lengthscale), by_variance, np.trace(by_C)


def _factor_and_derivative(basis, X, i):
    """Of ``k_i(X_i, U_i) Q_i / sqrt(lam_i)`` by the lengthscale of dimension i: [N, r] each."""
    k, u, x = basis.factors[i], basis.grid[i], X[:, i]
    C, dC, dK = k(x, u), k.derivative(x, u), k.derivative(u, u)
    values, Q = np.linalg.eigh(k(u, u))
    values, Q = values[::-1], Q[:, ::-1]
    columns, slopes = [], []
    for a in range(len(basis.systems[i].values)):
        # the signs of the basis, which a fresh decomposition need not repeat
        q = Q[:, a] * np.sign(Q[:, a] @ basis.systems[i].vectors[:, a])
        dvalue = q @ dK @ q
        dq = sum(
            Q[:, b] * (Q[:, b] @ dK @ q) / (values[a] - values[b])
            for b in range(len(u))
            if abs(values[a] - values[b]) > 0.0  # itself, and what rotates freely
        )
        columns.append(C @ q / np.sqrt(values[a]))
        slope = (dC @ q + C @ dq) / np.sqrt(values[a]) - C @ q * dvalue / (2.0 * values[a] ** 1.5)
        slopes.append(slope)
    return np.array(columns).T, np.array(slopes).T
