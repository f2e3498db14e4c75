"""Deep GPs of any layers, and convolutional models of images.

Start with ``model.py``, the ELBO, and ``layers.py``, its layers; ``posterior.py`` and
``layer_posterior.py`` pass draws through them; ``tables.py`` and ``convolutional.py`` build models
of tables and of images.
"""

from gpflow_sparse.models.deep.convolutional import ConvSpec, deep_convolutional
from gpflow_sparse.models.deep.layer_posterior import LayerMoments, LayerPosterior
from gpflow_sparse.models.deep.layers import ConvLayer, GPLayer
from gpflow_sparse.models.deep.model import DeepGP
from gpflow_sparse.models.deep.posterior import DeepPosterior
from gpflow_sparse.models.deep.tables import deep

__all__ = [
    "ConvLayer",
    "ConvSpec",
    "DeepGP",
    "DeepPosterior",
    "GPLayer",
    "LayerMoments",
    "LayerPosterior",
    "deep",
    "deep_convolutional",
]
