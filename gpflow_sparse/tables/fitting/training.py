"""Training of a method on the rows of a task, with the time that it takes."""

import math
import time
from collections.abc import Callable
from typing import Any

import gpflow
from gpflow.models import GPModel

from gpflow_sparse.tables.fitting.attempts import Choice
from gpflow_sparse.tables.fitting.building import attach_units, build_model
from gpflow_sparse.tables.fitting.calibration import calibrate, split_for_calibration
from gpflow_sparse.tables.fitting.starts import StartSearch
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.tree_mean import TreeMean
from gpflow_sparse.tables.fitting.weights import weighted_rows
from gpflow_sparse.tables.methods.base import Recipe

# Steps whose time is measured before the number of steps within a budget is known.
_MEASURED = 10
# Largest number of passes over the rows within a budget, and fraction of the time for them.
_MAX_PASSES, _FRACTION = 200, 0.95
# Fraction of a time in which the starting hyperparameters of a method are searched for.
_STARTS = 0.4


class Candidate:
    """
    One candidate in training on the rows of a task.

    :param hyperparameters: starting values of kernel and noise variance; None to fit them.
    :param name: as in :meth:`Task.recipe`.
    :param start: a trained model of the same method, whose parameters are the start.
    :param mean: the mean of trees of these rows; None to fit it if the recipe has one.
    :param search: where ``hyperparameters`` come from, for better ones.
    :param until: value of ``time.perf_counter`` after which no fit of them begins.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        hyperparameters: tuple[gpflow.kernels.Kernel, float] | None = None,
        *,
        name: str = "",
        start: GPModel | None = None,
        mean: TreeMean | None = None,
        search: StartSearch | None = None,
        until: float = math.inf,
    ) -> None:
        begin = time.perf_counter() - (0.0 if mean is None else mean.seconds)
        self.mean, self.search = mean, search
        self.recipe, self.rows = recipe, task.dataset.train
        # a model that holds its rows holds their weights, too
        self._weights = None if recipe.holds_data else task.dataset.weights
        self.name = name or recipe.name
        self.num_steps = 0
        kernel, noise = (task.kernel, None) if hyperparameters is None else hyperparameters
        self.model = build_model(
            recipe,
            task.dataset,
            kernel=kernel,
            likelihood=task.likelihood,
            noise_variance=noise,
            start=start,
            mean=mean,
            until=until,
        )
        self.build_seconds = self.seconds = time.perf_counter() - begin
        self.step_seconds = self.first_seconds = math.nan
        self.finish_seconds = 0.0
        """Time of :meth:`finish`."""
        self.row_seconds = 0.0
        """Time to predict and score a row."""

    def train(self, num_steps: int, until: float = math.inf, checkpoint_dir: Any = None) -> None:
        """
        Train by a number of steps.

        :param until: value of ``time.perf_counter`` after which no step begins.
        :param checkpoint_dir: folder of checkpoints; training continues from the newest.
        """
        if not self.recipe.is_trained:  # the start is the optimum
            return
        begin = time.perf_counter()
        recipe = self.recipe.with_steps(num_steps)
        kept = {} if checkpoint_dir is None else {"checkpoint_dir": checkpoint_dir, "resume": True}
        with weighted_rows(self.model, self.rows, self._weights) as rows:
            history = recipe.train(self.model, rows, until=until, progress=False, **kept)
        self.num_steps += history.num_steps
        self.seconds += time.perf_counter() - begin
        if history.num_steps > 1:
            self.first_seconds = float(history.seconds[0])
            spent = float(history.seconds[-1]) - self.first_seconds
            self.step_seconds = spent / (history.num_steps - 1)

    def train_until(self, until: float) -> None:
        """Train for as many steps as the time left allows, see :meth:`num_steps_within`."""
        if math.isnan(self.step_seconds):
            self.train(_MEASURED, until)
        if count := self.num_steps_within(until - time.perf_counter()):
            self.train(count, until)

    def finish(self, seconds: float) -> None:
        """Finish the trained model, see ``Recipe.finish``, in at most this time."""
        begin = time.perf_counter()
        self.model = self.recipe.finish(self.model, seconds)
        self.finish_seconds = time.perf_counter() - begin

    def num_steps_within(self, seconds: float) -> int:
        """Steps of a time, by the time of earlier steps, at most 200 passes; 0 without any."""
        batch = getattr(self.recipe, "batch_size", len(self.rows[0]))
        most = max(self.recipe.num_iterations, math.ceil(_MAX_PASSES * len(self.rows[0]) / batch))
        left = _FRACTION * (seconds - self.first_seconds)
        return min(most, int(left / self.step_seconds)) if left > self.step_seconds else 0


def train(
    task: Task,
    choice: Choice,
    *,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
    checkpoint_dir: Any = None,
) -> tuple[Choice, GPModel]:
    """
    The chosen model, trained on all rows, or on all but some, on which it is calibrated; after
    Ctrl-C as it is then, which the returned choice says.

    :param seconds: time after which no step begins; None for the number of steps of the choice.
    :param checkpoint_dir: folder of checkpoints; training continues from the newest.
    """
    rest, held_out = split_for_calibration(choice.recipe, task.dataset)
    if choice.is_model:
        assert choice.start is not None
        model = attach_units(choice.start, task.dataset)
        report(choice.reason)
    else:
        begin = time.perf_counter()
        end = math.inf if seconds is None else begin + seconds
        until = math.inf if seconds is None else begin + _STARTS * seconds
        final = Candidate(task.on(rest), choice.recipe, start=choice.start, until=until)
        try:
            if seconds is None or choice.attempts:  # which give the number of steps
                final.train(choice.recipe.num_iterations, end, checkpoint_dir)
            else:
                final.train_until(end)
            count = final.num_steps
            trained = f"{count} step{'s' * (count != 1)}, " if count else ""
        except KeyboardInterrupt as error:
            trained = f"{str(error).split(';')[0] or 'interrupted'}, "  # by `fit`, after which step
            choice = choice._replace(interrupted=True)
        final.finish(min(choice.finish_seconds, max(0.0, end - time.perf_counter())))
        model = attach_units(final.model, task.dataset)
        scope = "all rows" if held_out is None else f"{len(rest.train[0])} rows"
        report(f"{choice.recipe.full_title}: {trained}on {scope}. {choice.reason}")
    calibrate(model, held_out, choice.recipe, report)
    return choice, model
