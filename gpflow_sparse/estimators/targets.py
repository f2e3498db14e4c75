"""The target of a table: its column, its rows, and whether it is a number or a label."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from gpflow_sparse.estimators.columns import is_missing, learn_column, numbers

__all__ = ["Target", "split_target"]

# A number is an outlier at this many median absolute deviations from the median; noise of a
# Gaussian reaches 10 of them once in 10^11 draws.
_OUTLIER = 30.0
_FEW_VALUES = 10


class Target(NamedTuple):
    """The outputs of a table."""

    name: str
    values: np.ndarray
    """Numbers, or labels as texts [N]."""
    is_label: bool
    notes: tuple[str, ...]
    """Sentences on what was done, and on options that may help."""


def split_target(
    frame: pd.DataFrame, name: str | None = None, task: str | None = None
) -> tuple[pd.DataFrame, Target]:
    """
    The input columns and the target of a table, without the rows where the target is missing.

    :param name: the column to predict; None for the last.
    :param task: "regression", "classification", or None: numbers are predicted by regression, text
        and booleans by classification.
    :raises ValueError: for an unknown column, a target without two different values, or text where
        ``task`` is regression.
    """
    notes = []
    if name is None:
        name = str(frame.columns[-1])
        notes.append(f"the last column, {name!r}, is predicted; name another one as target.")
    if name not in frame.columns:
        raise ValueError(f"target must be a column of the table, got {name!r}.")
    missing = is_missing(frame[name])
    cells = frame[name][~missing]
    if missing.any():
        notes.append(f"{int(missing.sum())} rows without {name!r} are not used.")
    if not len(cells):
        raise ValueError(f"target {name!r} is empty.")
    column = learn_column(cells)
    is_number = column.kind == "number" or _is_number(cells)
    if task == "regression" and not is_number:
        raise ValueError(
            f"target {name!r} must hold numbers for regression, got such as {cells.iloc[0]!r}; "
            "take classification."
        )
    is_label = task == "classification" or not is_number
    values = _labels(cells) if is_label else numbers(cells, column.decimal)
    usable = np.ones(len(values), bool) if is_label else np.isfinite(values)
    if not usable.all():
        notes.append(f"{int((~usable).sum())} rows where {name!r} is no number are not used.")
    if len(np.unique(values[usable])) < 2:
        raise ValueError(f"target {name!r} must have two different values or more.")
    if not is_label:
        notes += _advice(name, values[usable], task)
    inputs = frame.drop(columns=name)[~missing][usable]
    return inputs, Target(name, values[usable], is_label, tuple(notes))


def _is_number(cells: pd.Series) -> bool:
    return bool(np.isfinite(numbers(cells)).all()) and not pd.api.types.is_bool_dtype(cells)


def _labels(cells: pd.Series) -> np.ndarray:
    """Labels as texts: integers without decimals, whatever type the column has."""
    values = numbers(cells)
    whole = np.isfinite(values).all() and np.all(values == np.round(values))
    if whole and not pd.api.types.is_bool_dtype(cells):
        return values.astype(np.int64).astype(str)
    return cells.astype(str).str.strip().to_numpy(dtype=str)


def _advice(name: str, values: np.ndarray, task: str | None) -> list[str]:
    """Sentences on options that suit the values of a target better than the defaults."""
    distinct = np.unique(values)
    whole = np.array_equal(distinct, np.round(distinct))
    if task is None and whole and len(distinct) <= _FEW_VALUES:
        return [f"{name!r} has {len(distinct)} integers: if they are labels, take classification."]
    center = np.median(values)
    spread = np.median(np.abs(values - center))
    far = np.abs(values - center) > _OUTLIER * spread
    if spread > 0 and far.any():
        worst = values[np.argmax(np.abs(values - center))]
        return [
            f"{int(far.sum())} values of {name!r} are outliers, the farthest {worst:g} beside a "
            f"median of {center:g}: the likelihood student_t gives them less weight."
        ]
    return []
