"""Exact GP regression in dense NumPy, float64, one noise variance for each row."""

import numpy as np


def weights(K, noise, errors):
    """``(K + diag(noise))^-1 errors``, ``[N, P]``."""
    return np.linalg.solve(K + np.diag(noise), errors)


def posterior(K, k, prior, noise, errors):
    """
    Mean ``[n, P]`` and covariance ``[n, n]`` of f, which all outputs share.

    ``K [N, N]`` of the training rows, ``k [N, n]``, ``prior [n, n]`` of the new rows.
    """
    inverse = np.linalg.inv(K + np.diag(noise))
    return k.T @ inverse @ errors, prior - k.T @ inverse @ k
