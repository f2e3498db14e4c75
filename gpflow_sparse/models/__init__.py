"""Models, one file per method; their base classes, with the ELBO, are in ``base.py``."""

from gpflow_sparse._names import offer
from gpflow_sparse.inference.laplace_sites import laplace_sites
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.basis import BasisGPR, BasisSVGP
from gpflow_sparse.models.deep import deep
from gpflow_sparse.models.deep_convolutional import ConvSpec, deep_convolutional
from gpflow_sparse.models.deep_gp import DeepGP
from gpflow_sparse.models.dual import DualGPR, DualOptions
from gpflow_sparse.models.grief import GRIEF
from gpflow_sparse.models.layers import ConvLayer, GPLayer
from gpflow_sparse.models.nearest_neighbor import NearestNeighborGP
from gpflow_sparse.models.odvgp import ODVGP
from gpflow_sparse.models.qsgp import QSGP
from gpflow_sparse.models.residual_neighbors import ResidualNeighborGP
from gpflow_sparse.models.rvm import RVM
from gpflow_sparse.models.softki import SoftKI
from gpflow_sparse.models.solvegp import SOLVEGP
from gpflow_sparse.models.solvegpr import SOLVEGPR
from gpflow_sparse.models.swsgp import SWSGP

__all__ = [
    "GRIEF",
    "ODVGP",
    "QSGP",
    "RVM",
    "SOLVEGP",
    "SOLVEGPR",
    "SWSGP",
    "BasisGPR",
    "BasisSVGP",
    "ConvLayer",
    "ConvSpec",
    "DeepGP",
    "DualGPR",
    "DualOptions",
    "GPLayer",
    "NearestNeighborGP",
    "ResidualNeighborGP",
    "SoftKI",
    "VariationalModel",
    "deep",
    "deep_convolutional",
    "laplace_sites",
]

offer(__name__, __all__)
