"""Which rows are held out: random ones, whole groups of rows, or the last rows in time."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.model_selection import KFold, cross_val_predict

from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting.copies import copies_of
from gpflow_sparse.tables.methods.rows import rows_repeat, shuffled
from gpflow_sparse.tables.reading.cells import ReadingOptions, cells_of, labels_of
from gpflow_sparse.tables.reading.columns import coded_form
from gpflow_sparse.tables.reading.encoder import TableEncoder
from gpflow_sparse.tables.reading.tables import as_frame

AUTO, RANDOM, TIME = "auto", "random", "time"
# Rows from which a column of dates is found, and rows on which both kinds of splits are compared.
_LOOKED_AT, _COMPARED, _FOLDS = 2000, 3000, 5
# Rows in time are told from random ones where trees have an RMSE higher by this factor in blocks of
# time than in random rows, by at least so many standard errors. On ten made tables of 600 rows of a
# kind the factor was 1.5 to 2.4 for a random walk beside an input (3 for a walk alone), and .97 to
# 1.09 for independent rows with a date; of 60 of these up to 1.2, at 3.9 standard errors.
_MIN_FACTOR, _MIN_ERRORS = 1.2, 4.0
# Stretches of time whose errors are taken for independent in standard errors.
_STRETCHES = 10


class Groups(NamedTuple):
    """Groups of rows that are held out together, and what that makes of held-out rows."""

    of_row: np.ndarray | None = None
    """A number of the group of each row [N]; None where each row is its own."""
    in_time: bool = False
    """Whether larger numbers are later, and the last groups are held out."""
    kind: str = "random rows"
    """What rows are that are held out."""
    note: str = ""
    """A sentence on why; empty for random rows that nobody asked about."""

    def clusters(self, rows: np.ndarray) -> np.ndarray | None:
        """
        Numbers of groups of some rows whose errors may depend on each other [n]: groups, or ten
        stretches of time; None where rows are independent.
        """
        if self.of_row is None or not self.in_time:
            return None if self.of_row is None else self.of_row[rows]
        places = np.argsort(np.argsort(self.of_row[rows], kind="stable"))
        return places * _STRETCHES // len(rows)


INDEPENDENT = Groups()
"""Every row is a group of its own."""


def held_out_rows(
    num_rows: int, count: int, seed: int, of_row: np.ndarray | None = None, *, in_time: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """
    Positions of held-out rows, and of all others in random order.

    :param count: how many rows are held out; with groups the least number from there on that are
        whole groups, or the nearest one where these would be more than half of the rows.
    :param of_row: numbers of the groups [N], see :class:`Groups`; None for random rows.
    :raises ValueError: for a single group.
    """
    order = shuffled(num_rows, seed)
    if of_row is None:
        return order[:count], order[count:]
    first = -of_row if in_time else shuffled(int(of_row.max()) + 1, seed)[of_row]
    sorted_rows = order[np.argsort(first[order], kind="stable")]
    ends = np.flatnonzero(np.diff(of_row[sorted_rows])) + 1
    if not len(ends):
        raise ValueError(
            "groups must be two or more, so that some are held out, but all rows are of one: give "
            "another column, or leave groups (--split-by) out."
        )
    enough = ends[(ends >= count) & (2 * ends <= num_rows)]
    end = enough[0] if len(enough) else ends[np.abs(ends - count).argmin()]
    is_held = np.zeros(num_rows, bool)
    is_held[sorted_rows[:end]] = True
    return sorted_rows[:end], order[~is_held[order]]


def hold_out(dataset: Dataset, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`held_out_rows`, of the training rows of a data set and their groups."""
    known = dataset.groups, dataset.in_time
    return held_out_rows(dataset.num_train, count, seed, known[0], in_time=known[1])


def groups_of(
    X: pd.DataFrame,
    y: np.ndarray,
    split: str = AUTO,
    groups: np.ndarray | None = None,
    *,
    is_class: bool = False,
    reading: ReadingOptions | None = None,
) -> Groups:
    """
    The groups of the rows of a table.

    Without groups of the caller, "auto" is "time" where a column is a date and rows are predicted
    worse from rows of other times than from random rows, see :func:`is_ordered`. Otherwise copies
    of rows of a classification are a group; a regression has none, since they are left out.

    :param y: outputs [N] or [N, P], or labels [N].
    :param split: "auto", "random", or "time": the last rows by the first column that is a date, and
        without one in the order of the rows.
    :param groups: see :func:`group_labels`.
    :raises ValueError: for another split, or one in time of groups.
    """
    if split not in (AUTO, RANDOM, TIME):
        raise ValueError(f"split must be 'auto', 'random' or 'time', got {split!r}.")
    if groups is not None:
        return _given_groups(groups, split)
    found = None if split == RANDOM else _date_column(X, reading)
    if split == TIME and found is None:
        note = "no column is a date: the last rows of the table are held out as the last in time."
        return Groups(np.arange(len(X)), True, "the last rows of the table", note)
    if found is not None:
        name, times = found
        ordered = Groups(_ranks(times), True, f"the last rows in time, by {name!r}")
        if split == TIME:
            return ordered._replace(note=f"rows are held out in time, the last by {name!r}.")
        known = is_ordered(X, y, times, is_class=is_class, reading=reading)
        if known > _MIN_FACTOR:
            return ordered._replace(
                note=f"the last rows by {name!r} are held out (split 'time'): rows of other times "
                f"predict with {known:.2f} times the error of random rows; 'random' overrules this."
            )
    return _copies(X, y) if is_class else INDEPENDENT


def is_ordered(
    X: pd.DataFrame,
    y: np.ndarray,
    times: np.ndarray,
    *,
    is_class: bool = False,
    reading: ReadingOptions | None = None,
) -> float:
    """
    By which factor the RMSE of randomized trees is higher for blocks of rows in time than for
    random rows, in five folds each of at most 3,000 rows; 1 where the difference may be chance.

    The trees predict ranks of the outputs, or indicators of the classes.

    :param times: of the rows [N].
    """
    rows = np.argsort(times, kind="stable")
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _COMPARED)).astype(int)]
    if len(rows) < 4 * _FOLDS:
        return 1.0
    Y = np.asarray(y)[rows]
    targets = pd.get_dummies(Y).to_numpy(float) if is_class else rankdata(Y, axis=0)
    targets = np.squeeze(targets)  # as scikit-learn asks for one output
    inputs = TableEncoder(options=reading).fit_transform(X.iloc[rows])
    trees = ExtraTreesRegressor(20, min_samples_leaf=5, random_state=0)
    errors = []
    for folds in (KFold(_FOLDS, shuffle=True, random_state=0), KFold(_FOLDS)):
        found = cross_val_predict(trees, inputs, targets, cv=folds).reshape(targets.shape)
        errors.append(np.square(targets - found).reshape(len(rows), -1).mean(axis=1))
    excess = errors[1] - errors[0]
    if excess.mean() <= _MIN_ERRORS * excess.std() / len(rows) ** 0.5:
        return 1.0
    return float(np.sqrt(errors[1].mean() / errors[0].mean()))


def group_labels(groups: Any, num_rows: int) -> np.ndarray | None:
    """
    Groups of a caller as texts [N]; None if there are none.

    :raises ValueError: for another shape.
    """
    if groups is None:
        return None
    found = np.asarray(groups, object)
    if found.shape != (num_rows,):
        raise ValueError(
            f"groups must be {num_rows} labels, one for each row, got shape {found.shape}."
        )
    return labels_of(cells_of(pd.Series(found)))


def _given_groups(labels: np.ndarray, split: str) -> Groups:
    """:raises ValueError: beside a split in time."""
    if split == TIME:
        raise ValueError(
            "split must be 'auto' or 'random' for groups, got 'time': leave out one of them; rows "
            "of one time are held out together without groups."
        )
    numbers, known = pd.factorize(labels)
    return Groups(numbers, False, f"rows of whole groups, of {len(known)}")


def _date_column(X: pd.DataFrame, reading: ReadingOptions | None) -> tuple[str, np.ndarray] | None:
    """Name and times [N] of the first column that is a date; missing times are the earliest."""
    rows = np.linspace(0, len(X) - 1, min(len(X), _LOOKED_AT)).astype(int)
    if all(kind.kind in "biufc" for kind in X.dtypes) and not any(
        coded_form(str(name), cells_of(X[name].iloc[rows])) for name in X
    ):
        return None
    try:
        encoder = TableEncoder(options=reading).fit(X.iloc[rows])
    except ValueError:  # which is the same for all rows, and said when these are encoded
        return None
    for column in encoder.columns_:
        if column.kind == "date":
            times = column.values(column.cells(as_frame(X)))
            return column.name, np.where(np.isfinite(times), times, -np.inf)
    return None


def _ranks(times: np.ndarray) -> np.ndarray:
    """Numbers of the distinct times, from the earliest on [N]."""
    return np.unique(times, return_inverse=True)[1]


def _copies(X: pd.DataFrame, y: np.ndarray) -> Groups:
    """Groups of rows that are equal in inputs and label, unless most are or they are by chance."""
    found = copies_of(X, pd.factorize(np.ravel(y))[0][:, None].astype(np.float64))
    if found is None or rows_repeat(len(found.first), len(X)):
        return INDEPENDENT
    count = len(X) - len(found.first)
    return Groups(
        found.of_row,
        kind="random rows (copies together)",
        note=f"{count} row{'s' * (count > 1)} repeat others: copies are held out together.",
    )
