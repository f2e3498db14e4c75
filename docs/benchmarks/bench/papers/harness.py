"""A paper's table, run again within a budget of time, task by task, and resumed later."""

import functools
import json
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import click
import numpy as np
import tensorflow as tf

from bench import deep_peers
from bench.papers import (
    bounds,
    choices,
    image_calibration,
    models,
    neighbor_models,
    peer_models,
)
from bench.papers.data_splits import READERS
from bench.papers.pages import write_page
from bench.papers.spec import PaperRun, Record, Task, key_of
from bench.papers.tables import expected_times, seconds_of
from bench.papers.training import (
    Budget,
    DoesNotFitError,
    remove_checkpoints,
)
from bench.provenance import provenance
from bench.steps import megabytes, run_alone
from gpflow_sparse import training
from gpflow_sparse.data import Dataset
from gpflow_sparse.numerics import linalg
from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.schema import parse_json
from gpflow_sparse.tables.cli.session import session

FITS: dict[str, Callable[[Mapping[str, Any], Dataset, Budget], Record]] = {
    "solvegp": models.fit_solvegp,
    "grief": models.fit_grief,
    "qsgp": models.fit_qsgp,
    "softki": models.fit_softki,
    "conv": models.fit_images,
    "image_calibration": image_calibration.fit_calibrated,
    "choice": choices.fit_choice,
    "evidence": peer_models.fit_evidence,
    "deep": deep_peers.fit_deep,
    "bounds": bounds.fit_bounds,
    "swsgp": neighbor_models.fit_swsgp,
    "swsgp_union": neighbor_models.fit_union,
}
"""Functions of the options of a row, standardized data and a budget, that train and score."""

# Fields that all records have.
_SCHEMA = {"row": str, "dataset": str, "split": int, "status": str}
# Entries of "config" in older records that are not options: data, splits and budget, and the only
# way of estimating sites that was ever run, which is not an option any more.
_NOT_OPTIONS = {"dataset", "datasets", "splits", "steps", "epochs", "site_estimator"}
# Errors after which a task is recorded as failed; any other error ends the run.
_FAILURES = (
    training.TrainingError,
    linalg.FactorizationError,
    tf.errors.InvalidArgumentError,
)


def run_paper(run: PaperRun, minutes: float) -> list[Record]:
    """
    Train and score the tasks that are not yet in the results, within a budget of time.

    After each task its record is added to ``NAME.jsonl`` in the folder, and ``NAME.md``, the page,
    is written again. A task that failed counts as run. A task is begun only if its expected time,
    from the same row on the same data set, is within what is left.

    :param minutes: budget of wall time; a task that was expected to fit is not cut off.
    :return: all records in the file, in order.
    :raises ValueError: if no data set is available, or not one that was chosen by name, or the
        results belong to another run.
    :raises KeyboardInterrupt: after Ctrl-C; the same call resumes.
    """
    if not minutes > 0.0:
        raise ValueError(f"minutes must be positive, got {minutes}.")
    deadline = time.perf_counter() + 60.0 * minutes
    records, tasks = read_records(run), list(run.tasks())
    data = _read_data(run, tasks)
    finished, expected = {key_of(record) for record in records}, expected_times(records)
    for task in tasks:
        if task.key in finished or (task.dataset, task.split) not in data:
            continue
        place = task.key[:2]
        try:
            dataset = data[task.dataset, task.split]
            record = _run_task(run, task, dataset, expected.get(place, 0.0), deadline)
        except DoesNotFitError as error:
            if error.seconds:
                expected.setdefault(place, error.seconds)
            click.echo(f"{task.row.title} on {task.dataset}: {error}", err=True)
            continue
        records.append(record)
        if record["status"] == "done":
            expected[place] = seconds_of(record)
        text = "".join(f"{json.dumps(record)}\n" for record in records)
        files.write_text(run.folder / f"{run.stem}.jsonl", text)
        write_page(run, records)
    write_page(run, records)
    return records


def _read_data(run: PaperRun, tasks: list[Task]) -> dict[tuple[str, int], Dataset]:
    """The data of the tasks; data sets that were not chosen by name may be missing."""
    data = {}
    for key in dict.fromkeys((task.dataset, task.split) for task in tasks):
        try:
            data[key] = READERS[run.paper.read](*key)
        except ValueError as error:
            if run.datasets:
                raise
            reason = str(error).split(". ")[0]
            click.echo(f"left out: {key[0]}, split {key[1]}: {reason}.", err=True)
    if not data:
        raise ValueError(f"no data set of {run.paper.name} is available; choose with --datasets.")
    return data


def read_records(run: PaperRun) -> list[Record]:
    """
    The records of finished tasks; empty if there is no file.

    :raises ValueError: if the file is damaged, or holds records of another run.
    """
    path = run.folder / f"{run.stem}.jsonl"
    if not path.is_file():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        source, remedy = f"line {number} of {path}", "delete it to run its row again"
        record = parse_json(line, _SCHEMA, source, remedy)
        try:
            mismatch = _mismatch(run, record)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{source} is damaged ({error!r}): {remedy}.") from error
        if mismatch:
            raise ValueError(f"{path} {mismatch}, or choose another --output.")
        records.append(record)
    return records


def _mismatch(run: PaperRun, record: Record) -> str | None:
    """The reason why a record belongs to another run, and what to do about it."""
    key, config, found = record["row"], record["config"], record.get("steps")
    row = {row.key: row for row in run.all_rows}.get(key)
    settings = {name: config[name] for name in config if name not in _NOT_OPTIONS}
    if row is None or settings != row.config:
        return f"holds a row {key} of {config}: delete it"
    if row.splits is None and record["split"] not in (run.splits or (0,)):
        return f"holds rows on split {record['split']}: take the same --splits"
    wanted = run.steps_of(row, record["num_train"])
    if row.minutes:
        found = record["most_steps"]
    if wanted == found or not (row.steps or row.epochs or row.minutes):
        return None
    # rows that are not run now may have other steps, which the page shows
    chosen = run.chosen(key, record["dataset"])
    return f"holds row {key} of {found} steps: take the same --steps" if chosen else None


def _run_task(
    run: PaperRun, task: Task, dataset: Dataset, expected: float, deadline: float
) -> Record:
    """
    The record of a task, one of failure if a factorization or the training failed, or if results
    are not finite.

    :param expected: seconds; 0 if not known.
    :raises DoesNotFitError: if it would end too late.
    """
    row, seconds = task.row, 60.0 * task.row.minutes if task.row.minutes else None
    folder = run.folder / "checkpoints" / run.stem / f"{task.dataset}-{row.key}-{task.split}"
    steps = run.steps_of(row, len(dataset.train[0]))
    budget = Budget(steps, seconds, task.split, folder, deadline)
    expected = expected or seconds or 0.0
    # the remaining time of a resumed task is measured in its first steps
    budget.require_time(0.0 if folder.is_dir() else expected, expected)
    record, start = _description(run, task, dataset), time.perf_counter()
    click.echo(f"{row.title} on {task.dataset}, split {task.split}", err=True)
    try:
        if run.paper.isolated:
            results = _in_new_process(run, task, budget)
        else:
            results = FITS[run.paper.fit](row.options, dataset, budget)
        if not np.isfinite([v for v in results.values() if isinstance(v, int | float)]).all():
            raise training.TrainingError(f"the results are not finite: {results}")
        record |= {"status": "done", **results, "task_seconds": time.perf_counter() - start}
        keys = (
            key
            for key, *_ in run.paper.columns.values()
            if isinstance(results.get(key), int | float)
        )
        click.echo("  " + ", ".join(f"{key} {results[key]:.4g}" for key in keys), err=True)
    except _FAILURES as e:
        # TensorFlow names the device first, in double braces
        text = str(e).rsplit("}} ", 1)[-1].strip() or repr(e)
        record |= {"status": "failed", "message": text.splitlines()[0]}
        click.echo(f"  failed: {record['message']}", err=True)
    remove_checkpoints(folder)
    return record


def _in_new_process(run: PaperRun, task: Task, budget: Budget) -> Record:
    """
    The results of a task in a process of its own, with ``peak``, the largest resident memory of
    that process in units of 2^20 bytes.

    :raises TrainingError: if the process ended, as for want of memory.
    """
    paper = run.paper
    try:
        found: Record = run_alone(
            fit_alone, paper.fit, paper.read, task.dataset, task.row.options, budget
        )
    except BrokenProcessPool as error:
        raise training.TrainingError("the process ended, perhaps for want of memory") from error
    return found


def fit_alone(
    fit: str, read: str, dataset: str, options: Mapping[str, Any], budget: Budget
) -> Record:
    """The results of a task in this process, which has no other, see :class:`Paper`."""
    with session(False, None):
        results = FITS[fit](options, READERS[read](dataset, budget.seed), budget)
        return results | {"peak": megabytes("VmHWM")}


def _checksum(dataset: Dataset) -> str:
    """CRC-32 of all rows in hexadecimal digits."""
    parts = (part.tobytes() for part in (*dataset.train, *dataset.test))
    return f"{functools.reduce(lambda old, part: zlib.crc32(part, old), parts, 0):08x}"


def _description(run: PaperRun, task: Task, dataset: Dataset) -> Record:
    """The part of a record that is known before training."""
    row, num_train = task.row, len(dataset.train[0])
    described: Record = {
        "paper": run.paper.name,
        "size": run.size,
        "dataset": task.dataset,
        "row": row.key,
        "title": row.title,
        "split": task.split,
        "checksum": _checksum(dataset),
        "num_train": num_train,
        "num_test": len(dataset.test[0]),
        "config": row.config,
    }
    steps = run.steps_of(row, num_train)
    if row.minutes:
        described["most_steps"] = steps
    elif steps is not None:
        described["steps"] = steps
        if "batch_size" in row.options:
            described["epochs"] = steps * min(row.options["batch_size"], num_train) / num_train
    return described | {
        "devices": [device.device_type for device in tf.config.list_physical_devices()],
        **provenance(),
    }
