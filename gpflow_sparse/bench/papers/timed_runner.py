"""One row of a paper, trained for so many minutes and scored."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_sparse import training
from gpflow_sparse.bench.papers.budget import TimedTraining
from gpflow_sparse.bench.papers.spec import Record, Task
from gpflow_sparse.bench.papers.stepwise_runner import remove_checkpoints
from gpflow_sparse.data import Dataset
from gpflow_sparse.numerics import linalg
from gpflow_sparse.runs.training import print_progress

# Looks on the way, the last one at the end.
_LOOKS = 10
# Steps between checkpoints, and over which the rate rises.
_CHECKPOINT_EVERY, _WARM_UP = 100, 20
# No row takes as many.
_MOST_STEPS = 10_000_000

Score = Callable[[Any], Mapping[str, float]]


def run_task(
    fit: Callable[[Mapping[str, Any], Dataset, TimedTraining], Record],
    task: Task,
    dataset: Dataset,
    plan: TimedTraining,
) -> Record:
    """
    :param fit: see :class:`.timed.TimedPaper`.
    :return: what ``fit`` returned, and task_seconds, the wall time of all of it.
    :raises TrainingError: if training fails, or numbers are not finite.
    """
    print_progress(f"{task.row.title} on {task.dataset}, split {task.split}")
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
    print_progress(
        f"  {results['accuracy']:.2f} %, NLPD {results['nlpd']:.4f}, {results['steps']} steps of "
        f"{results['milliseconds_per_step']:.0f} ms"
    )
    return results | {"task_seconds": time.perf_counter() - start}


def train(
    model: Any,
    data: tuple[Any, Any],
    plan: TimedTraining,
    *,
    learning_rate: float,
    batch_size: int,
    natural_gradients: float,
    score: Score,
) -> Record:
    """
    By Adam, at a rate that falls to zero as a cosine of the time that has gone, with checkpoints.

    :param learning_rate: at the start, after 20 steps in which it rises.
    :param score: of the model as it is, by name; the time it takes is not counted.
    :return: steps, training_seconds (tracing included, looks not), milliseconds_per_step (median),
        curve, elbo (mean of the last tenth of the steps) and recoveries.
    """
    clock = Clock(plan.seconds, plan.most_steps, score)
    rate = TimedCosine(learning_rate, clock.fraction)
    history = training.fit(
        model,
        data,
        optimizer=tf_keras.optimizers.Adam(rate),
        num_steps=plan.most_steps or _MOST_STEPS,
        batch_size=min(batch_size, len(data[0])),
        natural_gradients=natural_gradients,
        callbacks=[clock],
        checkpoint_dir=plan.folder,
        checkpoint_every=_CHECKPOINT_EVERY,
        resume=True,
        seed=plan.seed,
        progress=False,
    )
    return {
        "steps": history.num_steps,
        "training_seconds": clock.seconds,
        "milliseconds_per_step": 1e3 * float(np.median(np.diff(history.seconds, prepend=0.0))),
        "curve": clock.points,
        "elbo": float(np.mean(history.elbo[-max(1, history.num_steps // 10) :])),
        "recoveries": list(history.recoveries),
    }


class TimedCosine(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A rate that rises for some steps, and falls as the cosine of a fraction kept elsewhere."""

    def __init__(self, learning_rate: float, fraction: tf.Variable) -> None:
        """
        :param fraction: of the run that is over, from 0 to 1, as it is when a step is taken.
        """
        super().__init__()
        self._learning_rate, self._fraction = learning_rate, fraction

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        risen = tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / _WARM_UP)
        fallen = 0.5 + 0.5 * tf.cos(math.pi * self._fraction)
        return self._learning_rate * risen * fallen

    def get_config(self) -> dict[str, Any]:
        return {"learning_rate": self._learning_rate}


class Clock:
    """A callback that counts the time of training, ends it, and looks at a score on the way."""

    def __init__(self, limit: float, most_steps: int | None, score: Score) -> None:
        """
        :param limit: in seconds.
        :param most_steps: where training ends before its time; None for no such end.
        """
        self.seconds = 0.0
        """Of training so far."""
        self.points: list[dict[str, float]] = []
        """One for each look: step, seconds, elbo (mean since the look before), and the scores."""
        self.fraction = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        self._limit, self._most_steps, self._score = limit, most_steps, score
        self._recent: list[float] = []
        self._since = time.perf_counter()

    def __call__(self, state: training.FitState) -> bool:
        """:return: whether to stop."""
        self.seconds += time.perf_counter() - self._since
        self._recent.append(state.elbo)
        gone = self.seconds / self._limit
        if self._most_steps is not None:
            gone = max(gone, state.step / self._most_steps)
        self.fraction.assign(min(gone, 1.0))
        if gone * _LOOKS >= len(self.points) + 1:
            self._look(state, gone)
        self._since = time.perf_counter()
        return gone >= 1.0

    def _look(self, state: training.FitState, gone: float) -> None:
        point = {"step": state.step, "seconds": self.seconds}
        point |= {"elbo": float(np.mean(self._recent)), **self._score(state.model)}
        self._recent = []
        # a long step may end after more than one look was due
        self.points += [point] * (min(_LOOKS, int(gone * _LOOKS)) - len(self.points))
        scores = ", ".join(f"{name} {value:.5g}" for name, value in point.items())
        print_progress(f"  {scores}")

    def get_state(self) -> dict[str, Any]:
        """What a checkpoint has to keep."""
        return {"seconds": self.seconds, "points": self.points, "recent": self._recent}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`get_state` returned."""
        self.seconds = state["seconds"]
        self.points = [dict(point) for point in state["points"]]
        self._recent = list(state["recent"])
        self.fraction.assign(min(self.seconds / self._limit, 1.0))
        self._since = time.perf_counter()
