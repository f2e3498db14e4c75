"""The encoding of a table as a matrix of numbers."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpflow_sparse.data.limits import listed
from gpflow_sparse.tables.reading.cells import days, is_missing, labels_of, numbers, strange_marks
from gpflow_sparse.tables.reading.column_kinds import (
    MAX_LEVELS,
    MISSING_LEVEL,
    Column,
    learn_column,
    seasonal_features,
)
from gpflow_sparse.tables.reading.level_averages import averages_of, with_averages
from gpflow_sparse.validation.atomic import atomic

__all__ = ["Column", "TableEncoder"]

# Rows by which repeated columns are found, before all rows of such columns are compared.
_FIRST_ROWS = 50


class TableEncoder(TransformerMixin, BaseEstimator):
    """
    Numbers from a table with numbers, categories, dates, and missing cells.

    Numbers stay as they are; missing ones become the median of their column, beside a column that
    is 1 where they were missing. Text, booleans, and columns named in ``categories`` become one
    indicator column for each level (at most 30; rarer and unknown levels are all zeros). Where
    there are more levels, and targets are given, the average target of the level stands beside
    these, for unknown levels that of all rows. For the training rows :meth:`fit_transform` has
    averages of other rows, as they are meant to be used. Dates
    become days since 1970 and, if the column covers at least two of them, the sine and the cosine
    of the periods year, week and day. Constant columns, repeated columns, and text that differs in
    most rows are dropped. Columns are found by name, in any order.

    How cells are read - decimal mark, separators of thousands, currency or percent, order of day
    and month - is decided by ``fit``, and each cell of a later table is read so, whatever else that
    table holds. After ``fit``, ``columns_`` holds one :class:`Column` for each column, and
    ``notes_`` the sentences that say what was done.

    :param categories: names of columns of numbers that are categories.
    """

    def __init__(self, categories: Sequence[str] = ()) -> None:
        self.categories = categories

    @atomic
    def fit(self, X: Any, y: Any = None, num_classes: int | None = None) -> "TableEncoder":
        """
        Learn kinds, medians and levels of the columns.

        :param X: a DataFrame, or an array, whose columns are then called x0, x1, and so on.
        :param y: targets [N], numbers or integer labels; without these there are no averages.
        :param num_classes: None for numbers.
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
        self.columns_, _ = self._averaged(frame, y, num_classes)
        return self

    def fit_transform(self, X: Any, y: Any = None, num_classes: int | None = None) -> np.ndarray:
        """Learn the columns, see :meth:`fit`, and encode the training rows [N, D]."""
        return self.fit(X, y, num_classes).transform_training(X, y, num_classes)

    def transform_training(self, X: Any, y: Any, num_classes: int | None = None) -> np.ndarray:
        """The encoded training rows [N, D], with averages of other rows than each."""
        frame = as_frame(X, list(self.feature_names_in_))
        values = np.array(self.transform(X))  # may be a table, after set_output
        if any(column.averaged for column in self.columns_):
            parts, start = self._averaged(frame, y, num_classes)[1], 0
            for column in self.columns_:
                if column.name in parts:
                    first = start + len(column.levels)
                    values[:, first : first + column.num_averages] = parts[column.name]
                start += _width(column)
        return values

    def _averaged(
        self, frame: pd.DataFrame, y: Any, num_classes: int | None
    ) -> tuple[tuple[Column, ...], dict[str, np.ndarray]]:
        """The columns with averages, and the averages of the training rows by column."""
        columns, parts = [], {}
        targets = np.ravel(np.asarray(y))
        if y is None or len(targets) != len(frame) or targets.dtype.kind not in "biuf":
            return self.columns_, {}
        for column in self.columns_:
            labels = _levels(frame[column.name]) if column.kind == "category" else np.array([])
            if len(set(labels)) > MAX_LEVELS and len(column.levels) >= MAX_LEVELS:
                column, parts[column.name] = with_averages(column, labels, targets, num_classes)
            columns.append(column)
        return tuple(columns), parts

    @classmethod
    def from_columns(cls, columns: Sequence[Column]) -> "TableEncoder":
        """The fitted encoder with these columns."""
        encoder = cls()
        encoder.columns_ = tuple(columns)
        encoder.feature_names_in_ = np.array([c.name for c in columns], dtype=object)
        encoder.n_features_in_ = len(columns)
        return encoder

    def transform(self, X: Any) -> np.ndarray:
        """
        The encoded table [N, D], float64.

        :param X: a table with at least the columns that are used.
        :raises ValueError: if a column is missing, or has numbers that contradict each other when
            read as in training.
        """
        check_is_fitted(self, "columns_")
        frame = as_frame(X, list(self.feature_names_in_))
        used = [column for column in self.columns_ if column.kind != "dropped"]
        absent = [column.name for column in used if column.name not in frame.columns]
        if absent:
            raise ValueError(
                f"X lacks columns of the training data: {listed(absent)}; it has "
                f"{listed(list(frame.columns))}."
            )
        values = np.empty((len(frame), sum(map(_width, used))))
        start = 0
        for column in used:
            part = values[:, start : start + _width(column)]
            if column.kind == "number":
                require_one_mark(column, frame[column.name])
            part[:] = _encoded(column, frame[column.name])
            start += part.shape[1]
        return values

    def gaps(self, X: Any) -> tuple[str, ...]:
        """
        One sentence for each column of ``X`` with missing cells, or with levels that are unknown.

        :param X: a table with the columns that are used.
        """
        frame = as_frame(X, list(self.feature_names_in_))
        used = [c for c in self.columns_ if c.kind != "dropped" and c.name in frame.columns]
        return tuple(note for column in used for note in _gaps(column, frame[column.name]))

    def empty(self, X: Any) -> np.ndarray:
        """
        Which entries of the encoded table [N, D] stand for cells that are missing or cannot be
        read: values of numbers and dates. Missing cells of a category are a level of their own.

        :param X: a table with the columns that are used.
        """
        frame = as_frame(X, list(self.feature_names_in_))
        parts = [np.zeros((len(frame), 0), bool)]
        for column in self.columns_:
            if column.kind == "dropped":
                continue
            part = np.zeros((len(frame), _width(column)), bool)
            if column.kind != "category":
                part |= np.isnan(_values(column, frame[column.name]))[:, None]
                part[:, 1 : 1 + column.missing] = False  # the indicator itself is known
            parts.append(part)
        return np.concatenate(parts, axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the D encoded columns, which differ: a name that repeats gets a number."""
        own = {c.name for c in self.columns_ if c.kind in ("number", "date")}
        names = (name for column in self.columns_ for name in _names_of(column, own))
        return np.array(list(names), dtype=object)

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
        for name, kind in named.dtypes.items():
            if not _is_plain(kind):
                named[name] = _plain(named[name])
        return named
    X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be a table with rows and columns, got shape {X.shape}.")
    names = [f"x{i}" for i in range(X.shape[1])] if names is None else names
    if X.shape[1] != len(names):
        raise ValueError(f"X must have {len(names)} columns as in training, got {X.shape[1]}.")
    return pd.DataFrame(X, columns=list(names))


def _is_plain(kind: Any) -> bool:
    """Whether a column has a type of NumPy but complex numbers and durations."""
    return isinstance(kind, np.dtype) and kind.kind not in "cm"


def _plain(cells: pd.Series) -> pd.Series:
    """The cells without types of Arrow: dates and periods as dates, durations as days."""
    kind = cells.dtype
    if isinstance(kind, pd.ArrowDtype):
        arrow = str(kind.pyarrow_dtype)
        if arrow.startswith(("timestamp", "date")):
            cells = pd.to_datetime(cells.astype(object), utc=True)
        elif arrow.startswith("duration"):
            cells = pd.to_timedelta(cells.astype(object))
        elif arrow.startswith(("list", "large_list", "struct", "map")):
            raise ValueError(
                f"column {cells.name!r} must hold single values, got {arrow}; drop it."
            )
    if isinstance(kind, pd.PeriodDtype):
        return cells.dt.to_timestamp()
    if isinstance(kind, pd.SparseDtype):
        return cells.sparse.to_dense()
    if pd.api.types.is_complex_dtype(kind):
        raise ValueError(f"column {cells.name!r} must hold real numbers, got {kind}; split it.")
    if pd.api.types.is_timedelta64_dtype(cells.dtype):
        return cells / pd.Timedelta(days=1)
    return cells


def _without_repeated(frame: pd.DataFrame, columns: Sequence[Column]) -> list[Column]:
    """The columns, without columns that mean the same as an earlier one in every row."""
    seen: dict[tuple[str, bytes], list[Column]] = {}
    kept = []
    for column in columns:
        if column.kind != "dropped":
            first_rows = frame[column.name][:_FIRST_ROWS]
            alike = seen.setdefault((column.kind, _meaning(column, first_rows)), [])
            same = (c for c in alike if _is_same(frame, c, column))
            if (earlier := next(same, None)) is None:
                alike.append(column)
            else:
                note = f"{column.name!r} repeats {earlier.name!r} and is not used."
                column = Column(column.name, "dropped", note=note)
        kept.append(column)
    if all(column.kind == "dropped" for column in kept):
        raise ValueError(
            "X must have a column that varies; " + " ".join(c.note for c in kept[:5] if c.note)
        )
    return kept


def _is_same(frame: pd.DataFrame, first: Column, second: Column) -> bool:
    return _meaning(first, frame[first.name]) == _meaning(second, frame[second.name])


def _meaning(column: Column, cells: pd.Series) -> bytes:
    """The values of the cells of a column, equal for cells that mean the same."""
    if column.kind == "category":
        return "\0".join(_levels(cells)).encode(errors="surrogatepass")
    return (_values(column, cells) + 0.0).tobytes()  # -0 + 0 is 0


def _values(column: Column, cells: pd.Series) -> np.ndarray:
    """Numbers, or days since 1970 [N], NaN for cells that are none."""
    if column.kind == "date":
        return days(cells, column.day_first)
    return numbers(cells, column.reading)


def _levels(cells: pd.Series) -> np.ndarray:
    return np.where(is_missing(cells), MISSING_LEVEL, labels_of(cells))


def _width(column: Column) -> int:
    """The number of encoded columns."""
    if column.kind == "dropped":
        return 0
    if column.kind == "category":
        return len(column.levels) + column.num_averages
    return 1 + column.missing + 2 * len(column.periods)


def _encoded(column: Column, cells: pd.Series) -> np.ndarray:
    """
    The encoded columns of one that is used ``[N, _width(column)]``.

    Numbers and dates with gaps filled, beside an indicator of gaps if training had some.
    """
    if column.kind == "category":
        labels = _levels(cells)
        indicators = labels[:, None] == np.array(column.levels, dtype=object)
        return (
            np.hstack([indicators, averages_of(column, labels)]) if column.averaged else indicators
        )
    values = _values(column, cells)
    gaps = np.isnan(values)
    values = np.where(gaps, column.fill, values)
    parts = [values, gaps] if column.missing else [values]
    return np.column_stack(
        [*parts, *(seasonal_features(values, period) for period in column.periods)]
    )


def _gaps(column: Column, cells: pd.Series) -> Iterator[str]:
    """Sentences on the cells of a column that are other than in training."""
    name, count = column.name, len(cells)
    if column.kind == "category":
        known = column.averaged or column.levels
        if unknown := int((~np.isin(_levels(cells), known)).sum()):
            yield (
                f"{unknown} of {count} cells of {name!r} are other levels than in training; they "
                f"are encoded as {'the average' if column.averaged else 'zeros'}."
            )
        return
    missing, unknown = is_missing(cells), np.isnan(_values(column, cells))
    if unknown.all() and not missing.all() and not column.missing:
        raise ValueError(
            f"{name!r} must hold {'dates' if column.kind == 'date' else 'numbers'} as in training, "
            f"but no cell can be read, such as {str(cells[~missing].iloc[0])!r}."
        )
    if unknown.any():
        yield (
            f"{int(unknown.sum())} of {count} cells of {name!r} are missing or unreadable, and are "
            f"set to the median of training, {column.fill:g}."
        )
    if column.kind == "number":
        yield from other_marks(column, cells)


def require_one_mark(column: Column, cells: pd.Series) -> None:
    """
    :raises ValueError: for cells such as 0,25 beside 1,234 where training had points before
        decimals and no separators of thousands: each is clear alone, but not both.
    """
    grouped, other = strange_marks(cells, column.reading)
    if grouped and other:
        raise ValueError(
            f"{column.name!r} must be written as in training, with {column.decimal!r} before "
            f"decimals; got {other[0]!r}, so that {grouped[0]!r} has decimals or separators of "
            "thousands."
        )


def other_marks(column: Column, cells: pd.Series) -> Iterator[str]:
    """Sentences on numbers that are written otherwise than in training."""
    grouped, other = strange_marks(cells, column.reading)
    for texts, words in ((grouped, "separators of thousands"), (other, "another decimal mark")):
        if texts:
            value = numbers(pd.Series(texts[:1]), column.reading)[0]
            yield (
                f"{len(texts)} of {len(cells)} cells of {column.name!r} have {words}, unlike cells "
                f"of training, such as {texts[0]!r}, which is read as {value:g}."
            )


def _names_of(column: Column, taken: set[str]) -> list[str]:
    """
    Names of the encoded columns of one.

    :param taken: names of other columns; new names that differ from the column's own are added.
    """
    if column.kind == "dropped":
        return []
    if column.kind == "category":
        own, others = [], [f"{column.name}={level}" for level in column.levels]
        numbers = range(1, column.num_averages + 1) if column.num_averages > 1 else [""]
        others += [f"{column.name}: average {i}".rstrip() for i in numbers if column.averaged]
    else:
        pairs = ((wave, p) for p in column.periods for wave in ("sine", "cosine"))
        others = [f"{column.name} missing"] if column.missing else []
        own, others = [column.name], [*others, *(f"{column.name} {w} of {p}" for w, p in pairs)]
    for name in others:
        number = itertools.count(2)
        distinct = name
        while distinct in taken:
            distinct = f"{name} ({next(number)})"
        taken.add(distinct)
        own.append(distinct)
    return own
