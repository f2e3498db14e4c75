"""
A Gaussian q(f) at all rows in naive NumPy: the bound over its mean and covariance, its maximum by a
plain optimizer, predictions and cavities with inverses.

Opper and Archambeau, "The Variational Gaussian Approximation Revisited" (2009). One latent
function; ``log_prob(f, y)`` is a function of arrays. Prior mean zero.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def bernoulli_logit(f, y):
    return -np.logaddexp(0.0, (1.0 - 2.0 * y) * f)


def poisson(f, y):
    """y is 0 or 1, so that y! is 1."""
    return y * f - np.exp(f)


def expectations(log_prob, m, v, y):
    """``E log p(y_n | f_n)`` of each row ``[N]``."""
    return log_prob(m[:, None] + np.sqrt(v)[:, None] * NODES, y[:, None]) @ WEIGHTS


def covariance(K, precision):
    return np.linalg.inv(np.linalg.inv(K) + np.diag(precision))


def bound(log_prob, K, y, m, V):
    """ELBO of ``N(m, V)``."""
    inverse = np.linalg.inv(K)
    log_dets = np.linalg.slogdet(K)[1] - np.linalg.slogdet(V)[1]
    kl = 0.5 * (np.trace(inverse @ V) + m @ inverse @ m - len(y) + log_dets)
    return expectations(log_prob, m, np.diag(V), y).sum() - kl


def optimum(log_prob, K, y):
    """The best mean ``[N]`` and precisions ``[N]``, over all of them together, by differences."""
    N = len(y)
    L = np.linalg.cholesky(K)

    def loss(z):
        return -bound(log_prob, K, y, L @ z[:N], covariance(K, np.exp(z[N:])))

    z = np.concatenate([np.zeros(N), np.full(N, -1.0)])
    for _ in range(4):
        z = minimize(loss, z, method="BFGS", options={"gtol": 1e-9}).x
    return L @ z[:N], np.exp(z[N:])


def predict(K, k, k_new, m, precision):
    """
    Mean and variance at a new row.

    :param k: its covariances with the rows ``[N]``, and ``k_new`` its variance.
    """
    inverse = np.linalg.inv(K)
    V = covariance(K, precision)
    a = inverse @ k
    return a @ m, k_new - k @ a + a @ V @ a


def cavity(K, precision, linear, row):
    """Mean and variance of f at a row under the prior and all sites but its own."""
    others = np.where(np.arange(len(K)) == row, 0.0, precision)
    V = covariance(K, others)
    return (V @ (np.where(np.arange(len(K)) == row, 0.0, linear)))[row], V[row, row]


def one_versus_rest(m, v):
    """Probabilities ``[C]`` of the classes from C latent means and variances."""
    sigmoids = expit(m[:, None] + np.sqrt(v)[:, None] * NODES) @ WEIGHTS
    return sigmoids / sigmoids.sum()
