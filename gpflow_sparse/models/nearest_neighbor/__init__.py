"""GPnn: an exact GP on the nearest training rows of each predicted row; all is in ``model.py``."""

from gpflow_sparse.models.nearest_neighbor.model import NearestNeighborGP

__all__ = ["NearestNeighborGP"]
