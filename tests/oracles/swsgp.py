"""SWSGP in naive NumPy: one row at a time, inverses and determinants, straight from the equations.

Tran, Milios, Michiardi and Filippone, "Sparse within Sparse Gaussian Processes using Neighbor
Information", eqs. (11)-(13) and sections 3.2 and 4.5, with the errata of ``docs/errata.md``. One
output; ``k(X1, X2)`` is a function, ``S [M, M]`` the whole covariance of q also where it is
diagonal, ``sets`` one array of indices for each row, ``eps`` what is added to the diagonal of k at
the inducing points.
"""

import numpy as np
from scipy.spatial.distance import cdist

from tests.oracles.solvegp import gaussian_kl


def with_lengthscales(profile, variance, lengthscales):
    """A kernel of X / lengthscales from one of :mod:`tests.oracles.solvegp`."""
    return lambda A, B: profile(A / lengthscales, B / lengthscales, variance)


# neighbors


def nearest(X, Z, H):
    """Of every row, nearest first, lower index first where equal."""
    return np.array([np.argsort(((Z - x) ** 2).sum(1), kind="stable")[:H] for x in X])


def most_explaining(k, X, Z, H):
    """Largest ``k(x, z)^2 / k(z, z)``: what each alone takes from the variance at x."""
    drops = k(X, Z) ** 2 / np.diag(k(Z, Z))
    return np.argsort(-drops, axis=1, kind="stable")[:, :H]


def with_global(sets, fixed):
    """The fixed indices first, then others in their order; as many as before."""
    return np.array(
        [[*fixed, *[j for j in row if j not in fixed]][: sets.shape[1]] for row in sets]
    )


def predecessors(Z, H):
    """Of every z_j the at most H nearest of z_0, ..., z_{j-1}."""
    return [nearest(Z[j : j + 1], Z[:j], H)[0].astype(int) for j in range(len(Z))]


def active_set(X, Z, size):
    """
    Section 4.5 with the rule it lacks: best place in any row's list, then the smallest distance to
    a row in whose list it has that place.
    """
    ranks = []
    distances = cdist(X, Z)
    places = np.argsort(np.argsort(distances, axis=1, kind="stable"), axis=1)
    for j in range(len(Z)):
        best = places[:, j].min()
        ranks.append((best, distances[places[:, j] == best, j].min(), j))
    return np.array([j for _, _, j in sorted(ranks)[:size]])


# one row


def projection(k, x, Z, eps):
    """``a = K^-1 k [H]``, what is left of the variance, and K, for one row ``x [D]``."""
    K = k(Z, Z) + eps * np.eye(len(Z))
    k_x = k(Z, x[None])[:, 0]
    a = np.linalg.inv(K) @ k_x
    return a, k(x[None], x[None])[0, 0] - k_x @ a, K


def local(k, x, Z, I, m, S, eps):
    """Mean and variance of f(x), and the KL of ``u_I``."""
    a, residual, K = projection(k, x, Z[I], eps)
    S_I = S[np.ix_(I, I)]
    return a @ m[I], residual + a @ S_I @ a, gaussian_kl(m[I], S_I, K)


def locals_of(k, X, Z, sets, m, S, eps):
    """The same for all rows: three arrays ``[N]``."""
    return np.array([local(k, x, Z, I, m, S, eps) for x, I in zip(X, sets, strict=True)]).T


def expectations(y, mean, var, noise):
    """``E log N(y | f, noise) [N]``."""
    return -0.5 * np.log(2 * np.pi * noise) - ((y - mean) ** 2 + var) / (2 * noise)


# the objective


def usage(sets, M):
    """How many rows see each inducing point."""
    return np.array([sum(j in I for I in sets) for j in range(M)])


def kl_weights(kind, sets, M):
    """What the KL of each of all N rows counts for."""
    if kind == "paper":
        return np.full(len(sets), 1.0 / len(sets))
    counts = usage(sets, M)
    return np.array([np.mean(1.0 / counts[I]) for I in sets])


def objective(k, X, y, Z, sets, w, m, S, eps, noise):
    """Eq. (11) with weights w in place of 1 / N."""
    mean, var, kl = locals_of(k, X, Z, sets, m, S, eps)
    return np.sum(expectations(y, mean, var, noise) - w * kl)


# the chain: q(u) against prod_j p(u_j | nearest predecessors)


def chain_conditional(k, Z, before, j, eps):
    """Weights b and variance v of ``u_j = b^T u_before + noise`` in the prior."""
    prior = k(Z[j : j + 1], Z[j : j + 1])[0, 0] + eps
    if len(before) == 0:
        return np.zeros(0), prior
    b, _, _ = projection(k, Z[j], Z[before], eps)
    return b, prior - b @ k(Z[before], Z[j : j + 1])[:, 0]


def chain_precision(k, Z, H, eps):
    """Precision of the product of conditionals, ``[M, M]``."""
    P = np.zeros((len(Z), len(Z)))
    for j, before in enumerate(predecessors(Z, H)):
        b, v = chain_conditional(k, Z, before, j, eps)
        row = np.zeros(len(Z))
        row[j], row[before] = 1.0, -b
        P += np.outer(row, row) / v
    return P


def chain_kl(k, Z, H, m, S, eps):
    return gaussian_kl(m, S, np.linalg.inv(chain_precision(k, Z, H, eps)))


def chain_objective(k, X, y, Z, sets, H, m, S, eps, noise):
    mean, var, _ = locals_of(k, X, Z, sets, m, S, eps)
    return expectations(y, mean, var, noise).sum() - chain_kl(k, Z, H, m, S, eps)


def dense_projection(k, X, Z, sets, eps):
    """A [N, M] and the residual variances [N] of ``f_i | u_I``."""
    A, residual = np.zeros((len(X), len(Z))), np.zeros(len(X))
    for i, (x, I) in enumerate(zip(X, sets, strict=True)):
        A[i, I], residual[i], _ = projection(k, x, Z[I], eps)
    return A, residual


def chain_evidence(k, X, y, Z, sets, H, eps, noise):
    """Log evidence where u is the chain's and the ``f_i | u_I`` are independent of each other."""
    A, residual = dense_projection(k, X, Z, sets, eps)
    Ku = np.linalg.inv(chain_precision(k, Z, H, eps))
    return log_normal(y, A @ Ku @ A.T + np.diag(residual + noise))


def log_normal(y, cov):
    """``log N(y; 0, cov)``."""
    return -0.5 * (
        y @ np.linalg.solve(cov, y) + np.linalg.slogdet(cov)[1] + len(y) * np.log(2 * np.pi)
    )


# the best q for Gaussian noise, of which only the diagonal is free


def optimal_q(k, X, y, Z, sets, w, eps, noise):
    """m [M] and s [M] at which :func:`objective` is stationary."""
    M = len(Z)
    precision, target = np.zeros((M, M)), np.zeros(M)
    weights, curvature = np.zeros(M), np.zeros(M)
    for x, value, I, w_i in zip(X, y, sets, w, strict=True):
        a, _, K = projection(k, x, Z[I], eps)
        K_inv = np.linalg.inv(K)
        precision[np.ix_(I, I)] += np.outer(a, a) / noise + w_i * K_inv
        target[I] += a * value / noise
        weights[I] += w_i
        curvature[I] += a**2 / noise + w_i * np.diag(K_inv)
    return np.linalg.solve(precision, target), weights / curvature


def optimal_chain_q(k, X, y, Z, sets, H, eps, noise):
    """m [M] and s [M] at which :func:`chain_objective` is stationary."""
    A, _ = dense_projection(k, X, Z, sets, eps)
    precision = A.T @ A / noise + chain_precision(k, Z, H, eps)
    return np.linalg.solve(precision, A.T @ y / noise), 1.0 / np.diag(precision)


# SWSGP-U


def joint(k, X, Z, active, m, S, eps):
    """Mean [n] and covariance [n, n] of f(X) from one active set."""
    K = k(Z[active], Z[active]) + eps * np.eye(len(active))
    W = np.linalg.inv(K) @ k(Z[active], X)
    return W.T @ m[active], k(X, X) + W.T @ (S[np.ix_(active, active)] - K) @ W


def union_objective(k, X, y, Z, active, m, S, eps, noise, scale=1.0):
    """One KL for the whole batch, undivided."""
    mean, cov = joint(k, X, Z, active, m, S, eps)
    K = k(Z[active], Z[active]) + eps * np.eye(len(active))
    kl = gaussian_kl(m[active], S[np.ix_(active, active)], K)
    return scale * expectations(y, mean, np.diag(cov), noise).sum() - kl


# one Gaussian site for each inducing variable


def site_posterior(k, Z, I, targets, tau, eps):
    """Mean and covariance of ``p(u_I) prod_j N(targets_j; u_j, 1 / tau_j)``, normalized."""
    K = k(Z[I], Z[I]) + eps * np.eye(len(I))
    cov = np.linalg.inv(np.linalg.inv(K) + np.diag(tau[I]))
    return cov @ (tau[I] * targets[I]), cov


def site_local(k, x, Z, I, targets, tau, eps):
    """Mean and variance of f(x)."""
    mean, cov = site_posterior(k, Z, I, targets, tau, eps)
    a, residual, _ = projection(k, x, Z[I], eps)
    return a @ mean, residual + a @ cov @ a


def lumped_sites(k, X, targets, known, Z):
    """
    Each row, which says ``N(target; f, 1 / known)``, to its nearest inducing point: targets and
    precisions ``[M]``.
    """
    tau, moments = np.zeros(len(Z)), np.zeros(len(Z))
    for x, target, precision, (j,) in zip(X, targets, known, nearest(X, Z, 1), strict=True):
        a, residual, _ = projection(k, x, Z[[j]], 0.0)
        noise = (1.0 / precision + residual) / a[0] ** 2  # of target / a about u_j
        tau[j] += 1.0 / noise
        moments[j] += target / a[0] / noise
    return np.divide(moments, tau, out=np.zeros(len(Z)), where=tau > 0), tau
