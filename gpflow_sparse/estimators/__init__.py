"""Estimators with scikit-learn's interface, and tables as people have them."""

from gpflow_sparse import _names
from gpflow_sparse.data.columns import Column, TableEncoder
from gpflow_sparse.estimators.estimators import SparseGPClassifier, SparseGPRegressor

__all__ = ["Column", "SparseGPClassifier", "SparseGPRegressor", "TableEncoder"]

_names.restrict_dir(__name__, __all__)
