"""GPnn: an exact GP on the nearest training rows of each predicted row.

``model.py`` is for regression, ``local_variance.py`` its variances that depend on the input,
``classifier.py`` for classes.
"""

from gpflow_sparse.models.nearest_neighbor.classifier import NearestNeighborClassifier
from gpflow_sparse.models.nearest_neighbor.local_variance import LocalVariance
from gpflow_sparse.models.nearest_neighbor.model import NearestNeighborGP

__all__ = ["LocalVariance", "NearestNeighborClassifier", "NearestNeighborGP"]
