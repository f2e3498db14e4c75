"""Exact regression with a weight for every row, found by dual blocks.

Start with ``model.py``; ``solver.py`` has the block Gauss-Seidel iteration, ``steps.py`` and
``gradients.py`` the training of hyperparameters.
"""

from gpflow_sparse.models.dual.model import DualGPR, DualWeights
from gpflow_sparse.models.dual.posterior import DualPosterior
from gpflow_sparse.models.dual.solver import (
    ConvergenceError,
    DualOptions,
    DualState,
)
from gpflow_sparse.models.dual.steps import HyperparameterStep

__all__ = [
    "ConvergenceError",
    "DualGPR",
    "DualOptions",
    "DualPosterior",
    "DualState",
    "DualWeights",
    "HyperparameterStep",
]
