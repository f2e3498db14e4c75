"""The one path from rows to a trained model: a method is chosen, trained and calibrated."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from gpflow.models import GPModel

from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting.attempts import Choice
from gpflow_sparse.tables.fitting.choice import choose
from gpflow_sparse.tables.fitting.observations import is_standardized
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.training import train
from gpflow_sparse.tables.methods.registry import AUTO, recipe_of
from gpflow_sparse.tables.methods.rows import Pair
from gpflow_sparse.validation import checks


def fit_task(
    task: Task,
    method: str,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
    start: GPModel | None = None,
    checkpoint_dir: Any = None,
) -> tuple[Choice, GPModel]:
    """
    Choose a method unless one is given, and train its model on all rows.

    :param seconds: time for both; None for numbers of steps.
    :param start: a trained model of the method, the start where the choice has none.
    :param checkpoint_dir: folder of checkpoints of a method that is given, without a time; training
        goes on from the newest in it.
    :return: the choice, which says whether Ctrl-C has ended the training, and the model.
    :raises ValueError: for checkpoints of a choice or of a time, which do not repeat.
    """
    if checkpoint_dir is not None and (method == AUTO or seconds is not None):
        raise ValueError(
            "checkpoint_dir must be None for method='auto' and within a time, whose steps differ "
            "each time; give a method, and its number of steps."
        )
    begin = time.perf_counter()
    choice = choose(task, method, seconds=seconds, report=report)
    if choice.start is None:
        choice = choice._replace(start=start)
    left = None if seconds is None else seconds - (time.perf_counter() - begin)
    return train(task, choice, seconds=left, report=report, checkpoint_dir=checkpoint_dir)


def train_arrays(
    method: str,
    rows: Pair,
    *,
    num_classes: int | None = None,
    kernel: gpflow.kernels.Kernel | str | None = None,
    likelihood: Any = None,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
    **options: Any,
) -> GPModel:
    """
    A trained model of arrays, see :mod:`gpflow_sparse.recipes`.

    :param method: "auto", or a method of ``gpflow-sparse methods``.
    :param rows: inputs [N, D] and outputs [N, P], or labels [N, 1].
    :param num_classes: None for regression.
    :raises ValueError: for rows or options that the method does not take.
    """
    if isinstance(kernel, str):
        options, kernel = {**options, "kernel": kernel}, None
    recipe_of(method, **options)  # refuses options and values that the method lacks
    X, Y = (np.asarray(part, dtype=np.float64) for part in checks.require_data(rows))
    if num_classes is None and is_standardized(likelihood):
        _warn_of_units(Y)
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    dataset = Dataset("the data", (X, Y), (X[:0], Y[:0]), names, "y", num_classes)
    return fit_task(Task(dataset, kernel, likelihood, options), method, seconds, report)[1]


def _warn_of_units(Y: np.ndarray) -> None:
    """Warn of outputs for which starting values and defaults are wrong."""
    mean, deviation = float(np.abs(Y.mean(axis=0)).max()), Y.std(axis=0)
    if mean > 1.0 or deviation.max() > 10.0 or deviation.min() < 0.1:
        warnings.warn(
            "Y is not standardized, for which starting values and defaults are made: its mean is "
            f"{mean:.3g} and its standard deviation {deviation.max():.3g}; see "
            "gpflow_sparse.Standardizer.",
            stacklevel=4,
        )
