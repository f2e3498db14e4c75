"""Gaussian processes that outgrow SVGP, behind GPflow's interface.

Names are loaded on first use (PEP 562): importing the package, and asking the command line for its
help, does not import TensorFlow.
"""

from typing import Any

from gpflow_sparse import _names
from gpflow_sparse._version import __version__

_LAZY = {
    "Standardizer": "gpflow_sparse.data.standardize",
    "bases": "gpflow_sparse.bases",
    "calibrate": "gpflow_sparse.training.calibration",
    "data": "gpflow_sparse.data",
    "diagnosis": "gpflow_sparse.diagnosis",
    "diagnostics": "gpflow_sparse.diagnosis",
    "estimators": "gpflow_sparse.tables.estimators",
    "export": "gpflow_sparse.persistence",
    "inducing_variables": "gpflow_sparse.inducing_variables",
    "initialization": "gpflow_sparse.initialization",
    "kernels": "gpflow_sparse.kernels",
    "likelihoods": "gpflow_sparse.likelihoods",
    "load": "gpflow_sparse.save_load",
    "mean_functions": "gpflow_sparse.mean_functions",
    "models": "gpflow_sparse.models",
    "persistence": "gpflow_sparse.persistence",
    "posteriors": "gpflow_sparse.posteriors",
    "recipes": "gpflow_sparse.tables.recipes",
    "save": "gpflow_sparse.save_load",
    "training": "gpflow_sparse.training",
    "uncalibrate": "gpflow_sparse.training.calibration",
}

__all__ = ["Standardizer", "__version__", *list(_LAZY)[1:]]


def __getattr__(name: str) -> Any:
    return _names.attribute(__name__, _LAZY, name)


def __dir__() -> list[str]:
    return sorted(__all__)
