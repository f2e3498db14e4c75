"""Training: the loop of `fit`, its steps, optimizers and callbacks."""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.training.callbacks import EarlyStopping, FitState, KeepBest, LayerSignals
from gpflow_sparse.training.fit import History, fit
from gpflow_sparse.training.guard import TrainingError
from gpflow_sparse.training.loop import TrainingInterrupted
from gpflow_sparse.training.optimizers import NaturalGradients, adam, natural_step
from gpflow_sparse.training.rounds import fit_with_basis_refresh, rows_of_workers
from gpflow_sparse.training.sparse import SparseAdagrad, SparseAdam, SparseSGD
from gpflow_sparse.validation.public_methods import between_steps

__all__ = [
    "EarlyStopping",
    "FitState",
    "History",
    "KeepBest",
    "LayerSignals",
    "NaturalGradients",
    "SparseAdagrad",
    "SparseAdam",
    "SparseSGD",
    "TrainingError",
    "TrainingInterrupted",
    "adam",
    "between_steps",
    "fit",
    "fit_with_basis_refresh",
    "natural_step",
    "rows_of_workers",
]

restrict_dir(__name__, __all__)
