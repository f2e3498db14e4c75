"""One row of a stepwise paper, trained within a budget of time and scored."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse import training
from gpflow_sparse.bench.papers.budget import DoesNotFitError, duration, require_time
from gpflow_sparse.data import Dataset, load
from gpflow_sparse.numerics import linalg
from gpflow_sparse.runs.build import original_units, scaler_of
from gpflow_sparse.runs.evaluation import evaluate
from gpflow_sparse.runs.training import print_progress
from gpflow_sparse.training import checkpoints

# Steps after which the time of a row is foreseen; the first, which compiles, is not counted.
_PROBE = 8


@dataclass(frozen=True)
class Plan:
    """How a row is trained."""

    title: str
    build: Callable[[np.ndarray], gpflow.models.GPModel]
    """From standardized inputs ``[N, D]`` to the model at its start."""
    steps: int
    batch_size: int
    learning_rate: float
    seed: int
    folder: Path
    """Of the checkpoints."""


def load_split(name: str, seed: int) -> Dataset:
    """A data set, split anew and standardized; see :func:`split_dataset`."""
    return split_dataset(load(name), seed).standardized()


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


def run_plan(plan: Plan, dataset: Dataset, milliseconds: float, deadline: float) -> dict[str, Any]:
    """
    Train and score.

    :param milliseconds: what a step took before; 0 if that is not known.
    :param deadline: of ``time.perf_counter``.
    :raises DoesNotFitError: before the first step, or after a few, if it would end too late.
    :raises TrainingError: if training fails, or numbers are not finite.
    """
    if not plan.folder.is_dir():  # else much of it may be done; it is looked at on the way
        require_steps(milliseconds, plan.steps, deadline)
    print_progress(f"{plan.title} on {dataset.name}: {plan.steps} steps")
    try:
        results = _train_and_score(plan, dataset, deadline)
    except (training.TrainingError, linalg.FactorizationError, tf.errors.InvalidArgumentError):
        remove_checkpoints(plan.folder)
        raise
    remove_checkpoints(plan.folder)
    print_progress(
        f"  RMSE {results['rmse']:.3f}, log-likelihood {results['log_likelihood']:.3f}, "
        f"{results['milliseconds_per_step']:.0f} ms per step"
    )
    return results


def _train_and_score(plan: Plan, dataset: Dataset, deadline: float) -> dict[str, Any]:
    tf.random.set_seed(plan.seed)
    model = plan.build(dataset.train[0])
    watch = Watch(plan.steps, deadline)
    try:
        history = training.fit(
            model,
            dataset.train,
            optimizer=training.adam(plan.learning_rate),
            num_steps=plan.steps,
            batch_size=plan.batch_size,
            callbacks=[watch],
            checkpoint_dir=plan.folder,
            resume=True,
            seed=plan.seed,
        )
    except DoesNotFitError:
        if watch.first_step == 1:
            remove_checkpoints(plan.folder)
        raise
    scores, _ = evaluate(model, scaler_of(dataset), *original_units(dataset, dataset.test))
    results = {
        "rmse": scores["rmse_standardized"],
        "log_likelihood": -scores["nlpd_standardized"],
        "elbo": float(np.mean(history.elbo[-max(1, plan.steps // 10) :])),
        "training_seconds": float(history.seconds[-1]),
        "milliseconds_per_step": 1e3 * float(np.median(np.diff(history.seconds, prepend=0.0))),
    }
    if not np.isfinite(list(results.values())).all():
        raise training.TrainingError(f"the scores are not finite: {results}")
    return results | {"recoveries": list(history.recoveries)}


def remove_checkpoints(folder: Path) -> None:
    """Delete a row's checkpoints, and its folder and those above it once they are empty."""
    checkpoints.remove_checkpoints(folder)
    for parent in (folder.parent, folder.parent.parent):
        if parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()


class Watch:
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
            require_steps(milliseconds, self._steps - state.step, self._deadline)


def require_steps(milliseconds: float, steps: int, deadline: float) -> None:
    """
    :param milliseconds: per step; 0 if that is not known.
    :param deadline: of ``time.perf_counter``.
    :raises DoesNotFitError: if so many steps would end after it.
    """
    seconds = 1e-3 * milliseconds * steps
    detail = f"{milliseconds:.0f} ms per step, {duration(seconds)}"
    require_time(seconds, deadline, milliseconds, detail)
