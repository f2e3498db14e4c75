"""Tables in CSV, NumPy, Parquet and Feather files, read by pandas.

:func:`read_frame` returns the cells as the file has them, in a data frame whose index holds row
numbers; :func:`read_table` converts them to a matrix of finite numbers, or refuses them in one
error that lists all other cells.
"""

import contextlib
import difflib
import functools
import os
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpflow_sparse.data import limits
from gpflow_sparse.data.limits import listed, quoted, read_npz
from gpflow_sparse.tables.reading.plain_numbers import has_plain_numbers
from gpflow_sparse.tables.reading.text_files import (
    SUFFIXES,
    WRONG_CELLS,
    Layout,
    broken,
    encoding_of,
    is_missing,
    layout_of,
    number,
    require_distinct,
)

if TYPE_CHECKING:
    import pandas as pd

_ARROW_SUFFIXES = (".parquet", ".feather")
_MAX_LISTED = 5
_REMEDIES = {
    "infinite": "drop or fix the rows",
    "missing": "drop or fill the rows",
    "text": "drop the column or encode it as numbers",
}


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers read from a file.

    :param X: inputs [N,D], float64.
    :param Y: the target [N,1], float64, or None when no target was named.
    :param feature_names: D names of the columns of X.
    :param target_name: the name of the column of Y, or None.
    :param notes: sentences on what was inferred, such as a first column that is a row index.
    """

    X: np.ndarray
    Y: np.ndarray | None
    feature_names: tuple[str, ...]
    target_name: str | None
    notes: tuple[str, ...] = ()


def read_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
) -> Table:
    """Read a table of numbers, from the files that :func:`read_frame` reads.

    :param path: the file; the target of a .npz file is y, if it is there, whatever `target` says.
    :param target: the column to predict; without a header also its number, counted from 0, as
        text. None puts every column into X.
    :param columns: the only columns that are checked, target included; cells of others may hold
        any text and are then NaN. None for all.
    :return: the table.
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: for a file that is not a complete table of finite numbers - the message
        names every offending column, with rows counted from 1, in text files the header
        included - or for an unknown target.
    """
    frame, path = read_frame(path), Path(path)
    if path.name.lower().endswith(".npz"):
        target = next((name for name in frame.columns if name in ("y", "Y")), None)
        columns = None
    values = _finite_numbers(path, frame, columns)
    table = _split_target(path, values, list(frame.columns), target)
    return replace(table, notes=notes_of(frame))


def read_frame(path: str | os.PathLike[str], *, as_texts: bool = False) -> "pd.DataFrame":
    """Read the cells of a table as the file has them: numbers, texts, dates, and missing cells.

    Text files (.csv, .tsv, .txt, .csv.gz) are UTF-8, UTF-16 with a byte order mark, or else cp1252.
    Their columns are separated by tabs, semicolons, vertical bars, or commas - in .txt also by
    spaces. They have a header row if a cell of the first row is text and none has decimals; without
    one the columns are called c0, c1, and so on. Unless all cells are numbers that are the same as
    texts and as floats, all are texts: True, 01 and 1,5 are none. A .npz file holds x [N,D] and y
    [N,1] (or X and Y). Files .parquet and .feather need pyarrow. A row index that pandas saved (a
    first column without a name, ``__index_level_0__``) is left out.

    :param path: the file.
    :param as_texts: whether cells of a text file are texts even if all are numbers.
    :return: the cells, columns in the order of the file; see also :func:`notes_of`.
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: for an unknown suffix, or a file that is not a complete table with distinct
        column names.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the path of a file, got {path!r}")
    path = Path(path)
    if not os.path.isfile(path):  # False, not an error, for a circle of links or a long name
        raise FileNotFoundError(f"path must be a file, found none at {path}")
    name = path.name.lower()
    if name.endswith(".npz"):
        return _read_arrays(path)
    if name.endswith(_ARROW_SUFFIXES):
        return _read_arrow(path)
    if name.endswith(SUFFIXES):
        return _read_text(path, as_texts)
    expected = ", ".join((*SUFFIXES, ".npz", *_ARROW_SUFFIXES))
    raise ValueError(f"path must end in one of {expected}, got {path.name!r}; convert the file")


def notes_of(frame: "pd.DataFrame") -> tuple[str, ...]:
    """Sentences on what :func:`read_frame` inferred."""
    return tuple(frame.attrs.get("notes", ()))


def _read_arrays(path: Path) -> "pd.DataFrame":
    import pandas as pd

    arrays = read_npz(path)
    pair = next((keys for keys in (("x", "y"), ("X", "Y")) if keys[0] in arrays), None)
    if pair is None:
        raise ValueError(f"{path}: expected the arrays x and y, or X and Y, got {sorted(arrays)}")
    X = arrays[pair[0]]
    Y = arrays.get(pair[1], np.zeros((len(X) if X.ndim else 0, 0)))
    Y = Y[:, None] if Y.ndim == 1 else Y
    if X.dtype.kind not in "biuf" or Y.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {pair} must be numbers, got {X.dtype} and {Y.dtype}")
    num_targets = int(pair[1] in arrays)
    if X.ndim != 2 or 0 in X.shape or Y.shape != (len(X), num_targets):
        raise ValueError(
            f"{path}: expected {pair[0]} [N,D] and {pair[1]} [N,1], got {X.shape} and {Y.shape}"
        )
    names = [f"{pair[0]}{i}" for i in range(X.shape[1])] + [pair[1]] * num_targets
    values = np.concatenate([X, Y], axis=1).astype(np.float64)
    return pd.DataFrame(values, columns=names, index=range(1, len(X) + 1))


def _read_arrow(path: Path) -> "pd.DataFrame":
    """A file in the Parquet or the Feather format."""
    try:
        import pyarrow as pa
        from pyarrow import ipc, parquet
    except ImportError as error:
        raise ValueError(
            f"{path}: reading {path.suffix} needs pyarrow ({error}): python -m pip install pyarrow"
        ) from error
    import pandas as pd

    try:
        # runs of equal values are stored once, so that a small file may hold any number of rows
        if path.name.lower().endswith(".parquet"):
            file = parquet.ParquetFile(path)
            names, num_rows, read = file.schema_arrow.names, file.metadata.num_rows, file.read
        else:
            file = ipc.open_file(path)
            names, read = file.schema.names, file.read_all
            num_rows = sum(file.get_batch(i).num_rows for i in range(file.num_record_batches))
        require_distinct(path, list(names))
        kept, notes = without_index(names)
        size = 8 * num_rows * len(names)
        limits.require_plausible_growth(path, size, "make it a .csv file")
        frame = read().to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)[kept]
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable {path.suffix} file: {error}") from error
    if 0 in frame.shape:
        raise ValueError(f"{path}: no data; a table needs at least one row and one column")
    frame = frame.set_index(pd.RangeIndex(1, len(frame) + 1))
    frame.attrs["notes"] = notes
    return frame


def without_index(names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The columns of an Arrow file without index columns of pandas; sentences on these."""
    kept = [name for name in names if not re.fullmatch(r"__index_level_\d+__", name)]
    left_out = [name for name in names if name not in kept]
    notes = [f"{name!r} is a row index that pandas saved and is not used." for name in left_out]
    return kept, tuple(notes)


def _read_text(path: Path, as_texts: bool) -> "pd.DataFrame":
    import pandas as pd

    encoding, separator = "utf-8-sig", ","
    try:
        encoding = encoding_of(path, limits.text_pieces(path))
        layout = layout_of(path, encoding)
        separator, num_blank, is_header = layout.separator, layout.num_blank, layout.has_header
        options = {"sep": separator, "header": None, "skipinitialspace": True}
        options |= {"encoding": encoding, "keep_default_na": False}
        read = functools.partial(pd.read_csv, path, **options)
        names = list(layout.names)
        skip = num_blank + is_header
        if not as_texts and has_plain_numbers(path, skip):
            with contextlib.suppress(ValueError):  # a cell is not a number, or a row is incomplete
                # six tenths of the time and a sixth of the memory of reading texts
                frame = read(dtype=float, float_precision="round_trip", skiprows=skip)
                if frame.shape[1] == len(names) and np.isfinite(frame.to_numpy()).all():
                    return _without_index(frame.set_axis(names, axis=1), layout)
        frame = _read_cells(path, read, num_blank).set_axis(names, axis=1).iloc[int(is_header) :]
    except pd.errors.ParserError as error:
        raise broken(path, encoding, separator, error) from error
    except UnicodeError as error:
        raise ValueError(f"{path}: not a readable text table: {error}; save it as UTF-8") from error
    except (EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{path}: not a readable text table: {error}; copy it again") from error
    if not len(frame):
        reason = "; ".join(("no data rows after the header", *layout.notes))
        raise ValueError(f"{path}: {reason}; a table needs at least one")
    return _without_index(frame, layout)


def _without_index(frame: "pd.DataFrame", layout: Layout) -> "pd.DataFrame":
    frame = frame.iloc[:, int(layout.has_index) :]
    frame.attrs["notes"] = layout.notes
    return frame


def _read_cells(path: Path, read: Callable[..., "pd.DataFrame"], num_blank: int) -> "pd.DataFrame":
    """All cells as texts; the index holds row numbers, blank lines counted as spreadsheets do."""
    import pandas as pd

    first = num_blank + 1
    try:
        # of the two engines only this one distinguishes missing cells from empty ones
        frame = read(dtype=str, engine="python", skip_blank_lines=False, skiprows=num_blank)
    except pd.errors.ParserError as error:
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if found is None:
            raise
        expected, row, num_cells = found.groups()
        raise ValueError(WRONG_CELLS.format(path, row, num_cells, expected, first)) from error
    frame = frame.set_axis(range(first, first + len(frame)), axis=0)
    absent = frame.isna().to_numpy()
    blank = absent[:, 1:].all(axis=1) & (frame[0].fillna("") == "").to_numpy()
    short = np.flatnonzero(absent.any(axis=1) & ~blank)
    if len(short):
        num_cells, expected = int((~absent[short[0]]).sum()), frame.shape[1]
        raise ValueError(
            WRONG_CELLS.format(path, frame.index[short[0]], num_cells, expected, first)
        )
    return frame[~blank]


def _finite_numbers(path: Path, frame: "pd.DataFrame", columns: Sequence[str] | None) -> np.ndarray:
    """
    The cells as float64 ``[N, number of columns]``.

    :param columns: the only columns whose cells must be finite numbers; None for all.
    :raises ValueError: naming columns, kinds and counts of other cells, and the first of each.
    """
    values, found = np.empty(frame.shape), []
    for i, name in enumerate(frame.columns):
        values[:, i], kinds = _parse(frame[name])
        if columns is None or name in columns:
            found += [(name, kind, np.flatnonzero(rows)) for kind, rows in kinds.items()]
    found = [(name, kind, rows) for name, kind, rows in found if len(rows)]
    if not found:
        return values
    lines = []
    for name, kind, rows in found[:_MAX_LISTED]:
        cell = str(frame[name].iloc[rows[0]])
        lines.append(
            f"  column {quoted(name)}: {len(rows)} {kind} cell{'s' * (len(rows) > 1)}, the first "
            f"in row {frame.index[rows[0]]} ({quoted('null' if cell == '<NA>' else cell)}); "
            f"{_REMEDIES[kind]}"
        )
    if len(found) > len(lines):
        count = len({name for name, *_ in found})
        lines.append(f"  and {len(found) - len(lines)} more; {count} columns have bad cells")
    raise ValueError(f"{path}: every cell must be a finite number, but\n" + "\n".join(lines))


def _parse(cells: "pd.Series") -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Values of a column as float64, NaN for text, and a mask of the cells of each bad kind."""
    from pandas.api import types

    missing = cells.isna().to_numpy()
    if types.is_object_dtype(cells):
        values = np.array([number(cell) for cell in cells])
        missing |= np.array([is_missing(cell) for cell in cells])
        text = np.isnan(values) & ~missing
    elif types.is_numeric_dtype(cells) or types.is_bool_dtype(cells):
        values = cells.to_numpy(np.float64, na_value=np.nan)
        missing |= np.isnan(values)
        text = np.zeros_like(missing)
    else:  # dates, lists and other types of Parquet
        values, text = np.full(len(cells), np.nan), ~missing
    return values, {"infinite": np.isinf(values), "missing": missing, "text": text}


def _split_target(path: Path, values: np.ndarray, names: list[str], target: str | None) -> Table:
    if target is None:
        return Table(values, None, tuple(names), None)
    target = column_named(target, names, str(path))
    if len(names) == 1:
        raise ValueError(f"{path}: no input columns are left beside the target {target!r}")
    index = names.index(target)
    features = tuple(name for name in names if name != target)
    return Table(np.delete(values, index, axis=1), values[:, [index]], features, target)


def column_named(target: str, names: Sequence[str], source: str, option: str = "target") -> str:
    """The column that `target` means: a name or, in a table without a header, also a number.

    :param source: the table, in errors.
    :param option: the option that names the column, in errors.
    :raises ValueError: if there is no such column.
    """
    if not isinstance(target, str):
        raise ValueError(f"{option} must be the name of a column as text, got {target!r}")
    if target.isdecimal() and list(names) == [f"c{i}" for i in range(len(names))]:
        target = f"c{int(target)}"
    if target not in names:
        other_case = [name for name in names if name.casefold() == target.strip().casefold()]
        close = other_case or difflib.get_close_matches(target, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(
            f"{option} must be a column of {source}, got {target!r}{hint} Columns: {listed(names)}"
        )
    return target
