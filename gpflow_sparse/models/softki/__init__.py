"""SoftKI: softmax interpolation between learned points.

Start with ``model.py``, objectives and posterior; ``batch_evidence.py`` has a batch's evidence.
"""

from gpflow_sparse.models.softki.model import SoftKI

__all__ = ["SoftKI"]
