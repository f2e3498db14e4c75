"""
The harness of the benchmarks of speed and memory: variants of a computation, timed in turn in one
process, and the memory of one computation, measured in a process of its own. TensorFlow is not
imported here, so that a new process can import it quietly, in the precision asked for.
"""

import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_sparse.tables.cli.session import session

Row = dict[str, Any]
"""One line of a table, by the names of its columns; it is printed and written as JSON."""

Tables = dict[str, list[Row]]
"""Tables by name."""

Step = Callable[[], Any]
"""A computation that is measured; returns tensors, which are waited for."""

Variants = Mapping[str, Callable[[], Step]]
"""Builders of computations, by the titles of their rows."""

# File in which Linux reports the memory of this process.
_STATUS = Path("/proc/self/status")


class LeftOutError(Exception):
    """Raised by the builder of a variant that cannot be measured here, with the reason."""


def time_in_turn(
    variants: Variants,
    repeats: int,
    reference: str | None = None,
    *,
    untimed: int = 3,
    calls: int = 1,
    unit: tuple[str, float] = ("milliseconds", 1e3),
) -> list[Row]:
    """
    Median wall time of every variant. All of them are built first, and then run in turn.

    :param repeats: timed rounds.
    :param reference: title of the variant whose time divides all times, column ``ratio``.
    :param untimed: rounds before those that are timed.
    :param calls: number of calls in a step, by which times are divided.
    :param unit: name of the unit of time, and number of units in a second.
    """
    steps: dict[str, Step] = {}
    for title, build in variants.items():
        try:
            steps[title] = build()
        except LeftOutError as reason:
            print(f"left out: {title} ({reason})", file=sys.stderr)
    medians = _median_seconds(list(steps.values()), repeats, untimed)
    seconds = dict(zip(steps, medians, strict=True))
    name, per_second = unit
    rows: list[Row] = [{"title": t, name: per_second * s / calls} for t, s in seconds.items()]
    if reference is not None:
        rows = [row | {"ratio": seconds[row["title"]] / seconds[reference]} for row in rows]
    return rows


def _median_seconds(steps: Sequence[Step], repeats: int, untimed: int) -> list[float]:
    import tensorflow as tf

    seconds: list[list[float]] = [[] for _ in steps]
    for round_number in range(untimed + repeats):
        for step, taken in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            for part in tf.nest.flatten(step()):
                if hasattr(part, "numpy"):  # waits for a device
                    part.numpy()
            if round_number >= untimed:
                taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in seconds]


def measure_memory(
    title: str, prepare: Callable[[], tuple[Any, ...]], build: Callable[..., Step], calls: int
) -> Row:
    """
    Growth of a new process by a computation, above TensorFlow and what is prepared.

    In units of 2^20 bytes: ``grown``, the resident memory after the calls, and ``peak``, its
    maximum. ``seconds`` is the time of building and of all calls, with tracing.

    :param prepare: makes the data; a function of a module, or a partial of one.
    :param build: makes the computation from the data, likewise.
    :param calls: number of calls.
    :raises ValueError: on systems that do not report the memory of a process.
    """
    import gpflow

    if not _STATUS.is_file():
        raise ValueError(f"memory is measured where there is {_STATUS}, that is on Linux.")
    work, float32 = pickle.dumps((prepare, build)), gpflow.default_float() == np.float32
    return {"title": title} | run_alone(grow, work, calls, float32)


def run_alone(function: Callable[..., Any], *given: Any) -> Any:
    """
    What a function returns in a process of its own, which ends with it.

    :param function: of a module; it and the arguments are pickled.
    """
    # a forked process would begin with the memory of this one
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *given).result()


def grow(work: bytes, calls: int, float32: bool) -> Row:
    """Measure memory and time in the current process, see :func:`measure_memory`."""
    with session(float32, None):
        prepare, build = pickle.loads(work)  # imports TensorFlow
        prepared = prepare()
        before, start = megabytes("VmRSS"), time.perf_counter()
        step = build(*prepared)
        for _ in range(calls):
            step()
        seconds = time.perf_counter() - start
        grown, peak = (megabytes(field) - before for field in ("VmRSS", "VmHWM"))
        return {"grown": grown, "peak": peak, "seconds": seconds}


def num_threads() -> int:
    """Number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def megabytes(field: str) -> float:
    """
    Resident memory of this process now, "VmRSS", or at its largest, "VmHWM", in units of 2^20
    bytes; NaN on systems that do not report it.
    """
    if not _STATUS.is_file():
        return float("nan")
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kilobytes) / 1024.0


def table_of(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells of a table; cells of missing columns are empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [tuple(_cell(row.get(name)) for name in names) for row in rows]
    return tuple(name.replace("_", " ") for name in names), cells


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
