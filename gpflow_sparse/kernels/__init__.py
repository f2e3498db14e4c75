"""Kernels that GPflow does not have, for any GPflow model."""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.kernels.basis import GRIEF, Basis, Corrected, SoftKI, WithMissingVariance
from gpflow_sparse.kernels.convolutional import TICK, Convolutional
from gpflow_sparse.kernels.linear_map import LinearMap
from gpflow_sparse.kernels.main_effects import MainEffects
from gpflow_sparse.kernels.product import product_of
from gpflow_sparse.kernels.tables import table_kernel

__all__ = [
    "GRIEF",
    "TICK",
    "Basis",
    "Convolutional",
    "Corrected",
    "LinearMap",
    "MainEffects",
    "SoftKI",
    "WithMissingVariance",
    "product_of",
    "table_kernel",
]

restrict_dir(__name__, __all__)
