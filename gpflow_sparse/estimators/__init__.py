"""Estimators with scikit-learn's interface, and tables as people have them."""

from gpflow_sparse.estimators.base import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.estimators.columns import Column, TableEncoder

__all__ = ["Column", "SparseGPClassifier", "SparseGPRegressor", "TableEncoder"]
