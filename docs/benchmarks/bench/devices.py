"""
Training steps and predictions of every model on every device of this machine, in both precisions,
with and without XLA, and how far their losses are from those of the CPU in double precision.
"""

import itertools
import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bench.device_models import Case, Cases, Sizes
from bench.papers.tables import grid
from bench.step_variants import made_rows
from bench.steps import Row, Step, Tables, time_in_turn
from gpflow_sparse import models
from gpflow_sparse.persistence import files
from gpflow_sparse.tables.cli.session import session
from gpflow_sparse.training import SparseAdam, adam
from gpflow_sparse.training.contract import PartialUpdateModel
from gpflow_sparse.training.feed import data_guard, open_feed
from gpflow_sparse.training.step import compile_step

# Steps whose losses are compared.
_COMPARED = 3
# Seconds after which no further round of a measurement begins.
_MOST_SECONDS = 1.0
_REFERENCE = ("cpu:0", False, False)
# Columns of the tables of the page, in this order, of those that were measured.
_COLUMNS_OF_PAGE = (
    *("model", "CPU 64", "GPU 64", "GPU 32", "GPU 64 XLA", "gap, GPU 64", "gap, GPU 32", "MB"),
)
_PAGE = """# Steps and predictions on CPU and GPU

`python docs/benchmarks/run.py devices`, on one NVIDIA H100 (80 GB) beside 16 cores of an Intel
Xeon, TensorFlow 2.21 with CUDA 12.5 and cuDNN 9.14, 2026-11-26. Median milliseconds of a training
step as `fit` takes it, of models that hold their rows of the loss of all rows and its gradient;
below, of `predict_f` of a cached posterior. 64 and 32 are the precisions. 20,000 rows of 8 columns,
batches of 1,024, 10,000 predicted rows; 64 images of 28 x 28 pixels.

"gap" is the largest relative difference to the CPU in float64, from the same parameters and
seeds, of the losses of the first three steps, or of the average mean and variance that untrained
models predict. "MB" is the peak of memory on the GPU in float64. An empty cell was not reached.
CPU times were taken while other processes were tracing. At that commit (855703f) factors were
split into blocks on a GPU too; [since then steps have fewer
operations](../gpu.md#counted-without-a-gpu).

## Training steps

{}

## Predictions

{}
"""


def devices(repeats: int, output: Path | None, quick: bool) -> Tables:
    """
    Steps as :func:`gpflow_sparse.training.fit` takes them, and cached predictions of f.

    One process for each device, precision and compiler, which prepare their models at the same
    time and take turns in measuring. A gap is the largest relative difference of the losses
    of the first steps to those of the same model on the CPU in float64, from equal parameters and
    seeds; XLA makes other random draws, so that it is larger where a step draws.

    :param quick: small models, to test the benchmark.
    """
    gpus = [f"gpu:{k}" for k in range(min(1, len(tf.config.list_physical_devices("GPU"))))]
    combinations = [
        (device, single, False) for device in ["cpu:0", *gpus] for single in (False, True)
    ]
    combinations += [
        (device, single, True) for device in gpus or ["cpu:0"] for single in (False, True)
    ]
    context = multiprocessing.get_context("spawn")
    turn, folder = context.Lock(), Path("devices") if output is None else output
    folder.mkdir(parents=True, exist_ok=True)
    workers = [
        context.Process(target=_measure_all, args=(turn, folder, *combination, repeats, quick))
        for combination in combinations
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    records = read(folder)
    files.write_text(folder / "devices.md", page(records))
    return {part: rows_of(records, part) for part in ("step", "prediction")}


def read(folder: Path) -> list[Row]:
    """All records of a folder."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("devices*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def rows_of(records: list[Row], part: str) -> list[Row]:
    """A row for each model: times, gaps of losses, and the memory on a GPU in float64."""
    titles = dict.fromkeys(record["title"] for record in records if record["part"] == part)
    rows = []
    for title in titles:
        own = {tuple(r["where"]): r for r in records if (r["part"], r["title"]) == (part, title)}
        losses = own.get(_REFERENCE, {}).get("losses")
        row: Row = {"model": title}
        for where, record in own.items():
            row[_name(*where)] = record.get("milliseconds", record.get("failure"))
            if losses and where != _REFERENCE and not where[2] and "losses" in record:
                row[f"gap, {_name(*where)}"] = _gap(record["losses"], losses)
            if where == ("gpu:0", False, False):
                row["MB"] = record["peak"]
        rows.append(row)
    return rows


def _name(device: str, single: bool, xla: bool) -> str:
    return f"{device[:3].upper()} {'32' if single else '64'}{' XLA' if xla else ''}"


def page(records: list[Row]) -> str:
    """The page of the records."""
    tables = [_table(rows_of(records, part)) for part in ("step", "prediction")]
    return _PAGE.format(*tables)


def _table(rows: list[Row]) -> str:
    names = [name for name in _COLUMNS_OF_PAGE if any(name in row for row in rows)]
    cells = [tuple(_cell(name, row.get(name, "")) for name in names) for row in rows]
    return grid(tuple(names), cells)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.0e}" if name.startswith("gap") else f"{value:.3g}"


def _gap(losses: list[float], expected: list[float]) -> float:
    return float(np.max(np.abs(np.subtract(losses, expected)) / np.maximum(1.0, np.abs(expected))))


def _measure_all(
    turn: Any, folder: Path, device: str, single: bool, xla: bool, repeats: int, quick: bool
) -> None:
    """Append a record of each model to a file of this combination."""
    where = (device, single, xla)
    if device.startswith("cpu"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    path = folder / f"devices-{device[:3]}-{32 if single else 64}{'-xla' if xla else ''}.jsonl"
    sizes = Sizes(400, 64, 32, 8, 100, 200, 8, 50) if quick else Sizes()
    with session(single, device), path.open("a", encoding="utf-8") as file:
        for title, case in Cases(sizes).all().items():
            for part, measure in (("step", _measure_step), ("prediction", _measure_prediction)):
                record = {"part": part, "title": title, "where": where}
                try:
                    record |= measure(case, xla, repeats, turn)
                except Exception as error:
                    record["failure"] = type(error).__name__
                    record["message"] = traceback.format_exc()[-1500:]
                print(json.dumps(record), file=file, flush=True)


def _measure_step(case: Case, xla: bool, repeats: int, turn: Any) -> Row:
    make = batch_step if case.trained == "batch" else value_and_gradient
    function, arguments = make(case, xla)
    numbers = itertools.count()
    losses = [float(function(*arguments(next(numbers)))[0]) for _ in range(_COMPARED)]
    return {"losses": losses} | _timed(
        lambda: function(*arguments(next(numbers)))[0], repeats, turn
    )


Made = tuple[Any, Callable[[int], tuple[Any, ...]]]
"""A compiled function, and its arguments in the k-th call."""


def batch_step(case: Case, xla: bool) -> Made:
    """A whole training step on the next batch."""
    model: Any = case.build()
    feed = open_feed(case.data, case.batch_size, 0, data_guard(model))
    optimizer = SparseAdam(0.001) if isinstance(model, PartialUpdateModel) else adam(0.001)
    first = feed.lookup(*feed.at(0))
    hooks: dict[str, tuple[Any, ...]] = {
        "prepare_data": (case.data,),
        "prepare_step": (0, lambda: first),
    }
    for hook, arguments in hooks.items():
        getattr(model, hook, lambda *_: None)(*arguments)
    step: Any = compile_step(model, feed, optimizer, 0.0)
    if xla:
        step = tf.function(step.python_function, autograph=False, jit_compile=True)
    return step, lambda k: (tf.constant(True), tf.constant([0, k], tf.int64), *feed.at(k))


def value_and_gradient(case: Case, xla: bool) -> Made:
    """The loss of a batch, or of all rows of a model that holds them, and its gradient."""
    model = case.build()
    getattr(model, "prepare_data", lambda data: None)(case.data)
    variables = model.trainable_variables
    batch = tuple(part[: case.batch_size] for part in case.data)
    data = () if case.trained == "held" else (batch,)

    def step(*data: Any) -> tuple[tf.Tensor, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(*data)
        return loss, tape.gradient(loss, variables)

    return tf.function(step, autograph=False, jit_compile=xla or None), lambda k: data


def prediction(case: Case, xla: bool) -> Made:
    """Mean and variance of f by a cached posterior."""
    model = case.build()
    if isinstance(model, models.SoftKI):
        model.fit_posterior(case.data, refit_noise=False)
    X = made_rows(case.num_predicted, case.data[0].shape[1], 5)[0]
    predict = tf.function(model.posterior().predict_f, autograph=False, jit_compile=xla or None)
    return predict, lambda k: (X,)


def _measure_prediction(case: Case, xla: bool, repeats: int, turn: Any) -> Row:
    predict, arguments = prediction(case, xla)
    mean, variance = predict(*arguments(0))
    losses = [float(tf.reduce_mean(tf.abs(mean))), float(tf.reduce_mean(variance))]
    return {"losses": losses} | _timed(lambda: predict(*arguments(0))[1][0, 0], repeats, turn)


def _timed(step: Step, repeats: int, turn: Any) -> Row:
    """Median time of a step, and the most memory that it takes on a GPU, in 2^20 bytes."""
    step()
    gpus = tf.config.list_logical_devices("GPU")
    with turn:
        for gpu in gpus:
            tf.config.experimental.reset_memory_stats(gpu.name.removeprefix("/device:"))
        begin = time.perf_counter()
        tf.nest.map_structure(lambda part: part.numpy(), step())
        rounds = min(repeats, max(3, int(_MOST_SECONDS / (time.perf_counter() - begin))))
        row: Row = {
            "milliseconds": time_in_turn({"": lambda: step}, rounds, untimed=1)[0]["milliseconds"]
        }
    for gpu in gpus:
        found = tf.config.experimental.get_memory_info(gpu.name.removeprefix("/device:"))
        row["peak"] = found["peak"] / 2**20
    return row
