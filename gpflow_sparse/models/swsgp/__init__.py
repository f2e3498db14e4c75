"""SWSGP: each row uses its nearest of very many inducing points.

Start with ``model.py``, the objective, whose moments and KL terms come from
``inference/neighborhoods.py``, with their gradient in ``inference/local_gradients.py``;
``union.py`` has the objective of SWSGP-U, ``counts.py`` the weights of the KL terms,
``models/partial_updates.py`` the training step. ``posterior.py`` predicts, ``closed_form.py`` has
the best q for Gaussian noise and q near the posterior before training, from the sites of
``site_posterior.py``.
"""

from gpflow_sparse.models.swsgp.model import SWSGP
from gpflow_sparse.models.swsgp.posterior import NeighborPosterior
from gpflow_sparse.models.swsgp.site_posterior import SitePosterior
from gpflow_sparse.models.swsgp.starting import closest_scales

__all__ = ["SWSGP", "NeighborPosterior", "SitePosterior", "closest_scales"]
