"""Variational inference at all training rows by Gaussian sites, for any log-concave likelihood.

Start with ``model.py``; ``fitting.py`` has the bound as a function of the hyperparameters alone.
"""

from gpflow_sparse.models.site_vgp.model import SiteVGP
from gpflow_sparse.models.site_vgp.posterior import SiteVGPPosterior

__all__ = ["SiteVGP", "SiteVGPPosterior"]
