"""Rows of a table that are copies of others, and columns that only number its rows."""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpflow_sparse.initialization import repeated_rows
from gpflow_sparse.numerics.row_groups import RowGroups
from gpflow_sparse.tables.reading.cells import cells_of, numbers, require_single
from gpflow_sparse.validation.checks import mean_at_most_one

# Names of columns that number rows, such as row_id, PassengerId and Nr.; and fewest rows of them.
_IDENTIFIER = re.compile(
    r"(?i:(.*[\W_])?(id|idx|index|nr|no|row|row ?names|uid|key)\.?)|.*[a-z]I[dD]", re.DOTALL
)
_MIN_NUMBERED = 10


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
    The rows of a regression without exact copies, which are not new measurements: they would
    be evidence for a noise of zero, and as test rows they would be known from training. As in
    scikit-learn, a row that occurs twice has twice the weight of others.

    :param Y: outputs ``[N, P]``.
    :param weights: positive ``[N]``; None for 1.
    """
    copies = copies_of(inputs, Y)
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


def copies_of(inputs: pd.DataFrame, Y: np.ndarray) -> RowGroups | None:
    """
    Groups of rows that are equal in ``Y [N, P]`` and in all inputs but identifiers; None where no
    row is a copy of another, or rows of few values are equal by chance.
    """
    used = inputs.drop(columns=identifiers_of(inputs))
    for j in range(used.shape[1]):
        require_single(used.iloc[:, j])  # lists cannot be compared
    codes = [pd.factorize(used.iloc[:, j])[0] for j in range(used.shape[1])]
    return repeated_rows.copies_of(np.stack(codes, 1).astype(np.float64), Y) if codes else None


def identifiers_of(frame: pd.DataFrame) -> list[str]:
    """
    Columns that only number the rows of a table: called so, and integers that increase from row to
    row. There are none where no other column would be left.

    Their values are from the order in which rows were written, which may follow the target.
    """
    found = [name for name in frame if _numbers_rows(str(name), frame[name])]
    return found if len(found) < frame.shape[1] else []


def _numbers_rows(name: str, column: pd.Series) -> bool:
    if len(column) < _MIN_NUMBERED or not _IDENTIFIER.fullmatch(name):
        return False
    values = numbers(cells_of(column))
    return bool(np.all(np.diff(values) >= 1.0) and np.all(values % 1.0 == 0.0))
