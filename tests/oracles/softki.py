"""Soft kernel interpolation in naive NumPy: loops over pairs, dense n x n matrices, float64.

Camano and Huang, "High-Dimensional Gaussian Process Regression with Soft Kernel Interpolation".
``W [n, m]`` are the weights, ``K [m, m]`` the covariance of the interpolation points, jitter and
all, ``Q = W K W^T``; errors ``e [n, P]`` of the prior mean, one noise variance for all outputs.
"""

import math

import numpy as np

# Squared distances below this one are this one.
SAME = 1e-12


def distance(x, z, temperature=1.0):
    return math.sqrt(max((((x - z) / temperature) ** 2).sum(), SAME))


def weights(X, Z, temperature=1.0):
    """Eq. (17), with distances in units of a temperature, one number or one for each column."""
    W = np.zeros((len(X), len(Z)))
    for i, x in enumerate(X):
        distances = np.array([distance(x, z, temperature) for z in Z])
        mass = np.exp(distances.min() - distances)
        W[i] = mass / mass.sum()
    return W


def slopes(x, Z, values, temperature=1.0):
    """By x, of the sum of values times weights; a point that equals x does not pull."""
    w = weights(x[None], Z, temperature)[0]
    total = np.zeros(len(x))
    for z, weight, value in zip(Z, w, values, strict=True):
        apart = distance(x, z, temperature)
        if apart > math.sqrt(SAME):
            by_distance = -weight * (value - w @ values)
            total += by_distance * (x - z) / (temperature**2 * apart)
    return total


def matern32(X, Z, variance, lengthscales):
    K = np.empty((len(X), len(Z)))
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            s = math.sqrt(3.0 * (((x - z) / lengthscales) ** 2).sum())
            K[i, j] = variance * (1.0 + s) * math.exp(-s)
    return K


def squared_exponential(X, Z, variance, lengthscales):
    K = np.empty((len(X), len(Z)))
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            K[i, j] = variance * math.exp(-0.5 * (((x - z) / lengthscales) ** 2).sum())
    return K


def with_jitter(K, relative):
    return K + relative * np.mean(np.diag(K)) * np.eye(len(K))


def whitened(W, K):
    """``B = W L``, whose weights are ``N(0, I)``."""
    return W @ np.linalg.cholesky(K)


def log_density_dense(Q, e, noise):
    """``log N(e | 0, Q + noise I)``, summed over outputs."""
    cov = Q + noise * np.eye(len(Q))
    log_det = np.linalg.slogdet(2.0 * np.pi * cov)[1]
    return -0.5 * (e.shape[1] * log_det + np.sum(e * np.linalg.solve(cov, e)))


def log_density_woodbury(B, e, noise):
    """The same from ``H = I + B^T B / noise``, with the posterior mean of the weights."""
    n, m = B.shape
    H = np.eye(m) + B.T @ B / noise
    v = np.linalg.solve(H, B.T @ e) / noise
    log_det = n * np.log(2.0 * np.pi * noise) + np.linalg.slogdet(H)[1]
    quadratic = np.sum((e - B @ v) ** 2) / noise + np.sum(v**2)
    return -0.5 * (e.shape[1] * log_det + quadratic)


def whitened_qr(B, e, noise):
    """``R`` with ``R^T R = I + B^T B / noise``, and the posterior mean ``v [m, P]``."""
    n, m = B.shape
    q, R = np.linalg.qr(np.vstack([B / np.sqrt(noise), np.eye(m)]))
    return R, np.linalg.solve(R, q[:n].T @ e / np.sqrt(noise))


def log_density_qr(B, e, noise):
    n = len(B)
    R, v = whitened_qr(B, e, noise)
    log_det = n * np.log(2.0 * np.pi * noise) + 2.0 * np.sum(np.log(np.abs(np.diag(R))))
    quadratic = np.sum((e - B @ v) ** 2) / noise + np.sum(v**2)
    return -0.5 * (e.shape[1] * log_det + quadratic)


def predict(Q, Q_across, Q_new, e, noise):
    """
    Dense regression: mean ``[n_new, P]`` and covariance ``[n_new, n_new]`` of f.

    :param Q_across: ``[n_new, n]``. All three are of the interpolated kernel: eq. (14) has the
        kernel itself in two of them, and variances below zero.
    """
    cov = Q + noise * np.eye(len(Q))
    gain = np.linalg.solve(cov, Q_across.T).T
    return gain @ e, Q_new - gain @ Q_across.T


def surrogate(Q, noise, b0, a, b):
    """
    The pseudo-loss, of which only the gradient by Q and noise means anything: half the sum of
    ``b0^T S b0`` over outputs, minus half the mean of ``a^T S b`` over probes for each of them.

    Eqs. (19) and (21) to (23) have the opposite sign.

    :param b0: ``S^-1 e [n, P]``, a constant.
    :param a: probes ``[n, S]``.
    :param b: ``S^-1 a [n, S]``, a constant.
    """
    cov = Q + noise * np.eye(len(Q))
    trace = np.mean(np.sum(a * (cov @ b), axis=0))
    return 0.5 * np.sum(b0 * (cov @ b0)) - 0.5 * b0.shape[1] * trace


def hutchinson_trace_variance(matrix, kind):
    """Of ``a^T M a`` for one probe and a symmetric M."""
    squares, n = np.sum(matrix**2), len(matrix)
    if kind == "gaussian":
        return 2.0 * squares
    if kind == "rademacher":
        return 2.0 * (squares - np.sum(np.diag(matrix) ** 2))
    return 2.0 * n / (n + 2.0) * (squares - np.trace(matrix) ** 2 / n)  # sphere of radius root n


def elbo(B, e, noise, mean, cov, rows=None, num_data=None):
    """
    Of ``q(v) = N(mean[:, p], cov)`` for every output; of some rows that count for ``num_data``.
    """
    rows = range(len(B)) if rows is None else rows
    weight = 1.0 if num_data is None else num_data / len(rows)
    expected = 0.0
    for i in rows:
        var = B[i] @ cov @ B[i]
        for p in range(e.shape[1]):
            square = (e[i, p] - B[i] @ mean[:, p]) ** 2 + var
            expected -= 0.5 * (math.log(2.0 * math.pi * noise) + square / noise)
    kl = 0.5 * e.shape[1] * (np.trace(cov) - len(cov) - np.linalg.slogdet(cov)[1])
    return weight * expected - kl - 0.5 * np.sum(mean**2)


def central_difference(function, point, step=1e-5):
    """Gradient of a scalar function of one array, entry by entry."""
    point = np.asarray(point, float)
    gradient = np.empty(point.shape)
    for index in np.ndindex(point.shape):
        move = np.zeros(point.shape)
        move[index] = step
        gradient[index] = (function(point + move) - function(point - move)) / (2.0 * step)
    return gradient
