"""Kinds of the columns of a table, and their encoding as a matrix of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from gpflow_sparse.data.cells import (
    DATE,
    THOUSANDS,
    date_formats,
    date_order,
    days,
    decimal_mark,
    fraction_of,
    is_missing,
    is_text,
    labels_of,
    numbers,
)
from gpflow_sparse.data.limits import listed

__all__ = ["Column", "TableEncoder"]

_MISSING_LEVEL = "(missing)"
# A column of text is numbers or dates if at least this fraction of its cells is.
_MOST_CELLS = 0.9
# Levels of a category that get a column of their own; rarer ones share the origin.
_MOST_LEVELS = 30
# Text with more distinct values than this fraction of the rows tells rows apart, not groups.
_IDENTIFIER = 0.5
_LEAST_ROWS_OF_IDENTIFIER = 20
_DAYS = {"year": 365.2425, "week": 7.0, "day": 1.0}
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
    :param decimal: the character before decimals, "." or ",", unless a table shows the other one.
    :param day_first: whether dates such as 1/2/2020 have the day before the month.
    :param levels: categories with an indicator column each; other categories are all zeros.
    :param periods: periods of a date with a sine and a cosine each: of "year", "week", "day".
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

    def __post_init__(self) -> None:
        kinds = ("number", "category", "date", "dropped")
        if self.kind not in kinds or not set(self.periods) <= set(_DAYS):
            raise ValueError(
                f"column {self.name!r} must be one of {', '.join(kinds)}, with periods among "
                f"{', '.join(_DAYS)}; got {self.kind!r} and {list(self.periods)}."
            )
        if self.decimal not in (".", ",") or not np.isfinite(self.fill):
            raise ValueError(
                f"column {self.name!r} must have a finite fill and the decimal . or ,; got "
                f"{self.fill} and {self.decimal!r}."
            )
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "periods", tuple(self.periods))


class TableEncoder(TransformerMixin, BaseEstimator):
    """
    Numbers from a table with numbers, categories, dates, and missing cells.

    Numbers stay as they are; missing ones become the median of their column, beside a column that
    is 1 where they were missing. Text, booleans, and columns named in ``categories`` become one
    indicator column for each level (at most 30; rarer and unknown levels are all zeros). Dates
    become days since 1970 and, if the column covers at least two of them, the sine and the cosine
    of the periods year, week and day. Constant columns, repeated columns, and text that differs in
    most rows are dropped. Columns are found by name, in any order.

    After ``fit``, ``columns_`` holds one :class:`Column` for each column, ``notes_`` the sentences
    that say what was done, and ``encoder_`` the scikit-learn transformer made of them.

    :param categories: names of columns of numbers that are categories.
    """

    def __init__(self, categories: Sequence[str] = ()) -> None:
        self.categories = categories

    def fit(self, X: Any, y: Any = None) -> "TableEncoder":
        """
        Learn kinds, medians and levels of the columns.

        :param X: a DataFrame, or an array, whose columns are then called x0, x1, and so on.
        :raises ValueError: if no column is left, or a name in ``categories`` is unknown.
        """
        frame = as_frame(X)
        unknown = [name for name in self.categories if name not in frame.columns]
        if unknown:
            raise ValueError(
                f"categories must be columns of X, got {unknown}; X has {list(frame.columns)[:20]}."
            )
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = frame.shape[1]
        columns = [learn_column(frame[name], as_category=name in self.categories) for name in frame]
        self.columns_ = tuple(_without_repeated(frame, columns))
        self.encoder_ = _encoder(self.columns_)
        return self

    @classmethod
    def from_columns(cls, columns: Sequence[Column]) -> "TableEncoder":
        """The fitted encoder with these columns."""
        encoder = cls()
        encoder.columns_ = tuple(columns)
        encoder.feature_names_in_ = np.array([c.name for c in columns], dtype=object)
        encoder.n_features_in_ = len(columns)
        encoder.encoder_ = _encoder(encoder.columns_)
        return encoder

    def transform(self, X: Any) -> np.ndarray:
        """
        The encoded table [N, D], float64.

        :param X: a table with at least the columns that are used.
        :raises ValueError: if a column is missing.
        """
        frame = as_frame(X, list(self.feature_names_in_))
        used = [column for column in self.columns_ if column.kind != "dropped"]
        absent = [column.name for column in used if column.name not in frame.columns]
        if absent:
            raise ValueError(
                f"X lacks columns of the training data: {listed(absent)}; it has "
                f"{listed(list(frame.columns))}."
            )
        return np.asarray(self.encoder_.transform(frame), dtype=np.float64)

    def gaps(self, X: Any) -> tuple[str, ...]:
        """
        One sentence for each column of ``X`` with missing cells, or with levels that are unknown.

        :param X: a table with the columns that are used.
        """
        frame = as_frame(X, list(self.feature_names_in_))
        used = [c for c in self.columns_ if c.kind != "dropped" and c.name in frame.columns]
        return tuple(note for column in used if (note := _gaps(column, frame[column.name])))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the D encoded columns."""
        return np.array([name for column in self.columns_ for name in _encoded_names(column)])

    @property
    def notes_(self) -> tuple[str, ...]:
        """One sentence for each column that is more than plain numbers."""
        return tuple(column.note for column in self.columns_ if column.note)


def as_frame(X: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """
    ``X`` as a DataFrame with texts as column names.

    :param names: names of the columns of an array; default x0, x1, and so on.
    :raises ValueError: if ``X`` has other than two axes, or another number of columns than names.
    """
    if isinstance(X, pd.DataFrame):
        named = X.set_axis([str(name) for name in X.columns], axis=1)
        repeated = sorted(set(named.columns[named.columns.duplicated()]))
        if repeated:
            raise ValueError(f"X must have columns of different names, {listed(repeated)} repeat.")
        return named.apply(_plain) if len(named.columns) else named
    X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be a table with rows and columns, got shape {X.shape}.")
    names = [f"x{i}" for i in range(X.shape[1])] if names is None else names
    if X.shape[1] != len(names):
        raise ValueError(f"X must have {len(names)} columns as in training, got {X.shape[1]}.")
    return pd.DataFrame(X, columns=list(names))


def _plain(cells: pd.Series) -> pd.Series:
    """The cells without types of Arrow: dates as dates, durations as days."""
    if isinstance(cells.dtype, pd.ArrowDtype):
        kind = str(cells.dtype.pyarrow_dtype)
        if kind.startswith(("timestamp", "date")):
            cells = pd.to_datetime(cells.astype(object), utc=True)
        elif kind.startswith("duration"):
            cells = pd.to_timedelta(cells.astype(object))
        elif kind.startswith(("list", "large_list", "struct", "map")):
            raise ValueError(f"column {cells.name!r} must hold single values, got {kind}; drop it.")
    if pd.api.types.is_timedelta64_dtype(cells.dtype):
        return cells / pd.Timedelta(days=1)
    return cells


def learn_column(cells: pd.Series, *, as_category: bool = False) -> Column:
    """The kind of a column from its cells, and what encoding it needs."""
    name, missing = str(cells.name), is_missing(cells)
    present = cells[~missing]
    if not len(present):
        return Column(name, "dropped", note=f"{name!r} is empty and not used.")
    is_numeric = pd.api.types.is_numeric_dtype(present.dtype)
    distinct = (present if is_numeric else present.astype(str)).nunique()
    if distinct == 1 and not missing.any():
        return Column(name, "dropped", note=f"{name!r} is constant and not used.")
    if as_category or pd.api.types.is_bool_dtype(present.infer_objects()):
        return _category(name, present, missing)
    if pd.api.types.is_datetime64_any_dtype(cells):
        return _date(name, present, missing, num_strange=0)
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return _category(name, present, missing)
    decimal = decimal_mark(present, ".")
    values = numbers(present, decimal)
    if np.isfinite(values).mean() >= _MOST_CELLS:
        return _number(name, cells, decimal)
    texts = present.astype(str)
    if fraction_of(present, DATE) >= _MOST_CELLS:
        dates = days(present, date_order(texts)[0])
        if np.isfinite(dates).mean() >= _MOST_CELLS:
            return _date(name, present, missing, num_strange=int((~np.isfinite(dates)).sum()))
    if distinct > max(_IDENTIFIER * len(texts), _LEAST_ROWS_OF_IDENTIFIER):
        return Column(
            name,
            "dropped",
            note=f"{name!r} has {distinct} texts in {len(texts)} rows, which name rows rather "
            "than groups, and is not used.",
        )
    return _category(name, present, missing)


def _number(name: str, cells: pd.Series, decimal: str) -> Column:
    values = numbers(cells, decimal)
    finite = np.isfinite(values)
    strange = cells[~finite & ~is_missing(cells)]
    fill, missing, parts = float(np.median(values[finite])), not finite.all(), []
    if decimal == ",":
        parts.append("is read with decimal commas")
    elif fraction_of(cells, THOUSANDS) > 0.0:
        parts.append("is read with separators of thousands")
    if len(strange):
        parts.append(f"has {len(strange)} cells that are no numbers, such as {strange.iloc[0]!r}")
    if missing:
        count = int((~finite).sum())
        parts.append(f"misses {count} of {len(cells)} values, which are set to the median {fill:g}")
    note = f"{name!r} {', and '.join(parts)}." if parts else ""
    if values[finite].min() == values[finite].max():
        if not missing:
            return Column(name, "dropped", note=f"{name!r} is constant and not used.")
        note = f"{name!r} is {fill:g} or missing: only which of both is used."
    return Column(name, "number", fill, missing, decimal, note=note)


def _category(name: str, present: pd.Series, missing: np.ndarray) -> Column:
    counts = pd.Series(labels_of(present)).value_counts()
    counts = counts.sort_index(kind="stable").sort_values(ascending=False, kind="stable")
    levels = tuple(sorted(counts.index[:_MOST_LEVELS]))
    note = f"{name!r} is a category of {len(counts)} levels"
    if len(counts) > len(levels):
        note += f"; the {len(levels)} most frequent have a column each"
    if missing.any():
        levels = tuple(dict.fromkeys((*levels, _MISSING_LEVEL)))
        note += f"; {int(missing.sum())} missing cells are a level of their own"
    return Column(name, "category", missing=bool(missing.any()), levels=levels, note=f"{note}.")


def _date(name: str, present: pd.Series, missing: np.ndarray, num_strange: int) -> Column:
    texts = present.astype(str) if is_text(present) else pd.Series(dtype=str)
    day_first, order = date_order(texts)
    values = days(present, day_first)
    values = values[np.isfinite(values)]
    span = float(values.max() - values.min())
    # dates that are whole periods apart are all at the same time of the period
    periods = tuple(
        period
        for period, length in _DAYS.items()
        if span >= 2 * length and np.ptp(_waves(values, period), axis=0).any()
    )
    formats = date_formats(texts)
    parts = [f"{name!r} is a date", order] if order else [f"{name!r} is a date"]
    if len(formats) > 1:
        examples = " and ".join(repr(text.strip()) for text in formats[:2])
        parts[0] += f" in {len(formats)} formats, such as {examples}"
    note = f"{', '.join(parts)}: days since 1970"
    if periods:
        note += f" and the time of {', '.join(periods)}"
    gaps = int(missing.sum()) + num_strange
    if gaps:
        note += f"; {gaps} missing dates are set to the median"
    fill = float(np.median(values))
    return Column(
        name, "date", fill, gaps > 0, day_first=day_first, periods=periods, note=f"{note}."
    )


def _without_repeated(frame: pd.DataFrame, columns: Sequence[Column]) -> list[Column]:
    """The columns, those with the same cells as an earlier one dropped."""
    seen: dict[bytes, str] = {}
    kept = []
    for column in columns:
        if column.kind != "dropped":
            cells = frame[column.name]
            if not pd.api.types.is_numeric_dtype(cells.dtype):
                cells = cells.astype(str)
            key = pd.util.hash_pandas_object(cells, index=False)
            first = seen.setdefault(key.to_numpy().tobytes(), column.name)
            if first != column.name:
                note = f"{column.name!r} repeats {first!r} and is not used."
                column = Column(column.name, "dropped", note=note)
        kept.append(column)
    if all(column.kind == "dropped" for column in kept):
        raise ValueError(
            "X must have a column that varies; " + " ".join(c.note for c in kept[:5] if c.note)
        )
    return kept


def _encoder(columns: Sequence[Column]) -> ColumnTransformer:
    """The fitted transformer of the columns: all that it needs is in them."""
    steps = [
        (f"{i}", _transformer(column), [column.name])
        for i, column in enumerate(columns)
        if column.kind != "dropped"
    ]
    example = {}
    for column in columns:
        filled = "1970-01-01" if column.kind == "date" else column.fill
        cells = [*column.levels] if column.levels else [filled]
        example[column.name] = pd.Series(cells[:1], dtype=object)
    return ColumnTransformer(steps).fit(pd.DataFrame(example))


def _transformer(column: Column) -> Any:
    read = FunctionTransformer(
        {"number": _read_numbers, "category": _read_levels, "date": _read_dates}[column.kind],
        kw_args={"column": column},
    )
    if column.kind == "category":
        one_hot = OneHotEncoder(
            categories=[list(column.levels)], handle_unknown="ignore", sparse_output=False
        )
        return make_pipeline(read, one_hot)
    return read


def _read_numbers(frame: pd.DataFrame, column: Column) -> np.ndarray:
    values = numbers(frame[column.name], column.decimal)
    return _filled(values, column)


def _filled(values: np.ndarray, column: Column) -> np.ndarray:
    """The values with gaps filled [N, 1], beside an indicator of gaps if training had some."""
    gaps = np.isnan(values)
    columns = [np.where(gaps, column.fill, values)]
    return np.stack([*columns, gaps.astype(np.float64)] if column.missing else columns, axis=1)


def _read_levels(frame: pd.DataFrame, column: Column) -> np.ndarray:
    cells = frame[column.name]
    return np.where(is_missing(cells), _MISSING_LEVEL, labels_of(cells))[:, None]


def _read_dates(frame: pd.DataFrame, column: Column) -> np.ndarray:
    values = _filled(days(frame[column.name], column.day_first), column)
    waves = [_waves(values[:, 0], period) for period in column.periods]
    return np.concatenate([values, *waves], axis=1)


def _waves(days_since: np.ndarray, period: str) -> np.ndarray:
    """Sine and cosine of the time of a period [N, 2]."""
    angle = 2 * np.pi * days_since / _DAYS[period]
    return np.round(np.stack([np.sin(angle), np.cos(angle)], axis=1), _DECIMALS)


def _gaps(column: Column, cells: pd.Series) -> str:
    """One sentence on the cells of a column that cannot be taken as they are; or no text."""
    if column.kind == "category":
        unknown = ~np.isin(_read_levels(cells.to_frame(), column)[:, 0], column.levels)
        strange = "are other levels than in training; they are encoded as zeros"
    else:
        is_date = column.kind == "date"
        read = days(cells, column.day_first) if is_date else numbers(cells, column.decimal)
        unknown = ~np.isfinite(read)
        if unknown.all():
            raise ValueError(
                f"{column.name!r} must hold {'dates' if is_date else 'numbers'} as in training, "
                f"but no cell can be read, such as {str(cells.iloc[0])!r}."
            )
        strange = (
            f"are missing or unreadable, and are set to the median of training, {column.fill:g}"
        )
    count = int(unknown.sum())
    return f"{count} of {len(cells)} cells of {column.name!r} {strange}." if count else ""


def _encoded_names(column: Column) -> list[str]:
    if column.kind == "dropped":
        return []
    if column.kind == "category":
        return [f"{column.name}={level}" for level in column.levels]
    gap = [f"{column.name} missing"] if column.missing else []
    waves = [f"{column.name} {wave} of {p}" for p in column.periods for wave in ("sine", "cosine")]
    return [column.name, *gap, *waves]
