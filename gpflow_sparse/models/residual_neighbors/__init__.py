"""SOLVE-GP whose orthogonal set has neighbors.

All rows share a base set; its residual has very many points, of which each row uses the nearest.

Start with ``posterior.py``, the equations; ``model.py`` has the objective and the updates. Made of
SOLVE-GP and SWSGP.
"""

from gpflow_sparse.models.residual_neighbors.model import ResidualNeighborGP
from gpflow_sparse.models.residual_neighbors.posterior import ResidualNeighborPosterior

__all__ = ["ResidualNeighborGP", "ResidualNeighborPosterior"]
