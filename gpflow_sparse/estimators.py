"""Estimators with scikit-learn's interface; they need the extra ``tables``."""

from gpflow_sparse import _names
from gpflow_sparse.tables.estimators import (
    Column,
    SparseGPClassifier,
    SparseGPRegressor,
    TableEncoder,
    TableWarning,
)

__all__ = ["Column", "SparseGPClassifier", "SparseGPRegressor", "TableEncoder", "TableWarning"]

_names.restrict_dir(__name__, __all__)
