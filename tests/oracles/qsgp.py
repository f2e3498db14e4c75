"""Quadruply stochastic Gaussian processes in naive NumPy: dense matrices, one output, float64.

Evans and Nair, "Quadruply Stochastic Gaussian Processes" (2020). ``Phi [n, m]``, prior
precision ``S [m, m]`` or its diagonal ``s [m]``, ``q(w) = N(mu, C C^T)``. Objectives are minimized:
``ELBO = -1/2 (L_mu + L_Sigma + L_const)``, eq. (2).

Index sets are written as weights of all m functions (:func:`weights`): the ``head``, the first h
functions, is always taken, with weight one; a tail function counts ``(m - h) / mt`` each time it is
drawn. With h = 0 these are the paper's sums, ``Phi[:, it] mu[it] m / mt = Phi (w_i mu)``.
"""

import itertools

import numpy as np


def fourier_features_paired(X, frequencies, variance=1.0):
    """Functions ``[n, m]``, a cosine and a sine per frequency in turn, and their precision."""
    angles = X @ frequencies.T
    m = 2 * len(frequencies)
    Phi = np.empty((len(X), m))
    Phi[:, 0::2], Phi[:, 1::2] = np.cos(angles), np.sin(angles)
    return Phi, np.full(m, m / (2.0 * variance))


def matrix(S):
    return np.diag(S) if np.ndim(S) == 1 else S


def l_mu(Phi, y, mu, S, noise):
    fit = Phi @ mu
    return (-2.0 * y @ fit + fit @ fit) / noise + mu @ matrix(S) @ mu


def l_sigma(Phi, C, S, noise):
    penalty = np.trace(matrix(S) @ C @ C.T)
    return np.sum((Phi @ C) ** 2) / noise + penalty - 2.0 * np.sum(np.log(np.diag(C)))


def l_const(Phi, y, S, noise):
    n, m = Phi.shape
    log_det = np.linalg.slogdet(matrix(S))[1]
    return -log_det - m + n * np.log(2.0 * np.pi * noise) + y @ y / noise


def elbo_gaussian(Phi, y, mu, C, S, noise):
    """Eq. (2)."""
    return -0.5 * (
        l_mu(Phi, y, mu, S, noise) + l_sigma(Phi, C, S, noise) + l_const(Phi, y, S, noise)
    )


def prior_kl(mu, C, S):
    """``KL[N(mu, C C^T) || N(0, S^-1)]``."""
    cov = C @ C.T
    log_dets = np.linalg.slogdet(matrix(S))[1] + np.linalg.slogdet(cov)[1]
    return 0.5 * (np.trace(matrix(S) @ cov) + mu @ matrix(S) @ mu - len(mu) - log_dets)


def log_evidence(Phi, y, S, noise):
    cov = Phi @ np.linalg.inv(matrix(S)) @ Phi.T + noise * np.eye(len(y))
    log_det = np.linalg.slogdet(2.0 * np.pi * cov)[1]
    return -0.5 * (log_det + y @ np.linalg.solve(cov, y))


def precision(Phi, S, noise):
    """``A``, the precision of the exact posterior."""
    return Phi.T @ Phi / noise + matrix(S)


def weight_posterior(Phi, y, S, noise):
    """Exact mean and covariance of the weights."""
    A = precision(Phi, S, noise)
    return np.linalg.solve(A, Phi.T @ y / noise), np.linalg.inv(A)


def gradient_mu(Phi, y, mu, S, noise):
    """Of :func:`l_mu`."""
    return 2.0 * Phi.T @ (Phi @ mu - y) / noise + 2.0 * matrix(S) @ mu


def optimal_chevron(A, k):
    """The best C whose first k columns are dense and whose others are diagonal."""
    C = np.diag(np.diag(A) ** -0.5)  # proposition 1
    for r in range(k):
        column = np.linalg.inv(A[r:, r:])[:, 0]
        C[r:, r] = column / np.sqrt(column[0])
    return C


def optimal_block(A, h):
    """The best C of a dense leading block and a diagonal: ``C C^T = A_hh^-1`` there."""
    C = np.diag(np.diag(A) ** -0.5)
    C[:h, :h] = np.linalg.cholesky(np.linalg.inv(A[:h, :h]))
    return C


def elbo_collapsed_mean_field(Phi, y, s, noise):
    """At the best mean and the best diagonal C."""
    return elbo_collapsed_hybrid(Phi, y, s, noise, 0)


def elbo_collapsed_hybrid(Phi, y, s, noise, h):
    """At the best mean, the best dense block over the first h functions and the best diagonal."""
    n = len(y)
    cov = (Phi / s) @ Phi.T + noise * np.eye(n)
    white = Phi / np.sqrt(s)
    head = np.eye(h) + white[:, :h].T @ white[:, :h] / noise
    tail = np.log1p(np.sum(white[:, h:] ** 2, axis=0) / noise)
    fit = y @ np.linalg.solve(cov, y)
    log_det = np.linalg.slogdet(head)[1] + np.sum(tail)
    return -0.5 * (n * np.log(2.0 * np.pi * noise) + fit + log_det)


def elbo_mean_field_limit(K, y, noise):
    """Of the collapsed mean field with random features of K, as their number grows."""
    n = len(y)
    fit = y @ np.linalg.solve(K + noise * np.eye(n), y)
    return -0.5 * (n * np.log(2.0 * np.pi * noise) + fit + np.trace(K) / noise)


# Index sets


def weights(m, indices, h=0):
    """Of all m functions; their average over the sets of :func:`all_sets` is one."""
    w = np.zeros(m)
    w[:h] = 1.0
    for i in indices:
        assert i >= h, "a head function is never drawn"
        w[i] += (m - h) / len(indices)
    return w


def all_sets(m, size, h=0):
    """Every set of ``size`` tail functions, drawn without replacement."""
    return [np.array(c) for c in itertools.combinations(range(h, m), size)]


def all_pairs(m, size, h=0):
    """Every pair of sets that are drawn independently of each other."""
    return list(itertools.product(all_sets(m, size, h), repeat=2))


# Estimates at given index sets


def l_mu_estimate_diagonal(Phi, y, mu, s, noise, it, jt, h=0, n=None):
    """y shared between the sets, and the penalty a single sum."""
    Fi, Fj = Phi @ (weights(len(mu), it, h) * mu), Phi @ (weights(len(mu), jt, h) * mu)
    return quadratic(Fi, Fj, y, noise, n) + penalty(s, mu, it, jt, h)


def quadratic(Fi, Fj, y, noise, n=None):
    return ((n or len(y)) / len(y)) * (Fi @ Fj - y @ (Fi + Fj)) / noise


def penalty(s, mu, it, jt, h=0):
    wi, wj = weights(len(mu), it, h), weights(len(mu), jt, h)
    return 0.5 * np.sum(wi * s * mu**2) + 0.5 * np.sum(wj * s * mu**2)


def l_sigma_estimate_chevron(Phi, C, s, noise, it, jt, q, k, h=None, n=None):
    """
    Dense columns by two row sets, with single sums for the penalty; diagonal columns by a set q.

    ``h`` is k where None. Logarithms of the dense columns are exact.
    """
    h = k if h is None else h
    m, scale = len(C), (n or len(Phi)) / len(Phi)
    wi, wj = weights(m, it, h), weights(m, jt, h)
    total = 0.0
    for r in range(k):
        c = C[:, r]
        total += scale * (Phi @ (wi * c)) @ (Phi @ (wj * c)) / noise
        total += 0.5 * np.sum((wi + wj) * s * c**2) - 2.0 * np.log(c[r])
    for r in q:
        c = C[r, r]
        site = scale * np.sum(Phi[:, r] ** 2) / noise + s[r]
        total += (m - k) / len(q) * (site * c**2 - 2.0 * np.log(c))
    return total


def l_const_estimate(y, s, noise, it, h=0, n=None):
    """Proposition 2, with the batch's own squares."""
    n = n or len(y)
    logs = np.sum(weights(len(s), it, h) * np.log(s))
    return -logs - len(s) + n * np.log(2.0 * np.pi * noise) + n / len(y) * (y @ y) / noise


# Control variates


def eq3(Phi_p, mu, noise, it, jt, n, h=0):
    """Eq. (3), to be added to an estimate of ``l_mu``."""
    a = Phi_p @ mu
    Gi, Gj = Phi_p @ (weights(len(mu), it, h) * mu), Phi_p @ (weights(len(mu), jt, h) * mu)
    return n / (noise * len(Phi_p)) * (a @ a - Gj @ Gi)


def eq3_gradient(Phi_p, mu, noise, it, jt, n, h=0):
    """Only at the functions drawn: that of ``a^T a`` counts as often as they were drawn."""
    wi, wj = weights(len(mu), it, h), weights(len(mu), jt, h)
    a, Gi, Gj = Phi_p @ mu, Phi_p @ (wi * mu), Phi_p @ (wj * mu)
    mean = (wi + wj) * (Phi_p.T @ a)
    return n / (noise * len(Phi_p)) * (mean - wi * (Phi_p.T @ Gj) - wj * (Phi_p.T @ Gi))


def eq3_gradient_union(Phi_p, mu, noise, it, jt, n):
    """Appendix F.1 with its factors mended: the gradient on the union, times m / its size."""
    m = len(mu)
    wi, wj = weights(m, it), weights(m, jt)
    union = np.union1d(it, jt)
    a, Gi, Gj = Phi_p @ mu, Phi_p @ (wi * mu), Phi_p @ (wj * mu)
    mean = np.zeros(m)
    mean[union] = m / len(union) * 2.0 * (Phi_p.T @ a)[union]
    return n / (noise * len(Phi_p)) * (mean - wi * (Phi_p.T @ Gj) - wj * (Phi_p.T @ Gi))


def corrected_projection(F, G, a, W):
    """What the control rows say about the error of F: unbiased for every fixed W."""
    return F - W @ (G - a)


def anchored_pair(Phi, Phi_p, a, W, mu, it, jt, h=0):
    """Both corrected projections of a batch."""
    pair = []
    for indices in (it, jt):
        v = weights(len(mu), indices, h) * mu
        pair.append(corrected_projection(Phi @ v, Phi_p @ v, a, W))
    return pair


def l_mu_estimate_anchored(Phi, Phi_p, a, W, y, mu, s, noise, it, jt, h=0, n=None):
    Fi, Fj = anchored_pair(Phi, Phi_p, a, W, mu, it, jt, h)
    return quadratic(Fi, Fj, y, noise, n) + penalty(s, mu, it, jt, h)


def l_mu_estimate_anchored_gradient(Phi, Phi_p, a, W, y, mu, s, noise, it, jt, h=0, n=None):
    """Of ``c [F_i^T (F_j^c - y) + F_j^T (F_i^c - y)]`` with the corrected ones held."""
    Fi, Fj = anchored_pair(Phi, Phi_p, a, W, mu, it, jt, h)
    wi, wj = weights(len(mu), it, h), weights(len(mu), jt, h)
    c = (n or len(y)) / len(y) / noise
    data = c * (wi * (Phi.T @ (Fj - y)) + wj * (Phi.T @ (Fi - y)))
    return data + (wi + wj) * s * mu


# Prediction and the relevance vector machine


def predict(Phi_new, mu, C):
    """Mean and covariance of f."""
    return Phi_new @ mu, Phi_new @ C @ C.T @ Phi_new.T


def augmented_variance(k_sz, Sigma, k_ss, k_sx, noise):
    """Proposition 4, variance of f at one input; ``k_sx`` is at the training inputs."""
    return k_sz @ Sigma @ k_sz + noise * k_ss**2 / (k_sx @ k_sx + noise * k_ss)


def augmented_variance_brute_force(kernel, x, X, Z, C, noise):
    """The model with one function more, at x, and the best diagonal entry for it."""
    Phi = np.hstack([kernel(X, Z), kernel(X, x)])
    ZX = np.vstack([Z, x])
    A = precision(Phi, kernel(ZX, ZX), noise)
    m = len(Z)
    grown = np.zeros((m + 1, m + 1))
    grown[:m, :m] = C
    grown[m, m] = A[m, m] ** -0.5
    row = kernel(x, ZX)[0]
    return row @ grown @ grown.T @ row


def rvm_precisions(mu, C):
    """The maximizer of the elbo over a diagonal S, given q."""
    return 1.0 / (mu**2 + np.sum(C**2, axis=1))
