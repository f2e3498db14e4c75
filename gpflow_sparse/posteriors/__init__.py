"""What we believe about ``f``. Each posterior is registered with GPflow at the foot of its file."""

from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.posteriors.orthogonal import OrthogonalPosterior

__all__ = ["OrthogonalPosterior", "SparsePosterior"]
