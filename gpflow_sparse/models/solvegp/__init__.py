"""SOLVE-GP: q(f) with a base set of inducing points and orthogonal sets for the residual.

Start with ``model.py``, the ELBO of :class:`SOLVEGP`; ``posterior.py`` has the equations of the
paper, ``regression.py`` the collapsed bounds of :class:`SOLVEGPR` (``residual_blocks.py`` the bound
of blocks of rows), ``odvgp.py`` the special case whose orthogonal set has its prior covariance.
"""

from gpflow_sparse.models.solvegp.model import SOLVEGP, OrthogonalModel, prior_factors
from gpflow_sparse.models.solvegp.odvgp import ODVGP
from gpflow_sparse.models.solvegp.odvgp_posterior import DecoupledPosterior
from gpflow_sparse.models.solvegp.posterior import OrthogonalPosterior
from gpflow_sparse.models.solvegp.regression import SOLVEGPR

__all__ = [
    "ODVGP",
    "SOLVEGP",
    "SOLVEGPR",
    "DecoupledPosterior",
    "OrthogonalModel",
    "OrthogonalPosterior",
    "prior_factors",
]
