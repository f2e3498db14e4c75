"""Models: one folder per method, and the code that several methods share.

Base classes with the ELBO are in ``base.py``, regression with Gaussian noise in ``regression.py``,
models of a finite basis in ``basis.py``.
"""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.basis import BasisGPR, BasisSVGP
from gpflow_sparse.models.deep import (
    ConvLayer,
    ConvSpec,
    DeepGP,
    GPLayer,
    deep,
    deep_convolutional,
)
from gpflow_sparse.models.grief import GRIEF
from gpflow_sparse.models.mixture import GPMixture
from gpflow_sparse.models.nearest_neighbor import NearestNeighborClassifier, NearestNeighborGP
from gpflow_sparse.models.qsgp import QSGP, RVM
from gpflow_sparse.models.site_vgp import SiteVGP
from gpflow_sparse.models.softki import SoftKI
from gpflow_sparse.models.solvegp import ODVGP, SOLVEGP, SOLVEGPR
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
    "GPLayer",
    "GPMixture",
    "NearestNeighborClassifier",
    "NearestNeighborGP",
    "SiteVGP",
    "SoftKI",
    "VariationalModel",
    "deep",
    "deep_convolutional",
]

restrict_dir(__name__, __all__)
