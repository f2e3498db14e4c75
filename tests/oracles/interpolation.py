"""Kernel interpolation in naive NumPy: the full grid, its Kronecker covariance, Khatri-Rao rows."""

import functools

import numpy as np


def linear_weights(nodes, column):
    """``E [N, m]``: row by row, the hat functions of the nodes at x."""
    E = np.zeros((len(column), len(nodes)))
    for n, x in enumerate(column):
        for j in range(len(nodes)):
            hat = np.zeros(len(nodes))
            hat[j] = 1.0
            E[n, j] = np.interp(x, nodes, hat)
    return E


def khatri_rao_rows(matrices):
    """``[N, prod m_i]``: every row the Kronecker product of that row of the ``[N, m_i]``."""
    rows = zip(*matrices, strict=True)
    return np.array([functools.reduce(np.kron, row) for row in rows])


def interpolated_covariance(factors, variance, grid, X, X2):
    """
    :param factors: ``k_i(s, t)`` of two columns, 1 at zero distance.
    :return: ``E K_UU E2^T``.
    """
    E, E2 = (
        khatri_rao_rows([linear_weights(u, x) for u, x in zip(grid, part.T, strict=True)])
        for part in (X, X2)
    )
    Kuu = functools.reduce(np.kron, [k(u, u) for k, u in zip(factors, grid, strict=True)])
    return variance * E @ Kuu @ E2.T
