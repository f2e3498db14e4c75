"""Files of tables that are larger than memory, read in blocks of rows in any order.

A block is the unit that can be read alone: a row group of Parquet, a record batch of Feather, 8192
rows of .npy and .csv, a whole .npz.
"""

import contextlib
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_sparse.data.limits import bounded_line, listed, quoted
from gpflow_sparse.tables.reading.tables import read_table, without_index
from gpflow_sparse.tables.reading.text_files import (
    WRONG_CELLS,
    Layout,
    encoding_of,
    layout_of,
    number,
    require_text,
)

SUFFIXES = (".parquet", ".feather", ".csv", ".npy", ".npz")
_BLOCK_ROWS = 2**13
# Lines of a text file from which the types of its columns are found, and bytes read at once.
_FIRST_LINES, _PIECE = 100, 2**22


@dataclass(frozen=True)
class ShardFile(ABC):
    """One file of a table."""

    path: Path
    types: Mapping[str, str]
    """Type of each column by name, in the order of the file; "text: ..." if it has no numbers."""
    sizes: Sequence[int]
    """Number of rows of each block."""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """Sentences on what was inferred when it was opened."""
    state: tuple[int, ...] = field(default=(), kw_only=True)
    """Size and time of the last change when it was opened."""

    def require_unchanged(self) -> None:
        """:raises ValueError: if the file is no longer the one that was opened."""
        if _state_of(self.path) != self.state:
            raise ValueError(f"{self.path} has changed since it was opened; open the files again")

    @abstractmethod
    def read(self, block: int, names: Sequence[str]) -> np.ndarray:
        """Columns of a block, float64 ``[n, len(names)]``; NaN for missing cells."""


def open_file(path: Path) -> ShardFile:
    """
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: for an unknown suffix, a damaged file, or a missing pyarrow.
    """
    if not path.is_file():
        raise FileNotFoundError(f"paths must be files, found none at {path}")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        expected = ", ".join(SUFFIXES)
        raise ValueError(f"{path}: the name of a shard must end in one of {expected}")
    readers = {".npy": _open_npy, ".npz": _open_npz, ".csv": _open_csv}
    state = _state_of(path)
    return replace(readers.get(suffix, _open_arrow)(path), state=state)


def _state_of(path: Path) -> tuple[int, ...]:
    """Size and time of the last change; empty for a file that is gone."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return ()


def not_numeric(path: Path, name: str, kind: str) -> ValueError:
    """The error of a column that has other cells than numbers, such as ``kind``."""
    return ValueError(
        f"{path}: column {quoted(name)} must hold numbers, but holds {kind}; encode it, or leave "
        "it out by columns=[...]"
    )


def _in_pieces(num_rows: int) -> list[int]:
    """Sizes of blocks of consecutive rows."""
    full, rest = divmod(num_rows, _BLOCK_ROWS)
    return [_BLOCK_ROWS] * full + [rest] * (rest > 0)


class _Npy(ShardFile):
    def read(self, block: int, names: Sequence[str]) -> np.ndarray:
        # mapped for this call only: the resident pages of a map would grow with the file
        rows = np.load(self.path, mmap_mode="r")[block * _BLOCK_ROWS :][: self.sizes[block]]
        known = list(self.types)
        return np.asarray(rows, np.float64)[:, [known.index(name) for name in names]]


def _open_npy(path: Path) -> ShardFile:
    try:
        values = np.load(path, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: not a readable .npy file of numbers: {reason}") from error
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: expected a matrix of numbers [N, columns], got shape {values.shape} of "
            f"{values.dtype}"
        )
    names = [f"c{i}" for i in range(values.shape[1])]
    return _Npy(path, dict.fromkeys(names, values.dtype.name), _in_pieces(len(values)))


class _Npz(ShardFile):
    def read(self, block: int, names: Sequence[str]) -> np.ndarray:
        known, values = list(self.types), _arrays(self.path)[1]
        return values[:, [known.index(name) for name in names]]


def _open_npz(path: Path) -> ShardFile:
    names, values = _arrays(path)
    return _Npz(path, dict.fromkeys(names, "number"), [len(values)])


def _arrays(path: Path) -> tuple[list[str], np.ndarray]:
    table = read_table(path)
    if table.Y is None:
        return list(table.feature_names), table.X
    names = [*table.feature_names, table.target_name or "y"]
    return names, np.concatenate([table.X, table.Y], axis=1)


@dataclass(frozen=True)
class _Csv(ShardFile):
    offsets: Sequence[int]
    """First bytes of the blocks, and the end of the file."""
    layout: Layout

    def read(self, block: int, names: Sequence[str]) -> np.ndarray:
        with open(self.path, "rb") as file:
            file.seek(self.offsets[block])
            data = file.read(self.offsets[block + 1] - self.offsets[block])
        _require_cells(self, data, block * _BLOCK_ROWS)
        frame = _parsed(self, data, names)
        values = np.empty((len(frame), len(names)))
        for i, name in enumerate(names):
            values[:, i], text = _numbers(frame[name])
            if text:
                raise not_numeric(self.path, name, text)
        return values


def _parsed(file: _Csv, data: bytes, names: Sequence[str]) -> Any:
    """A data frame of lines of a text file."""
    import pandas as pd

    try:
        return pd.read_csv(
            io.BytesIO(data),
            header=None,
            names=list(file.layout.names),
            index_col=False,
            usecols=list(names),
            sep=file.layout.separator,
            encoding_errors="replace",  # of texts that are not used
            float_precision="round_trip",
            low_memory=False,
        )
    except pd.errors.ParserError as error:
        raise ValueError(f"{file.path}: not a readable .csv file: {error}") from error


def _open_csv(path: Path) -> ShardFile:
    with open(path, "rb") as file:
        start = file.read(_PIECE)
    encoding = encoding_of(path, [start])
    if encoding == "utf-16":
        raise ValueError(f"{path}: UTF-16 is not read in parts; save the file as UTF-8")
    layout = layout_of(path, encoding)
    num_above = 1 + layout.num_blank
    offsets, num_rows = _line_offsets(path, num_above)
    above = start[: offsets[0]].replace(b"\r\n", b"")
    if not layout.has_header or b"\r" in above or any("\n" in name for name in layout.names):
        raise ValueError(
            f"{path}: the first line must be a header of names without line breaks, with a letter "
            f"in one of them; {'there are line breaks' if layout.has_header else layout.notes[0]}"
        )
    names = layout.names[layout.has_index :]
    types, sizes = dict.fromkeys(names, "number"), _in_pieces(num_rows)
    shard = _Csv(path, types, sizes, offsets, layout, notes=layout.notes)
    with open(path, encoding=encoding, errors="replace", newline="") as text:
        head = [bounded_line(path, text) for _ in range(num_above + _FIRST_LINES)]
    first = "".join(head[num_above:]).encode()
    if not first.strip():
        return shard
    _require_cells(shard, first, 0)
    frame = _parsed(shard, first, names)
    texts = {name: _numbers(frame[name])[1] for name in names}
    return replace(shard, types={n: f"text: {t}" if t else "number" for n, t in texts.items()})


def _require_cells(file: _Csv, data: bytes, num_before: int) -> None:
    """
    Require lines with a cell for each column: pandas fills short rows and cuts long ones.

    :param num_before: rows before the data.
    """
    names, sep, header = (
        file.layout.names,
        file.layout.separator.encode(),
        1 + file.layout.num_blank,
    )
    row = header + 1 + num_before
    require_text(file.path, data, row)
    if b'"' in data or data.count(b"\r") > data.count(b"\r\n"):
        begin = b"(?<![^\n" + sep + b'])"'  # within other cells quotes are characters
        data = re.sub(begin + rb'[^"\n]*(?:""[^"\n]*)*"', b"", data)
        if found := re.search(begin + rb"|\r(?!\n)", data):
            row += data.count(b"\n", 0, found.start())
            raise ValueError(
                f"{file.path}: row {row} has a quote that is not closed, or a carriage return, "
                "within its line; every line of a file that is read in parts must be a row"
            )
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(codes))
    counts = np.diff(np.searchsorted(np.flatnonzero(codes == ord(sep)), ends), prepend=0) + 1
    for i in np.flatnonzero(counts != len(names))[:1]:
        raise ValueError(WRONG_CELLS.format(file.path, row + i, counts[i], len(names), header))


def _numbers(column: Any) -> tuple[np.ndarray, str]:
    """
    The cells of a column, float64 [n], NaN where missing; and the first cell that is no number, in
    quotes, as in a table of one file; empty if there is none.
    """
    if column.dtype.kind in "iuf":
        return column.to_numpy(np.float64), ""
    texts = [str(cell) for cell in column]  # pandas takes true for 1, which in a table is a label
    values = np.array([number(text) for text in texts])
    found = np.flatnonzero(np.isnan(values) & column.notna().to_numpy())
    return values, quoted(texts[found[0]]) if len(found) else ""


def _line_offsets(path: Path, skip: int) -> tuple[list[int], int]:
    """First bytes of every 8192nd line after the header, and the size; the number of lines."""
    starts, line, position, last = [], 0, 0, b"\n"
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            after = np.flatnonzero(np.frombuffer(piece, np.uint8) == ord("\n")) + 1 + position
            numbers = np.arange(line + 1, line + 1 + len(after)) - skip  # of lines that start there
            starts += after[(numbers >= 0) & (numbers % _BLOCK_ROWS == 0)].tolist()
            line, position, last = line + len(after), position + len(piece), piece[-1:]
    num_rows = max(0, line + (last != b"\n") - skip)
    return [*starts[: -(-num_rows // _BLOCK_ROWS)], position], num_rows


class _Arrow(ShardFile):
    def read(self, block: int, names: Sequence[str]) -> np.ndarray:
        with _arrow(self.path) as (pa, file):
            if hasattr(file, "read_row_group"):
                table = file.read_row_group(block, columns=list(names), use_threads=False)
            else:
                table = pa.Table.from_batches([file.get_batch(block)])
            columns = [table.column(name) for name in names]
            numbers = [column.cast(pa.float64(), safe=False) for column in columns]
        return np.stack([column.to_numpy() for column in numbers], axis=1)


def _open_arrow(path: Path) -> ShardFile:
    with _arrow(path) as (pa, file):
        if hasattr(file, "read_row_group"):
            schema, meta = file.schema_arrow, file.metadata
            sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        else:
            schema = file.schema
            sizes = [file.get_batch(i).num_rows for i in range(file.num_record_batches)]
        is_number = (
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_boolean,
            pa.types.is_decimal,
        )
        kinds = {
            column.name: ("" if any(of(column.type) for of in is_number) else "text: ")
            + str(column.type)
            for column in schema
        }
        if len(kinds) < len(schema):
            raise ValueError(f"{path}: column names must differ, got {listed(schema.names)}")
    names, notes = without_index(path, list(kinds))
    return _Arrow(path, {name: kinds[name] for name in names}, sizes, notes=notes)


@contextlib.contextmanager
def _arrow(path: Path) -> Iterator[tuple[Any, Any]]:
    """pyarrow, and its reader of a file."""
    try:
        import pyarrow as pa
        from pyarrow import ipc, parquet
    except ImportError as error:
        raise ValueError(
            f"{path}: reading {path.suffix} needs pyarrow ({error}): python -m pip install pyarrow"
        ) from error
    try:
        with contextlib.ExitStack() as stack:
            if path.suffix.lower() == ".parquet":
                yield pa, stack.enter_context(parquet.ParquetFile(path))
            else:
                # not mapped: the resident pages of a map would grow with the file
                yield pa, ipc.open_file(stack.enter_context(pa.OSFile(str(path))))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable {path.suffix} file: {error}") from error
