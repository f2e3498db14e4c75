"""The time before the first score and the first step of a command, and of a `fit` of one step."""

import contextlib
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.steps import Row
from gpflow_sparse.tables.cli import session

_PACKAGE = ("models", "training", "inducing_variables", "initialization", "bases", "posteriors")
# Of the table that the command reads.
_ROWS, _COLUMNS = 5000, 8
_SECONDS = 120


def first_steps(repeats: int) -> list[Row]:
    """
    Seconds of ``import gpflow`` and of this package's parts, from the start of Python; of ``fit``
    on a csv file of 5,000 rows until the first GP is scored on held-out rows, and, of SOLVE-GP,
    until the first training step ends; and of a ``fit`` of one step.

    :param repeats: runs of each, of which the median counts.
    """
    ours = f"import gpflow_sparse as gs; {'; '.join(f'gs.{name}' for name in _PACKAGE)}"
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        _write_table(table)
        fit = ["fit", "--data", str(table)]
        commands = {
            "import gpflow": ["-c", "import gpflow"],
            "import gpflow_sparse": ["-c", ours],
            "fit, first score of a GP": ["-m", __name__, "score", *fit],
            "fit --method solvegp": ["-m", __name__, "step", *fit, "--method", "solvegp"],
        }
        seconds: dict[str, list[float]] = {title: [] for title in commands}
        for number in range(repeats):
            for title, arguments in commands.items():
                output = ["--output", f"{folder}/{number}-{title}"] if "-m" in arguments else []
                seconds[title].append(_time_of([*arguments, *output]))
    medians = {title: float(np.median(taken)) for title, taken in seconds.items()}
    reference = medians["import gpflow"]
    rows = [{"title": t, "seconds": s, "ratio": s / reference} for t, s in medians.items()]
    return [*rows, _fit_of_one_step()]


def _time_of(arguments: list[str]) -> float:
    """Wall time of a new Python process, in which nothing is set that this command has set."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # finds this package
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"python {' '.join(arguments)} failed: {done.stderr[-500:]}")
    return time.perf_counter() - start


def _write_table(path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(_ROWS, _COLUMNS))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=_ROWS)
    names = ",".join([*(f"x{i}" for i in range(_COLUMNS)), "y"])
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header=names, comments="")


def _fit_of_one_step() -> Row:
    from bench.step_variants import made_rows, make
    from gpflow_sparse import training

    X, Y = made_rows(4096, _COLUMNS)
    start = time.perf_counter()
    model = make("solvegp", X[:256].numpy(), X[256:512].numpy(), num_data=len(X))
    options: dict[str, Any] = {"natural_gradients": True, "progress": False}
    training.fit(model, (X, Y), num_steps=1, batch_size=1024, **options)
    return {"title": "fit of one step", "seconds": time.perf_counter() - start}


@contextlib.contextmanager
def _ending_after_the_first(event: str) -> Iterator[None]:
    """Let this process end, without any clean-up, after the first "step" or "score" of a GP."""
    original = session._quiet_import

    @contextlib.contextmanager
    def watched() -> Iterator[None]:
        with original():
            yield
        from gpflow_sparse.tables.fitting.race import Race
        from gpflow_sparse.training.loop import TrainingLoop

        owner: Any
        owner, name = {"step": (TrainingLoop, "_advance"), "score": (Race, "_score")}[event]
        method = getattr(owner, name)

        def once(*arguments: Any) -> None:
            method(*arguments)
            os._exit(0)

        setattr(owner, name, once)

    session._quiet_import = watched
    try:
        yield
    finally:
        session._quiet_import = original


if __name__ == "__main__":
    _event = sys.argv.pop(1)
    with _ending_after_the_first(_event), contextlib.suppress(SystemExit):
        runpy.run_module("gpflow_sparse.tables.cli.main", run_name="__main__")
    sys.exit(f"there was no {_event}")
