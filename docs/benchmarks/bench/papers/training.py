"""Training of one row within its budget of steps or minutes, with a learning curve."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from bench.papers.spec import Record
from bench.papers.tables import duration
from gpflow_sparse import training
from gpflow_sparse.training import checkpoints

# Points of a learning curve, the last at the end.
_POINTS = 10
# Steps after which the time of a row is extrapolated; the first, which compiles, is not counted.
_PROBE = 8
# Steps between checkpoints: those of long weight vectors are large.
_CHECKPOINT_EVERY = 500
# Number of steps that no run with a budget of minutes reaches.
_MAX_STEPS = 10_000_000


class DoesNotFitError(Exception):
    """A task would take longer than the time that is left."""

    def __init__(self, seconds: float) -> None:
        expected = f"{duration(seconds)} expected" if seconds else "not measured"
        super().__init__(f"no time left ({expected})")
        self.seconds = seconds
        """Expected for the whole task; 0 if not known."""


class Budget(NamedTuple):
    """Limits of the training of one task, its seed and its folder."""

    steps: int | None
    """Number of training steps; None for no limit."""
    seconds: float | None
    """Seconds of training, without those of scoring; None for no limit."""
    seed: int
    folder: Path
    """Folder of the checkpoints, which exists only until the task is finished."""
    deadline: float
    """Value of ``time.perf_counter``: a task that would end later stops after a few steps."""

    def require_time(self, seconds: float, task_seconds: float) -> None:
        """
        :param seconds: expected from now on; 0 if not known.
        :param task_seconds: expected for the whole task.
        :raises DoesNotFitError: if that is too long, or no time is left at all.
        """
        left = self.deadline - time.perf_counter()
        if left <= 0.0 or seconds > left:
            raise DoesNotFitError(task_seconds)


class Monitor:
    """A callback that ends training within its budget and scores the model ten times."""

    def __init__(
        self, budget: Budget, score: Callable[[Any], Mapping[str, float]] | None = None
    ) -> None:
        """
        :param score: function that returns scores of the model by name; its time is not counted.
        """
        self.budget, self.seconds = budget, 0.0
        self.curve: list[dict[str, float]] = []
        """Step, seconds, elbo (mean since the point before) and the scores."""
        self.fraction = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        """Fraction of the budget that is used, from 0 to 1."""
        self._score, self._since = score, time.perf_counter()
        self._recent: list[float] = []
        self._ends: list[float] = []

    def __call__(self, state: training.FitState) -> bool:
        """:return: whether the time of training is over."""
        now, step = time.perf_counter(), state.step
        self.seconds += now - self._since
        self._probe(step, now)
        self._recent.append(state.elbo)
        limits = ((self.seconds, self.budget.seconds), (step, self.budget.steps))
        used = max(spent / limit for spent, limit in limits if limit is not None)
        self.fraction.assign(min(used, 1.0))
        # steps that are taken again after a failure are in the curve once
        self.curve = [point for point in self.curve if point["step"] < step]
        if self._score and used * _POINTS >= len(self.curve) + 1:
            scores = {"elbo": float(np.mean(self._recent)), **self._score(state.model)}
            point = {"step": step, "seconds": self.seconds, **scores}
            # a long step may end after more than one point was due
            self.curve += [point] * (min(_POINTS, int(used * _POINTS)) - len(self.curve))
            self._recent = []
            click.echo(
                "  " + ", ".join(f"{key} {value:.5g}" for key, value in point.items()), err=True
            )
        self._since = time.perf_counter()
        return self.budget.seconds is not None and used >= 1.0

    def _probe(self, step: int, now: float) -> None:
        """Give a number of steps up after the first ones if all of them would take too long."""
        if self.budget.seconds is None and self.budget.steps and len(self._ends) <= _PROBE:
            self._ends.append(now)
            if len(self._ends) > _PROBE:
                seconds, steps = float(np.median(np.diff(self._ends))), self.budget.steps
                self.budget.require_time(seconds * (steps - step), seconds * steps)

    def get_state(self) -> dict[str, Any]:
        """State to be kept in a checkpoint."""
        fraction = float(self.fraction.numpy())
        state = {"seconds": self.seconds, "curve": self.curve, "recent": self._recent}
        return state | {"fraction": fraction}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`get_state` returned."""
        self.seconds, self._recent = state["seconds"], list(state["recent"])
        self.curve = [dict(point) for point in state["curve"]]
        self.fraction.assign(state["fraction"])
        self._since = time.perf_counter()


class Cosine(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A rate that falls to 0 as the cosine of the budget of a :class:`Monitor` that is used."""

    def __init__(
        self, peak: float, monitor: Monitor, frozen: float = 0.0, warm_up: int = 1
    ) -> None:
        """
        :param frozen: fraction of the budget in which the rate is 0, before it falls from the peak.
        :param warm_up: steps in which it rises in proportion.
        """
        super().__init__()
        self._peak, self._fraction = peak, monitor.fraction
        self._frozen, self._warm_up = frozen, warm_up

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        used = (self._fraction - self._frozen) / (1.0 - self._frozen)
        rate = self._peak * (0.5 + 0.5 * tf.cos(math.pi * used))
        risen = tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / self._warm_up)
        return tf.where(used < -1e-6, 0.0, rate * risen)

    def get_config(self) -> dict[str, Any]:
        return {"peak": self._peak, "frozen": self._frozen, "warm_up": self._warm_up}


def train(
    model: Any,
    data: tuple[Any, Any] | None,
    monitor: Monitor,
    optimizer: Any,
    options: Mapping[str, Any],
) -> Record:
    """
    Train with checkpoints, from the newest one if there is any.

    :param data: None for a model that holds its data, and takes no batches.
    :param options: batch_size and, if q moves by them, natural_gradients: their step size.
    :return: steps, milliseconds_per_step (median), training_seconds (of a budget of minutes without
        the scores on the way), curve, elbo (mean of the last tenth of the steps) and recoveries.
    :raises DoesNotFitError: after a few steps, if it would end too late.
    """
    budget, timed = monitor.budget, monitor.budget.seconds is not None
    begun = budget.folder.is_dir()
    try:
        history = training.fit(
            model,
            data,
            optimizer=optimizer,
            num_steps=budget.steps or _MAX_STEPS,
            batch_size=None if data is None else min(options["batch_size"], len(data[0])),
            natural_gradients=options.get("natural_gradients", 0.0),
            callbacks=[monitor],
            checkpoint_dir=budget.folder,
            checkpoint_every=_CHECKPOINT_EVERY,
            resume=True,
            seed=budget.seed,
            progress=not timed,
        )
    except DoesNotFitError:
        if not begun:
            remove_checkpoints(budget.folder)
        raise
    return {
        "steps": history.num_steps,
        "milliseconds_per_step": 1e3 * float(np.median(np.diff(history.seconds, prepend=0.0))),
        "training_seconds": monitor.seconds if timed else float(history.seconds[-1]),
        "curve": monitor.curve,
        "elbo": float(np.mean(history.elbo[-max(1, history.num_steps // 10) :])),
        "recoveries": list(history.recoveries),
    }


def remove_checkpoints(folder: Path) -> None:
    """Delete a task's checkpoints, and its folder and those above it once they are empty."""
    checkpoints.remove_checkpoints(folder)
    for parent in (folder.parent, folder.parent.parent):
        if parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()
