"""One row of a paper with learning curves, trained within a budget of time."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse import training
from gpflow_sparse.bench.papers.budget import DoesNotFitError, Training
from gpflow_sparse.bench.papers.spec import Record, Task
from gpflow_sparse.bench.papers.stepwise_runner import (
    Watch,
    remove_checkpoints,
    require_steps,
)
from gpflow_sparse.data import Dataset
from gpflow_sparse.numerics import linalg
from gpflow_sparse.runs.training import print_progress

# Steps between checkpoints: those of long weight vectors are large.
_CHECKPOINT_EVERY = 500


def run_task(
    fit: Callable[[Mapping[str, Any], Dataset, Training], Record],
    task: Task,
    dataset: Dataset,
    milliseconds: float,
    plan: Training,
) -> Record:
    """
    :param fit: see :class:`.curves.CurvesPaper`.
    :param milliseconds: what a step of the row took before; 0 if that is not known.
    :return: what ``fit`` returned, and task_seconds, the wall time of all of it.
    :raises DoesNotFitError: before the first step, or after a few, if it would end too late.
    :raises TrainingError: if training fails, or numbers are not finite.
    """
    if not plan.folder.is_dir():  # else much of it may be done; it is looked at on the way
        require_steps(milliseconds, plan.steps, plan.deadline)
    print_progress(f"{task.row.title} on {task.dataset}: {plan.steps} steps")
    start = time.perf_counter()
    try:
        results = fit(task.row.options, dataset, plan)
    except (training.TrainingError, linalg.FactorizationError, tf.errors.InvalidArgumentError):
        remove_checkpoints(plan.folder)
        raise
    remove_checkpoints(plan.folder)
    numbers = [value for value in results.values() if isinstance(value, int | float)]
    if not np.isfinite(numbers).all():
        raise training.TrainingError(f"the results are not finite: {results}")
    curve = ", ".join(f"{score:.3g} at {step}" for step, score in results["curve"])
    print_progress(f"  {results['milliseconds_per_step']:.0f} ms per step; on the way {curve}")
    return results | {"task_seconds": time.perf_counter() - start}


def train(
    model: Any,
    data: tuple[Any, Any] | None,
    plan: Training,
    *,
    optimizer: Any,
    batch_size: int,
    score: Callable[[Any], float],
    natural_gradients: float = 0.0,
) -> Record:
    """
    Train, with checkpoints, and look at a score ten times on the way.

    :param data: None for a model that holds its data, and takes no batches.
    :param score: of the model as it is; the time it takes is not that of a step.
    :return: curve, milliseconds_per_step, training_seconds (with the looks), elbo (mean of the
        last tenth) and recoveries.
    :raises DoesNotFitError: after a few steps, if it would end too late.
    """
    watch, curve = Watch(plan.steps, plan.deadline), Curve(score, max(1, plan.steps // 10))
    try:
        history = training.fit(
            model,
            data,
            optimizer=optimizer,
            num_steps=plan.steps,
            batch_size=None if data is None else min(batch_size, len(data[0])),
            natural_gradients=natural_gradients,
            callbacks=[watch, curve],
            checkpoint_dir=plan.folder,
            checkpoint_every=_CHECKPOINT_EVERY,
            resume=True,
            seed=plan.seed,
        )
    except DoesNotFitError:
        if watch.first_step == 1:
            remove_checkpoints(plan.folder)
        raise
    return {
        "curve": curve.points,
        "milliseconds_per_step": 1e3 * float(np.median(np.diff(history.seconds, prepend=0.0))),
        "training_seconds": float(history.seconds[-1]),
        "elbo": float(np.mean(history.elbo[-max(1, plan.steps // 10) :])),
        "recoveries": list(history.recoveries),
    }


@contextmanager
def precision(kind: type) -> Iterator[None]:
    """GPflow's default float, for a while."""
    jitter = gpflow.config.default_jitter()
    with gpflow.config.as_context(gpflow.config.Config(float=kind, jitter=jitter)):
        yield


class Curve:
    """A callback that keeps a score of the model every so many steps."""

    def __init__(self, score: Callable[[Any], float], every: int) -> None:
        self.points: list[list[float]] = []
        """Pairs of a step and the score after it."""
        self._score, self._every = score, every

    def __call__(self, state: training.FitState) -> None:
        if state.step % self._every == 0:
            known = [point for point in self.points if point[0] < state.step]
            self.points = [*known, [state.step, self._score(state.model)]]
            print_progress(f"  step {state.step}: {self.points[-1][1]:.4f}")

    def get_state(self) -> dict[str, Any]:
        """What a checkpoint has to keep."""
        return {"points": self.points}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`get_state` returned."""
        self.points = [list(point) for point in state["points"]]
