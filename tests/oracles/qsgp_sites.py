"""Sites ``log g(phi w)`` of any likelihood with sub-sampled functions, in naive NumPy.

Evans and Nair, "Quadruply Stochastic Gaussian Processes", section 3. ``Phi [n, m]``, ``mu [m]``,
``C [m, m]``; index sets as in :mod:`tests.oracles.qsgp`. Moments are those of the Gaussian over
which the log likelihood is averaged.
"""

import numpy as np
from scipy.special import erf

from tests.oracles.qsgp import weights

NODES = np.linspace(-12.0, 12.0, 4001)


def logit(f, y):
    """``log sig(y f)``, y in {-1, 1}."""
    return -np.logaddexp(0.0, -y * f)


def expect_logit(mean, var, y):
    f = mean[:, None] + np.sqrt(var)[:, None] * NODES
    density = np.exp(-0.5 * NODES**2) / np.sqrt(2.0 * np.pi)
    return (logit(f, y[:, None]) * density).sum(axis=1) * (NODES[1] - NODES[0])


def expect_gaussian(mean, var, y, noise=0.3):
    return -0.5 * (np.log(2.0 * np.pi * noise) + ((y - mean) ** 2 + var) / noise)


def expect_laplace(mean, var, y, scale=0.5):
    """The folded normal's mean."""
    sd, d = np.sqrt(np.maximum(var, 1e-300)), y - mean
    t = d / sd
    spread = sd * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * t**2) + d * erf(t / np.sqrt(2.0))
    return -np.log(2.0 * scale) - spread / scale


def site_moments(Phi, mu, C):
    """The exact ones."""
    return Phi @ mu, np.sum((Phi @ C) ** 2, axis=1)


def site_moments_printed(Phi, mu, C, it, jt, rt):
    """
    Theorem 3 as printed, but for the index of its second C: NO bound.

    It multiplies z, which has unit variance, by an estimate of the site's variance where the
    standard deviation belongs; so the variance here is the square of a variance.
    """
    m = len(mu)
    wi, wj, wr = weights(m, it), weights(m, jt), weights(m, rt)
    triple = np.sum(((Phi * wj) @ C) * wr * ((Phi * wi) @ C), axis=1)
    return Phi @ (wi * mu), triple**2


def site_moments_jensen(Phi, mu, C, it, h=0):
    """The strict bound: mean and spread of the same weighted sum."""
    w = weights(len(mu), it, h)
    return Phi @ (w * mu), np.sum(((Phi * w) @ C) ** 2, axis=1)


def site_moments_split(Phi, mu, C, it, q, k, h=None):
    """Dense columns as in the strict bound, diagonal ones by a set of their own; h = k if None."""
    h = k if h is None else h
    m = len(mu)
    w = weights(m, it, h)
    dense = np.sum(((Phi * w) @ C[:, :k]) ** 2, axis=1)
    return Phi @ (w * mu), dense + diagonal_variance(Phi, C, q, k)


def diagonal_variance(Phi, C, q, k):
    """Unbiased estimate of what the diagonal columns add."""
    m = len(C)
    return (m - k) / len(q) * np.sum(Phi[:, q] ** 2 * np.diag(C)[q] ** 2, axis=1)


def variance_of_sum(Phi, v, it, h=0):
    """Unbiased estimate of the variance of ``Phi (w_i v)`` over sets, from the set itself."""
    left, mt = len(v) - h, len(it)
    sample = np.var(Phi[:, it] * v[it], axis=1, ddof=1)
    return left**2 / mt * sample * (1.0 - mt / left)


def site_moments_absorbed(Phi, mu, C, it, q, k, h=None, clamp=True):
    """
    As split, less the variances of the sums over the set: of the mean's and each dense column's.

    Without the clamp at zero, a Gaussian site is unbiased.
    """
    h = k if h is None else h
    mean, var = site_moments_split(Phi, mu, C, it, q, k, h)
    for v in [mu, *C[:, :k].T]:
        var = var - variance_of_sum(Phi, v, it, h)
    return mean, np.maximum(var, 0.0) if clamp else var


def pair_moments(Phi, mu, C, it, jt, h=0):
    """Unbiased mean and second moment of each row from two independent sets; h dense columns."""
    wi, wj = weights(len(mu), it, h), weights(len(mu), jt, h)
    Fi, Fj = Phi @ (wi * mu), Phi @ (wj * mu)
    dense = np.sum(((Phi * wi) @ C[:, :h]) * ((Phi * wj) @ C[:, :h]), axis=1)
    spread = diagonal_variance(Phi, C, it, h) + diagonal_variance(Phi, C, jt, h)
    return 0.5 * (Fi + Fj), Fi * Fj + dense + 0.5 * spread


def quadratic_logit(mean, second, y, xi):
    """The quadratic lower bound on :func:`expect_logit` at xi; Jaakkola and Jordan (2000)."""
    curvature = np.tanh(0.5 * xi) / (4.0 * xi)
    return logit(xi, 1.0) + 0.5 * (y * mean - xi) - curvature * (second - xi**2)
