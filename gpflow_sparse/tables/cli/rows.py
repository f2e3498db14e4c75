"""The rows of a run: a named data set or a file, split into training and test rows."""

import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pandas as pd
from pandas.util import hash_pandas_object

from gpflow_sparse.data import load
from gpflow_sparse.data.images import ImageShape
from gpflow_sparse.data.limits import read_npz
from gpflow_sparse.tables.fitting.copies import distinct_rows_of
from gpflow_sparse.tables.fitting.splits import AUTO, RANDOM, TIME, groups_of, held_out_rows
from gpflow_sparse.tables.fitting.transforms import advice_on
from gpflow_sparse.tables.fitting.weights import advice_on_mean
from gpflow_sparse.tables.reading.cells import ReadingOptions, cells_of, labels_of
from gpflow_sparse.tables.reading.columns import Column
from gpflow_sparse.tables.reading.tables import (
    DEFAULT,
    as_frame,
    column_named,
    notes_of,
    read_frame,
)
from gpflow_sparse.tables.reading.targets import Target, amounts, read_target, split_target

# Two rows for training, in which a column may vary, and one for testing.
_MIN_ROWS = 3


@dataclass(frozen=True)
class Source:
    """Where the rows of a run come from, and how they are split; stored in its record."""

    data: str
    """The absolute path of a file, or the name of a data set."""
    target: str | None = None
    """The column to predict; None for the last."""
    task: str | None = None
    row_weights: str | None = None
    """The column of weights; None for weights of 1."""
    split: int | str = AUTO
    """Number of a random split; or "random" (the number 0), "time", or "auto"."""
    split_by: str | None = None
    """The column of groups that are held out together, which is not an input; None for none."""
    exclude: tuple[str, ...] = ()
    """Columns that are not inputs."""
    reading: ReadingOptions = DEFAULT
    """How a file is read."""
    drop_bad_targets: bool = False
    """Whether rows are left out whose target is not a number."""

    @property
    def is_file(self) -> bool:
        """Whether the rows are in a file."""
        return bool(Path(self.data).suffix)

    @property
    def name(self) -> str:
        """The name of the file or the data set."""
        return Path(self.data).name


class Rows(NamedTuple):
    """Rows of a table with what is observed there."""

    X: pd.DataFrame
    y: np.ndarray
    """Numbers, or labels as texts [N]."""
    weights: np.ndarray | None
    """Weights of the rows [N]; None for 1."""
    groups: np.ndarray | None = None
    """Labels [N] of groups that are held out together, or in rows to score of groups whose errors
    may depend on each other; None where each row is its own."""

    @property
    def num_groups(self) -> int:
        """The number of different groups."""
        return len(self.y) if self.groups is None else len(np.unique(self.groups))

    def take(self, places: np.ndarray) -> "Rows":
        """Some of the rows."""
        of_rows = (None if part is None else part[places] for part in (self.weights, self.groups))
        return Rows(self.X.iloc[places], self.y[places], *of_rows)


class Split(NamedTuple):
    """Training and test rows of a run."""

    train: Rows
    test: Rows
    target: Column
    notes: tuple[str, ...]
    """Sentences on what was inferred, and what was left out."""
    kind: str
    """What kind of rows the test rows are."""
    image_shape: ImageShape | None = None
    """Height, width and channels, where rows are known to be images."""
    split: int | str = 0
    """The split of the source, or what "auto" has become."""

    def joined(self) -> Rows:
        """All rows, in the order of the file."""
        frames, outputs, weights, _ = zip(self.train, self.test, strict=True)
        order = np.argsort(np.concatenate([frame.index for frame in frames]))
        of_rows = None if weights[0] is None else np.concatenate(weights)[order]
        return Rows(pd.concat(frames).iloc[order], np.concatenate(outputs)[order], of_rows)

    @property
    def checksum(self) -> str:
        """CRC-32 of inputs, outputs and weights in hexadecimal digits."""
        found = 0
        for X, y, weights, _ in (self.train, self.test):
            frame = X.assign(**{"": y, " ": 1.0 if weights is None else weights})
            text = "\n".join(map(str, frame.columns)).encode()
            found = zlib.crc32(
                text + hash_pandas_object(frame, index=False).to_numpy().tobytes(), found
            )
        return f"{found:08x}"


def split_rows(source: Source) -> Split:
    """
    The rows of a run. A tenth of a file is for testing, after copies of rows have been left out of
    a regression: random rows, whole groups, or the last rows in time. A file of images with
    ``x_train, y_train, x_test, y_test``, as Keras has them, has its own test rows.

    :raises ValueError: for columns that cannot be used, or too few rows.
    :raises FileNotFoundError: if there is no such file.
    """
    if not source.is_file or _has_test_images(Path(source.data)):
        return _named_set(source)
    cells = read_frame(source.data, source.reading)
    frame, weights, notes = _split_weights(cells, source)
    frame, labels, said = _without_excluded(frame, source)
    name = source.target
    _require_rows(source, len(frame))
    if name is None and source.data.endswith(".npz") and frame.columns[-1] not in ("y", "Y"):
        raise ValueError(f"{source.name} has no outputs: give the column to predict as target.")
    asked = name, source.task, source.reading
    inputs, target = split_target(frame, *asked, drop_bad=source.drop_bad_targets)
    rows = _rows(inputs, target, weights, labels)
    advice = advice_on(target.column.name, target.values, target.num_classes, source.task)
    notes = (*notes_of(cells), *notes, *said, *advice)
    if target.num_classes is None:
        kept, summed, note = distinct_rows_of(rows.X, rows.y[:, None], rows.weights)
        rows = rows.take(kept)._replace(weights=summed)
        notes += (note,) if note else ()
    _require_rows(source, len(rows.y))
    return _tested(source, rows, target, notes)


def _tested(source: Source, rows: Rows, target: Target, notes: tuple[str, ...]) -> Split:
    """The rows; a tenth is for testing."""
    is_number = isinstance(source.split, int)
    asked = RANDOM if is_number else str(source.split)
    is_class = target.num_classes is not None
    known = rows.X, rows.y, asked, rows.groups
    found = groups_of(*known, is_class=is_class, reading=source.reading)
    count, seed = len(rows.y), int(source.split) if is_number else 0
    num_test = max(1, count // 10)
    if found.of_row is None:
        order = np.random.default_rng(seed).permutation(count)
        train, test = order[:-num_test], order[-num_test:]
    else:
        of_row, in_time = found.of_row, found.in_time
        test, train = held_out_rows(count, num_test, seed, of_row, in_time=in_time)
    train, test = np.sort(train), np.sort(test)
    if is_class and not (known_class := np.isin(rows.y[test], rows.y[train])).all():
        notes += (_note_of_new_classes(rows.y[test][~known_class], int(known_class.sum())),)
        test = test[known_class]
    comma = "," if found.in_time else ""
    kind = f"{found.kind}{comma} of {source.name}, a tenth of it"
    if source.split_by is not None:
        by = f"{rows.take(test).num_groups} groups by {source.split_by!r}"
        kind = f"rows of {by} of {source.name}, left out as a whole"
    tested = rows.take(test)._replace(groups=found.clusters(test))
    notes += (found.note,) if found.note else ()
    split = TIME if found.in_time else seed if is_number else RANDOM
    return Split(rows.take(train), tested, target.column, notes, kind, split=split)


def _note_of_new_classes(labels: np.ndarray, num_left: int) -> str:
    """:raises ValueError: if no test row has a class that training rows have."""
    found = (
        f"{len(labels)} test row(s) have a class that no training row has, such as {labels[0]!r}"
    )
    if not num_left:
        raise ValueError(f"{found}, and there are no others: choose other rows by --split.")
    return f"{found}: left out."


def read_pairs(path: str, source: Source, target: Column, name: str | None = None) -> Rows:
    """
    The rows of another file with their targets, read as in training.

    :param source: the column of weights, and how the file is read.
    :param target: the column of training.
    :param name: another column to compare with; None for the target.
    :raises ValueError: if the column is missing, or a cell is not a number or a known label.
    """
    cells = read_frame(path, source.reading)
    if source.row_weights is not None:
        try:
            column_named(source.row_weights, list(as_frame(cells).columns), path, "row_weights")
        except ValueError as error:
            click.echo(f"rows count equally: {error}", err=True)
            source = replace(source, row_weights=None)
    frame, weights, _ = _split_weights(cells, source)
    labels = _group_column(frame, source) if source.split_by in frame else None
    name = column_named(name or target.name, list(frame.columns), path)
    values = read_target(cells_of(frame[name], target.na_values), target)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        expected = f"one of {', '.join(target.levels[:20])}" if target.levels else "a number"
        raise ValueError(
            f"target {name!r} must be {expected} in every row, but {len(bad)} cells are not, such "
            f"as {str(frame[name].iloc[bad[0]])!r} in row {bad[0] + 1} (the header not counted); "
            "drop these rows."
        )
    if weights is not None and not len(weights):
        raise ValueError(
            f"row_weights {source.row_weights!r} must be above 0 in a row to score or more."
        )
    rows = _rows(frame.drop(columns=name), Target(target, values), weights, labels)
    if source.split == TIME and len(rows.y):
        found = groups_of(rows.X, rows.y, TIME, reading=source.reading)
        return rows._replace(groups=found.clusters(np.arange(len(rows.y))))
    return rows if labels is None else rows._replace(groups=pd.factorize(rows.groups)[0])


def _require_rows(source: Source, count: int) -> None:
    """:raises ValueError: for fewer rows than a split needs."""
    if count < _MIN_ROWS:
        raise ValueError(
            f"{source.name} has too few rows: {count} with a target, but at least {_MIN_ROWS} are "
            "needed, one of them for testing. Add rows."
        )


def _has_test_images(path: Path) -> bool:
    """Whether a file has training and test images."""
    return path.suffix == ".npz" and path.is_file() and bool(read_npz(path, ["y_train"]))


def _named_set(source: Source) -> Split:
    """The rows of a data set that has its own split: a named one, or a file of images."""
    if source.row_weights is not None:
        raise ValueError(
            f"row_weights must be a column of a file, got {source.row_weights!r} for the data set "
            f"{source.data}; leave it out."
        )
    if source.split == TIME or source.split_by or source.exclude:
        raise ValueError(
            f"the data set {source.data} has its own test rows and inputs: leave out --split time, "
            "--split-by and --exclude, or give a file."
        )
    split = source.split if isinstance(source.split, int) else 0
    path = Path(source.data)
    found = load(path.stem, split, path.parent) if source.is_file else load(source.data, split)
    levels = tuple(map(str, range(found.num_classes or 0)))
    column = Column(found.target_name, "category" if levels else "number", levels=levels)
    train, test = (
        _rows(pd.DataFrame(X, columns=list(found.feature_names)), Target(column, Y[:, 0]), None)
        for X, Y in (found.train, found.test)
    )
    return Split(
        train,
        test,
        column,
        found.notes,
        f"the test part of {found.name}",
        found.image_shape,
        split,
    )


def _rows(
    inputs: pd.DataFrame,
    target: Target,
    weights: pd.Series | None,
    groups: pd.Series | None = None,
) -> Rows:
    """Rows with their labels as texts, and the weights and groups of these rows."""
    y = target.values
    if target.num_classes is not None:
        y = np.array(target.column.levels)[y.astype(int)]
    parts = (None if p is None else p.loc[inputs.index].to_numpy() for p in (weights, groups))
    return Rows(inputs, y, *parts)


def _without_excluded(
    frame: pd.DataFrame, source: Source
) -> tuple[pd.DataFrame, pd.Series | None, tuple[str, ...]]:
    """
    The table without the columns that are not inputs, the labels of groups, and notes on these.

    :raises ValueError: for an unknown column, or the target.
    """
    labels: pd.Series | None = None
    notes: tuple[str, ...] = ()
    names = [column_named(n, list(frame.columns), "the table", "exclude") for n in source.exclude]
    if source.split_by is not None:
        labels = _group_column(frame, source)
        notes = (f"rows of equal {labels.name!r} are held out together; it is not an input.",)
        names.append(str(labels.name))
    if source.target in names:
        raise ValueError(
            f"exclude and split_by must name inputs, got the target {source.target!r}: leave it "
            "out, or predict another column."
        )
    return frame.drop(columns=names), labels, notes


def _group_column(frame: pd.DataFrame, source: Source) -> pd.Series:
    """:raises ValueError: for an unknown column."""
    name = column_named(str(source.split_by), list(frame.columns), "the table", "split_by")
    labels = labels_of(cells_of(frame[name], source.reading.na_values))
    return pd.Series(labels, frame.index, name=name)


def _split_weights(
    cells: pd.DataFrame, source: Source
) -> tuple[pd.DataFrame, pd.Series | None, tuple[str, ...]]:
    """
    The rows of positive weight without the column of weights, their weights, and advice on these.
    Rows are numbered from 1 below the header of the file, as a reader counts them.

    :raises ValueError: for an unknown column, or weights that are not finite numbers of at least 0.
    """
    frame = as_frame(cells).set_axis(range(1, len(cells) + 1))
    if source.row_weights is None:
        return frame, None, ()
    name = column_named(source.row_weights, list(frame.columns), "the table", "row_weights")
    values = amounts(frame, name, source.reading)
    bad = np.flatnonzero(~((values >= 0.0) & np.isfinite(values)))
    if len(bad):
        raise ValueError(
            f"row_weights {name!r} must be a finite number of at least 0 in every row, but "
            f"{len(bad)} cells are not, such as {str(frame[name].iloc[bad[0]])!r} in row "
            f"{bad[0] + 1} (the header not counted)."
        )
    used = values > 0.0
    advice = advice_on_mean(values[used]) if used.any() else ""
    notes = (f"row_weights {name!r} has {advice}",) if advice else ()
    return frame[used].drop(columns=name), pd.Series(values[used], frame.index[used]), notes
