"""The numbers of `gs.diagnostics` in naive NumPy: N x N matrices, inverses and determinants."""

import numpy as np
from scipy.stats import multivariate_normal


def nystrom(k, X, Z, jitter):
    """``Kff`` and ``Qff = Kfu (Kuu + jitter I)^-1 Kuf``, both [N, N]."""
    Kfu = k(X, Z)
    return k(X, X), Kfu @ np.linalg.inv(k(Z, Z) + jitter * np.eye(len(Z))) @ Kfu.T


def unexplained(k, X, Z, jitter):
    """Fraction of the prior variance of every row that Z leaves, [N]."""
    K, Q = nystrom(k, X, Z, jitter)
    return np.diag(K - Q) / np.diag(K)


def exact(k, X, e, noise):
    """Log evidence of errors ``e [N, P]``, outputs independent."""
    return sum(log_normal(column, k(X, X) + noise * np.eye(len(X))) for column in e.T)


def collapsed(k, X, e, Z, noise, jitter):
    """Titsias (2009), eq. (9)."""
    K, Q = nystrom(k, X, Z, jitter)
    trace = np.trace(K - Q)
    return sum(
        log_normal(column, Q + noise * np.eye(len(X))) - 0.5 * trace / noise for column in e.T
    )


def upper(k, X, e, Z, noise, jitter):
    """Titsias (2014): the determinant of Q + noise I, the quadratic form of more noise."""
    K, Q = nystrom(k, X, Z, jitter)
    identity = np.eye(len(X))
    log_det = np.linalg.slogdet(Q + noise * identity)[1]
    inverse = np.linalg.inv(Q + (noise + np.trace(K - Q)) * identity)
    return sum(-0.5 * (len(X) * np.log(2 * np.pi) + log_det + c @ inverse @ c) for c in e.T)


def log_normal(y, cov):
    return multivariate_normal(np.zeros(len(y)), cov).logpdf(y)
