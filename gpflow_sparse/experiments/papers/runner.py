"""A paper's table, run again within a budget of time, row by row, and gone on with later."""

import dataclasses
import os
import platform
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse import linalg, training
from gpflow_sparse.data import Dataset, load
from gpflow_sparse.experiments.build import checksum, original_units, scaler_of
from gpflow_sparse.experiments.config import CHECKPOINTS
from gpflow_sparse.experiments.evaluation import evaluate
from gpflow_sparse.experiments.papers.records import PaperRun, read_records, write_records
from gpflow_sparse.experiments.papers.spec import Row
from gpflow_sparse.experiments.papers.table import duration, write_table
from gpflow_sparse.experiments.runs import print_progress

_PACKAGES = ("gpflow_sparse", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
# Steps after which the time of a row is foreseen; the first, which compiles, is not counted.
_PROBE = 8


class DoesNotFitError(Exception):
    """A row would take longer than the time that is left; the message says how long."""

    def __init__(self, milliseconds: float, steps: int) -> None:
        expected = f"{milliseconds:.0f} ms per step, {duration(milliseconds, steps)}"
        super().__init__(f"no time left ({expected if milliseconds else 'not measured'})")
        self.milliseconds = milliseconds


def run_paper(run: PaperRun, minutes: float) -> list[dict[str, Any]]:
    """
    Train and score the rows that are not yet in the results, as far as the time goes.

    After each row its record is added to ``NAME.jsonl`` in the folder, and ``NAME.md``, the table,
    is written anew. A row that was interrupted goes on from its checkpoint; one that failed counts
    as run. A row is begun only if its expected time, from the measured time of a step, is within
    what is left.

    :param minutes: budget of wall time; a row that was expected to fit is not cut off.
    :return: all records in the file, in order.
    :raises ValueError: if a data set cannot be had, or the results are of another run.
    :raises KeyboardInterrupt: after Ctrl-C; the same call goes on.
    """
    if not minutes > 0.0:
        raise ValueError(f"minutes must be positive, got {minutes}.")
    deadline = time.perf_counter() + 60.0 * minutes
    records = read_records(run)
    data = {n: split_dataset(load(n), run.split).standardized() for n in run.chosen_datasets}
    steps = {name: run.steps_for(len(dataset.train[0])) for name, dataset in data.items()}
    step_times = {r["row"]: r["milliseconds_per_step"] for r in records if r["status"] == "done"}
    finished = {(r["row"], r["dataset"]) for r in records}
    for row, name in run.pairs():
        if (row.key, name) in finished:
            continue
        try:
            record = _run_row(run, row, data[name], deadline, step_times.get(row.key, 0.0))
        except DoesNotFitError as error:
            if error.milliseconds:
                step_times.setdefault(row.key, error.milliseconds)
            print_progress(f"{row.title} on {name}: {error}")
            continue
        records.append(record)
        if record["status"] == "done":
            step_times[row.key] = record["milliseconds_per_step"]
        write_records(run, records)
        write_table(run, records, step_times, steps)
    write_table(run, records, step_times, steps)
    return records


def split_dataset(dataset: Dataset, seed: int) -> Dataset:
    """
    All rows, split anew at random: 64 % for training, 16 % for validation, 20 % for testing.

    80 % of the rows, rounded down, are not for testing, and 80 % of those, rounded down, are for
    training: the N of the tables of Shi, Titsias and Mnih (2020). The validation rows are dropped.

    :param dataset: in the units of the file, however it is split.
    :param seed: of the permutation.
    """
    X, Y = (np.concatenate([a, b]) for a, b in zip(dataset.train, dataset.test, strict=True))
    order = np.random.default_rng(seed).permutation(len(X))
    num_kept = 4 * len(X) // 5
    train, test = order[: 4 * num_kept // 5], order[num_kept:]
    return dataclasses.replace(dataset, train=(X[train], Y[train]), test=(X[test], Y[test]))


def _run_row(
    run: PaperRun, row: Row, dataset: Dataset, deadline: float, milliseconds: float
) -> dict[str, Any]:
    """
    Train and score one row on one data set; its record.

    Numbers that are not finite make the record one of failure, with the message.

    :param deadline: of ``time.perf_counter``.
    :param milliseconds: what a step of this row took before; 0 if that is not known.
    :raises DoesNotFitError: before the row, or after a few steps of it, if it would end too late.
    """
    steps = run.steps_for(len(dataset.train[0]))
    folder = run.folder / CHECKPOINTS / run.stem / f"{dataset.name}-{row.key}"
    if not folder.is_dir():  # else much of it may be done; it is looked at on the way
        _require_time(milliseconds, steps, deadline)
    print_progress(f"{row.title} on {dataset.name}: {steps} steps")
    record = _describe(run, row, dataset, steps)
    try:
        record |= {"status": "done", **_train_and_score(run, row, dataset, folder, deadline)}
        print_progress(
            f"  RMSE {record['rmse']:.3f}, log-likelihood {record['log_likelihood']:.3f}, "
            f"{record['milliseconds_per_step']:.0f} ms per step"
        )
    except (training.TrainingError, linalg.FactorizationError, tf.errors.InvalidArgumentError) as e:
        # TensorFlow names the device first, in double braces
        text = str(e).rsplit("}} ", 1)[-1].strip() or repr(e)
        record |= {"status": "failed", "message": text.splitlines()[0]}
        print_progress(f"  failed: {record['message']}")
    _remove(folder)
    return record


def _describe(run: PaperRun, row: Row, dataset: Dataset, steps: int) -> dict[str, Any]:
    """The part of a record that is known before training."""
    num_train = len(dataset.train[0])
    return {
        "paper": run.paper.name,
        "size": run.size,
        "dataset": dataset.name,
        "row": row.key,
        "title": row.title,
        "config": {
            **row.options,
            "batch_size": min(run.paper.batch_size, num_train),
            "learning_rate": run.paper.learning_rate,
        },
        "split": run.split,
        "checksum": checksum(dataset),
        "num_train": num_train,
        "num_test": len(dataset.test[0]),
        "steps": steps,
        "epochs": steps * min(run.paper.batch_size, num_train) / num_train,
        "cores": os.cpu_count(),
        "devices": [device.device_type for device in tf.config.list_physical_devices()],
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
    }


def _train_and_score(
    run: PaperRun, row: Row, dataset: Dataset, folder: Path, deadline: float
) -> dict[str, Any]:
    steps = run.steps_for(len(dataset.train[0]))
    tf.random.set_seed(run.split)
    model = run.paper.build(row.options, dataset.train[0], run.split)
    watch = _Watch(steps, deadline)
    try:
        history = training.fit(
            model,
            dataset.train,
            optimizer=training.adam(run.paper.learning_rate),
            num_steps=steps,
            batch_size=min(run.paper.batch_size, len(dataset.train[0])),
            callbacks=[watch],
            checkpoint_dir=folder,
            resume=True,
            seed=run.split,
        )
    except DoesNotFitError:
        if watch.first_step == 1:
            _remove(folder)
        raise
    scaler = scaler_of(dataset)
    scores, _ = evaluate(model, scaler, *original_units(dataset, dataset.test))
    results = {
        "rmse": scores["rmse_standardized"],
        "log_likelihood": -scores["nlpd_standardized"],
        "elbo": float(np.mean(history.elbo[-max(1, steps // 10) :])),
        "training_seconds": float(history.seconds[-1]),
        "milliseconds_per_step": 1e3 * float(np.median(np.diff(history.seconds, prepend=0.0))),
    }
    if not np.isfinite(list(results.values())).all():
        raise training.TrainingError(f"the scores are not finite: {results}")
    return results | {"recoveries": list(history.recoveries)}


def _remove(folder: Path) -> None:
    """A row's checkpoints, and the folders above them once they are empty."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in (folder.parent, folder.parent.parent):
        if parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()


class _Watch:
    """A callback that ends a row which would end too late."""

    def __init__(self, steps: int, deadline: float) -> None:
        self.first_step: int | None = None
        self._steps, self._deadline = steps, deadline
        self._ends: list[float] = []

    def __call__(self, state: training.FitState) -> None:
        if self.first_step is None:
            self.first_step = state.step
        if len(self._ends) > _PROBE:
            return
        self._ends.append(time.perf_counter())
        if len(self._ends) > _PROBE:
            milliseconds = 1e3 * float(np.median(np.diff(self._ends)))
            _require_time(milliseconds, self._steps - state.step, self._deadline)


def _require_time(milliseconds: float, steps: int, deadline: float) -> None:
    left = deadline - time.perf_counter()
    if left <= 0.0 or 1e-3 * milliseconds * steps > left:
        raise DoesNotFitError(milliseconds, steps)
