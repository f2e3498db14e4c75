"""How we maximize: one loop, its steps, its callbacks."""

from gpflow_sparse.step_lock import between_steps
from gpflow_sparse.training.callbacks import EarlyStopping, FitState
from gpflow_sparse.training.fit import History, fit
from gpflow_sparse.training.guard import TrainingError
from gpflow_sparse.training.interrupt import TrainingInterrupted
from gpflow_sparse.training.optimizers import adam, natural_step
from gpflow_sparse.training.rounds import fit_in_rounds
from gpflow_sparse.training.sparse import SparseAdagrad, SparseAdam, SparseSGD

__all__ = [
    "EarlyStopping",
    "FitState",
    "History",
    "SparseAdagrad",
    "SparseAdam",
    "SparseSGD",
    "TrainingError",
    "TrainingInterrupted",
    "adam",
    "between_steps",
    "fit",
    "fit_in_rounds",
    "natural_step",
]
