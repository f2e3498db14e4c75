"""Scores of a fitted estimator on rows with observed outputs."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpflow_sparse.data.limits import listed
from gpflow_sparse.tables.estimators.arguments import without_noise
from gpflow_sparse.tables.estimators.new_rows import encoded
from gpflow_sparse.tables.fitting.evaluation import evaluate, standard_errors
from gpflow_sparse.tables.fitting.starts import resolved


class Scored(NamedTuple):
    """Rows, and what a fitted estimator predicts for them."""

    frame: pd.DataFrame
    """The columns of training, and known noise variances where there is a column of these."""
    inputs: np.ndarray
    """Encoded, in original units [N, D]."""
    Y: np.ndarray
    """Observed outputs [N, P], or positions of labels among the classes [N, 1]."""
    scores: dict[str, float]
    """See :func:`~gpflow_sparse.tables.fitting.evaluation.evaluate`."""
    predictions: dict[str, np.ndarray]
    errors: dict[str, float]
    """Standard errors of scores."""


def chosen_recipe(estimator: Any) -> Any:
    """The recipe of a fitted estimator with kernel and metric that were left open."""
    recipe, model = estimator.recipe_, estimator.model_
    has_one = hasattr(recipe, "kernel") and hasattr(model, "kernel")
    return resolved(recipe, model.kernel) if has_one else recipe


def chosen_parts(estimator: Any) -> dict[str, str]:
    """What a fitted estimator has of transform, mean, kernel and metric, in words by name."""
    recipe, model = chosen_recipe(estimator), estimator.model_
    found = {"transform": model.standardizer.y_transform}
    names = [name for name in ("mean", "kernel", "metric") if hasattr(recipe, name)]
    found |= {name: str(getattr(recipe, name)) for name in names}
    if estimator.kernel is not None:
        found["kernel"] = type(estimator.kernel).__name__
    if parts := getattr(model, "components", ()):
        kernels = sorted({type(part.kernel).__name__ for part in parts})
        found["kernel"] = f"averages of {len(parts)}: {', '.join(kernels)}"
        if any(part.transform is not None for part in parts):
            found["transform"] = "averages of none and others"
    return found


def score_rows(
    estimator: Any,
    X: pd.DataFrame,
    y: Any,
    row_weights: np.ndarray | None = None,
    clusters: np.ndarray | None = None,
) -> Scored:
    """
    Scores and predictions of rows, in original units.

    :param X: rows with at least the columns of training [N, .].
    :param y: observed outputs [N] or [N, P], or labels [N].
    :param row_weights: weights of the rows [N], 2 counts a row twice; None for 1.
    :param clusters: numbers of groups of rows whose errors may depend on each other [N]; None where
        rows are independent.
    :raises ValueError: for columns that are missing; for no rows; for labels that the
        estimator does not know.
    """
    X, noise_variance = without_noise(X, estimator._noise_column, estimator)
    frame, num_classes = estimator.encoder_.select(X), None
    if len(frame) != len(y) or not len(frame):
        raise ValueError(
            f"X and y must have as many rows, one or more, got {len(frame)} and {len(y)}."
        )
    if hasattr(estimator, "classes_"):
        num_classes = len(estimator.classes_)
        labels = pd.Index(estimator.classes_).get_indexer(pd.Index(np.ravel(y)))
        if np.any(labels < 0):
            raise ValueError(
                f"y must hold classes of the estimator, {listed(estimator.classes_)}; got "
                f"{np.ravel(y)[labels < 0][0]!r}: leave such rows out."
            )
        Y = labels[:, None].astype(np.float64)
    else:
        Y = np.asarray(y, np.float64).reshape(len(frame), -1)
    inputs = encoded(estimator, frame)
    found = evaluate(
        estimator._posterior,
        estimator.model_.standardizer,
        inputs,
        Y,
        num_classes,
        row_weights=row_weights,
        noise_variance=noise_variance,
    )
    errors = standard_errors(found[0], Y, found[1], row_weights, clusters)
    if noise_variance is not None:
        frame = frame.assign(**{estimator._noise_column: noise_variance})
    return Scored(frame, inputs, Y, *found, errors)
