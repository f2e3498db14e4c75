"""Functions that train a method on arrays; they need the extra ``tables``."""

from gpflow_sparse.tables.recipes import *  # noqa: F403
