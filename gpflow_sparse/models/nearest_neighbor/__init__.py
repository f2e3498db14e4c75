"""GPnn: an exact GP on the nearest training rows of each predicted row.

``model.py`` is for regression, ``classifier.py`` for classes.
"""

from gpflow_sparse.models.nearest_neighbor.classifier import NearestNeighborClassifier
from gpflow_sparse.models.nearest_neighbor.model import NearestNeighborGP

__all__ = ["NearestNeighborClassifier", "NearestNeighborGP"]
