"""Papers whose rows are trained by steps on a published split and watched on the way.

No TensorFlow until a task is run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpflow_sparse.bench.papers.budget import Training
from gpflow_sparse.bench.papers.curves_table import lines_of, number, write_curves_table
from gpflow_sparse.bench.papers.spec import Paper, PaperRun, Record, Row, Task
from gpflow_sparse.runs.config import CHECKPOINTS

if TYPE_CHECKING:
    from gpflow_sparse.data import Dataset


@dataclass(frozen=True)
class CurvesPaper(Paper):
    """
    The splits that come with the data sets, scored in the units of the files and standardized.

    A row names its data sets (``options["datasets"]``) and its steps (``options["steps"]``), or
    else its passes over the training rows and its batches (``"epochs"``, ``"batch_size"``).
    ``published`` holds strings by column. A task that was interrupted goes on from its checkpoint.
    """

    read: Callable[[str, int], "Dataset"]
    """``read(dataset, split)``: standardized."""
    fit: Callable[[Mapping[str, Any], "Dataset", Training], Record]
    """``fit(row.options, dataset, training)``: trains and scores; the record has the keys of
    ``columns``, milliseconds_per_step, training_seconds and curve: pairs of a step and a score;
    and may have "also": records with a title of their own, one more line of the table each."""
    columns: Mapping[str, tuple[str, str]]
    """Of the tables: key of the record and its format, by title."""
    printed: tuple[str, ...] = ()
    """Titles of the columns that the command line prints; none for all."""

    def require_options(self, run: PaperRun) -> None:
        if len(run.splits) > 1:
            raise ValueError(f"splits must be at most one for {self.name}; got {run.splits}.")

    def splits(self, run: PaperRun, row: Row, dataset: str) -> Sequence[int]:
        """The first published split unless another is given, where the row has the data set."""
        return (run.splits or (0,)) if dataset in row.options["datasets"] else ()

    def load(self, dataset: str, split: int) -> "Dataset":
        return self.read(dataset, split)

    def steps_for(self, run: PaperRun, row: Row, num_train: int) -> int:
        """Of the run if it says so, else of the row."""
        options = row.options
        if run.steps or "steps" in options:
            return run.steps or options["steps"]
        return -(-options["epochs"] * num_train // min(options["batch_size"], num_train))

    def describe(self, run: PaperRun, row: Row, num_train: int) -> Record:
        return {"config": dict(row.options), "steps": self.steps_for(run, row, num_train)}

    def mismatch(self, run: PaperRun, record: Record) -> str | None:
        """Rows that are not run now may have other steps: the table says how many."""
        row = {row.key: row for row in self.sizes[run.size].rows}.get(record["row"])
        if row is None or record["config"] != dict(row.options):
            return f"holds a row {record['row']} of {record['config']}: delete it"
        if record["split"] not in (run.splits or (0,)):
            return f"holds rows on split {record['split']}: take the same --splits"
        chosen = not run.rows or row.key in run.rows
        if not chosen or record["dataset"] not in run.chosen_datasets:
            return None
        if record["steps"] == self.steps_for(run, row, record["num_train"]):
            return None
        return f"holds row {row.key} of {record['steps']} steps: take the same --steps"

    def run_one(
        self, run: PaperRun, task: Task, dataset: "Dataset", pace: float, deadline: float
    ) -> Record:
        from gpflow_sparse.bench.papers import curves_runner

        folder = run.folder / CHECKPOINTS / run.stem / f"{task.dataset}-{task.row.key}"
        steps = self.steps_for(run, task.row, len(dataset.train[0]))
        training = Training(steps, task.split, folder, deadline)
        return curves_runner.run_task(self.fit, task, dataset, pace, training)

    def kind(self, row: str, dataset: str) -> str:
        """A step costs what the columns of the data make it cost."""
        return f"{row} on {dataset}"

    def pace(self, record: Record) -> float:
        """Milliseconds per step."""
        return record["milliseconds_per_step"]

    def write_table(
        self,
        run: PaperRun,
        records: Sequence[Record],
        paces: Mapping[str, float],
        num_train: Mapping[str, int],
    ) -> Path:
        return write_curves_table(run, records, self.columns)

    def summary(
        self, records: Sequence[Record]
    ) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
        titles, rows = self.printed or tuple(self.columns), []
        for r in (line for record in records for line in lines_of(record)):
            cells = (number(r, *self.columns[title]) for title in titles)
            rows.append((r["dataset"], r["title"], f"{r['steps']}", *cells))
        return ("data set", "model", "steps", *titles), rows
