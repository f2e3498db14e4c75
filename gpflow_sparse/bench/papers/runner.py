"""A paper's table, run again within a budget of time, task by task, and gone on with later."""

import os
import platform
import time
from importlib.metadata import version

import tensorflow as tf

from gpflow_sparse import training
from gpflow_sparse.bench.papers.budget import DoesNotFitError
from gpflow_sparse.bench.papers.records import key_of, read_records, write_records
from gpflow_sparse.bench.papers.spec import PaperRun, Record, Task
from gpflow_sparse.data import Dataset
from gpflow_sparse.numerics import linalg
from gpflow_sparse.runs.build import checksum
from gpflow_sparse.runs.training import print_progress

_PACKAGES = ("gpflow_sparse", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
# What makes the record of a task one of failure; anything else is a mistake and ends the run.
_FAILURES = (training.TrainingError, linalg.FactorizationError, tf.errors.InvalidArgumentError)


def run_paper(run: PaperRun, minutes: float) -> list[Record]:
    """
    Train and score what is not yet in the results, as far as the time goes.

    After each task its record is added to ``NAME.jsonl`` in the folder, and ``NAME.md``, the table,
    is written anew. One that failed counts as run. A task is begun only if its expected time, from
    what others of its kind took, is within what is left.

    :param minutes: budget of wall time; a task that was expected to fit is not cut off.
    :return: all records in the file, in order.
    :raises ValueError: if a data set cannot be had, or the results are of another run.
    :raises KeyboardInterrupt: after Ctrl-C; the same call goes on.
    """
    if not minutes > 0.0:
        raise ValueError(f"minutes must be positive, got {minutes}.")
    deadline = time.perf_counter() + 60.0 * minutes
    paper, records, tasks = run.paper, read_records(run), list(run.tasks())
    data = {key: paper.load(*key) for key in dict.fromkeys((t.dataset, t.split) for t in tasks)}
    num_train = {name: len(dataset.train[0]) for (name, _), dataset in data.items()}
    finished = {key_of(record) for record in records}
    paces = {_kind(run, r): paper.pace(r) for r in records if r["status"] == "done"}
    for task in tasks:
        if task.key in finished:
            continue
        kind, dataset = paper.kind(task.row.key, task.dataset), data[task.dataset, task.split]
        try:
            record = _run_task(run, task, dataset, paces.get(kind, 0.0), deadline)
        except DoesNotFitError as error:
            if error.pace:
                paces.setdefault(kind, error.pace)
            print_progress(f"{task.row.title} on {task.dataset}: {error}")
            continue
        records.append(record)
        if record["status"] == "done":
            paces[kind] = paper.pace(record)
        write_records(run, records)
        paper.write_table(run, records, paces, num_train)
    paper.write_table(run, records, paces, num_train)
    return records


def _kind(run: PaperRun, record: Record) -> str:
    return run.paper.kind(record["row"], record["dataset"])


def _run_task(run: PaperRun, task: Task, dataset: Dataset, pace: float, deadline: float) -> Record:
    """
    :return: the record, one of failure if a factorization or the training failed, or if numbers
        are not finite.
    :raises DoesNotFitError: if it would end too late.
    """
    record = _describe(run, task, dataset)
    try:
        results = run.paper.run_one(run, task, dataset, pace, deadline)
        record |= {"status": "done", **results}
    except _FAILURES as e:
        # TensorFlow names the device first, in double braces
        text = str(e).rsplit("}} ", 1)[-1].strip() or repr(e)
        record |= {"status": "failed", "message": text.splitlines()[0]}
        print_progress(f"  failed: {record['message']}")
    return record


def _describe(run: PaperRun, task: Task, dataset: Dataset) -> Record:
    """The part of a record that is known before training."""
    num_train = len(dataset.train[0])
    return {
        "paper": run.paper.name,
        "size": run.size,
        "dataset": task.dataset,
        "row": task.row.key,
        "title": task.row.title,
        "split": task.split,
        "checksum": checksum(dataset),
        "num_train": num_train,
        "num_test": len(dataset.test[0]),
        **run.paper.describe(run, task.row, num_train),
        "cores": os.cpu_count(),
        "devices": [device.device_type for device in tf.config.list_physical_devices()],
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
    }
