"""Rows of a table as a trained model takes them, to predict or to be conditioned on."""

from typing import Any

import gpflow
import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gpflow_sparse.tables.estimators.arguments import (
    require_numbers,
    require_target,
    with_log_exposure,
    without_noise,
)
from gpflow_sparse.tables.methods.rows import require_range


def encoded(estimator: Any, frame: pd.DataFrame) -> np.ndarray:
    """Checked rows as the encoder has them ``[n, D']``, with logarithms of exposures."""
    model, exposure = estimator.model_, estimator.recipe_.exposure
    exposed = with_log_exposure(frame, exposure, model.likelihood, estimator)
    return estimator.encoder_.transform(exposed)  # type: ignore[no-any-return]


def standardized(estimator: Any, X: Any) -> np.ndarray:
    """Rows of a table ``[n, D']`` as the model of a fitted estimator has them."""
    check_is_fitted(estimator, "model_")
    X, _ = without_noise(X, estimator._noise_column, estimator)
    inputs = encoded(estimator, estimator._checked(X, reset=False))
    with np.errstate(over="ignore"):
        rows = estimator.model_.standardizer.transform_inputs(inputs)
    names = list(estimator.encoder_.get_feature_names_out())
    require_range(rows, names, "X, once standardized,", gpflow.default_float())
    return rows  # type: ignore[no-any-return]


def conditioned(estimator: Any, X: Any, y: Any) -> Any:
    """
    The model of a fitted estimator that has also seen new rows.

    :raises ValueError: for rows that do not fit, new labels, and a model that takes no new rows.
    """
    rows, model = standardized(estimator, X), estimator.model_
    require_target(rows, y, estimator)
    if hasattr(estimator, "classes_"):
        labels = column_or_1d(y, warn=True)
        require_known(labels, estimator.classes_)
        Y = estimator._labels.transform(labels)[:, None].astype(np.float64)
    else:
        Y = require_numbers(y).reshape(len(rows), -1)
    if not hasattr(model, "condition_on"):
        raise ValueError(
            f"method {estimator.method_!r} cannot take new rows, since its model is gpflow.models."
            f"{type(model).__name__}; fit all rows, or take the method 'mixture', 'gpnn' or "
            "'solvegp'."
        )
    return model.condition_on(rows, model.standardizer.transform_outputs(Y))


def require_known(labels: Any, known: Any) -> None:
    """:raises ValueError: for labels that are not among the known ones."""
    if unknown := set(np.asarray(labels).tolist()) - set(np.asarray(known).tolist()):
        raise ValueError(
            f"y must hold labels that fit has seen, got {min(unknown, key=str)!r} that it has "
            "not; fit all rows."
        )
