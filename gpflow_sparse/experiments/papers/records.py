"""Which part of a paper's table to run, and the file of what has been run."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_sparse.experiments.papers.spec import Paper, Row
from gpflow_sparse.persistence import files


@dataclass(frozen=True)
class PaperRun:
    """What to run of a paper, and where the results are."""

    paper: Paper
    size: str
    """Key of ``paper.sizes``."""
    folder: Path
    steps: int | None = None
    """Of every row; None takes the number of the size."""
    datasets: tuple[str, ...] = ()
    """Which of the paper's; none for all."""
    rows: tuple[str, ...] = ()
    """Keys of the rows; none for all."""
    split: int = 0
    """Seed of the split, of the inducing points and of the batches."""

    def __post_init__(self) -> None:
        sizes = self.paper.sizes
        _require_known("size", (self.size,), tuple(sizes))
        _require_known("datasets", self.datasets, self.paper.datasets)
        _require_known("rows", self.rows, tuple(row.key for row in sizes[self.size].rows))
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be positive, got {self.steps}.")

    @property
    def stem(self) -> str:
        """Name of the files of results, without their ending."""
        return self.paper.name if self.size == "small" else f"{self.paper.name}-{self.size}"

    @property
    def chosen_datasets(self) -> tuple[str, ...]:
        """In the paper's order."""
        return tuple(n for n in self.paper.datasets if not self.datasets or n in self.datasets)

    def pairs(self) -> Iterator[tuple[Row, str]]:
        """Rows and data sets in the order in which they are run: a group on all data sets first."""
        rows = [r for r in self.paper.sizes[self.size].rows if not self.rows or r.key in self.rows]
        for group in dict.fromkeys(row.group for row in rows):
            for name in self.chosen_datasets:
                yield from ((row, name) for row in rows if row.group == group)

    def steps_for(self, num_train: int) -> int:
        """Steps of a row on a data set with so many training rows."""
        size = self.paper.sizes[self.size]
        steps = self.steps or size.steps
        if steps is not None:
            return steps
        return int(np.ceil(size.num_epochs * num_train / min(self.paper.batch_size, num_train)))


def read_records(run: PaperRun) -> list[dict[str, Any]]:
    """
    What has been run already; nothing if there is no file.

    :raises ValueError: if the file is damaged, or holds rows of another number of steps or split.
    """
    path = _path(run)
    if not path.is_file():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = dict(json.loads(line))
            same = record["split"] == run.split
            same = same and record["steps"] == run.steps_for(record["num_train"])
            record["row"], record["dataset"], record["status"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"line {number} of {path} is damaged ({error!r}): delete it to run its row again."
            ) from error
        if not same:
            raise ValueError(
                f"{path} holds rows of {record['steps']} steps on split {record['split']}: take "
                "the same --steps, or choose another --output."
            )
        records.append(record)
    return records


def write_records(run: PaperRun, records: Sequence[dict[str, Any]]) -> Path:
    """One JSON object per line; the file is replaced as a whole, or stays as it was."""
    files.write_text(_path(run), "".join(f"{json.dumps(record)}\n" for record in records))
    return _path(run)


def _path(run: PaperRun) -> Path:
    return run.folder / f"{run.stem}.jsonl"


def _require_known(name: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"{name} must be among {', '.join(known)}; got {value!r}.")
