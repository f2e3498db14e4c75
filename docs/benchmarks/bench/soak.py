"""Training and predictions for minutes in one process: growth of memory and of step times."""

import math
import time
from typing import Any

import click
import numpy as np

from bench.steps import Row, Tables, megabytes, run_alone
from gpflow_sparse.data import Dataset, robot_arm
from gpflow_sparse.tables.cli.session import session
from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.registry import RECIPES, read_options, recipe_of

# Seconds of training between two predictions, and rows that are predicted.
_ROUND, _NUM_NEW = 20.0, 1000
# Steps of a round that ends with its time, and of one of L-BFGS, which does not.
_MAX_STEPS, _STEPS = 1_000_000, 20
# Rows and sizes that differ from the defaults, so that the largest model starts in seconds.
_SIZES: dict[str, Any] = {"num_inducing": 512, "num_orthogonal": 512, "num_basis": 2000}
_FEW_ROWS = ("exact",)


def soak(minutes: int, num_rows: int, input_dim: int) -> Tables:
    """
    Every method but those of images on rows of robot arms, each in a process of its own: rounds of
    20 seconds of training, in which steps are compiled again, and of the prediction of 1,000 rows.

    ``start`` and ``end`` are resident memory after the first and the last round, in units of 2^20
    bytes; ``MiB per hour`` and ``step, % per hour`` are slopes of lines through the later half of
    the rounds, the latter of the time of training per step.

    :param minutes: of each method.
    :param num_rows: N; an exact GP has at most 2,000.
    """
    rows = []
    for method, kind in RECIPES.items():
        if not kind.takes_images:
            found = run_alone(soak_one, method, minutes, num_rows, input_dim)
            click.echo(str(found), err=True)
            rows.append(found)
    return {"rows": rows}


def soak_one(method: str, minutes: float, num_rows: int, input_dim: int) -> Row:
    """The row of one method, in this process."""
    with session(False, None):
        X, Y = robot_arm(num_rows + _NUM_NEW, input_dim, seed=0)
        count = min(num_rows, 2000) if method in _FEW_ROWS else num_rows
        train, new = (X[:count], Y[:count]), (X[num_rows:], Y[num_rows:])
        names = tuple(f"x{i}" for i in range(input_dim))
        dataset = Dataset("robot_arm", train, new, names, "y", None).standardized()
        options = read_options(method, {**_SIZES, "schedule": "constant"})
        recipe = recipe_of(method, **options).shrunk_to(count)
        rounds = _rounds(build_model(recipe, dataset), recipe, dataset, 60.0 * minutes)
    seconds, memory, step = (np.array(part) for part in zip(*rounds, strict=True))
    found: Row = {"title": recipe.title, "rounds": len(rounds)}
    found |= {"start": memory[0], "end": memory[-1], "MiB per hour": _slope(seconds, memory)}
    return found | {"step, % per hour": 100.0 * _slope(seconds, step) / float(np.median(step))}


def _rounds(
    model: Any, recipe: Recipe, dataset: Dataset, seconds: float
) -> list[tuple[float, float, float]]:
    """Seconds since the start, memory and seconds per step, after each round."""
    begin = time.perf_counter()
    rounds: list[tuple[float, float, float]] = []
    recipe = recipe.with_steps(_MAX_STEPS if not recipe.holds_data else _STEPS)
    while not rounds or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        history = recipe.train(model, dataset.train, until=start + _ROUND, progress=False)
        step = (time.perf_counter() - start) / max(1, history.num_steps)
        model.predict_y(dataset.test[0])
        rounds.append((time.perf_counter() - begin, megabytes("VmRSS"), step))
    return rounds


def _slope(seconds: np.ndarray, values: np.ndarray) -> float:
    """Growth per hour in the later half; NaN for fewer than four values."""
    half = len(values) // 2
    if half < 2:
        return math.nan
    return 3600.0 * float(np.polyfit(seconds[half:], values[half:], 1)[0])
