"""A base process and neighbors on its residual, in naive NumPy: inverses, no features."""

import numpy as np

from tests.oracles import solvegp, swsgp


def residual_kernel(k, Z, eps):
    """``c(x, x') = k(x, x') - k(x, Z) (Kuu + eps I)^-1 k(Z, x')`` as a function."""
    inverse = np.linalg.inv(k(Z, Z) + eps * np.eye(len(Z)))
    return lambda X1, X2: k(X1, X2) - k(X1, Z) @ inverse @ k(Z, X2)


def base_moments(k, X, Z, m, R, eps):
    """Mean and covariance of g under ``q(w) = N(m, R R^T)``, ``w = Luu^-1 f(Z)``."""
    A = np.linalg.inv(np.linalg.cholesky(k(Z, Z) + eps * np.eye(len(Z)))) @ k(Z, X)
    return A.T @ m, A.T @ R @ R.T @ A


def base_kl(m, R):
    return solvegp.gaussian_kl(m, R @ R.T, np.eye(len(m)))


def predict(k, X, Z, O, sets, base, own, eps):
    """Mean and variance of f, each row from neighbors of its own; ``base`` and ``own`` are q."""
    mean, cov = base_moments(k, X, Z, *base, eps)
    rest = swsgp.locals_of(residual_kernel(k, Z, eps), X, O, sets, *own, eps)
    return mean + rest[0], np.diag(cov) + rest[1]


def objective(k, X, y, Z, O, sets, w, base, own, eps, noise):
    """Of all rows, with weights w of the KL terms of their neighbors; zeros leave these out."""
    mean, var = predict(k, X, Z, O, sets, base, own, eps)
    kl = swsgp.locals_of(residual_kernel(k, Z, eps), X, O, sets, *own, eps)[2]
    return np.sum(swsgp.expectations(y, mean, var, noise) - w * kl) - base_kl(*base)


def chain_objective(k, X, y, Z, O, sets, H, base, own, eps, noise):
    c = residual_kernel(k, Z, eps)
    without = objective(k, X, y, Z, O, sets, np.zeros(len(X)), base, own, eps, noise)
    return without - swsgp.chain_kl(c, O, H, *own, eps)


def chain_evidence(k, X, y, Z, O, sets, H, eps, noise):
    """Where v has the prior of the chain and residuals of rows are independent given v."""
    c = residual_kernel(k, Z, eps)
    A, residual = swsgp.dense_projection(c, X, O, sets, eps)
    Kv = np.linalg.inv(swsgp.chain_precision(c, O, H, eps))
    shared = k(X, Z) @ np.linalg.inv(k(Z, Z) + eps * np.eye(len(Z))) @ k(Z, X)
    return swsgp.log_normal(y, shared + A @ Kv @ A.T + np.diag(residual + noise))
