"""Decisions of training on a column of a table: its kind, how cells are read, its encoding."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gpflow_sparse.tables.reading.cells import (
    CURRENCIES,
    Evidence,
    Reading,
    date_formats,
    date_order,
    days,
    evidence_of,
    is_missing,
    is_text,
    labels_of,
    like_dates,
    numbers,
    texts_of,
)

__all__ = ["Column", "learn_column"]

MISSING_LEVEL = "(missing)"
# A column of text is numbers or dates if at least this fraction of its cells is.
MAX_CELLS = 0.9
# Levels of a category that get a column of their own; rarer ones share the origin.
MAX_LEVELS = 30
# Text with more distinct values than this fraction of the rows tells rows apart, not groups.
_IDENTIFIER = 0.5
_MIN_ROWS = 20
# Of a column of at least so many different values one is far away at so many ranges of the others.
_MIN_DISTINCT, _FAR = 4, 10.0
PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}
# Decimals of sines and cosines of dates: days since 1970 and their angles are rounded to 1e-11, so
# that equal times of different days would differ.
_DECIMALS = 9


@dataclass(frozen=True)
class Column:
    """
    Kind and encoding of one column of a table; all fields are plain values.

    :param name: the column.
    :param kind: "number", "category", "date", or "dropped" for a column that is not used.
    :param fill: number that replaces missing cells: the median of the others; days for dates.
    :param missing: whether cells were missing; then an indicator column stands beside the numbers.
    :param decimal: the character before decimals, "." or ","; the other one separates thousands.
    :param day_first: whether dates such as 1/2/2020 have the day before the month.
    :param levels: categories with an indicator column each; other categories are all zeros.
    :param periods: periods of a date with a sine and a cosine each: of "year", "week", "day".
    :param thousands: whether cells of training had separators of thousands.
    :param unit: a currency, or "%", beside the numbers of training; empty for none.
    :param averaged: levels with an average target of their rows, where not all have an indicator.
    :param averages: A numbers for each of these levels, and A for any other, see
        :mod:`gpflow_sparse.tables.reading.level_averages`.
    :param note: one sentence on what is done with the column; empty for plain numbers.
    """

    name: str
    kind: str
    fill: float = 0.0
    missing: bool = False
    decimal: str = "."
    day_first: bool = False
    levels: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()
    note: str = ""
    thousands: bool = False
    unit: str = ""
    averaged: tuple[str, ...] = ()
    averages: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        kinds = ("number", "category", "date", "dropped")
        if self.kind not in kinds or not set(self.periods) <= set(PERIODS):
            raise ValueError(
                f"column {self.name!r} must be one of {', '.join(kinds)}, with periods among "
                f"{', '.join(PERIODS)}; got {self.kind!r} and {list(self.periods)}."
            )
        if self.decimal not in (".", ",") or not np.isfinite(self.fill):
            raise ValueError(
                f"column {self.name!r} must have a finite fill and the decimal . or ,; got "
                f"{self.fill} and {self.decimal!r}."
            )
        if self.unit not in ("", "%", *CURRENCIES):
            raise ValueError(
                f"column {self.name!r} must have a unit among %, {', '.join(CURRENCIES)}, or none; "
                f"got {self.unit!r}."
            )
        if len(self.averages) % (len(self.averaged) + 1) or not np.isfinite(self.averages).all():
            raise ValueError(
                f"column {self.name!r} must have finite averages of each of {len(self.averaged)} "
                f"levels and of others, got {len(self.averages)} numbers."
            )
        for name in ("averaged", "averages"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "periods", tuple(self.periods))

    @property
    def num_averages(self) -> int:
        """A, columns of averages beside the indicators."""
        return len(self.averages) // (len(self.averaged) + 1)

    @property
    def reading(self) -> Reading:
        """How its numbers are written."""
        return Reading(self.decimal, self.thousands, self.unit)


def learn_column(cells: pd.Series, *, as_category: bool = False) -> Column:
    """The kind of a column from its cells, how they are read, and what encoding it needs."""
    name, missing = str(cells.name), is_missing(cells)
    if missing.all():
        return Column(name, "dropped", note=f"{name!r} is empty and not used.")
    present = cells[~missing] if missing.any() else cells
    if as_category or is_logical(present) or isinstance(cells.dtype, pd.CategoricalDtype):
        return _category(name, labels_of(present), missing)
    if pd.api.types.is_datetime64_any_dtype(cells):
        return _date(name, present, missing, num_strange=0)
    evidence = evidence_of(present)
    values = numbers(cells, evidence.reading)
    finite = np.isfinite(values)[~missing]
    if finite.mean() >= MAX_CELLS:
        return _number(cells, values, missing, evidence)
    if like_dates(present).mean() >= MAX_CELLS:
        dates = days(present, date_order(pd.Series(texts_of(present), dtype=str))[0])
        if np.isfinite(dates).mean() >= MAX_CELLS:
            return _date(name, present, missing, num_strange=int((~np.isfinite(dates)).sum()))
    labels = labels_of(present)
    distinct = len(set(labels))
    if distinct > max(_IDENTIFIER * len(labels), _MIN_ROWS):
        reason = f"has {distinct} texts in {len(labels)} rows, which name rows rather than groups,"
        if finite.mean() >= 0.5:
            reason = f"has {int((~finite).sum())} cells of {len(labels)} that are no numbers of one"
            reason += f" form, such as {present[~finite].iloc[0]!r}, which are too many"
        return Column(name, "dropped", note=f"{name!r} {reason} and is not used.")
    return _category(name, labels, missing)


def is_logical(cells: pd.Series) -> bool:
    """Whether all cells are true or false, as booleans."""
    if cells.dtype == object:
        return all(isinstance(cell, bool | np.bool_) for cell in cells.tolist())
    return pd.api.types.is_bool_dtype(cells)


def _constant(name: str) -> Column:
    return Column(name, "dropped", note=f"{name!r} is constant and not used.")


def _number(
    cells: pd.Series, values: np.ndarray, missing: np.ndarray, evidence: Evidence
) -> Column:
    name, finite = str(cells.name), np.isfinite(values)
    known = values[finite]
    strange = ~finite & ~missing
    fill, parts = float(np.median(known)), read_as(evidence)
    if strange.any():
        example = cells[strange].iloc[0]
        count = int(strange.sum())
        few = "1 cell that is no number" if count == 1 else f"{count} cells that are no numbers"
        parts.append(f"has {few}, such as {example!r}")
    if len(known) < len(values):
        count = len(values) - len(known)
        parts.append(f"misses {count} of {len(cells)} values, which are set to the median {fill:g}")
    if (far := _far_value(known)) is not None:
        value, count = far
        times = "1 value" if count == 1 else f"{count} values"
        parts.append(
            f"has {times} of {value:g}, far from all others: empty cells are better if this stands "
            "for missing"
        )
    if _counts_rows(values, cells.index):
        parts.append("counts the rows: drop it if it says nothing beyond their order")
    note = f"{name!r} {', and '.join(parts)}." if parts else ""
    if known.min() == known.max():
        if len(known) == len(values):
            return _constant(name)
        note = f"{name!r} is {fill:g} or missing: only which of both is used."
    return Column(
        name, "number", fill, len(known) < len(values), note=note, **evidence.reading._asdict()
    )


def _far_value(known: np.ndarray) -> tuple[float, int] | None:
    """The smallest or the largest value if it is far from all others, and its number of cells."""
    values, counts = np.unique(known, return_counts=True)
    if len(values) < _MIN_DISTINCT:
        return None
    for end, beside, others in ((0, 1, values[1:]), (-1, -2, values[:-1])):
        if abs(values[end] - values[beside]) > _FAR * (others[-1] - others[0]):
            return float(values[end]), int(counts[end])
    return None


def read_as(evidence: Evidence) -> list[str]:
    """Parts of a sentence on how the numbers of a column of text are read."""
    (_, thousands, unit), parts = evidence.reading, []
    if evidence.comma:
        parts.append("is read with decimal commas")
    if thousands:
        parts.append("is read with separators of thousands")
    if unit:
        parts.append("is in percent" if unit == "%" else f"is an amount of {unit}")
    if evidence.undecided:
        value = numbers(pd.Series([evidence.undecided]), evidence.reading)[0]
        parts.append(
            f"has cells such as {evidence.undecided!r}, read as {value:g} although no cell shows "
            "whether the comma separates thousands"
        )
    if evidence.contrary:
        parts.append(f"has cells with the other decimal mark, such as {evidence.contrary!r}")
    return parts


def _counts_rows(values: np.ndarray, index: pd.Index) -> bool:
    """Whether a column is 0, 1, 2, ... or 1, 2, 3, ..., by the order of rows or by the index."""
    if len(values) < _MIN_ROWS:
        return False
    places = [np.arange(len(values))]
    if pd.api.types.is_integer_dtype(index.dtype):
        places.append(index.to_numpy())
    starts = (values - place for place in places if values[0] - place[0] in (0.0, 1.0))
    return any((start == start[0]).all() for start in starts)


def _category(name: str, labels: np.ndarray, missing: np.ndarray) -> Column:
    counts = sorted(Counter(labels).items(), key=lambda pair: (-pair[1], pair[0]))
    if len(counts) == 1 and not missing.any():
        return _constant(name)
    levels = tuple(sorted(label for label, _ in counts[:MAX_LEVELS]))
    note = f"{name!r} is a category of {len(counts)} levels"
    if len(counts) > len(levels):
        note += f"; the {len(levels)} most frequent have a column each"
    if missing.any():
        levels = tuple(dict.fromkeys((*levels, MISSING_LEVEL)))
        note += f"; {int(missing.sum())} missing cells are a level of their own"
    return Column(name, "category", missing=bool(missing.any()), levels=levels, note=f"{note}.")


def _date(name: str, present: pd.Series, missing: np.ndarray, num_strange: int) -> Column:
    texts = pd.Series(texts_of(present) if is_text(present) else [], dtype=str)
    day_first, order = date_order(texts)
    values = days(present, day_first)
    values = values[np.isfinite(values)]
    span, gaps = float(values.max() - values.min()), int(missing.sum()) + num_strange
    if not span and not gaps:
        return _constant(name)
    # dates that are whole periods apart are all at the same time of the period
    periods = tuple(
        period
        for period, length in PERIODS.items()
        if span >= 2 * length and np.ptp(seasonal_features(values, period), axis=0).any()
    )
    formats = date_formats(texts)
    parts = [f"{name!r} is a date", order] if order else [f"{name!r} is a date"]
    if len(formats) > 1:
        examples = " and ".join(repr(text) for text in formats[:2])
        parts[0] += f" in {len(formats)} formats, such as {examples}"
    note = f"{', '.join(parts)}: days since 1970"
    if periods:
        note += f" and the time of {', '.join(periods)}"
    if gaps:
        note += f"; {gaps} missing dates are set to the median"
    fill = float(np.median(values))
    return Column(
        name, "date", fill, gaps > 0, day_first=day_first, periods=periods, note=f"{note}."
    )


def seasonal_features(days_since: np.ndarray, period: str) -> np.ndarray:
    """Sine and cosine of the time of a period [N, 2]."""
    angle = 2 * np.pi * days_since / PERIODS[period]
    return np.round(np.stack([np.sin(angle), np.cos(angle)], axis=1), _DECIMALS)
