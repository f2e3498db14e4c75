"""Papers whose rows are run on several published splits; no TensorFlow until then."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpflow_sparse.bench.papers.spec import Paper, PaperRun, Record, Row, Size, Task
from gpflow_sparse.bench.papers.splits_table import write_splits_table

if TYPE_CHECKING:
    from gpflow_sparse.data import Dataset


@dataclass(frozen=True)
class SplitsSize(Size):
    """The rows to run, and on how many splits."""

    num_splits: Mapping[str, Mapping[str, int]]
    """By key of the row and data set: its first so many splits; none where it is not run."""


@dataclass(frozen=True)
class SplitsPaper(Paper):
    """
    The splits that come with the data sets, scored in the units of the files.

    ``published`` holds :class:`.splits_table.Published`. Tasks are short and leave no checkpoints.
    """

    fit: Callable[[Mapping[str, Any], "Dataset", int], Record]
    """``fit(row.options, dataset, split)``: trains on the standardized rows and scores; the record
    has rmse, nlpd, coverage_95 and seconds (of training), and what is in ``details``."""
    compared: Mapping[str, str]
    """The published title beside which a row stands, by key of the row."""
    details: Mapping[str, tuple[str, str]]
    """More columns of the table: key of the record and its format, by title."""

    def require_options(self, run: PaperRun) -> None:
        if run.steps is not None:
            raise ValueError(f"steps mean nothing to {self.name}, which is not trained by steps.")
        known = range(max(n for row in run_counts(run).values() for n in row.values()))
        for split in run.splits:
            if split not in known:
                raise ValueError(f"splits must be among 0 to {known[-1]}; got {split}.")

    def splits(self, run: PaperRun, row: Row, dataset: str) -> Sequence[int]:
        count = run_counts(run).get(row.key, {}).get(dataset, 0)
        return [split for split in range(count) if not run.splits or split in run.splits]

    def load(self, dataset: str, split: int) -> "Dataset":
        from gpflow_sparse import data

        return data.load(dataset, split).standardized()

    def describe(self, run: PaperRun, row: Row, num_train: int) -> Record:
        return {"config": dict(row.options)}

    def mismatch(self, run: PaperRun, record: Record) -> str | None:
        options = {row.key: dict(row.options) for row in self.sizes[run.size].rows}
        if record["config"] == options.get(record["row"], record["config"]):
            return None
        return f"holds rows {record['row']} of {record['config']}: delete them"

    def run_one(
        self, run: PaperRun, task: Task, dataset: "Dataset", pace: float, deadline: float
    ) -> Record:
        from gpflow_sparse.bench.papers import splits_runner

        return splits_runner.run_task(self.fit, task, dataset, pace, deadline)

    def kind(self, row: str, dataset: str) -> str:
        """All splits of a data set take a row the same time."""
        return f"{row} on {dataset}"

    def pace(self, record: Record) -> float:
        """Seconds, all in all."""
        return record["task_seconds"]

    def write_table(
        self,
        run: PaperRun,
        records: Sequence[Record],
        paces: Mapping[str, float],
        num_train: Mapping[str, int],
    ) -> Path:
        expected = {
            (row.key, name): paces.get(self.kind(row.key, name), 0.0)
            for row in self.sizes[run.size].rows
            for name in self.datasets
        }
        return write_splits_table(run, records, expected, self.compared, self.details)

    def summary(
        self, records: Sequence[Record]
    ) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
        rows = []
        for title, name in dict.fromkeys((r["title"], r["dataset"]) for r in records):
            same = [r for r in records if (r["title"], r["dataset"]) == (title, name)]
            means = [np.mean([r[key] for r in same]) for key in ("rmse", "nlpd", "seconds")]
            rows.append((name, title, f"{len(same)}", *(f"{mean:.4g}" for mean in means)))
        return ("data set", "model", "splits", "RMSE", "NLPD", "seconds"), rows


def run_counts(run: PaperRun) -> Mapping[str, Mapping[str, int]]:
    """How many splits the size of a run has, by key of the row and data set."""
    return run.paper.sizes[run.size].num_splits
