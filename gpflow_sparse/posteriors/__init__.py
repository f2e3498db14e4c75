"""What we believe about ``f``. Each posterior is registered with GPflow at the foot of its file."""

from gpflow_sparse.posteriors.base import SparsePosterior, cache_type
from gpflow_sparse.posteriors.orthogonal import OrthogonalPosterior

__all__ = ["OrthogonalPosterior", "SparsePosterior", "cache_type"]
