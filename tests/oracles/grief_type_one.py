"""Type-I GRIEF in naive NumPy: N x N covariances, grids over all unknowns at once.

Evans and Nair (2018), eqs. (1), (2), (11) and (12), with the noise in the variance of observations.
Features are ``Phi [N, p]``, observations ``Y [N, P]`` with zero prior mean.
"""

import numpy as np


def covariance(Phi, weights, Phi2=None):
    """Eq. (12)."""
    return Phi @ np.diag(weights) @ (Phi if Phi2 is None else Phi2).T


def dense_lml(Phi, Y, weights, noise):
    """Eq. (1), summed over outputs."""
    C = covariance(Phi, weights) + noise * np.eye(len(Phi))
    log_det = np.linalg.slogdet(2.0 * np.pi * C)[1]
    return -0.5 * sum(y @ np.linalg.solve(C, y) + log_det for y in Y.T)


def dense_predict(Phi, Y, Phi_new, weights, noise):
    """Eq. (2): mean ``[M, P]`` and variance ``[M]`` of the function."""
    C = covariance(Phi, weights) + noise * np.eye(len(Phi))
    cross = covariance(Phi_new, weights, Phi)
    prior = np.diag(covariance(Phi_new, weights))
    return cross @ np.linalg.solve(C, Y), prior - np.diag(cross @ np.linalg.solve(C, cross.T))


def lognormal_moments(mu, sd):
    """Mode, mean and variance of the number itself."""
    mean = np.exp(mu + sd**2 / 2)
    return np.exp(mu - sd**2), mean, np.expm1(sd**2) * mean**2


def log_normal(x, mu, sd):
    return -0.5 * ((x - mu) / sd) ** 2 - np.log(sd * np.sqrt(2.0 * np.pi))


def brute_force(Phi, Y, Phi_new, weight_prior, noise_prior, weight_nodes, noise_nodes):
    """
    Log evidence, and mean and variance ``[M, P]`` of the function, by a grid over all unknowns.

    Priors are ``(mu, sd)`` of logarithms; nodes are counted in sd from mu.
    """
    p = Phi.shape[1]
    priors = [weight_prior] * p + [noise_prior]
    nodes = [weight_nodes] * p + [noise_nodes]
    axes = [mu + sd * z for z, (mu, sd) in zip(nodes, priors, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, p + 1)
    log_joint = np.zeros(len(grid))
    for column, axis, prior in zip(grid.T, axes, priors, strict=True):
        log_joint += log_normal(column, *prior) + np.log(axis[1] - axis[0])
    weights, noise = np.exp(grid[:, :p]), np.exp(grid[:, p])
    C = np.einsum("np,gp,mp->gnm", Phi, weights, Phi) + noise[:, None, None] * np.eye(len(Phi))
    log_det = np.linalg.slogdet(2.0 * np.pi * C)[1]
    solved = np.linalg.solve(C, np.broadcast_to(Y, (len(grid), *Y.shape)))  # [G, N, P]
    log_joint += -0.5 * (np.einsum("nq,gnq->g", Y, solved) + Y.shape[1] * log_det)
    log_evidence = np.logaddexp.reduce(log_joint)
    shares = np.exp(log_joint - log_evidence)
    cross = np.einsum("mp,gp,np->gmn", Phi_new, weights, Phi)
    means = cross @ solved  # [G, M, P]
    prior = np.einsum("mp,gp,mp->gm", Phi_new, weights, Phi_new)
    reduced = np.linalg.solve(C, np.swapaxes(cross, 1, 2))
    variances = prior - np.einsum("gmn,gnm->gm", cross, reduced)
    mean = np.einsum("g,gmq->mq", shares, means)
    variance = np.einsum("g,gmq->mq", shares, variances[..., None] + (means - mean) ** 2)
    return log_evidence, mean, variance
