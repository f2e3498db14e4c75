"""Tables in files as data frames whose cells are as the file has them, and as matrices."""

import csv
import difflib
import gzip
import io
import itertools
import os
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import dataset as arrow_dataset

from gpflow_sparse.data import limits
from gpflow_sparse.data.limits import listed, quoted
from gpflow_sparse.tables.reading.cells import (
    MISSING_WORDS,
    ReadingOptions,
    cells_of,
    clean,
    parse_number,
)
from gpflow_sparse.tables.reading.columns import number_column, unreadable, usual_decimal

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz")
ARROW_SUFFIXES = (".parquet", ".feather")
DEFAULT = ReadingOptions()
# Characters from which the layout of a text file is found, and from which its separator is.
_SAMPLE, _SNIFFED = 2**20, 2**13
_SEPARATORS = "\t;|,"  # commas last: they are also decimal marks
_TOTALS = ("total", "totals", "grand total", "subtotal", "sum", "summe", "gesamt")
_MAX_LISTED = 5


class Table(NamedTuple):
    """Numbers read from a file."""

    X: np.ndarray
    """Inputs [N, D], float64."""
    Y: np.ndarray | None
    """The target [N, 1], float64, or None when no target was named."""
    feature_names: tuple[str, ...]
    target_name: str | None
    notes: tuple[str, ...]
    """Sentences on what was inferred, such as a first column that is a row index."""


def read_table(
    path: str | os.PathLike[str], target: str | None = None, options: ReadingOptions = DEFAULT
) -> Table:
    """
    Read a table of numbers, from the files that :func:`read_frame` reads.

    :param target: the column to predict; without a header also its number, counted from 0, as
        text. None for y of a .npz file, and to put every column of others into X.
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: for a file that is not a complete table of finite numbers, naming columns
        with their cells, or for an unknown target.
    """
    frame, bad = read_frame(path, options), []
    usual, columns = usual_decimal(frame), {}
    for name in frame:
        cells = cells_of(frame[name], options.na_values)
        found = number_column(name, cells, options, usual, least=0.0)
        columns[name] = found[0].values(cells) if found else np.full(len(cells), np.nan)
        if count := int(np.isnan(columns[name]).sum()):
            other = unreadable(cells, columns[name])
            reason = f"has {other}" if other else f"misses {count} of {len(frame)} values"
            bad.append(f"{quoted(name)} {reason}")
    if bad:
        more = f"; and {len(bad) - _MAX_LISTED} columns more" if len(bad) > _MAX_LISTED else ""
        raise ValueError(
            f"{path}: every cell must be a number, but {'; '.join(bad[:_MAX_LISTED])}{more}. Drop "
            "or fill these rows, or leave out the columns."
        )
    if target is None and os.fspath(path).lower().endswith(".npz") and name in ("y", "Y"):
        target = name
    if target is not None:
        target = column_named(target, list(columns), str(path))
    Y = None if target is None else columns.pop(target)[:, None]
    if not columns:
        raise ValueError(f"{path}: no input columns are left beside the target {target!r}.")
    return Table(np.stack([*columns.values()], 1), Y, tuple(columns), target, notes_of(frame))


def read_frame(path: str | os.PathLike[str], options: ReadingOptions = DEFAULT) -> pd.DataFrame:
    """
    Read the cells of a table as the file has them: texts, numbers, dates, and missing cells.

    Cells of text files (.csv, .tsv, .txt, .csv.gz) are texts, or None where they are empty or a
    word such as NA that is not in quotes. The files are UTF-8; the separator is found, or named by
    a first line ``sep=;``. A first row of numbers alone is data, and columns are then called c0,
    c1, and so on; a row without any has their names; a note says how another row was taken. A .npz
    file holds x [N, D] and y [N, 1] (or X and Y). Row indices that pandas saved (a first column
    without a name, ``__index_level_0__``) are left out.

    :return: the columns in the order of the file; see also :func:`notes_of`.
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: for an unknown suffix, or a file that is not a complete table with distinct
        column names.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the path of a file, got {path!r}")
    path = Path(path)
    if not os.path.isfile(path):  # False, not an error, for a circle of links or a long name
        raise FileNotFoundError(f"path must be a file, found none at {path}")
    readers = {TEXT_SUFFIXES: _read_text, ARROW_SUFFIXES: _read_arrow, (".npz",): _read_arrays}
    for suffixes, read in readers.items():
        if path.name.lower().endswith(suffixes):
            frame = read(path, options)
            if 0 in frame.shape:
                reasons = " ".join(("a table needs a row and a column.", *notes_of(frame)))
                raise ValueError(f"{path} has no data: {reasons}")
            return frame
    expected = ", ".join(itertools.chain(*readers))
    raise ValueError(f"path must end in one of {expected}, got {path.name!r}; convert the file")


def notes_of(frame: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on what :func:`read_frame` inferred."""
    return tuple(frame.attrs.get("notes", ()))


def _read_arrays(path: Path, options: ReadingOptions) -> pd.DataFrame:
    arrays = limits.read_npz(path)
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
    return pd.DataFrame(np.concatenate([X, Y], axis=1).astype(np.float64), columns=names)


def _read_arrow(path: Path, options: ReadingOptions) -> pd.DataFrame:
    """A file in the Parquet or the Feather format."""
    try:
        rows = arrow_dataset.dataset(path, format=path.suffix[1:].lower())
        names, notes = without_index(path, rows.schema.names)
        # runs of equal values are stored once, so that a small file may hold any number of rows
        size = 8 * rows.count_rows() * len(names)
        limits.require_plausible_growth(path, size, "make it a .csv file")
        table = rows.to_table(columns=names)
    except (pa.ArrowException, OSError) as error:
        raise unreadable_file(path, error) from error
    frame = table.to_pandas(ignore_metadata=True)
    frame.attrs["notes"] = notes
    return frame


def without_index(path: Path, names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The columns of an Arrow file without index columns of pandas; sentences on these."""
    require_distinct(path, [clean(name) for name in names])
    kept = [name for name in names if not re.fullmatch(r"__index_level_\d+__", name)]
    left_out = [name for name in names if name not in kept]
    notes = [f"{name!r} is a row index that pandas saved and is not used." for name in left_out]
    return kept, tuple(notes)


class Layout(NamedTuple):
    """How a text file holds its table."""

    separator: str
    num_above: int
    """Lines above the first row."""
    names: tuple[str, ...]
    """Names of the columns; a saved row index has an empty name."""
    has_header: bool
    notes: tuple[str, ...]
    """Sentences on what was inferred."""

    @property
    def has_index(self) -> bool:
        """Whether the first column is a row index that pandas saved."""
        return len(self.names) > 1 and not self.names[0]

    def arrow_options(self, options: ReadingOptions) -> dict[str, Any]:
        """Options by which pyarrow reads all cells as texts, the header like any row."""
        places = [str(i) for i in range(len(self.names))]
        spelled = {f(word) for word in MISSING_WORDS for f in (str, str.upper, str.capitalize)}
        blanks = ("", " ", "  ")
        words = map("".join, itertools.product(blanks, {*spelled, "NaN"}, blanks))
        return {
            "read_options": arrow_csv.ReadOptions(
                column_names=places,
                skip_rows=self.num_above,
                encoding=options.encoding,
                use_threads=False,  # errors then say the row
                block_size=2**24,
            ),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=self.separator, newlines_in_values=True
            ),
            "convert_options": arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(places, pa.string()),
                null_values=list(words),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        }


def layout_of(path: Path, options: ReadingOptions) -> Layout:
    """
    Separator, names and header of a text file.

    :raises ValueError: for a file that is empty or not in the encoding, and for columns whose names
        repeat or lack.
    """
    opened, encoding = gzip.open if path.suffix.lower() == ".gz" else open, options.encoding
    try:
        with opened(path, "rt", encoding=encoding, newline="") as file:
            above = [file.readline() for _ in range(options.skip_rows)]
            text = file.read(_SAMPLE).removeprefix("\ufeff")
        if "\0" in text:
            raise UnicodeError("it has NUL characters")
        named = re.match(r'\s*"?sep=(.)"?[ \t]*?(\r\n|\r|\n)', text, re.IGNORECASE)
        text = text[named.end() :] if named else text
        separator = options.separator or (named[1] if named else _separator_of(text))
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        first = [clean(cell) for cell in next(filter(None, rows), [])]
    except (LookupError, UnicodeError, EOFError, zlib.error, OSError, csv.Error) as error:
        raise unreadable_file(path, error, options) from error
    if not any(first):
        raise ValueError(f"{path}: the first row is empty; a table needs names or data in it.")
    has_header, note = _is_header(first) if options.header is None else (options.header, "")
    names = first if has_header else [f"c{i}" for i in range(len(first))]
    notes = [note] if note else []
    if above:
        lines = _shown([line.strip() for line in above])
        notes.append(f"{len(above)} lines above the first row are left out: {lines}.")
    if len(names) > 1 and not names[0]:
        notes.append("the first column has no name: it is taken as a saved row index and not used.")
    require_distinct(path, names[int(len(names) > 1 and not names[0]) :])
    num_above = len(above) + (len(named[0].splitlines()) if named else 0)
    return Layout(separator, num_above, tuple(names), has_header, tuple(notes))


def _separator_of(text: str) -> str:
    """The separator that is found in rows, or else most often in the first one."""
    sniffer = csv.Sniffer()
    sniffer.preferred = list(_SEPARATORS)
    try:
        return sniffer.sniff(text[:_SNIFFED], _SEPARATORS).delimiter
    except csv.Error:
        first = text.partition("\n")[0]
        return max(_SEPARATORS, key=lambda mark: (first.count(mark), text.count(mark)))


def _is_header(first: Sequence[str]) -> tuple[bool, str]:
    """
    Whether the first row has names, and a sentence on that if it may be otherwise.

    Numbers and dates are not names, but for whole numbers, such as years, beside other names.
    """
    values = [
        bool(parse_number(cell).values and not parse_number(cell).unit)
        or (any(map(str.isdigit, cell)) and not any(map(str.isalpha, cell)))
        for cell in first
    ]
    words = [cell.lower() in MISSING_WORDS for cell in first]
    if not any(values) or (first[0] == "" and first[1:] == [*map(str, range(len(first) - 1))]):
        return True, ""
    is_whole = all(cell.isdecimal() for cell, value in zip(first, values, strict=True) if value)
    if is_whole and not all(map(max, values, words)):
        return True, (
            f"the first row, {_shown(first)}, is taken as names of the columns: if it is data, "
            "give --no-header (header=False)."
        )
    return False, (
        f"the first row, {_shown(first)}, is taken as data and the columns are called c0, c1, and "
        "so on: if it holds names, give --header (header=True)."
    )


def _shown(cells: Sequence[str]) -> str:
    shown = ", ".join(map(quoted, cells[:_MAX_LISTED]))
    return f"{shown}, ..." if len(cells) > _MAX_LISTED else shown


def _read_text(path: Path, options: ReadingOptions) -> pd.DataFrame:
    layout = layout_of(path, options)
    try:
        data = b"".join(limits.text_pieces(path))
        table = arrow_csv.read_csv(pa.BufferReader(data), **layout.arrow_options(options))
    except (pa.ArrowException, UnicodeError, EOFError, zlib.error, OSError) as error:
        raise unreadable_file(path, error, options) from error
    require_closed_quote(path, table, data[-8:])
    return frame_of(table, layout)


def frame_of(table: pa.Table, layout: Layout, *, is_start: bool = True) -> pd.DataFrame:
    """
    The rows of a text file with the names of their columns.

    :param table: rows that were read with the options of the layout.
    :param is_start: whether these are the first rows of the file.
    """
    rows = table.slice(int(is_start and layout.has_header)).to_pandas()
    frame = rows.set_axis(list(layout.names), axis=1).iloc[:, int(layout.has_index) :]
    notes = list(layout.notes)
    count = sum(pc.sum(pc.match_substring(part, "\n")).as_py() or 0 for part in table.columns)
    if count:
        notes.append(f"{count} cells have line breaks: if rows are missing, close a quote.")
    if len(frame):
        found = [c for c in frame.iloc[-1] if c and clean(c).lower().rstrip(":") in _TOTALS]
        if found:
            notes.append(f"the last row has {found[0]!r} in it: drop it if it sums up the others.")
    frame.attrs["notes"] = tuple(notes)
    return frame


def require_closed_quote(path: Path, table: pa.Table, end: bytes) -> None:
    """
    :param end: the last bytes of the file.
    :raises ValueError: if its last cell has line breaks and does not end with a quote: pyarrow
        takes the rest of a file with an open quote for one cell.
    """
    last = table.columns[-1][-1].as_py() if len(table) else None
    if last and "\n" in last and not end.rstrip(b" \t\r\n\0").endswith(b'"'):
        start = quoted(last.strip().split("\n")[0])
        raise ValueError(f"{path}: the quote that opens before {start} is never closed; close it.")


def unreadable_file(path: Path, error: Exception, options: ReadingOptions = DEFAULT) -> ValueError:
    """The error of a file that cannot be read, with what to do."""
    reason = " ".join(str(error).split())
    if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", reason):
        row, expected, count = found.groups()
        return ValueError(
            f"{path}: row {row} has {count} cells, but the first row has {expected}: write a cell "
            "for every column; lines above the names are skipped by --skip-rows (skip_rows)."
        )
    if isinstance(error, UnicodeError | LookupError) or "UTF8" in reason:
        return ValueError(
            f"{path} is not {options.encoding} text ({reason[-200:]}): save it as UTF-8, or give "
            "its encoding, such as cp1252 or utf-16, by --encoding (encoding)."
        )
    return ValueError(f"{path} is not a readable table: {reason[:200]}; write it again.")


def require_distinct(path: Path, names: Sequence[str]) -> None:
    """:raises ValueError: for columns without a name, and names that repeat."""
    unnamed = [i for i, name in enumerate(names, 1) if not name][:_MAX_LISTED]
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)[:_MAX_LISTED]
    if unnamed or repeated:
        found = f"columns {unnamed} have none" if unnamed else f"{listed(repeated)} repeat"
        raise ValueError(f"{path}: every column needs a name of its own, but {found}; name them.")


def as_pandas(X: Any) -> Any:
    """A data frame of polars, Arrow or another library as one of pandas; all else as it is."""
    if isinstance(X, pd.DataFrame):  # whose names may repeat until they are refused
        return X
    found = nw.from_native(X, eager_only=True, pass_through=True)
    return found.to_pandas() if isinstance(found, nw.DataFrame) else X


def as_frame(X: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """
    ``X`` as a DataFrame of pandas whose columns have clean texts as names.

    :param X: an array, or a data frame of any library that narwhals knows, such as polars or Arrow.
    :param names: names of the columns of an array; default x0, x1, and so on.
    :raises ValueError: if names repeat, or ``X`` has other than two axes or another number of
        columns than names.
    """
    X = as_pandas(X)
    if isinstance(X, pd.DataFrame):
        named = X.set_axis([clean(str(name)) for name in X.columns], axis=1)
        repeated = sorted(set(named.columns[named.columns.duplicated()]))
        if repeated:
            raise ValueError(f"X must have columns of different names, {listed(repeated)} repeat.")
        return named
    X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be a table with rows and columns, got shape {X.shape}.")
    names = [f"x{i}" for i in range(X.shape[1])] if names is None else names
    if X.shape[1] != len(names):
        raise ValueError(f"X must have {len(names)} columns as in training, got {X.shape[1]}.")
    return pd.DataFrame(X, columns=list(names))


def column_named(target: str, names: Sequence[str], source: str, option: str = "target") -> str:
    """
    The column that `target` means: a name or, in a table without a header, also a number.

    :param source: the table, in errors.
    :param option: the option that names the column, in errors.
    :raises ValueError: if there is no such column.
    """
    if not isinstance(target, str):
        raise ValueError(f"{option} must be the name of a column as text, got {target!r}")
    target = clean(target)
    if target.isdecimal() and list(names) == [f"c{i}" for i in range(len(names))]:
        target = f"c{int(target)}"
    if target not in names:
        other_case = [name for name in names if name.casefold() == target.casefold()]
        close = other_case or difflib.get_close_matches(target, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(
            f"{option} must be a column of {source}, got {target!r}{hint} Columns: {listed(names)}"
        )
    return target
