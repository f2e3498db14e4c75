"""The target of a table: its column, its rows, and whether it is a number or a label."""

import warnings
from numbers import Number
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from gpflow_sparse.data.limits import listed
from gpflow_sparse.tables.reading.cells import evidence_of, is_missing, labels_of, numbers
from gpflow_sparse.tables.reading.column_kinds import (
    MAX_CELLS,
    Column,
    is_logical,
    learn_column,
    read_as,
)
from gpflow_sparse.tables.reading.tables import column_named

__all__ = ["Target", "read_target", "split_target"]

# A number is an outlier at this many median absolute deviations from the median; noise of a
# Gaussian reaches 10 of them once in 10^11 draws.
_OUTLIER = 30.0
_FEW_VALUES = 10
_SKEWED = 2.0  # skewness of an exponential distribution


class Target(NamedTuple):
    """The outputs of a table."""

    column: Column
    """A "number", or a "category" with the labels as levels; its note says what was done."""
    values: np.ndarray
    """Numbers, or positions of labels among the levels [N], float64."""

    @property
    def num_classes(self) -> int | None:
        """Number of labels; None for numbers."""
        return len(self.column.levels) or None


def split_target(
    frame: pd.DataFrame,
    name: str | None = None,
    task: str | None = None,
    known: Column | None = None,
) -> tuple[pd.DataFrame, Target]:
    """
    The input columns and the target of a table, without the rows where the target is missing.

    :param name: the column to predict; None for the last.
    :param task: "regression", "classification", or None: numbers are predicted by regression, text
        and booleans by classification.
    :param known: the column as it was read in training; None to learn it from the cells.
    :raises ValueError: for an unknown column, a table of one column, a target without two different
        values, text where ``task`` is regression, dates unless it is classification, or labels that
        nearly all differ.
    """
    notes = []
    if name is None:
        name = str(frame.columns[-1])
        notes.append(
            f"the last column, {name!r}, is predicted; use --target to choose another column."
        )
    name = column_named(name, list(frame.columns), "the table")
    if frame.shape[1] < 2:
        raise ValueError(f"no input columns are left beside the target {name!r}.")
    missing = is_missing(frame[name])
    cells = frame[name][~missing]
    if missing.any():
        notes.append(f"{int(missing.sum())} rows without {name!r} are not used.")
    if not len(cells):
        raise ValueError(f"target {name!r} is empty.")
    column, parts = _kind_of(name, cells, task) if known is None else (known, [])
    notes += parts
    values = read_target(cells, column)
    usable = np.isfinite(values)
    if not usable.all():
        notes.append(f"{int((~usable).sum())} rows where {name!r} is no number are not used.")
    if len(np.unique(values[usable])) < 2:
        raise ValueError(f"target {name!r} must have two different values or more{_alike(cells)}.")
    if column.kind == "number":
        notes += _advice(name, values[usable], task)
    inputs = frame.drop(columns=name)[~missing][usable]
    column = Column(**{**vars(column), "note": " ".join(notes)})
    return inputs, Target(column, values[usable])


def read_target(cells: pd.Series, column: Column) -> np.ndarray:
    """
    Numbers, or positions of labels among the levels of ``column`` [N]; NaN for what is neither.
    """
    if column.kind == "number":
        # true and false are labels, in whatever way they are stored
        return np.full(len(cells), np.nan) if is_logical(cells) else numbers(cells, column.reading)
    places = pd.Index(column.levels).get_indexer(labels_of(cells)).astype(np.float64)
    return np.where((places < 0) | is_missing(cells), np.nan, places)


def _kind_of(name: str, cells: pd.Series, task: str | None) -> tuple[Column, list[str]]:
    """The column of a target, without its note, and sentences on how its numbers are read."""
    evidence = evidence_of(cells)
    finite = np.isfinite(numbers(cells, evidence.reading))
    is_number = bool(finite.mean() >= MAX_CELLS) and not is_logical(cells)
    if task != "classification" and not is_number and learn_column(cells).kind == "date":
        raise ValueError(
            f"target {name!r} must hold numbers or labels, got dates such as {str(cells.iloc[0])!r}"
            "; make it a number, such as the days since some date, or take classification if the "
            "dates are labels."
        )
    if task == "regression" and not is_number:
        found = f"got such as {cells[~finite].iloc[0]!r}" if (~finite).any() else "got booleans"
        raise ValueError(
            f"target {name!r} must hold numbers for regression, {found}; take classification."
        )
    if is_number and task != "classification":
        parts = read_as(evidence)
        notes = [f"{name!r} {', and '.join(parts)}."] if parts else []
        return Column(name, "number", **evidence.reading._asdict()), notes
    labels = labels_of(cells)
    reason = "take regression" if is_number else "predict another column"
    if 0.5 <= finite.mean() < MAX_CELLS:
        cell = cells[~finite].iloc[0]
        reason = (
            f"for regression, drop the {int((~finite).sum())} rows without number such as {cell!r}"
        )
    require_groups(labels, f"target {name!r}", reason)
    return Column(name, "category", levels=_distinct(labels)), []


def require_groups(labels: np.ndarray, source: str, remedy: str) -> None:
    """
    Refuse labels [N] that nearly all differ, so that there is nothing to learn of a class.

    :param source: what they are, in the message.
    :raises ValueError: if more than ten and half as many as the rows are different.
    """
    distinct = len(set(labels))
    if distinct > max(_FEW_VALUES, 0.5 * len(labels)):
        raise ValueError(
            f"{source} must hold labels that groups of rows share, but {len(labels)} rows have "
            f"{distinct} different ones, such as {str(labels[0])!r}; {remedy}."
        )


def require_one_type(labels: np.ndarray) -> None:
    """:raises ValueError: for labels that are not all texts, all numbers, or all booleans."""
    if labels.dtype != object:
        return
    kinds = (str, bool | np.bool_, Number)
    if not any(all(isinstance(label, kind) for label in labels) for kind in kinds):
        names = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            "y must hold labels of one type, texts, numbers or booleans, got "
            f"{listed(names)}; make them texts."
        )


def _distinct(labels: np.ndarray) -> tuple[str, ...]:
    """The different labels, in the order of numbers if all are numbers, else of texts."""
    distinct = sorted(set(labels))
    values = numbers(pd.Series(distinct, dtype=object))
    if np.isfinite(values).all():
        distinct = [distinct[i] for i in np.argsort(values, kind="stable")]
    return tuple(distinct)


def _alike(cells: pd.Series) -> str:
    """What to do about texts such as 01 and 1, which differ as labels only; or nothing."""
    labels = sorted(set(labels_of(cells)))[:2]
    if len(labels) < 2:
        return ""
    return f"; if {labels[0]!r} and {labels[1]!r} are labels, take classification"


def _advice(name: str, values: np.ndarray, task: str | None) -> list[str]:
    """Sentences on options that suit the values of a target better than the defaults."""
    distinct = np.unique(values)
    whole = np.array_equal(distinct, np.round(distinct))
    if task is None and whole and len(distinct) <= _FEW_VALUES:
        return [f"{name!r} has {len(distinct)} integers: if they are labels, take classification."]
    if transform := _transform_of(values):
        return [
            f"{name!r} is skewed, from {distinct[0]:g} to {distinct[-1]:g} with a median of "
            f"{np.median(values):g}: the transform {transform} makes it more like a Gaussian."
        ]
    return [found] if (found := outliers_of(name, values)) else []


def _transform_of(values: np.ndarray) -> str:
    """The transform that makes skewed values more like a Gaussian; empty if there is none."""
    if stats.skew(values) <= _SKEWED:
        return ""
    is_positive = values.min() > 0.0
    after = stats.skew(np.log(values) if is_positive else np.arcsinh(values))
    if abs(after) >= _SKEWED:
        return ""
    return "log" if is_positive else "yeo-johnson"


def outliers_of(name: str, values: np.ndarray) -> str:
    """
    A sentence on outliers of a target, with what to do; empty if there are none.

    :param values: numbers [N]; skewed ones have outliers only if no transform makes them symmetric.
    """
    center = np.median(values)
    spread = np.median(np.abs(values - center))
    far = np.abs(values - center) > _OUTLIER * spread
    if spread == 0.0 or not far.any() or _transform_of(values):
        return ""
    worst, count = values[np.argmax(np.abs(values - center))], int(far.sum())
    found = "1 value" if count == 1 else f"{count} values"
    return (
        f"{found} of {name!r} {'is an outlier' if count == 1 else 'are outliers'}, the "
        f"farthest {worst:g} beside a median of {center:g}: the likelihood student_t gives "
        "them less weight."
    )


def warn_of_outliers(Y: np.ndarray) -> None:
    """A warning, for the caller of an estimator's ``fit``, for each column [N, P] with outliers."""
    for column, values in enumerate(Y.T):
        if found := outliers_of("y" if Y.shape[1] == 1 else f"y[:, {column}]", values):
            warnings.warn(found, stacklevel=7)
