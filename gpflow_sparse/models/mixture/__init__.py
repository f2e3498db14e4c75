"""
Exact Gaussian processes integrated over hyperparameters and kernels, for small tables.

Start at ``model.py``: :class:`GPMixture` holds the data and a list of components. A component
(``component.py``) finds the mode of its hyperparameters, draws around it and weighs the draws;
``posterior.py`` averages the predictions of all draws of all components; ``transform.py`` has the
transform of the outputs that a component may have.
"""

from gpflow_sparse.models.mixture.component import Component
from gpflow_sparse.models.mixture.model import ComponentSummary, GPMixture
from gpflow_sparse.models.mixture.posterior import MixturePosterior
from gpflow_sparse.models.mixture.transform import YeoJohnson

__all__ = ["Component", "ComponentSummary", "GPMixture", "MixturePosterior", "YeoJohnson"]
