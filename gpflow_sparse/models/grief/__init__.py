"""GP-GRIEF: regression with the leading eigenfunctions of a product kernel on a grid.

Start with ``model.py``, the type II objective; ``type_one.py`` has the fully Bayesian posterior of
the weights, which ``quadrature.py`` and ``sampling.py`` integrate, ``posterior.py`` predictions.
"""

from gpflow_sparse.models.grief.model import GRIEF

__all__ = ["GRIEF"]
