"""Finite bases ``phi(x)``, with which a Gaussian process is a weighted sum of m functions."""

from gpflow_sparse.bases.fourier import RandomFourier

__all__ = ["RandomFourier"]
