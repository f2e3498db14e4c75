"""Papers whose rows are trained for so many minutes and watched on the way.

No TensorFlow until a task is run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpflow_sparse.bench.papers.budget import TimedTraining, duration, require_time
from gpflow_sparse.bench.papers.spec import Paper, PaperRun, Record, Row, Task
from gpflow_sparse.bench.papers.timed_table import averages, write_timed_table
from gpflow_sparse.runs.config import CHECKPOINTS

if TYPE_CHECKING:
    from gpflow_sparse.data import Dataset


@dataclass(frozen=True)
class TimedPaper(Paper):
    """
    Rows with a data set, a number of splits and minutes of training each, scored as classifiers.

    A row says so in ``options["dataset"]``, ``["splits"]`` and ``["minutes"]``. ``published`` holds
    strings by column. A task that was interrupted goes on from its checkpoint. ``--steps`` ends
    rows early.
    """

    read: Callable[[str, int], "Dataset"]
    """``read(dataset, split)``: standardized."""
    fit: Callable[[Mapping[str, Any], "Dataset", TimedTraining], Record]
    """``fit(row.options, dataset, training)``: trains and scores; the record has steps,
    training_seconds, milliseconds_per_step, curve (see :class:`.timed_runner.Clock`), num_watched,
    accuracy (in percent) and nlpd."""

    def require_options(self, run: PaperRun) -> None:
        known = range(max(row.options["splits"] for row in self.sizes[run.size].rows))
        for split in run.splits:
            if split not in known:
                raise ValueError(f"splits must be among 0 to {known[-1]}; got {split}.")

    def splits(self, run: PaperRun, row: Row, dataset: str) -> Sequence[int]:
        """All that the row has, or those asked for, where the row is on this data set."""
        count = row.options["splits"] if dataset == row.options["dataset"] else 0
        return [split for split in range(count) if not run.splits or split in run.splits]

    def load(self, dataset: str, split: int) -> "Dataset":
        return self.read(dataset, split)

    def describe(self, run: PaperRun, row: Row, num_train: int) -> Record:
        return {"config": dict(row.options), "most_steps": run.steps}

    def mismatch(self, run: PaperRun, record: Record) -> str | None:
        row = {row.key: row for row in self.sizes[run.size].rows}.get(record["row"])
        if row is None or record["config"] != dict(row.options):
            return f"holds a row {record['row']} of {record['config']}: delete it"
        if record["most_steps"] == run.steps:
            return None
        return f"holds row {row.key} with --steps {record['most_steps']}: take the same"

    def run_one(
        self, run: PaperRun, task: Task, dataset: "Dataset", pace: float, deadline: float
    ) -> Record:
        from gpflow_sparse.bench.papers import timed_runner

        minutes, name = task.row.options["minutes"], f"{task.dataset}-{task.row.key}-{task.split}"
        folder = run.folder / CHECKPOINTS / run.stem / name
        expected = pace or 60.0 * minutes
        # of one that has been begun much may be done
        left = 0.0 if folder.is_dir() else expected
        require_time(left, deadline, expected, duration(expected))
        plan = TimedTraining(60.0 * minutes, run.steps, task.split, folder)
        return timed_runner.run_task(self.fit, task, dataset, plan)

    def kind(self, row: str, dataset: str) -> str:
        """All splits of a row take the same time."""
        return row

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
        return write_timed_table(run, records, paces)

    def summary(
        self, records: Sequence[Record]
    ) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
        keys = dict.fromkeys((r["dataset"], r["row"], r["title"]) for r in records)
        rows = []
        for name, key, title in keys:
            same = [r for r in records if r["row"] == key]
            rows.append((name, title, *averages(same).values()))
        return ("data set", "model", *averages([])), rows
