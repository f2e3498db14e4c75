"""How a text file holds its table: encoding, separator, header row, and a saved row index."""

import codecs
import contextlib
import csv
import gzip
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from gpflow_sparse.data import limits

SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz")
WRONG_CELLS = "{}: row {} has {} cells, expected {} as in row {}; fix the row or its separators"
_SPACES = r"\s+"
# Lines from which the separator is found, characters read of each, and cells listed in sentences.
_FIRST_LINES, _LINE, _MAX_LISTED = 20, 2**20, 5
_MISSING = frozenset({"", "na", "nan", "null", "?"})


@dataclass(frozen=True)
class Layout:
    """How a text file holds its table."""

    encoding: str
    separator: str
    """One character, or a pattern of spaces."""
    num_blank: int
    """Blank lines above the first row."""
    names: tuple[str, ...]
    """Names of the columns; a saved row index has an empty name."""
    has_header: bool
    notes: tuple[str, ...]
    """Sentences on what was inferred."""

    @property
    def has_index(self) -> bool:
        """Whether the first column is a saved row index, which has no name."""
        return not self.names[0]


def layout_of(path: Path, encoding: str) -> Layout:
    """
    :param encoding: result of :func:`encoding_of`.
    :raises ValueError: for a file without rows, and for names that are missing or repeated.
    """
    separator, num_blank = _separator_of(path, encoding)
    first, *second = _first_rows(path, encoding, separator, num_blank)
    has_header = _is_header(first)
    notes = _notes_on(first, *second) if has_header else [_taken_as_data(first)]
    if encoding != "utf-8-sig":
        notes.append(
            f"the text is read as {encoding}, as it is not UTF-8: save it as UTF-8 if letters are "
            "wrong."
        )
    names = first if has_header else tuple(f"c{i}" for i in range(len(first)))
    has_index = len(names) > 1 and not names[0]
    if has_index:
        notes.append("the first column has no name: it is taken as a saved row index and not used.")
    require_distinct(path, names[has_index:], first=1 + has_index)
    return Layout(encoding, separator, num_blank, names, has_header, tuple(notes))


def encoding_of(path: Path, pieces: Iterable[bytes]) -> str:
    """
    UTF-8, UTF-16 if a byte order mark says so, else cp1252, which spreadsheets in Windows write.

    :param pieces: the bytes of the file, or of its start.
    :raises ValueError: for bytes that are none of these, naming their row.
    """
    rest = iter(pieces)
    start = next(rest, b"")
    marks, longer = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), codecs.BOM_UTF32_LE
    is_utf16 = start.startswith(marks) and not start.startswith(longer)
    encoding = "utf-16" if is_utf16 else "utf-8-sig"
    decoders = {name: codecs.getincrementaldecoder(name)() for name in (encoding, "cp1252")}
    row, bad = 1, dict[str, int]()  # the first row that is not in an encoding
    for piece in itertools.chain([start], rest):
        if not is_utf16:
            require_text(path, piece, row)
        for name in {encoding} if piece.isascii() else decoders:
            try:
                decoders[name].decode(piece)
            except UnicodeDecodeError as error:
                bad.setdefault(name, row + piece.count(b"\n", 0, error.start))
        row += piece.count(b"\n")
    if encoding not in bad:
        return encoding
    if is_utf16:
        raise ValueError(f"{path}: the text is not UTF-16 as its start says; save it as UTF-8")
    if "cp1252" in bad:
        raise ValueError(
            f"{path}: row {bad[encoding]} is not UTF-8, and row {bad['cp1252']} not cp1252; save "
            "it as UTF-8"
        )
    return "cp1252"


def require_text(path: Path, data: bytes, row: int) -> None:
    """
    Refuse NUL characters, at which readers of numbers end a cell without an error.

    :param row: number of the first line of the data.
    """
    if (place := data.find(b"\0")) >= 0:
        row += data.count(b"\n", 0, place)
        raise ValueError(
            f"{path}: row {row} has a NUL character, which is no text; write the file as UTF-8"
        )


def broken(path: Path, encoding: str, separator: str, reason: Exception) -> ValueError:
    """
    The error of a text whose cells do not end where they should.

    :param reason: the error of the reader, for other faults.
    """
    with _text(path, encoding) as file:
        rows, start = _reader(file, " " if separator == _SPACES else separator), 1
        try:
            for _ in rows:
                start = rows.line_num + 1
        except csv.Error as error:
            reason = error
    if "expected after" in str(reason):
        fault = f"row {start} has text after a closing quote; write quotes within cells twice"
    elif "limit" in str(reason) and rows.line_num == start:
        fault = f"row {start} has a cell of more than {csv.field_size_limit()} characters; drop it"
    elif isinstance(reason, csv.Error):
        fault = f"the quote that opens in row {start} is never closed; close it"
    else:
        fault = f"not a readable text table: {reason}; fix its separators"
    return ValueError(f"{path}: {fault}")


def require_distinct(path: Path, names: Sequence[str], first: int = 1) -> None:
    """
    Refuse columns without a name, and names that repeat.

    :param first: the number of the first of the columns.
    """
    unnamed = [i for i, name in enumerate(names, first) if not name][:_MAX_LISTED]
    if unnamed:
        raise ValueError(
            f"{path}: every column needs a name in the header, column {unnamed} (from 1) "
            "has none; name or drop it (only the first may be a saved row index)"
        )
    repeated = sorted(name[:40] for name, count in Counter(names).items() if count > 1)
    if repeated := repeated[:_MAX_LISTED]:
        raise ValueError(f"{path}: column names must differ, {repeated} repeated; rename them")


def number(cell: str) -> float:
    """The value of a cell to the last digit; NaN for text."""
    try:
        # Python reads 1_000, and digits of other scripts; in a table these are more likely codes.
        return float(cell) if "_" not in cell and cell.strip().isascii() else np.nan
    except ValueError:
        return np.nan


def is_missing(cell: str) -> bool:
    """Whether a cell is empty or says that it is."""
    return cell.strip().lower() in _MISSING


def _is_header(cells: Sequence[str]) -> bool:
    """Whether the first row has names: texts, and no numbers but whole ones, such as years."""
    values = np.array([number(cell.replace(",", ".")) for cell in cells])
    texts = np.isnan(values) & ~np.array([is_missing(cell) for cell in cells])
    if not texts.any():  # beside a row index pandas writes numbered columns so
        return list(cells) == ["", *map(str, range(len(cells) - 1))] != [""]
    others = values[np.isfinite(values)]
    return bool((others == np.round(others)).all())


def _taken_as_data(first: Sequence[str]) -> str:
    return (
        f"the first row, {_shown(first)}, is taken as data and the columns are called c0, c1, and "
        "so on: if it holds names, put a letter into one."
    )


def _notes_on(first: Sequence[str], second: Sequence[str] = ()) -> list[str]:
    """A sentence on a header that may be data: it has numbers, if any, where the next row has."""
    found = [_is_value(cell) for cell in first]
    if not any(found) or (second and found != [_is_value(cell) for cell in second]):
        return []
    return [
        f"the first row, {_shown(first)}, is taken as names of the columns: if it is data, put a "
        "row of names above it."
    ]


def _shown(cells: Sequence[str]) -> str:
    shown = ", ".join(map(limits.quoted, cells[:_MAX_LISTED]))
    return f"{shown}, ..." if len(cells) > _MAX_LISTED else shown


def _is_value(cell: str) -> bool:
    """Whether a cell has digits but no letters, as numbers, amounts, and dates do."""
    return any(map(str.isdigit, cell)) and not any(c.isalpha() or c == "_" for c in cell)


def _separator_of(path: Path, encoding: str) -> tuple[str, int]:
    """The separator of the cells of the first rows, and the number of blank lines above them."""
    with _text(path, encoding) as file:
        num_blank, first = 0, limits.bounded_line(path, file)
        while first == "\n":
            num_blank, first = num_blank + 1, limits.bounded_line(path, file)
        lines = [first, *(file.readline(_LINE) for _ in range(_FIRST_LINES))]
    # names and cells in quotes may hold separators
    plain = re.sub(r'"[^"]*("|\Z)', "", "".join(lines)).split("\n")
    for mark in "\t;|,":  # commas last: they are also decimal marks
        counts = [row.count(mark) for row in plain if row]
        usual, num_rows = Counter(counts).most_common(1)[0] if counts else (0, 0)
        if usual and counts[0] and 2 * num_rows > len(counts):  # a few rows may be incomplete
            return mark, num_blank
    name = path.name.lower()
    separator = "\t" if name.endswith(".tsv") else max(",;\t|", key=plain[0].count)
    if name.endswith(".txt") and separator not in first:
        separator = _SPACES
    return separator, num_blank


def _first_rows(path: Path, encoding: str, separator: str, num_blank: int) -> list[tuple[str, ...]]:
    """The cells of the first row, and of the second if there is one."""
    with _text(path, encoding) as file:
        lines = itertools.islice(file, num_blank, None)
        rows = map(str.split, lines) if separator == _SPACES else _reader(lines, separator)
        try:
            found = list(itertools.islice(rows, 1))
        except csv.Error as error:
            raise broken(path, encoding, separator, error) from error
        with contextlib.suppress(csv.Error):  # of the second row, which is read for a note alone
            found += itertools.islice(rows, 1)
    if not found or not found[0]:
        raise ValueError(f"{path}: the file is empty; a table needs at least one row of numbers")
    return [tuple(cell.strip() for cell in row) for row in found]


def _reader(lines: Iterable[str], separator: str) -> Any:
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)


def _text(path: Path, encoding: str) -> TextIO:
    return (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rt", encoding=encoding)
