"""Scores of a fitted estimator on rows with observed outputs."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpflow_sparse.data.limits import listed
from gpflow_sparse.tables.fitting.evaluation import evaluate


class Scored(NamedTuple):
    """Rows, and what a fitted estimator predicts for them."""

    frame: pd.DataFrame
    """The columns of training."""
    inputs: np.ndarray
    """Encoded, in original units [N, D]."""
    Y: np.ndarray
    """Observed outputs [N, P], or positions of labels among the classes [N, 1]."""
    scores: dict[str, float]
    """See :func:`~gpflow_sparse.tables.fitting.evaluation.evaluate`."""
    predictions: dict[str, np.ndarray]


def score_rows(
    estimator: Any, X: pd.DataFrame, y: Any, row_weights: np.ndarray | None = None
) -> Scored:
    """
    Scores and predictions of rows, in original units.

    :param X: rows with at least the columns of training [N, .].
    :param y: observed outputs [N] or [N, P], or labels [N].
    :param row_weights: weights of the rows [N], 2 counts a row twice; None for 1.
    :raises ValueError: for columns that are missing; for no rows; for labels that are no classes of
        the estimator.
    """
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
    inputs = estimator.encoder_.transform(frame)
    found = evaluate(
        estimator._posterior,
        estimator.model_.standardizer,
        inputs,
        Y,
        num_classes,
        row_weights=row_weights,
    )
    return Scored(frame, inputs, Y, *found)
