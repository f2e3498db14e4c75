"""Posterior processes. Each is registered with GPflow at the end of its file."""

from gpflow_sparse._names import offer
from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.posteriors.basis import BasisPosterior
from gpflow_sparse.posteriors.cells import CellPosterior
from gpflow_sparse.posteriors.chevron import ChevronPosterior
from gpflow_sparse.posteriors.decoupled import DecoupledPosterior
from gpflow_sparse.posteriors.deep import DeepPosterior
from gpflow_sparse.posteriors.dual import DualPosterior
from gpflow_sparse.posteriors.layer import LayerPosterior
from gpflow_sparse.posteriors.multioutput import MultioutputPosterior
from gpflow_sparse.posteriors.multioutput import latent_kernels as latent_kernels
from gpflow_sparse.posteriors.multioutput import mixed as mixed
from gpflow_sparse.posteriors.multioutput import require_latent_kernels as require_latent_kernels
from gpflow_sparse.posteriors.neighbor import NeighborPosterior
from gpflow_sparse.posteriors.orthogonal import OrthogonalPosterior
from gpflow_sparse.posteriors.pathwise import FunctionDraws
from gpflow_sparse.posteriors.residual_neighbors import ResidualNeighborPosterior
from gpflow_sparse.posteriors.sites import SitePosterior

# registers what it has for GPflow's wrapper; nothing in it is called by name
import gpflow_sparse.posteriors.shared  # isort: skip  # noqa: F401

__all__ = [
    "BasisPosterior",
    "CellPosterior",
    "ChevronPosterior",
    "DecoupledPosterior",
    "DeepPosterior",
    "DualPosterior",
    "FunctionDraws",
    "LayerPosterior",
    "MultioutputPosterior",
    "NeighborPosterior",
    "OrthogonalPosterior",
    "ResidualNeighborPosterior",
    "SitePosterior",
    "SparsePosterior",
]

offer(__name__, __all__)
