"""The target of a table: its column, its rows, and whether it is a number or a label; weights."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpflow_sparse.tables.reading.cells import (
    ReadingOptions,
    cells_of,
    is_missing,
    labels_of,
    numbers,
    places,
)
from gpflow_sparse.tables.reading.columns import (
    MIN_SHARE,
    Column,
    far_values,
    learn_date,
    number_column,
    unreadable,
    usual_decimal,
)
from gpflow_sparse.tables.reading.tables import DEFAULT, as_frame, column_named

_FEW_VALUES = 10


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
    options: ReadingOptions = DEFAULT,
    *,
    drop_bad: bool = False,
) -> tuple[pd.DataFrame, Target]:
    """
    The input columns and the target of a table, without the rows where the target is missing.

    :param name: the column to predict; None for the last.
    :param task: "regression", "classification", or None: numbers are predicted by regression, text
        and booleans by classification.
    :param drop_bad: leave out rows whose target is not a number, instead of an error.
    :raises ValueError: for an unknown column, a table of one column, a target without two different
        values, cells that are not numbers among numbers, dates unless they are labels, or labels
        that nearly all differ.
    """
    frame, notes = as_frame(frame), []
    if name is None:
        name = str(frame.columns[-1])
        notes.append(
            f"the last column, {name!r}, is predicted; use --target to choose another column."
        )
    name = column_named(name, list(frame.columns), "the table")
    if frame.shape[1] < 2:
        raise ValueError(f"no input columns are left beside the target {name!r}.")
    cells = cells_of(frame[name], options.na_values)
    present = ~is_missing(cells)
    if not present.any():
        raise ValueError(f"target {name!r} is empty.")
    if not present.all():
        notes.append(f"{int((~present).sum())} rows without {name!r} are not used.")
    usual = usual_decimal(frame)
    column, parts = _learn(name, cells[present], task, options, usual, drop_bad)
    notes += parts
    values = read_target(cells, column)
    if column.kind == "number" and (strange := unreadable(cells, values)):
        if not drop_bad:
            raise ValueError(
                f"target {name!r} has {strange}: correct them, or leave out these rows by "
                "--drop-bad-targets (drop_bad=True)."
            )
        notes.append(f"{name!r} has {strange}; these rows are not used.")
    usable = np.isfinite(values)
    if len(np.unique(values[usable])) < 2:
        raise ValueError(f"target {name!r} must have two different values or more{_alike(cells)}.")
    if column.kind == "number" and (far := far_values(values[usable])):
        notes.append(f"{name!r} {far}.")
    inputs = frame.drop(columns=name)[usable]
    inputs.attrs["decimal"] = usual
    column = dataclasses.replace(column, note=" ".join(notes))
    return inputs, Target(column, values[usable])


def read_target(cells: np.ndarray, column: Column) -> np.ndarray:
    """
    Numbers, or positions of labels among the levels of ``column`` [N]; NaN for what is neither.

    :param cells: see :func:`cells_of`.
    """
    if column.kind == "number":
        return column.values(cells)
    found = places(labels_of(cells), column.levels)
    return np.where((found < 0) | is_missing(cells), np.nan, found)


def _learn(
    name: str,
    cells: np.ndarray,
    task: str | None,
    options: ReadingOptions,
    usual: str | None,
    drop_bad: bool,
) -> tuple[Column, list[str]]:
    """The column of a target, and sentences on how its numbers are read."""
    first, remedy = labels_of(cells[:1])[0], "take regression"
    if task != "classification":
        least = 0.5 if drop_bad or task == "regression" else MIN_SHARE
        if found := number_column(name, cells, options, usual, least):
            return found[0], [f"{name!r} {', and '.join(found[1])}."] if found[1] else []
        if learn_date(name, cells, options) is not None:
            raise ValueError(
                f"target {name!r} must hold numbers or labels, got dates such as {first!r}; "
                "make it a number, such as the days since some date, or take classification if the "
                "dates are labels."
            )
        if task == "regression":
            raise ValueError(
                f"target {name!r} must hold numbers for regression, got such as {first!r}; "
                "take classification."
            )
        remedy = "predict another column"
        if found := number_column(name, cells, options, usual, least=0.5):
            strange = unreadable(cells, found[0].values(cells))
            remedy = (
                f"for regression, correct {strange}, or give --drop-bad-targets (drop_bad=True)"
            )
    labels = labels_of(cells)
    require_groups(labels, f"target {name!r}", remedy)
    levels = sorted(set(labels))
    values = numbers(np.array(levels, object))
    if np.isfinite(values).all():
        levels = [levels[i] for i in np.argsort(values, kind="stable")]
    return Column(name, "category", levels=tuple(levels), na_values=options.na_values), []


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


def _alike(cells: np.ndarray) -> str:
    """What to do about texts such as 01 and 1, which differ as labels only; or nothing."""
    labels = sorted(set(labels_of(cells)))[:2]
    if len(labels) < 2:
        return ""
    return f"; if {labels[0]!r} and {labels[1]!r} are labels, take classification"


def amounts(
    frame: pd.DataFrame, name: str, options: ReadingOptions | None, usual: str | None = None
) -> np.ndarray:
    """
    The numbers of a column that is not an input, such as weights of rows [N]; NaN for other cells.

    :param usual: decimal mark where neither its cells nor the table show one; None for points.
    """
    cells, options = cells_of(frame[name]), options or ReadingOptions()
    found = number_column(name, cells, options, usual_decimal(frame) or usual, least=0.0)
    return np.full(len(cells), np.nan) if found is None else found[0].values(cells)
