"""Estimators with scikit-learn's interface, and tables as people have them."""

from gpflow_sparse import _names
from gpflow_sparse.tables.estimators.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.reading.columns import Column
from gpflow_sparse.tables.reading.encoder import TableEncoder, TableWarning

__all__ = ["Column", "SparseGPClassifier", "SparseGPRegressor", "TableEncoder", "TableWarning"]

_names.restrict_dir(__name__, __all__)
