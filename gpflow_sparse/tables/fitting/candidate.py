"""A method in training on the rows of a task, with the time that it takes."""

import math
import time
from typing import Any

import gpflow
from gpflow.models import GPModel

from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.tree_mean import ClassTreeMean, TreeMean
from gpflow_sparse.tables.fitting.weights import weighted_rows, weights_of_batches
from gpflow_sparse.tables.methods.base import Recipe

MEASURED = 10
"""Steps whose time is measured before the number of steps within a budget is known, and the least
number of steps of a model."""
# Largest number of passes over the rows within a budget, and fraction of the time for them.
_MAX_PASSES, _FRACTION = 200, 0.95


class Candidate:
    """
    One candidate in training on the rows of a task.

    :param name: as in :meth:`Task.recipe`.
    :param hyperparameters: starting values of kernel and noise variance; None to fit them.
    :param start: a trained model of the same method, whose parameters are the start.
    :param mean: the mean of trees of these rows; None to fit it if the recipe has one.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        name: str = "",
        hyperparameters: tuple[gpflow.kernels.Kernel, float] | None = None,
        start: GPModel | None = None,
        mean: TreeMean | ClassTreeMean | None = None,
    ) -> None:
        begin = time.perf_counter() - (0.0 if mean is None else mean.seconds)
        self.recipe, self.rows = recipe, task.dataset.train
        self._num_rows = task.dataset.num_train  # more than these where the others are in files
        self._weights = weights_of_batches(recipe, task.dataset)
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
        )
        self.build_seconds = self.seconds = time.perf_counter() - begin
        self.step_seconds = self.first_seconds = math.nan
        self.finish_seconds = 0.0
        """Time of :meth:`~gpflow_sparse.tables.methods.base.Recipe.finish`."""
        self.row_seconds = 0.0
        """Time to predict and score a row."""

    def train(self, num_steps: int, until: float = math.inf, checkpoint_dir: Any = None) -> None:
        """
        Train by a number of steps.

        :param until: value of ``time.perf_counter`` after which no step begins.
        :param checkpoint_dir: folder of checkpoints, from whose newest training goes on.
        """
        if not self.recipe.is_trained:  # the start is the optimum
            return
        begin, per_entry = time.perf_counter(), self.recipe.iterations
        recipe = self.recipe.with_steps(num_steps)
        kept = {} if checkpoint_dir is None else {"checkpoint_dir": checkpoint_dir, "resume": True}
        with weighted_rows(self.model, self.rows, self._weights) as rows:
            history = recipe.train(self.model, rows, until=until, progress=False, **kept)
        self.num_steps += history.num_steps * per_entry
        self.seconds += time.perf_counter() - begin
        if history.num_steps > 1:
            self.first_seconds = float(history.seconds[0])
            spent = float(history.seconds[-1]) - self.first_seconds
            self.step_seconds = spent / ((history.num_steps - 1) * per_entry)
        elif per_entry > 1:  # too slow if at all, since it includes compilation
            self.first_seconds, self.step_seconds = 0.0, float(history.seconds[-1]) / per_entry

    def train_until(self, until: float) -> None:
        """Train for as many steps as the time left allows."""
        if math.isnan(self.step_seconds):
            self.train(MEASURED, until)
        left = until - time.perf_counter() - self.first_seconds
        if left > self.step_seconds:  # False if there are no steps
            self.train(int(left / self.step_seconds), until)

    def num_steps_within(self, seconds: float) -> int:
        """Steps for which building the model anew and training it take at most this time."""
        left = _FRACTION * seconds - self.build_seconds - self.first_seconds
        batch = getattr(self.recipe, "batch_size", len(self.rows[0]))
        wanted = self.recipe.num_iterations
        most = max(wanted, math.ceil(_MAX_PASSES * self._num_rows / batch))
        if not self.step_seconds > 0.0:
            return wanted
        return max(MEASURED, min(most, int(left / self.step_seconds)))
