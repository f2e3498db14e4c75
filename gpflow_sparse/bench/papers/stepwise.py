"""Papers whose rows are trained by so many steps of Adam on one split; no TensorFlow until then."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpflow_sparse.bench.papers.spec import Paper, PaperRun, Record, Row, Size, Task
from gpflow_sparse.bench.papers.stepwise_table import write_stepwise_table
from gpflow_sparse.runs.config import CHECKPOINTS

if TYPE_CHECKING:
    from gpflow_sparse.data import Dataset


@dataclass(frozen=True)
class StepwiseSize(Size):
    """The rows to train, and for how long."""

    steps: int | None
    """Of every row unless told otherwise; None takes ``num_epochs``."""
    num_epochs: int
    """Passes over the training rows in the paper."""


@dataclass(frozen=True)
class StepwisePaper(Paper):
    """
    A random split of all rows by our own seed, scored in standardized units.

    ``published`` holds test RMSE and mean test log-likelihood. A task that was interrupted goes on
    from its checkpoint, and one that would end too late is given up after a few steps.
    """

    batch_size: int
    learning_rate: float
    """Of Adam, constant."""
    build: Callable[[Mapping[str, Any], np.ndarray, int], Any]
    """``build(row.options, X, seed)``: the model at its start; standardized inputs ``[N, D]``."""

    def require_options(self, run: PaperRun) -> None:
        if len(run.splits) > 1:
            raise ValueError(
                f"splits must be at most one for {self.name}, as in its table; got {run.splits}."
            )

    def splits(self, run: PaperRun, row: Row, dataset: str) -> Sequence[int]:
        """The seed of the split, of the inducing points and of the batches: 0 unless given."""
        return run.splits or (0,)

    def load(self, dataset: str, split: int) -> "Dataset":
        from gpflow_sparse.bench.papers import stepwise_runner

        return stepwise_runner.load_split(dataset, split)

    def steps_for(self, run: PaperRun, num_train: int) -> int:
        """Steps of a row on a data set with so many training rows."""
        size = self.sizes[run.size]
        steps = run.steps or size.steps
        if steps is not None:
            return steps
        return int(np.ceil(size.num_epochs * num_train / min(self.batch_size, num_train)))

    def describe(self, run: PaperRun, row: Row, num_train: int) -> Record:
        steps, batch_size = self.steps_for(run, num_train), min(self.batch_size, num_train)
        sizes = {"batch_size": batch_size, "learning_rate": self.learning_rate}
        return {
            "config": {**row.options, **sizes},
            "steps": steps,
            "epochs": steps * batch_size / num_train,
        }

    def mismatch(self, run: PaperRun, record: Record) -> str | None:
        same = record["steps"] == self.steps_for(run, record["num_train"])
        if same and record["split"] in (run.splits or (0,)):
            return None
        return (
            f"holds rows of {record['steps']} steps on split {record['split']}: take the same "
            "--steps and --splits"
        )

    def run_one(
        self, run: PaperRun, task: Task, dataset: "Dataset", pace: float, deadline: float
    ) -> Record:
        from gpflow_sparse.bench.papers import stepwise_runner

        plan = stepwise_runner.Plan(
            title=task.row.title,
            build=lambda X: self.build(task.row.options, X, task.split),
            steps=self.steps_for(run, len(dataset.train[0])),
            batch_size=min(self.batch_size, len(dataset.train[0])),
            learning_rate=self.learning_rate,
            seed=task.split,
            folder=run.folder / CHECKPOINTS / run.stem / f"{task.dataset}-{task.row.key}",
        )
        return stepwise_runner.run_plan(plan, dataset, pace, deadline)

    def kind(self, row: str, dataset: str) -> str:
        """A step of a row takes the same time on all data sets, which the batch sees to."""
        return row

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
        steps = {name: self.steps_for(run, rows) for name, rows in num_train.items()}
        return write_stepwise_table(run, records, paces, steps)

    def summary(
        self, records: Sequence[Record]
    ) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
        metrics = ("rmse", "log_likelihood", "milliseconds_per_step")
        rows = [
            (r["dataset"], r["title"], *(f"{r[metric]:.4g}" for metric in metrics)) for r in records
        ]
        return ("data set", "model", "RMSE", "log-likelihood", "ms per step"), rows
