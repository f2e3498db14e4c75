"""Random Fourier features, kernel dictionaries and the hybrid basis, one number at a time."""

import math

import numpy as np

from tests.oracles.counters import normals


def frequency(degrees, seed, index, D):
    """Normal over the root of a chi-square with ``degrees`` of freedom, over its number."""
    w = normals(seed, [index], range(D))[0]
    return w * student(degrees, seed, index, D)


def student(degrees, seed, index, D):
    if math.isinf(degrees):
        return 1.0
    chi_square = (normals(seed, [index], range(D, D + int(degrees)))[0] ** 2).sum()
    return math.sqrt(degrees / chi_square)


def orthogonal_frequency(degrees, seed, index, D):
    """A row of Gram and Schmidt's basis of the block, as long as a normal of its own."""
    block = index // D
    normal = normals(seed, np.arange(block * D, block * D + D), range(D))  # [D, D]
    Q = np.zeros((D, D))
    for j in range(D):  # columns, one after the other
        rest = normal[:, j] - Q[:, :j] @ (Q[:, :j].T @ normal[:, j])
        Q[:, j] = rest / np.linalg.norm(rest)
    first = D + (0 if math.isinf(degrees) else int(degrees))
    length = np.linalg.norm(normals(seed, [index], range(first, first + D))[0])
    return Q[index - block * D] * length * student(degrees, seed, index, D)


def fourier_columns(X, indices, num_features, degrees, seed, variance, lengthscales, orthogonal):
    """``[N, len(indices)]``: cosines at even indices, sines at odd ones."""
    make = orthogonal_frequency if orthogonal else frequency
    columns = []
    for j in indices:
        w = make(degrees, seed, j // 2, X.shape[1]) / lengthscales
        wave = np.sin if j % 2 else np.cos
        columns.append(math.sqrt(2.0 * variance / num_features) * wave(X @ w))
    return np.stack(columns, axis=1)


def hybrid_columns(Kxu, Kuu, phi_X, phi_Z):
    """``[Kxu Luu^-T, phi(X) - Kxu Kuu^-1 phi(Z)]``; jitter is in Kuu."""
    A = Kxu @ np.linalg.inv(np.linalg.cholesky(Kuu)).T
    return np.hstack([A, phi_X - Kxu @ np.linalg.inv(Kuu) @ phi_Z])


def matern52(X, Z, variance, lengthscales):
    """Written out, pair by pair."""
    K = np.empty((len(X), len(Z)))
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            s = math.sqrt(5.0 * (((x - z) / lengthscales) ** 2).sum())
            K[i, j] = variance * (1.0 + s + s * s / 3.0) * math.exp(-s)
    return K


def weight_posterior(Phi, S, y, noise):
    """Mean and covariance of weights ``N(0, S^-1)`` after ``y = Phi w + noise``."""
    covariance = np.linalg.inv(Phi.T @ Phi / noise + S)
    return covariance @ Phi.T @ y / noise, covariance
