"""Finite bases ``phi(x)``, with which a Gaussian process is a weighted sum of m functions."""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.bases.fourier import RandomFourier
from gpflow_sparse.bases.grid_eigenfunctions import GridEigenfunctions, ReweightedBasis
from gpflow_sparse.bases.hybrid import Hybrid
from gpflow_sparse.bases.kernel_dictionary import KernelDictionary
from gpflow_sparse.bases.product import (
    interpolated_covariance,
    is_product_kernel,
    percentile_grid,
)
from gpflow_sparse.bases.soft_interpolation import SoftInterpolation

__all__ = [
    "FiniteBasis",
    "GridEigenfunctions",
    "Hybrid",
    "KernelDictionary",
    "RandomFourier",
    "ReweightedBasis",
    "SoftInterpolation",
    "interpolated_covariance",
    "is_product_kernel",
    "percentile_grid",
]

restrict_dir(__name__, __all__)
