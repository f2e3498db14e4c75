"""Diagnostics of a trained model as plain numbers, and advice in a few sentences.

The folder is not called diagnostics: a module of that name would hide the function.
"""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.diagnosis.advice import advice
from gpflow_sparse.diagnosis.summary import diagnostics

__all__ = ["advice", "diagnostics"]

restrict_dir(__name__, __all__)
