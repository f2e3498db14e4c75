"""Rows that a run holds out of its training, on which its model is calibrated."""

from collections.abc import Callable
from typing import Any

import click
import gpflow
import numpy as np

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset
from gpflow_sparse.inference.calibration import has_classes
from gpflow_sparse.tables.fitting.observations import is_standardized
from gpflow_sparse.tables.fitting.splits import hold_out
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.training.calibration import MIN_ROWS as LEAST_ROWS

MIN_ROWS = 8000
"""With fewer training rows none are held out: training without a twentieth was often worse."""
_FRACTION, _MAX_ROWS = 0.05, 1000
# Training rows of the shortest table with conformal intervals; a third of them are held out.
_CONFORMAL_ROWS = 3 * LEAST_ROWS


def will_calibrate(recipe: Recipe, dataset: Dataset) -> bool:
    """Whether a model of these training rows is calibrated."""
    if dataset.noise_variance is not None:  # factors are of noise that all rows have
        return False
    return recipe.can_calibrate and (dataset.num_train >= MIN_ROWS or recipe.conformal)


def split_for_calibration(recipe: Recipe, dataset: Dataset) -> tuple[Dataset, Dataset | None]:
    """
    The rows to train on, and the rows to calibrate on, as training rows of two data sets.

    :return: all training rows and None for fewer than :data:`MIN_ROWS`, unless intervals are to be
        conformal, and where the recipe does not calibrate.
    :raises ValueError: for conformal intervals of a table that cannot have them.
    """
    if recipe.conformal:
        _require_conformal(recipe, dataset)
    if not will_calibrate(recipe, dataset):
        return dataset, None
    held, rest = hold_out(dataset, num_held_out(dataset.num_train), recipe.seed)
    return dataset.take(np.sort(rest)), dataset.take(held)


def num_held_out(num_rows: int) -> int:
    """How many of the training rows are held out where a model calibrates."""
    return min(max(int(_FRACTION * num_rows), LEAST_ROWS), _MAX_ROWS)


def _require_conformal(recipe: Recipe, dataset: Dataset) -> None:
    """:raises ValueError: for conformal intervals of a table or method that cannot have them."""
    wrong = ""
    if not recipe.can_calibrate:
        wrong = f"without calibration, got method {recipe.name} with calibrate={recipe.calibrate}"
    elif dataset.num_classes is not None:
        wrong = "for classes, which have no intervals"
    elif not recipe.takes_conformal:
        wrong = f"for method {recipe.name}; take exact or auto"
    elif not is_standardized(recipe.likelihood):
        wrong = (
            f"for outputs that are not on the whole line, as with likelihood={recipe.likelihood}"
        )
    elif dataset.weights is not None:
        wrong = "for rows of weights: residuals count equally"
    elif dataset.noise_variance is not None:
        wrong = "for rows with known noise variances"
    elif dataset.num_train < _CONFORMAL_ROWS:
        wrong = (
            f"for fewer than {_CONFORMAL_ROWS} training rows, of which {LEAST_ROWS} are held out; "
            f"got {dataset.num_train}"
        )
    if wrong:
        raise ValueError(f"conformal must be False {wrong}.")


def calibrate(
    model: gpflow.models.GPModel,
    held_out: Dataset | None,
    recipe: Recipe,
    report: Callable[[str], Any] = lambda line: click.echo(line, err=True),
) -> None:
    """Calibrate a trained model on held-out rows, if there are any, and report it in a line."""
    if held_out is None:
        if said := describe_calibration(model):
            report(said)
        return
    try:
        weights = held_out.weights
        gs.calibrate(model, held_out.train, conformal=recipe.conformal, row_weights=weights)
    except ValueError as error:
        if recipe.conformal:
            raise
        report(f"not calibrated: {error}")  # the model predicts without it
    else:
        report(describe_calibration(model))


def describe_calibration(model: gpflow.models.GPModel) -> str:
    """The calibration of a model in a sentence or two; empty without one."""
    parts = [_describe_factors(model), _describe_local_variance(model)]
    return " ".join(part for part in parts if part)


def _describe_local_variance(model: gpflow.models.GPModel) -> str:
    """The factors from left-out residuals in a sentence; empty without them."""
    found = getattr(model, "local_variance", None)
    if found is None:
        return ""
    factors = f"by the factor {found.level:.3g}"
    if found.num_nearest:
        factors = f"by factors of the residuals of the nearest {found.num_nearest} rows"
    return (
        f"Variances are multiplied {factors}, by which a held-out training row gains "
        f"{found.gain:.3f} nats."
    )


def _describe_factors(model: gpflow.models.GPModel) -> str:
    """The factors of all rows in a sentence; empty without them."""
    found = getattr(model, "calibration", None)
    if found is None:
        return ""
    rows = (
        f"{found.num_rows} held-out rows" if found.num_rows else "the training rows, each left out"
    )
    parts = [f"the variance of the function is multiplied by {found.function:.3g}"]
    if has_classes(model.likelihood) and found.originals is None:
        parts = [f"the probabilities have the temperature {found.temperature:.3g}"]
    elif isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
        parts.append(f"the variance of the noise by {found.noise:.3g}")
    if found.has_shape:
        parts.append(f"the tails have the exponent {found.tail:.3g}")
        parts[-1] += f" and the skewness {found.skewness:.3g}"
    if found.scores is not None:
        parts.append("and intervals are conformal")
    return f"Calibrated on {rows}: {', '.join(parts)}."


def summary(model: gpflow.models.GPModel) -> dict[str, Any]:
    """
    The entries ``calibration`` and ``local_variance`` of the record of a run, with the factors;
    empty without them.
    """
    names = {
        "calibration": ("function", "noise", "temperature", "skewness", "tail", "num_rows"),
        "local_variance": ("num_nearest", "strength", "level", "gain", "error"),
    }
    return {
        entry: {name: getattr(found, name) for name in own}
        for entry, own in names.items()
        if (found := getattr(model, entry, None)) is not None
    }
