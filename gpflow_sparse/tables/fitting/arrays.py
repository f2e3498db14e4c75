"""Training of a method on arrays, see :mod:`gpflow_sparse.recipes`."""

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from gpflow.models import GPModel

from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting.choice import fit_task
from gpflow_sparse.tables.fitting.observations import is_standardized
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.methods.registry import recipe_of
from gpflow_sparse.tables.methods.rows import Pair
from gpflow_sparse.validation import checks


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
