"""Posterior processes: the shared contract and its parts. Each method has its own in its folder.

GPflow finds them through ``inducing_variables/posterior_classes.py``.
"""

from typing import Any

from gpflow_sparse import _names
from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.posteriors.basis import BasisPosterior
from gpflow_sparse.posteriors.multioutput import MultioutputPosterior
from gpflow_sparse.posteriors.pathwise import FunctionDraws

# Found in the folders of the methods on first use: imports go downward.
_OF_METHODS = {
    "ChevronPosterior": "gpflow_sparse.models.qsgp",
    "DecoupledPosterior": "gpflow_sparse.models.solvegp",
    "DeepPosterior": "gpflow_sparse.models.deep",
    "LayerPosterior": "gpflow_sparse.models.deep",
    "MixturePosterior": "gpflow_sparse.models.mixture",
    "NeighborPosterior": "gpflow_sparse.models.swsgp",
    "OrthogonalPosterior": "gpflow_sparse.models.solvegp",
    "SitePosterior": "gpflow_sparse.models.swsgp",
}

__all__ = [
    "BasisPosterior",
    "ChevronPosterior",
    "DecoupledPosterior",
    "DeepPosterior",
    "FunctionDraws",
    "LayerPosterior",
    "MixturePosterior",
    "MultioutputPosterior",
    "NeighborPosterior",
    "OrthogonalPosterior",
    "SitePosterior",
    "SparsePosterior",
]


def __getattr__(name: str) -> Any:
    return _names.attribute(__name__, _OF_METHODS, name)


def __dir__() -> list[str]:
    return sorted(__all__)
