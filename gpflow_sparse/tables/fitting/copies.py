"""Rows of a table that are copies of others, in the inputs and in the target."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from gpflow_sparse.initialization.repeated_rows import observations
from gpflow_sparse.validation.checks import mean_at_most_one


class DistinctRows(NamedTuple):
    """The rows of a table without copies."""

    kept: np.ndarray
    """Positions of the rows to keep, in increasing order."""
    weights: np.ndarray | None
    """The sums of the weights of each of them and of its copies, with a mean of at most 1; None
    where all are 1."""
    note: str
    """What was left out; empty where no row is a copy."""


def distinct_rows_of(
    inputs: pd.DataFrame, Y: np.ndarray, weights: np.ndarray | None = None
) -> DistinctRows:
    """
    The rows of a regression without exact copies, which are not new measurements: as such they
    would be evidence for a noise of zero, and as test rows they would be known from training. As in
    scikit-learn, a row that occurs twice has twice the weight of others.

    :param Y: outputs ``[N, P]``.
    :param weights: positive ``[N]``; None for 1.
    """
    codes = [pd.factorize(inputs.iloc[:, j])[0] for j in range(inputs.shape[1])]
    copies = observations(np.stack(codes, axis=1).astype(np.float64), Y).copies if codes else None
    if copies is None:
        return DistinctRows(np.arange(len(Y)), weights, "")
    count = len(Y) - len(copies.first)
    rows = "1 row" if count == 1 else f"{count} rows"
    note = (
        f"{rows} left out: copies of other rows in all inputs and in the target, which are not new "
        "measurements."
    )
    summed = mean_at_most_one(np.bincount(copies.of_row, weights))
    return DistinctRows(copies.first, None if np.all(summed == 1.0) else summed, note)
