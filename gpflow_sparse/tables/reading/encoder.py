"""The encoding of a table as a matrix of numbers."""

import dataclasses
import hashlib
import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import TargetEncoder
from sklearn.utils.validation import check_is_fitted

from gpflow_sparse.data.limits import listed
from gpflow_sparse.tables.reading.cells import (
    OTHER,
    ReadingOptions,
    cells_of,
    is_missing,
    labels_of,
    parse_number,
    places,
)
from gpflow_sparse.tables.reading.columns import (
    MAX_LEVELS,
    Column,
    described,
    learn_column,
    seasonal_features,
    unreadable_cells,
    usual_decimal,
)
from gpflow_sparse.tables.reading.sphere import points_of, sphere_features
from gpflow_sparse.tables.reading.tables import as_frame
from gpflow_sparse.validation.atomic import atomic

# Most classes that have a column of averages each.
_MAX_CLASSES = 10


class TableWarning(UserWarning):
    """Cells of a table that cannot be read, or a column that varies and is not used."""


class TableEncoder(TransformerMixin, BaseEstimator):
    """
    Numbers from a table with numbers, categories, dates, and missing cells.

    Numbers stay as they are; missing ones become the median of their column, beside a column that
    is 1 where they were missing. Text, booleans, and columns named in ``categories`` become one
    indicator column for each level (at most 30; rarer and unknown levels are all zeros). Where
    there are more levels, and targets are given, the average target of the level stands beside
    these, for unknown levels the average of all rows; :meth:`fit_transform` gives training rows
    averages of other rows, as they are meant to be used. Dates become days since 1970 and, if the
    column covers at least two of them, sine and cosine of the year, the week, the day, and half of
    the latter, and the number of the weekday, in local time. Longitudes and latitudes become points
    of the sphere. Constant columns, repeated columns, and text that differs in most rows are
    dropped. Columns are found by name, in any order.

    How cells are read - decimal mark, unit, order of day and month - is decided by ``fit``, and
    each cell of a later table is read so, whatever else that table holds. After ``fit``,
    ``columns_`` holds one :class:`Column` for each column, and ``notes_`` the sentences that say
    what was done.

    :param categories: names of columns of numbers that are categories.
    :param options: how cells are read where they do not show it; None for the defaults.
    """

    def __init__(
        self, categories: Sequence[str] = (), options: ReadingOptions | None = None
    ) -> None:
        self.categories = categories
        self.options = options

    @atomic
    def fit(self, X: Any, y: Any = None, num_classes: int | None = None) -> "TableEncoder":
        """
        Learn kinds, medians and levels of the columns.

        :param X: a DataFrame, or an array, whose columns are then called x0, x1, and so on.
        :param y: targets [N], numbers or integer labels; without these there are no averages.
        :param num_classes: None for numbers.
        :raises ValueError: if no column is left, a name in ``categories`` is unknown, or dates have
            years of two digits.
        """
        frame, options = as_frame(X), self.options or ReadingOptions()
        unknown = [name for name in self.categories if name not in frame.columns]
        if unknown:
            raise ValueError(
                f"categories must be columns of X, got {unknown}; X has {list(frame.columns)[:20]}."
            )
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = frame.shape[1]
        # split_target has seen the target too, which may be the only column with decimals
        usual = frame.attrs["decimal"] if "decimal" in frame.attrs else usual_decimal(frame)
        columns: list[Column] = []
        self._lost: list[str] = []
        seen: dict[tuple[str, bytes], str] = {}
        for name in frame:
            as_category = isinstance(frame[name].dtype, pd.CategoricalDtype)
            as_category = as_category or name in self.categories
            cells = cells_of(frame[name], options.na_values)
            column = learn_column(name, cells, options, usual, as_category=as_category)
            if column.kind != "dropped":
                key = column.kind, _meaning(column, cells)
                if (earlier := seen.setdefault(key, name)) != name:
                    note = f"{name!r} repeats {earlier!r} and is not used."
                    column = Column(name, "dropped", note=note)
            elif len(set(labels_of(cells))) > 1:
                self._lost.append(name)
            columns.append(column)
        if not seen:
            reasons = " ".join(column.note for column in columns[:5])
            raise ValueError(f"X must have a column that varies; {reasons}")
        self.columns_ = tuple(points_of(columns, frame, options.lonlat))
        self.columns_ = tuple(column for column, _ in self._averaged(frame, y, num_classes))
        return self

    def fit_transform(self, X: Any, y: Any = None, num_classes: int | None = None) -> np.ndarray:
        """Learn the columns, see :meth:`fit`, and encode the training rows [N, D]."""
        return self.fit(X, y, num_classes).transform_training(X, y, num_classes)

    def transform_training(self, X: Any, y: Any, num_classes: int | None = None) -> np.ndarray:
        """The encoded training rows [N, D], with averages of other rows than each."""
        frame, start = as_frame(X, list(self.feature_names_in_)), 0
        values, _ = self.encode(frame)
        for column, averages in self._averaged(frame, y, num_classes):
            first = start + len(column.levels)
            values[:, first : first + averages.shape[1]] = averages
            start += column.width
        return values

    def _averaged(
        self, frame: pd.DataFrame, y: Any, num_classes: int | None
    ) -> Iterator[tuple[Column, np.ndarray]]:
        """The columns with averages, and the averages [N, A] of the training rows."""
        targets = np.ravel(np.asarray(y))
        usable = y is not None and len(targets) == len(frame) and targets.dtype.kind in "biuf"
        for column in self.columns_:
            if usable and column.kind == "category" and len(column.levels) >= MAX_LEVELS:
                labels = labels_of(column.cells(frame))
                if len(set(labels)) > MAX_LEVELS:
                    yield _with_averages(column, labels, targets, num_classes)
                    continue
            yield column, np.empty((len(frame), 0))

    @classmethod
    def from_columns(cls, columns: Sequence[Column]) -> "TableEncoder":
        """
        The fitted encoder with these columns.

        :raises ValueError: for longitudes without the column of their latitudes.
        """
        kinds = {column.name: column.kind for column in columns}
        for column in columns:
            if column.latitude and kinds.get(column.latitude) != "latitude":
                raise ValueError(f"column {column.name!r} must have latitudes beside it.")
        encoder = cls()
        encoder.columns_ = tuple(columns)
        encoder.feature_names_in_ = np.array([c.name for c in columns], dtype=object)
        encoder.n_features_in_ = len(columns)
        return encoder

    def transform(self, X: Any) -> np.ndarray:
        """
        The encoded table [N, D], float64; a warning names cells that cannot be read as in training.

        :param X: a table with at least the columns that are used.
        :raises ValueError: if a column is missing, or none of its cells can be read.
        """
        check_is_fitted(self, "columns_")
        values, gaps = self.encode(self.select(X))
        for column, _, found in gaps:
            if found:
                warnings.warn(
                    f"{column.name!r} has {described(found, column.kind)}, set to the median of "
                    f"training, {column.fill:g}.",
                    stacklevel=3,
                )
        return values

    def select(self, X: Any, source: Any = "X") -> pd.DataFrame:
        """
        The columns of training in a table, empty ones for those that are not used and lack.

        :param source: the table, in errors.
        :raises ValueError: if a column that is used is missing.
        """
        check_is_fitted(self, "columns_")
        frame, names = as_frame(X, list(self.feature_names_in_)), list(self.feature_names_in_)
        if absent := [column.name for column in self._used if column.name not in frame.columns]:
            raise ValueError(
                f"{source} lacks columns of the training data: {listed(absent)}; it has "
                f"{listed(list(frame.columns))}."
            )
        return frame if list(frame.columns) == names else frame.reindex(columns=names)

    @property
    def _used(self) -> list[Column]:
        return [column for column in self.columns_ if column.kind != "dropped"]

    def encode(self, frame: pd.DataFrame) -> tuple[np.ndarray, list[tuple[Column, int, list[str]]]]:
        """
        The encoded table [N, D]; and each column of numbers or dates with cells that were set to
        the median, their count, and those that cannot be read.

        :param frame: a table with the columns that are used, from :func:`as_frame`.
        """
        values = np.empty((len(frame), sum(column.width for column in self._used)))
        gaps, start = [], 0
        for column in self._used:
            part, count, strange = _encoded(column, column.cells(frame))
            if column.latitude:
                other = next(c for c in self._used if c.name == column.latitude)
                latitudes = _encoded(other, other.cells(frame))[0][:, 0]
                part = np.hstack([sphere_features(part[:, 0], latitudes), part[:, 1:]])
            elif column.kind == "latitude":
                part[:, 0] = np.sin(np.radians(part[:, 0]))
            values[:, start : start + column.width] = part
            gaps += [(column, count, strange)] if count else []
            start += column.width
        return values, gaps

    def gaps(self, X: Any) -> tuple[str, ...]:
        """
        One sentence for each column of ``X`` with missing cells, with levels that are unknown, or
        with separators of thousands that training did not have.

        :param X: a table with the columns that are used.
        """
        frame = as_frame(X, list(self.feature_names_in_))
        used = [column for column in self._used if column.name in frame.columns]
        return tuple(note for column in used for note in gaps_of(column, column.cells(frame)))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the D encoded columns, which differ: a name that repeats gets a number."""
        taken = {column.name for column in self._used if column.kind != "category"}
        names = (name for column in self._used for name in _names_of(column, taken))
        return np.array(list(names), dtype=object)

    def warn_of_losses(self, X: Any) -> None:
        """Warn of columns of training rows that vary and are not used, and of unreadable cells."""
        frame = as_frame(X, list(self.feature_names_in_))
        notes = [column.note for column in self.columns_ if column.name in self._lost]
        notes += [
            f"{column.name!r} has {described(found, column.kind)}, set to the median."
            for column, _, found in self.encode(frame)[1]
            if found
        ]
        for note in notes:
            warnings.warn(note, TableWarning, stacklevel=6)

    @property
    def notes_(self) -> tuple[str, ...]:
        """One sentence for each column that is more than plain numbers."""
        return tuple(column.note for column in self.columns_ if column.note)


def _meaning(column: Column, cells: np.ndarray) -> bytes:
    """A hash of the values of the cells of a column, equal for cells that mean the same."""
    if column.kind == "category":
        content = "\0".join(labels_of(cells)).encode(errors="surrogatepass")
    else:
        content = (column.values(cells) + 0.0).tobytes()  # -0 + 0 is 0
    return hashlib.sha256(content).digest()


def _encoded(column: Column, cells: np.ndarray) -> tuple[np.ndarray, int, list[str]]:
    """
    The encoded columns of one that is used [N, width], the number of cells that were set to the
    median, and those that cannot be read.

    :raises ValueError: if no cell can be read, and training had no missing ones.
    """
    if column.kind == "category":
        labels = labels_of(cells)
        indicators = places(labels, column.levels)[:, None] == np.arange(len(column.levels))
        return np.hstack([indicators, _averages_of(column, labels)]), 0, []
    values = column.values(cells)
    gaps = np.isnan(values)
    strange = unreadable_cells(cells, values) if gaps.any() else []
    if strange and gaps.all() and not column.missing:
        found = described(strange, column.kind)
        raise ValueError(f"{column.name!r} must hold {column.kind}s as in training, has {found}.")
    values = np.where(gaps, column.fill, values)
    parts = [values, gaps] if column.missing else [values]
    seasons = (seasonal_features(values, period) for period in column.periods)
    return np.column_stack([*parts, *seasons]), int(gaps.sum()), strange


def gaps_of(column: Column, cells: np.ndarray) -> Iterator[str]:
    """Sentences on cells of a column of a later table that are other than in training."""
    name, count = column.name, len(cells)
    if column.kind == "category":
        known = column.averaged or column.levels
        if unknown := int((~np.isin(labels_of(cells), known)).sum()):
            yield (
                f"{unknown} of {count} cells of {name!r} are other levels than in training; they "
                f"are encoded as {'the average' if column.averaged else 'zeros'}."
            )
        return
    if missing := int(is_missing(cells).sum()):
        yield (
            f"{missing} of {count} cells of {name!r} are missing, and are set to the median of "
            f"training, {column.fill:g}."
        )
    if column.kind == "number" and cells.dtype == object and not column.thousands:
        mark, texts = column.decimal, [text for text in cells if text is not None]
        found = [t for t in texts if OTHER[mark] in t and mark in parse_number(t).values]
        if found:
            yield (
                f"{len(found)} of {count} cells of {name!r} have separators of thousands, unlike "
                f"cells of training, such as {found[0]!r}, which is read as "
                f"{parse_number(found[0]).values[mark]:g}."
            )


def _names_of(column: Column, taken: set[str]) -> list[str]:
    """
    Names of the encoded columns of one.

    :param taken: names of other columns; new names that differ from the column's own are added.
    """
    if column.kind == "category":
        own, others = [], [f"{column.name}={level}" for level in column.levels]
        numbers = range(1, column.num_averages + 1) if column.num_averages > 1 else [""]
        others += [f"{column.name}: average {i}".rstrip() for i in numbers if column.averaged]
    else:
        seasons = [
            word
            for p in column.periods
            for word in ([p] if p == "weekday" else [f"sine of {p}", f"cosine of {p}"])
        ]
        axes = {"longitude": ["x", "y"], "latitude": ["z"]}.get(column.kind, [])
        gap = ["missing"] if column.missing else []
        own = [] if axes else [column.name]
        others = [f"{column.name} {word}" for word in (*axes, *gap, *seasons)]
    for name in others:
        candidates = itertools.chain([name], (f"{name} ({i})" for i in itertools.count(2)))
        own.append(next(candidate for candidate in candidates if candidate not in taken))
        taken.add(own[-1])
    return own


def _with_averages(
    column: Column, labels: np.ndarray, targets: np.ndarray, num_classes: int | None
) -> tuple[Column, np.ndarray]:
    """
    A category with the average target of each level, and the averages of the training rows.

    Averages of few rows are moved towards the average of all rows, by scikit-learn's
    ``TargetEncoder``:
    Micci-Barreca, "A preprocessing scheme for high-cardinality categorical attributes in
    classification and prediction problems", SIGKDD Explorations 3 (2001). A training row has an
    average of other rows (five folds), or a level of one row would give its target away.

    :param labels: levels of the training rows [N].
    :param targets: numbers, or integer labels [N].
    :param num_classes: None for numbers; of more than two the averages are the frequencies of each.
    :return: the column with ``averages``, and the averages for the training rows [N, A]. With more
        than ten classes the column as it is, and A = 0.
    """
    if num_classes is not None and num_classes > _MAX_CLASSES:
        return column, np.empty((len(labels), 0))
    kind = "continuous"
    if num_classes is not None:
        kind, targets = ("binary" if num_classes == 2 else "multiclass"), targets.astype(int)
    encoder, levels = TargetEncoder(target_type=kind, random_state=0), np.unique(labels)
    out_of_fold = encoder.fit_transform(np.asarray(labels, object)[:, None], targets)
    table = [
        *encoder.transform(levels.astype(object)[:, None]),
        np.atleast_1d(encoder.target_mean_),
    ]
    averaged = dataclasses.replace(
        column,
        averaged=tuple(map(str, levels)),
        averages=tuple(np.concatenate(list(map(np.atleast_1d, table))).tolist()),
        note=f"{column.note[:-1]}; and every level the average target of its rows.",
    )
    return averaged, out_of_fold


def _averages_of(column: Column, labels: np.ndarray) -> np.ndarray:
    """The averages of the levels of rows [N, A]; for unknown levels of all training rows."""
    table = np.reshape(column.averages, (len(column.averaged) + 1, -1))
    return np.asarray(table[places(labels, column.averaged)])
