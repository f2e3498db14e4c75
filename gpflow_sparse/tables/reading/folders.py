"""Files of more rows than fit into memory, converted once into matrices on disk."""

import contextlib
import dataclasses
import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.lib.format import open_memmap
from pyarrow import dataset as arrow_dataset
from sklearn.preprocessing import StandardScaler

from gpflow_sparse.data.limits import listed
from gpflow_sparse.data.standardize import Standardizer
from gpflow_sparse.tables.reading.cells import (
    ReadingOptions,
    cells_of,
    is_missing,
    labels_of,
)
from gpflow_sparse.tables.reading.columns import Column, described, unreadable
from gpflow_sparse.tables.reading.encoder import TableEncoder
from gpflow_sparse.tables.reading.tables import (
    ARROW_SUFFIXES,
    DEFAULT,
    as_frame,
    column_named,
    frame_of,
    layout_of,
    notes_of,
    require_closed_quote,
    unreadable_file,
    without_index,
)
from gpflow_sparse.tables.reading.targets import read_target, split_target

Pair = tuple[np.ndarray, np.ndarray]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
SUFFIXES = (".csv", *ARROW_SUFFIXES)
# Rows from which kinds of columns are learned, from the starts of all files.
_FIRST_ROWS = 100_000
_BLOCK_ROWS = 2**15
# Random rows at the end of the matrices, at most half of them.
_HELD_ROWS = 50_000
_FORMAT = 1
_LARGEST = 1e150  # squares do not overflow


@dataclass(frozen=True, eq=False, repr=False)
class Shards:
    """
    Standardized rows of many files; made by :func:`gpflow_sparse.data.open_shards`.

    The matrices are mapped from disk: ``fit(model, shards.data)`` and models that stream their rows
    read what they need. The last 50,000 rows (of fewer than 100,000 the last half) are random ones.
    """

    X: np.ndarray
    """Inputs [N, D], float32, with zero mean and unit variance."""
    Y: np.ndarray
    """Outputs [N, 1], float32: standardized numbers, numbers, or positions among the labels."""
    encoder: TableEncoder
    """The encoding of the columns, which takes later tables to inputs in original units."""
    target: Column
    """The column of the outputs; its levels are the labels of a classification."""
    standardizer: Standardizer
    """Brings predictions back to original units: assign it to ``model.standardizer``."""
    notes: tuple[str, ...]
    """Sentences on what was done with the columns and the target."""

    def __repr__(self) -> str:
        return f"Shards(num_rows={self.num_rows}, num_columns={self.X.shape[1]})"

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.X)

    @property
    def data(self) -> Pair:
        """The pair ``(X, Y)``."""
        return self.X, self.Y

    def hold_out(self, num_rows: int) -> tuple["Shards", Pair]:
        """
        The other rows, and ``num_rows`` random rows as ``(X [n, D], Y [n, 1])`` in memory.

        :raises ValueError: for more rows than the random ones at the end.
        """
        left = self.num_rows - num_rows
        if not 0 < num_rows <= min(_HELD_ROWS, self.num_rows // 2):
            raise ValueError(
                f"num_rows must be from 1 to {min(_HELD_ROWS, self.num_rows // 2)}, got {num_rows}."
            )
        held = self.X[left:].astype(np.float64), self.Y[left:].astype(np.float64)
        rest = dataclasses.replace(self, X=self.X[:left], Y=self.Y[:left])
        return rest, (np.array(held[0]), np.array(held[1]))


def open_shards(
    paths: Paths,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    options: ReadingOptions = DEFAULT,
    standardize_outputs: bool = True,
    drop_bad: bool = False,
    seed: int = 0,
) -> Shards:
    """
    The rows of many files as matrices on disk, which are made by the first call, in one pass.

    Memory does not grow with the number of rows. The matrices take 4 bytes on disk for each entry,
    and 8 more while they are made. A call with other arguments, or after a change of a file, makes
    other matrices; what an interrupted call has written is not used.

    :param paths: a folder, a pattern such as ``"data/part-*.parquet"``, or files; all .csv,
        .parquet or .feather, with the same columns. Files of a folder or a pattern are taken in the
        order of their names; folders in a folder are left out.
    :param target: the column to predict; None for the last.
    :param columns: the inputs; None for all other columns. They are encoded as
        :class:`TableEncoder` does, without average targets, as learned from the first 100,000 rows,
        of all files equally many.
    :param cache: the folder of the matrices; None for ``.gpflow_sparse`` beside the first file.
    :param options: how cells are read, where they do not show it.
    :param standardize_outputs: whether numbers of the target get zero mean and unit variance, too.
    :param drop_bad: leave out rows whose target is not a number, instead of an error.
    :param seed: seed of the random rows at the end.
    :raises FileNotFoundError: if there are no such files.
    :raises ValueError: for files that cannot be read or differ in their columns, a target that is
        not a number in some row, and a cache that cannot be written.
    """
    files = _files(paths)
    asked = (target, None if columns is None else tuple(columns), options, drop_bad)
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    parts = repr((_FORMAT, states, asked, standardize_outputs, seed))
    folder = files[0].parent / ".gpflow_sparse" if cache is None else Path(cache)
    made = folder / hashlib.sha256(parts.encode()).hexdigest()[:16]
    if not made.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="unfinished-", dir=folder) as place:
                (rows := Path(place) / "rows").mkdir()
                _convert(files, rows, asked, standardize_outputs, seed)
                with contextlib.suppress(OSError):  # another process may have been first
                    os.replace(rows, made)
        except OSError as error:
            raise ValueError(f"cache must be a folder that can be written: {error}.") from error
    record = json.loads((made / "record.json").read_text(encoding="utf-8"))
    units: list[Any] = [*map(np.array, record["units"]), None, None]
    return Shards(
        np.load(made / "x.npy", mmap_mode="r"),
        np.load(made / "y.npy", mmap_mode="r"),
        TableEncoder.from_columns([Column(**column) for column in record["columns"]]),
        Column(**record["target"]),
        Standardizer(units[0], units[1], units[2], units[3]),
        tuple(record["notes"]),
    )


def _files(paths: Paths) -> list[Path]:
    if not isinstance(paths, str | os.PathLike):
        found = [Path(path) for path in paths]
    elif Path(paths).is_file():
        found = [Path(paths)]
    elif Path(paths).is_dir():
        found = [p for p in sorted(Path(paths).iterdir()) if p.suffix.lower() in SUFFIXES]
    else:
        found = sorted(map(Path, glob.glob(os.fspath(paths))))
    kinds = {path.suffix.lower() for path in found if path.is_file()}
    if not kinds or not all(path.is_file() for path in found):
        raise FileNotFoundError(f"paths must be {', '.join(SUFFIXES)} files, got {paths}.")
    if len(kinds) > 1 or not kinds <= set(SUFFIXES):
        raise ValueError(
            f"paths must be files of one kind, {', '.join(SUFFIXES)}, got "
            f"{', '.join(sorted(kinds))}."
        )
    return found


def _frames(
    path: Path, options: ReadingOptions, num_rows: int = _BLOCK_ROWS
) -> Iterator[pd.DataFrame]:
    """The rows of a file in blocks, as :func:`read_frame` has them."""
    settings = {"batch_size": num_rows, "batch_readahead": 1, "fragment_readahead": 1}
    try:
        if path.suffix.lower() in ARROW_SUFFIXES:
            rows = arrow_dataset.dataset(path, format=path.suffix[1:].lower())
            names, notes = without_index(path, rows.schema.names)
            for batch in rows.to_batches(columns=names, use_threads=False, **settings):
                frame = batch.to_pandas(ignore_metadata=True)
                frame.attrs["notes"] = notes
                yield as_frame(frame)
            return
        layout, is_start = layout_of(path, options), True
        form = arrow_dataset.CsvFileFormat(**layout.arrow_options(options))
        for batch in arrow_dataset.dataset(path, format=form).to_batches(**settings):
            table = pa.Table.from_batches([batch])
            yield as_frame(frame_of(table, layout, is_start=is_start))
            is_start = False
        with open(path, "rb") as file:
            file.seek(-min(8, path.stat().st_size), os.SEEK_END)
            require_closed_quote(path, table, file.read())
    except (pa.ArrowException, UnicodeError) as error:
        raise unreadable_file(path, error, options) from error


def _learn(
    files: Sequence[Path], target: str | None, columns: Any, options: ReadingOptions, drop_bad: bool
) -> tuple[TableEncoder, Column]:
    """The encoder and the target, from the first rows of all files."""
    count = -(-_FIRST_ROWS // len(files))
    frames = [next(_frames(path, options, count), pd.DataFrame()) for path in files]
    names = list(frames[0].columns)
    for path, frame in zip(files, frames, strict=True):
        if differing := sorted(set(names) ^ set(frame.columns)):
            raise ValueError(
                f"{path} must have the columns of {files[0]}, but one of both lacks "
                f"{listed(differing)}."
            )
    source = str(files[0])
    target = names[-1] if target is None else column_named(target, names, source)
    wanted = [name for name in names if name != target] if columns is None else columns
    wanted = [column_named(name, names, source, "columns") for name in wanted]
    if target in wanted:
        raise ValueError(f"columns must be inputs beside the target {target!r}.")
    frame = pd.concat([frame[[*wanted, target]] for frame in frames], ignore_index=True)
    inputs, found = split_target(frame, target, options=options, drop_bad=drop_bad)
    return TableEncoder(options=options).fit(inputs), found.column


def _notes_of_gaps(gaps: Sequence[tuple[Column, int, int, list[str]]]) -> Iterator[str]:
    """
    A sentence for each column with cells of all files that were set to the median.

    :param gaps: of blocks of rows a column, the count of such cells, of those that cannot be read,
        and some of these.
    """
    for name in dict.fromkeys(column.name for column, *_ in gaps):
        own = [gap for gap in gaps if gap[0].name == name]
        columns, counts, num_strange, texts = zip(*own, strict=True)
        found = [text for some in texts for text in some]
        strange = described(found, columns[0].kind, sum(num_strange))
        yield (
            f"{sum(counts)} cells of {name!r} in all files are set to the median of the first rows"
            f"{f'; it has {strange}' if strange else ''}."
        )


def _read_outputs(path: Path, frame: pd.DataFrame, target: Column, *, drop_bad: bool) -> np.ndarray:
    """
    The outputs of rows [N], NaN for rows to leave out.

    :raises ValueError: for a cell that is not a number, unless these are left out.
    """
    cells = cells_of(frame[target.name], target.na_values)
    values = read_target(cells, target)
    strange = unreadable(cells, values) if target.kind == "number" else ""
    if target.kind != "number":
        new = np.unique(labels_of(cells[np.isnan(values) & ~is_missing(cells)]))
        strange = f"classes that its first rows lack, such as {new[0]!r}" if len(new) else ""
    if strange and not drop_bad:
        raise ValueError(
            f"{path}: target {target.name!r} has {strange}: correct them, or leave out these rows "
            "by drop_bad=True."
        )
    return values


def _convert(
    files: Sequence[Path], folder: Path, asked: Any, standardize_outputs: bool, seed: int
) -> None:
    """Write the matrices and what else :class:`Shards` holds."""
    target, columns, options, drop_bad = asked
    encoder, target = _learn(files, target, columns, options, drop_bad)
    gaps, scaler, notes, num_read = [], StandardScaler(), dict[str, None](), 0
    names = [*encoder.get_feature_names_out(), target.name]
    with open(folder / "raw", "wb") as raw:
        for path in files:
            for frame in _frames(path, options):
                notes |= dict.fromkeys(notes_of(frame))
                X, found = encoder.encode(frame)
                gaps += [(c, n, len(bad), list(dict.fromkeys(bad))[:3]) for c, n, bad in found]
                y = _read_outputs(path, frame, target, drop_bad=drop_bad)
                block, num_read = np.column_stack([X, y])[np.isfinite(y)], num_read + len(y)
                _require_squares(path, block, names)
                if len(block):
                    scaler.partial_fit(block)
                    block.tofile(raw)
    if dropped := num_read - int(scaler.n_samples_seen_):
        notes[f"{dropped} rows of all files without {target.name!r} are not used."] = None
    mean, scale = scaler.mean_, scaler.scale_
    scaled = standardize_outputs and target.kind == "number"
    if not scaled:
        mean[-1], scale[-1] = 0.0, 1.0
    _write_matrices(folder, mean, scale, seed)
    os.remove(folder / "raw")
    units = [mean[:-1], scale[:-1], mean[-1:], scale[-1:]]
    record = {
        "columns": [dataclasses.asdict(column) for column in encoder.columns_],
        "target": dataclasses.asdict(target),
        "units": [part.tolist() for part in units[: 4 if scaled else 2]],
        "notes": [*notes, *filter(None, (target.note, *encoder.notes_)), *_notes_of_gaps(gaps)],
    }
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")


def _require_squares(path: Path, block: np.ndarray, names: Sequence[str]) -> None:
    """:raises ValueError: for a number whose square overflows."""
    for row, column in np.argwhere(np.abs(block) > _LARGEST)[:1]:
        raise ValueError(
            f"{path}: {block[row, column]:g} is too large to be squared, in column "
            f"{names[column]!r}; drop its row."
        )


def _write_matrices(folder: Path, mean: np.ndarray, scale: np.ndarray, seed: int) -> None:
    """The rows of the file "raw", standardized, with random ones at the end."""
    raw = np.memmap(folder / "raw", np.float64, "r").reshape(-1, len(mean))
    rng, num_rows = np.random.default_rng(seed), len(raw)
    held = np.sort(rng.choice(num_rows, min(_HELD_ROWS, num_rows // 2), False, shuffle=False))
    X = open_memmap(folder / "x.npy", "w+", "<f4", (num_rows, len(mean) - 1))
    Y = open_memmap(folder / "y.npy", "w+", "<f4", (num_rows, 1))

    def write(rows: np.ndarray, stop: int) -> None:
        block = (raw[rows] - mean) / scale
        X[stop - len(rows) : stop], Y[stop - len(rows) : stop] = block[:, :-1], block[:, -1:]

    stop = 0
    for start in range(0, num_rows, _BLOCK_ROWS):
        rows = np.arange(start, min(start + _BLOCK_ROWS, num_rows))
        rows = np.setdiff1d(rows, held, assume_unique=True)
        stop += len(rows)
        write(rows, stop)
    write(held[rng.permutation(len(held))], num_rows)
