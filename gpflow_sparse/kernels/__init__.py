"""Kernels beyond those of GPflow, for any GPflow model."""

from gpflow_sparse._names import offer
from gpflow_sparse.kernels.basis import GRIEF, Basis, Corrected, Filled, SoftKI
from gpflow_sparse.kernels.convolutional import TICK, Convolutional
from gpflow_sparse.kernels.product import product_of

__all__ = [
    "GRIEF",
    "TICK",
    "Basis",
    "Convolutional",
    "Corrected",
    "Filled",
    "SoftKI",
    "product_of",
]

offer(__name__, __all__)
