"""Estimators with scikit-learn's interface, and tables as people have them."""

from gpflow_sparse.estimators.columns import Column, TableEncoder
from gpflow_sparse.estimators.estimators import SparseGPClassifier, SparseGPRegressor

__all__ = ["Column", "SparseGPClassifier", "SparseGPRegressor", "TableEncoder"]
