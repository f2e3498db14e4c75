"""A user's own table: CSV, NumPy, or Parquet files of numbers."""

import csv
import difflib
import gzip
import math
import os
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from gpflow_sparse.data import limits
from gpflow_sparse.data.limits import bounded_lines, listed, quoted
from gpflow_sparse.data.npz import read_npz

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Table", "read_table"]

_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz")
_MOST_LISTED = 5
_MISSING = frozenset({"", "na", "nan", "null", "?"})
_ADVICE = {
    "text": "drop the column or encode it as numbers",
    "missing": "drop or fill the rows",
    "infinite": "drop or fix the rows",
}


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers read from a file.

    :param X: inputs [N,D], float64.
    :param Y: the target [N,1], float64, or None when no target was named.
    :param feature_names: D names of the columns of X.
    :param target_name: the name of the column of Y, or None.
    """

    X: np.ndarray
    Y: np.ndarray | None
    feature_names: tuple[str, ...]
    target_name: str | None


class _BadCells:
    """Cells that are no finite number, collected so that one error names every column."""

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self._columns = columns
        self._found: dict[tuple[int, str], tuple[int, int, str]] = {}

    def add(self, column: int, kind: str, row: int, content: str, count: int = 1) -> None:
        seen, first_row, sample = self._found.get((column, kind), (0, row, content))
        self._found[column, kind] = (seen + count, first_row, sample)

    def raise_if_any(self, path: Path, names: Sequence[str]) -> None:
        wanted = set(names if self._columns is None else self._columns)
        found = [item for item in sorted(self._found.items()) if names[item[0][0]] in wanted]
        if not found:
            return
        lines = [
            f"  column {quoted(names[column])}: {count} {kind} cell{'s' * (count > 1)}, the first "
            f"in row {row} ({quoted(content)}); {_ADVICE[kind]}"
            for (column, kind), (count, row, content) in found[:_MOST_LISTED]
        ]
        if len(found) > len(lines):
            count = len({column for (column, _), _ in found})
            lines.append(f"  and {len(found) - len(lines)} more; {count} columns have bad cells")
        raise ValueError(f"{path}: every cell must be a finite number, but\n" + "\n".join(lines))


def read_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
) -> Table:
    """Read a table of numbers.

    Text files (.csv, .tsv, .txt, .csv.gz; UTF-8) have columns separated by commas, semicolons, or
    tabs - in .txt also by spaces - and a header row if a cell of the first row is text; without
    one the columns are called c0, c1, and so on. A .npz file holds x [N,D] and y [N,1] (or X and
    Y); its target is y, if it is there, whatever `target` says. A .parquet file needs pyarrow.

    :param path: the file.
    :param target: the column to predict; without a header also its number, counted from 0, as
        text. None puts every column into X.
    :param columns: the only columns that matter, target included; cells of others may hold
        anything and are NaN. None means all.
    :return: the table.
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: for a file that is not a complete table of finite numbers - the message
        names every offending column, with rows counted from 1, in text files the header
        included - or for an unknown target.
    """
    path = Path(path)
    if not os.path.isfile(path):  # False, not an error, for a circle of links or a long name
        raise FileNotFoundError(f"path must be a file, found none at {path}")
    name = path.name.lower()
    if name.endswith(_TEXT_SUFFIXES):
        return _read_text(path, target, columns)
    if name.endswith(".npz"):
        return _table_from_npz(path)
    if name.endswith(".parquet"):
        return _read_parquet(path, target, columns)
    expected = ", ".join((*_TEXT_SUFFIXES, ".npz", ".parquet"))
    raise ValueError(f"path must end in one of {expected}, got {path.name!r}; convert the file")


def _table_from_npz(path: Path) -> Table:
    arrays = read_npz(path)
    pair = next((keys for keys in (("x", "y"), ("X", "Y")) if keys[0] in arrays), None)
    if pair is None:
        raise ValueError(f"{path}: expected the arrays x and y, or X and Y, got {sorted(arrays)}")
    X = arrays[pair[0]]
    Y = arrays.get(pair[1], np.zeros((len(X) if X.ndim else 0, 0)))
    Y = Y[:, None] if Y.ndim == 1 else Y
    if X.dtype.kind not in "biuf" or Y.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {pair} must be numbers, got {X.dtype} and {Y.dtype}")
    has_target = pair[1] in arrays
    if X.ndim != 2 or 0 in X.shape or Y.shape != (len(X), int(has_target)):
        raise ValueError(
            f"{path}: expected {pair[0]} [N,D] and {pair[1]} [N,1], got {X.shape} and {Y.shape}"
        )
    names = [f"{pair[0]}{i}" for i in range(X.shape[1])] + [pair[1]] * has_target
    values = np.concatenate([X, Y], axis=1).astype(np.float64)
    bad = _BadCells()
    for column, cells in enumerate(values.T):
        _note_not_finite(cells, column, bad)
    bad.raise_if_any(path, names)
    return _split_target(path, values, names, pair[1] if has_target else None)


def _read_text(path: Path, target: str | None, columns: Sequence[str] | None) -> Table:
    try:
        if path.name.lower().endswith(".gz"):
            limits.require_plausible_text(path)
        with _open_text(path) as file:
            values, names, has_header = _parse_rows(path, file, _BadCells(columns))
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{path}: not a readable text table: {error}; save it as UTF-8") from error
    if target is not None and not has_header and target not in names and target.isdecimal():
        target = f"c{int(target)}"
    return _split_target(path, values, names, target)


def _open_text(path: Path) -> TextIO:
    # utf-8-sig also drops the byte order mark that spreadsheets write.
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _parse_rows(path: Path, file: TextIO, bad: _BadCells) -> tuple[np.ndarray, list[str], bool]:
    rows = _nonblank_rows(path, file)
    first_number, first = next(rows, (0, []))
    if not first:
        raise ValueError(f"{path}: the file is empty; a table needs at least one row of numbers")
    has_header = any(_parse_cell(cell)[1] == "text" for cell in first)
    names = [cell.strip() for cell in first] if has_header else [f"c{i}" for i in range(len(first))]
    _check_names(path, names)
    values = array("d")
    if not has_header:
        values.extend(_parse_row(first_number, first, bad))
    for number, row in rows:
        if len(row) != len(names):
            raise ValueError(
                f"{path}: row {number} has {len(row)} cells, expected {len(names)} as in row "
                f"{first_number}; fix the row or its separators"
            )
        values.extend(_parse_row(number, row, bad))
    bad.raise_if_any(path, names)
    if not values:
        raise ValueError(f"{path}: no data rows after the header; a table needs at least one")
    return np.array(values).reshape(-1, len(names)), names, has_header


def _nonblank_rows(path: Path, file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Rows with their number from 1, blank lines counted as a spreadsheet counts them."""
    first_line = next(bounded_lines(path, file), "")
    file.seek(0)
    lines = bounded_lines(path, file)
    name = path.name.lower()
    delimiter = "\t" if name.endswith(".tsv") else max(",;\t", key=first_line.count)
    if name.endswith(".txt") and delimiter not in first_line:
        delimiter, lines = " ", (" ".join(line.split()) for line in lines)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter != " ", strict=True)
    return ((number, row) for number, row in enumerate(reader, start=1) if row)


def _parse_row(number: int, row: list[str], bad: _BadCells) -> list[float]:
    parsed = [_parse_cell(cell) for cell in row]
    for column, (_, kind) in enumerate(parsed):
        if kind:
            bad.add(column, kind, number, row[column])
    return [value for value, _ in parsed]


def _parse_cell(cell: str) -> tuple[float, str]:
    """The value and an empty text, or NaN and what is wrong with the cell."""
    try:
        value = float(cell)
    except ValueError:
        return math.nan, "missing" if cell.strip().lower() in _MISSING else "text"
    # Python reads 1_000 as a number; in a table it is more likely a code.
    if "_" in cell:
        return math.nan, "text"
    if math.isfinite(value):
        return value, ""
    return value, "missing" if math.isnan(value) else "infinite"


def _read_parquet(path: Path, target: str | None, columns: Sequence[str] | None) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(
            f"{path}: reading .parquet needs pyarrow ({error}); "
            'pip install "gpflow_sparse[parquet]"'
        ) from error
    try:
        # runs of equal values are kept once, so that a small file may hold any number of rows
        file = parquet.ParquetFile(path)
        names = list(file.schema_arrow.names)
        _check_names(path, names)
        size = 8 * file.metadata.num_rows * len(names)
        limits.require_plausible_growth(path, size, "make it a .csv file")
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable .parquet file: {error}") from error
    if 0 in table.shape:
        raise ValueError(f"{path}: no data; a table needs at least one row and one column")
    bad = _BadCells(columns)
    values = np.stack([_arrow_column(c, i, bad) for i, c in enumerate(table.columns)], axis=1)
    bad.raise_if_any(path, names)
    return _split_target(path, values, names, target)


def _arrow_column(column: "pa.ChunkedArray", index: int, bad: _BadCells) -> np.ndarray:
    """One column as float64; cells that are no finite number are noted in `bad`."""
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    is_number = any(is_kind(column.type) for is_kind in kinds)
    null = column.is_null().to_numpy()
    for row in np.flatnonzero(null)[:1]:
        bad.add(index, "missing", int(row) + 1, "null", count=int(null.sum()))
    if not is_number:
        for row in np.flatnonzero(~null)[:1]:
            sample = str(column[int(row)].as_py())
            bad.add(index, "text", int(row) + 1, sample, count=int((~null).sum()))
    if not is_number or null.any():
        return np.full(len(column), np.nan)
    values = column.to_numpy().astype(np.float64)
    _note_not_finite(values, index, bad)
    return values


def _note_not_finite(values: np.ndarray, index: int, bad: _BadCells) -> None:
    for kind, found in (("missing", np.isnan(values)), ("infinite", np.isinf(values))):
        for row in np.flatnonzero(found)[:1]:
            bad.add(index, kind, int(row) + 1, str(values[row]), count=int(found.sum()))


def _check_names(path: Path, names: Sequence[str]) -> None:
    unnamed = [i + 1 for i, name in enumerate(names) if not name][:_MOST_LISTED]
    if unnamed:
        raise ValueError(
            f"{path}: every column needs a name in the header, column {unnamed} (from 1) "
            "has none; name it, or drop it if it is a saved row index"
        )
    repeated = sorted(name[:40] for name, count in Counter(names).items() if count > 1)
    if repeated := repeated[:_MOST_LISTED]:
        raise ValueError(f"{path}: column names must differ, {repeated} repeated; rename them")


def _split_target(
    path: Path, values: np.ndarray, names: Sequence[str], target: str | None
) -> Table:
    if target is None:
        return Table(values, None, tuple(names), None)
    if target not in names:
        close = difflib.get_close_matches(target, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(
            f"target must be a column of {path}, got {target!r}{hint} Columns: {listed(names)}"
        )
    if len(names) == 1:
        raise ValueError(f"{path}: no input columns are left beside the target {target!r}")
    index = list(names).index(target)
    features = tuple(name for name in names if name != target)
    return Table(np.delete(values, index, axis=1), values[:, [index]], features, target)
