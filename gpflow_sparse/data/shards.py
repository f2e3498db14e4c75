"""Tables that are larger than memory: the rows of many files, read block by block."""

import dataclasses
import functools
import glob
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.data.limits import listed
from gpflow_sparse.data.moments import RunningMoments
from gpflow_sparse.data.shard_files import SUFFIXES, ShardFile, not_numeric, open_file
from gpflow_sparse.data.standardize import Standardizer
from gpflow_sparse.numerics.streaming import keeping
from gpflow_sparse.numerics.tracing import numpy_function
from gpflow_sparse.tables.reading.tables import column_named
from gpflow_sparse.validation import checks

Pair = tuple[np.ndarray, np.ndarray]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
# Numbers in the buffer whose rows are permuted, 16 MiB.
_BUFFER_ENTRIES = 2**21
# Squares of numbers of this size and their sums do not overflow.
_LIMIT = float(np.finfo(np.float64).max) ** 0.5 / 1e3


class _Block(NamedTuple):
    """Rows that are read together."""

    file: int
    part: int
    """Among the blocks of the file."""
    size: int
    """Rows in the file."""
    dropped: tuple[int, ...] = ()
    """Numbers in the block of rows that are held out."""

    @property
    def num_rows(self) -> int:
        return self.size - len(self.dropped)


def open_shards(
    paths: Paths, target: str | None = None, columns: Sequence[str] | None = None
) -> "Shards":
    """
    A table of numbers in many files, of any number of rows; no rows are read, but for .npz files.

    :param paths: a folder, a pattern such as ``"data/part-*.parquet"``, or files; all of one kind:
        .parquet and .feather (needs pyarrow), .csv with a header, .npy matrices, whose columns are
        called c0, c1, and so on, or .npz, see :func:`read_table`. Files of a folder or a pattern
        are taken in the order of their names; folders in a folder are left out, and so is a row
        index that pandas saved, as ``notes`` says.
    :param target: the column to predict, of .npy files also its number; None for the last.
    :param columns: the inputs; None for all other columns, which must be numbers.
    :raises FileNotFoundError: if there are no such files.
    :raises ValueError: for a column of text, files whose columns or types differ, naming file and
        column, an unknown column, and a missing pyarrow.
    """
    found = _files(paths)
    files = tuple(open_file(path) for path in found)
    first = files[0]
    names, source = list(first.types), str(first.path)
    target = names[-1] if target is None else column_named(target, names, source)
    if columns is None:
        columns = [name for name in names if name != target]
    columns = tuple(column_named(name, names, source) for name in columns)
    if not columns or target in columns or len(set(columns)) < len(columns):
        raise ValueError(
            f"columns must be inputs beside the target {target!r}, each once; got {listed(columns)}"
        )
    for file in files:
        _require_schema(file, first, (*columns, target))
    blocks = [
        _Block(number, index, size)
        for number, file in enumerate(files)
        for index, size in enumerate(file.sizes)
        if size
    ]
    if not blocks:
        raise ValueError(
            f"paths must hold at least one row, found none in {listed(list(map(str, found)))}"
        )
    return Shards(files, columns, target, tuple(blocks))


def _files(paths: Paths) -> list[Path]:
    if not isinstance(paths, str | os.PathLike):
        try:
            found = [Path(path) for path in paths]
        except TypeError as error:
            raise ValueError(
                f"paths must be a folder, a pattern, or a list of files, got {paths!r}"
            ) from error
    elif Path(paths).is_dir():
        inside = sorted(Path(paths).iterdir())
        found = [p for p in inside if p.suffix.lower() in SUFFIXES and p.name[0] not in "._"]
    else:
        plain = Path(paths).is_file()
        found = [Path(paths)] if plain else sorted(map(Path, glob.glob(os.fspath(paths))))
    if not found:
        raise FileNotFoundError(f"paths must be {', '.join(SUFFIXES)} files, found none at {paths}")
    kinds = {path.suffix.lower() for path in found}
    if len(kinds) > 1:
        raise ValueError(f"paths must be files of one kind, got {', '.join(sorted(kinds))}")
    return found


def _require_schema(file: ShardFile, first: ShardFile, used: Sequence[str]) -> None:
    """Require the columns of the first file, with the same types."""
    for name in (*first.types, *file.types):
        if name not in file.types or name not in first.types:
            where, other = (first, file) if name in first.types else (file, first)
            raise ValueError(
                f"{other.path}: all files must have the same columns, but {name!r} of "
                f"{where.path} is missing"
            )
    for name in used:
        mine, expected = file.types[name], first.types[name]
        if mine.startswith("text: "):
            raise not_numeric(file.path, name, mine.removeprefix("text: "))
        if mine != expected:
            raise ValueError(
                f"{file.path}: column {name!r} is {mine}, but {expected} in {first.path}; write "
                "all files with the same types"
            )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Shards:
    """
    Rows of many files, which `training.fit` takes as data; made by
    :func:`gpflow_sparse.data.open_shards`.

    Memory is a buffer of 2^21 elements, or a block where it is larger, whatever the number of rows.
    A block is a row group of Parquet, a record batch of Feather, 8192 rows of .npy and .csv files,
    or a whole .npz file.

    In training an epoch is a permutation of the blocks, and the rows of each buffer of blocks are
    permuted: rows that fit into the buffer are shuffled as a whole, but of a larger table that is
    sorted, batches hold neighbors. Both follow from the seed and the number of the epoch, so that
    a resumed run reads the buffer of its place only.
    """

    files: tuple[ShardFile, ...]
    """The files, in order."""
    column_names: tuple[str, ...]
    """Names of the inputs."""
    target_name: str
    """Name of the output."""
    blocks: tuple[_Block, ...]
    """The blocks of rows that are used, in order."""
    standardizer: Standardizer | None = None
    """The standardization of the rows; None for rows in the units of the files."""

    def __repr__(self) -> str:
        return (
            f"Shards({len(self.files)} {self.files[0].path.suffix} files, num_rows={self.num_rows},"
            f" num_columns={self.num_columns}, target={self.target_name!r}, "
            f"standardized={self.standardizer is not None})"
        )

    @functools.cached_property
    def num_rows(self) -> int:
        """N."""
        return sum(block.num_rows for block in self.blocks)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what was inferred when the files were opened, each once."""
        return tuple(dict.fromkeys(note for file in self.files for note in file.notes))

    @property
    def num_columns(self) -> int:
        """D, the number of inputs."""
        return len(self.column_names)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the files' names, sizes and columns, of the rows used, and of their units."""
        parts: list[Any] = [self.column_names, self.target_name, self.blocks]
        parts += [(f.path.name, f.path.stat().st_size, sorted(f.types.items())) for f in self.files]
        parts += [part.tobytes() for part in self._units or ()]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def moments(self) -> RunningMoments:
        """
        Means and squared deviations of all inputs and the output, in one pass.

        Moments of :meth:`part` in several processes, merged by :meth:`RunningMoments.merge`, equal
        the moments of all rows but for rounding; pass them to :meth:`standardized`.

        :raises ValueError: for missing or infinite cells, naming files, columns and counts.
        """
        found: RunningMoments | None = None
        bad: dict[int, np.ndarray] = {}  # counts by file and column
        for block in self.blocks:
            values = self._raw(block)
            counts = _num_unusable(values)
            if counts.any() or block.file in bad:
                bad[block.file] = bad.get(block.file, np.zeros_like(counts)) + counts
            elif len(values):
                part = RunningMoments.of(values)
                found = part if found is None else found.merge(part)
        if bad:
            raise ValueError("\n".join(self._missing(file, bad[file]) for file in list(bad)[:5]))
        if found is None:
            raise ValueError("there are no rows")
        return found

    def standardized(
        self, moments: RunningMoments | None = None, *, outputs: bool = True
    ) -> "Shards":
        """
        The same rows with zero mean and unit variance, in which they are then read; one pass.

        :param moments: result of :meth:`moments`, which is then not computed.
        :param outputs: whether the output is standardized too.
        :return: a copy whose ``standardizer`` brings predictions back to the units of the files;
            assign it to ``model.standardizer`` to keep it with the model.
        :raises ValueError: if the rows are standardized already, and for missing or infinite cells.
        """
        if self.standardizer is not None:
            raise ValueError("the rows are already standardized; use them as they are")
        mean, scale = (self.moments() if moments is None else moments).mean_and_scale()
        y = (mean[-1:], scale[-1:]) if outputs else (None, None)
        return dataclasses.replace(self, standardizer=Standardizer(mean[:-1], scale[:-1], *y))

    def part(self, index: int, count: int) -> "Shards":
        """
        The share of worker ``index`` of ``count``: every block belongs to one of them.

        :raises ValueError: for an index out of range, and for more workers than blocks.
        """
        checks.require_count(count, "count")
        if checks.require_whole(index, "index") not in range(count):
            raise ValueError(f"index must be from 0 to {count - 1}, got {index}")
        if count > len(self.blocks):
            raise ValueError(f"count must be at most {len(self.blocks)}, the number of blocks")
        return dataclasses.replace(self, blocks=self.blocks[index::count])

    def hold_out(self, num_rows: int, seed: int = 0) -> tuple["Shards", Pair]:
        """
        Hold out ``num_rows`` random rows: the other rows, and these as ``(X [n, D], Y [n, 1])``.

        :raises ValueError: if no rows would be left.
        """
        if checks.require_count(num_rows, "num_rows") >= self.num_rows:
            raise ValueError(f"num_rows must be below N={self.num_rows}, got {num_rows}")
        rng = np.random.default_rng(checks.require_seed(seed))
        rows = np.sort(rng.choice(self.num_rows, num_rows, replace=False, shuffle=False))
        ends = np.cumsum([block.num_rows for block in self.blocks])
        kept, drawn = list(self.blocks), []
        numbers = np.searchsorted(ends, rows, side="right")
        for number in np.unique(numbers):
            block = self.blocks[number]
            chosen = rows[numbers == number] - (ends[number] - block.num_rows)
            drawn.append(self._read(block)[chosen])
            left = np.delete(np.arange(block.size), block.dropped)[chosen]
            kept[number] = block._replace(dropped=tuple(sorted((*block.dropped, *left.tolist()))))
        rest = tuple(block for block in kept if block.num_rows)
        return dataclasses.replace(self, blocks=rest), _split(np.concatenate(drawn))

    def batches(self, batch_size: int = 4096) -> tf.data.Dataset:
        """
        One pass over the rows in order, as batches ``(X [n, D], Y [n, 1])`` in float64: the data of
        models that stream them, such as ``GRIEF(shards.batches(), kernel)``, and of
        ``SoftKI.fit_posterior``.
        """
        size = checks.require_count(batch_size, "batch_size")
        ends = np.cumsum([block.num_rows for block in self.blocks])
        last = functools.lru_cache(maxsize=1)(lambda number: self._read(self.blocks[number]))

        def read(start: np.ndarray) -> Pair:
            stop, parts = min(int(start) + size, self.num_rows), []
            for number in range(
                np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop) + 1
            ):
                first = ends[number] - self.blocks[number].num_rows
                parts.append(last(number)[max(0, start - first) : stop - first])
            return _split(np.concatenate(parts))

        def batch(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            X, Y = numpy_function(read, [start], [tf.float64, tf.float64])
            return tf.ensure_shape(X, [None, self.num_columns]), tf.ensure_shape(Y, [None, 1])

        starts = tf.data.Dataset.range(0, self.num_rows, size)
        return keeping(read, starts.map(batch, num_parallel_calls=1).prefetch(1))

    def shuffled(self, batch_size: int, seed: int = 0) -> Callable[[int], Pair]:
        """
        The batch ``(X, Y)`` of step 0, 1, ..., in any order; every row comes once in an epoch, and
        a batch may continue into the next one.
        """
        return _ShuffledBatches(self, checks.require_count(batch_size, "batch_size"), seed)

    @functools.cached_property
    def _units(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Means and scales of inputs and output ``[D + 1]``; None for the units of the files."""
        if self.standardizer is None:
            return None
        s = self.standardizer
        y_mean = np.zeros(1) if s.y_mean is None else s.y_mean.numpy()
        y_scale = np.ones(1) if s.y_scale is None else s.y_scale.numpy()
        means = np.concatenate([s.x_mean.numpy(), y_mean])
        return means, np.concatenate([s.x_scale.numpy(), y_scale])

    def _raw(self, block: _Block) -> np.ndarray:
        """Inputs and output of a block in the units of its file, ``[n, D + 1]``."""
        file = self.files[block.file]
        file.require_unchanged()
        values = file.read(block.part, (*self.column_names, self.target_name))
        file.require_unchanged()
        return np.delete(values, block.dropped, axis=0) if block.dropped else values

    def _read(self, block: _Block) -> np.ndarray:
        """:meth:`_raw`, standardized; all values are finite."""
        values = self._raw(block)
        counts = _num_unusable(values)
        if counts.any():
            raise ValueError(self._missing(block.file, counts))
        return values if self._units is None else (values - self._units[0]) / self._units[1]

    def _missing(self, file: int, counts: np.ndarray) -> str:
        names = (*self.column_names, self.target_name)
        found = [f"{n} in column {name!r}" for name, n in zip(names, counts, strict=True) if n]
        return (
            f"{self.files[file].path}: every cell must be a finite number below {_LIMIT:.0e} in "
            f"size, but there are missing, infinite or larger ones, {listed(found)}; drop or fill "
            "those rows"
        )


class _ShuffledBatches:
    """Batches of :meth:`Shards.shuffled`."""

    def __init__(self, shards: Shards, batch_size: int, seed: int) -> None:
        self._shards, self._batch_size, self._seed = shards, batch_size, seed
        self._sizes = np.array([block.num_rows for block in shards.blocks])
        rows = _BUFFER_ENTRIES // (shards.num_columns + 1)
        self._height = max(1, rows // int(self._sizes.max()))  # blocks in a buffer
        self._epoch = functools.lru_cache(maxsize=2)(self._order)
        self._buffer = functools.lru_cache(maxsize=2)(self._read)

    def __call__(self, step: int) -> Pair:
        row, missing, parts = step * self._batch_size, self._batch_size, []
        while missing:
            epoch, offset = divmod(row, self._shards.num_rows)
            starts = self._epoch(epoch)[1]
            number = int(np.searchsorted(starts, offset, side="right")) - 1
            first = offset - int(starts[number])
            parts.append(self._buffer(epoch, number)[first : first + missing])
            row, missing = row + len(parts[-1]), missing - len(parts[-1])
        return _split(np.concatenate(parts))

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The blocks of an epoch, and the number of rows before each buffer."""
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._sizes))
        before = np.cumsum(self._sizes[order]) - self._sizes[order]
        return order, before[:: self._height]

    def _read(self, epoch: int, number: int) -> np.ndarray:
        """The permuted rows of a buffer."""
        chosen = self._epoch(epoch)[0][number * self._height :][: self._height]
        blocks = self._shards.blocks
        values = np.concatenate([self._shards._read(blocks[i]) for i in chosen])
        # a seed that ends in 0 would give the numbers of the order of the blocks
        rng = np.random.default_rng([self._seed, epoch, number + 1])
        return values[rng.permutation(len(values))]


def _num_unusable(values: np.ndarray) -> np.ndarray:
    """Number of cells in each column that are missing, infinite, or too large to be squared."""
    return (~(np.abs(values) < _LIMIT)).sum(axis=0)


def _split(values: np.ndarray) -> Pair:
    return np.ascontiguousarray(values[:, :-1]), np.ascontiguousarray(values[:, -1:])
