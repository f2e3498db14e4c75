"""Rows that a run holds out of its training, on which its model is calibrated."""

from collections.abc import Callable
from typing import Any

import click
import gpflow
import numpy as np

from gpflow_sparse.data import Dataset
from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.methods import IMAGE_METHODS
from gpflow_sparse.runs.rows import Pair
from gpflow_sparse.training import calibration

LEAST_ROWS = 8000
"""With fewer training rows none are held out: a twentieth would often make predictions worse."""
_FRACTION, _MOST_ROWS = 0.05, 1000


def shuffled(num_rows: int, seed: int) -> np.ndarray:
    """
    Training rows in the order in which they are held out. The choice of a method holds out the
    first of them, the calibration the first of these, which no candidate has seen either.
    """
    return np.random.default_rng(seed).permutation(num_rows)


def split_rows(config: RunConfig, dataset: Dataset) -> tuple[Pair, Pair | None]:
    """
    The rows to train on, and those to calibrate on.

    :return: of a folder, the sample of its training rows, and the rows held out when it was opened;
        all training rows and None for fewer than :data:`LEAST_ROWS`, for classes and images,
        for type-I inference, and without ``config.calibrate``.
    """
    X, Y = dataset.train
    plain = dataset.num_classes is None and config.method not in IMAGE_METHODS
    wanted = config.calibrate and config.inference == "type2"
    if dataset.num_train < LEAST_ROWS or not (plain and wanted):
        return dataset.train, None
    if dataset.shards is not None:
        return dataset.train, dataset.held_out
    order, count = shuffled(len(X), config.seed), min(int(_FRACTION * len(X)), _MOST_ROWS)
    held_out, rest = order[:count], np.sort(order[count:])
    return (X[rest], Y[rest]), (X[held_out], Y[held_out])


def calibrate(
    model: gpflow.models.GPModel,
    rows: Pair | None,
    config: RunConfig,
    report: Callable[[str], Any] = lambda line: click.echo(line, err=True),
) -> None:
    """Calibrate a trained model on held-out rows, if there are any, and report it in a line."""
    if rows is None:
        return
    try:
        calibration.calibrate(model, rows, conformal=config.conformal)
    except ValueError as error:  # the model predicts without it
        report(f"not calibrated: {error}")
    else:
        report(described(model))


def described(model: gpflow.models.GPModel) -> str:
    """The calibration of a model in a sentence; empty without one."""
    found = getattr(model, "calibration", None)
    if found is None:
        return ""
    intervals = "" if found.scores is None else ", and intervals are conformal"
    noise = ""
    if isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
        noise = f", that of the noise by {found.noise:.3g}"
    return (
        f"Calibrated on {found.num_rows} held-out rows: the variance of the function is multiplied "
        f"by {found.function:.3g}{noise}{intervals}."
    )


def summary(model: gpflow.models.GPModel) -> dict[str, Any]:
    """The entry ``calibration`` of the record of a run, with the factors; empty without them."""
    found = getattr(model, "calibration", None)
    if found is None:
        return {}
    factors = {"function": found.function, "noise": found.noise, "num_rows": found.num_rows}
    return {"calibration": factors}
