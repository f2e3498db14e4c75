"""The optimum of the streaming bound for Gaussian noise, by dense algebra; and its KL."""

import numpy as np


def streaming_optimum(A, errors, noise, old_mean, old_covariances, old_precision=None):
    """
    The best q(u), with independent sets, for new rows ``f = A^T u + rest``.

    Bui, Nguyen and Turner (2017, arXiv:1705.07131), eq. (5), with the inducing inputs and
    hyperparameters of the old posterior: minus the derivatives of ``sum_i E_q[log N(y_i | f_i,
    noise)] - KL[q || q_old]`` are zero where

        S_b^-1 = S_old,b^-1 + A_b A_b^T / noise,
        (S_old^-1 + A A^T / noise) m = S_old^-1 m_old + A e / noise.

    :param A: ``[M, n]``.
    :param errors: ``[n]``.
    :param old_mean: ``[M]``.
    :param old_covariances: one ``[M_b, M_b]`` per set.
    :param old_precision: ``[M, M]`` of an old posterior that is not a q, with the inverses of these
        covariances for diagonal blocks; None for q_old.
    :return: mean ``[M]``, and covariances.
    """
    precision, covariances, start = np.zeros((len(A), len(A))), [], 0
    for S in old_covariances:
        own = slice(start, start + len(S))
        precision[own, own] = np.linalg.inv(S)
        covariances.append(np.linalg.inv(precision[own, own] + A[own] @ A[own].T / noise))
        start += len(S)
    precision = precision if old_precision is None else old_precision
    right = precision @ old_mean + A @ errors / noise
    return np.linalg.solve(precision + A @ A.T / noise, right), covariances


def kl_between(mean, covariance, old_mean, old_covariance):
    """``KL[N(mean, covariance) || N(old_mean, old_covariance)]``."""
    ratio = np.linalg.solve(old_covariance, covariance)
    change = mean - old_mean
    quadratic = change @ np.linalg.solve(old_covariance, change)
    return 0.5 * (np.trace(ratio) + quadratic - len(mean) - np.linalg.slogdet(ratio)[1])


def chain_precision(k, Z, predecessors, eps):
    """Precision of ``prod_j p(u_j | u_before(j))``, with jitter in every variance."""
    P = np.zeros((len(Z), len(Z)))
    for j, before in enumerate(predecessors):
        K, cross = k(Z[before]) + eps * np.eye(len(before)), k(Z[before], Z[j : j + 1])[:, 0]
        b = np.eye(len(Z))[j]
        b[before] = -np.linalg.solve(K, cross)
        P += np.outer(b, b) / (k(Z[j : j + 1])[0, 0] + eps + cross @ b[before])
    return P


def with_sites(P, scales):
    """
    The posterior precision with diagonal ``1 / s_j^2`` of a prior precision P and sites of points;
    where ``P_jj`` is larger the prior is scaled down.
    """
    D = np.minimum(1.0, np.diag(P) ** -0.5 / scales)
    found = D[:, None] * P * D
    np.fill_diagonal(found, scales**-2.0)
    return found
