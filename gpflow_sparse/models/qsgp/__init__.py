"""QSGP: ELBOs sub-sampled over rows and basis functions, and the relevance vector machine.

Start with ``model.py``, the model and its options; ``step.py`` has the estimates of a step,
``posterior.py`` predictions, ``closed_form.py`` the best q for Gaussian noise, ``rvm.py`` the RVM.
"""

from gpflow_sparse.models.qsgp.model import QSGP
from gpflow_sparse.models.qsgp.posterior import ChevronPosterior
from gpflow_sparse.models.qsgp.rvm import RVM
from gpflow_sparse.models.qsgp.step import ControlRows

__all__ = ["QSGP", "RVM", "ChevronPosterior", "ControlRows"]
