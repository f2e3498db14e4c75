"""Gaussian processes that outgrow SVGP, behind GPflow's interface.

Names are loaded on first use (PEP 562): importing the package, and asking the command line for its
help, does not import TensorFlow.
"""

import importlib
from typing import Any

from gpflow_sparse._version import __version__

_MODULES = (
    "bases",
    "data",
    "inducing_variables",
    "initialization",
    "kernels",
    "likelihoods",
    "mean_functions",
    "models",
    "persistence",
    "posteriors",
    "training",
)
_NAMES = {
    "Standardizer": "gpflow_sparse.data.standardize",
    "diagnostics": "gpflow_sparse.diagnosis",
    "export": "gpflow_sparse.persistence",
    "load": "gpflow_sparse.persistence",
    "save": "gpflow_sparse.persistence",
}

__all__ = ["__version__", *_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gpflow_sparse.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'gpflow_sparse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
