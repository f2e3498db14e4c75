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
    "models",
    "posteriors",
    "training",
)
_NAMES = {"Standardizer": "gpflow_sparse.data.standardize"}

__all__ = ["Standardizer", "__version__", "data", "inducing_variables"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gpflow_sparse.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'gpflow_sparse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__])
