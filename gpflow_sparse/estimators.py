"""Estimators with scikit-learn's interface; they need the extra ``tables``."""

from gpflow_sparse.tables.estimators import *  # noqa: F403
