"""Training by minibatch steps, with the closed forms of a method before and after them."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import gpflow_sparse as gs
from gpflow_sparse.recipes.rows import Pair

MIN_BETWEEN = 20
"""Least number of steps between two evaluations on validation rows."""
NUM_EVALUATIONS = 10
"""Evaluations on validation rows in a run."""
_WARMUP = 20


class Plan(NamedTuple):
    """Callbacks during the steps of a training, and the rows for these steps."""

    callbacks: list[Any]
    rows: Pair
    evaluating: float = 0.0
    """Expected seconds of the callbacks in all."""
    closing: float = 0.0
    """Expected seconds of closed forms after the last step."""


def steps_alone(recipe: Any, model: Any, rows: Pair, until: float) -> AbstractContextManager[Plan]:
    """The plan of a method without closed forms."""
    return contextlib.nullcontext(Plan([], rows))


def fit_steps(recipe: Any, model: Any, rows: Any, until: float, options: dict[str, Any]) -> Any:
    """
    Train by the steps of a recipe, with its closed forms before and after them.

    :param rows: a pair of arrays, or rows in files.
    :param until: value of ``time.perf_counter`` after which no step begins.
    :param options: further arguments of :func:`gpflow_sparse.training.fit`.
    """
    if hasattr(rows, "batches"):
        model.num_data = rows.num_rows  # it was built from a sample
        try:
            arguments = _arguments(recipe, model, rows, rows.num_rows)
            return gs.training.fit(model, **arguments, **options)
        finally:
            recipe.after_files(model, rows)
    begin = time.perf_counter()
    with recipe.closed_forms(model, rows, until) as plan:
        recipe, end = _within(recipe, begin, until, plan), until - plan.closing
        given: list[Any] = [*options.get("callbacks", ()), *plan.callbacks]
        options["callbacks"] = [*given, lambda state: time.perf_counter() > end]
        arguments = _arguments(recipe, model, plan.rows, len(plan.rows[0]))
        return gs.training.fit(model, **arguments, **options)


def _arguments(recipe: Any, model: Any, rows: Any, num_rows: int) -> dict[str, Any]:
    """Arguments of ``training.fit``; models that hold their data take all of it in each step."""
    from gpflow.models import InternalDataTrainingLossMixin

    given = {
        "optimizer": recipe.optimizer(),
        "num_steps": recipe.num_steps,
        "precision": getattr(recipe, "precision", "full"),
        "seed": recipe.seed,
    }
    if isinstance(model, InternalDataTrainingLossMixin):
        return given
    return given | {
        "data": rows,
        "batch_size": min(recipe.batch_size, num_rows),
        "natural_gradients": getattr(recipe, "natural_gradients", False),
    }


def _within(recipe: Any, begin: float, until: float, plan: Plan) -> Any:
    """The recipe with as many of its steps, begun at ``begin``, as fit into the time left."""
    if not plan.closing or math.isinf(until):
        return recipe
    left = until - time.perf_counter() - plan.evaluating - plan.closing
    num_steps = int(recipe.num_steps * left / max(until - begin, 1e-9))
    return dataclasses.replace(recipe, num_steps=max(1, min(recipe.num_steps, num_steps)))


def evaluation_interval(num_steps: int) -> int:
    """Steps between two evaluations on validation rows."""
    return max(MIN_BETWEEN, num_steps // NUM_EVALUATIONS)


def adam(recipe: Any) -> Any:
    """Adam with the rate and the schedule of a recipe, after a short warm-up."""
    if recipe.schedule == "constant":
        return gs.training.adam(recipe.learning_rate)
    steps = recipe.num_steps
    warmup = min(_WARMUP, steps - 1)
    return gs.training.adam(recipe.learning_rate, decay_steps=steps, warmup_steps=warmup)


def rate(recipe: Any) -> Any:
    """The rate of a recipe, as a number or as a schedule."""
    if recipe.schedule == "constant":
        return recipe.learning_rate
    from gpflow.keras import tf_keras

    return tf_keras.optimizers.schedules.CosineDecay(recipe.learning_rate, recipe.num_steps)


def improves(best: Any, model: Any, change: Callable[[], Any]) -> bool:
    """Whether the model predicts validation rows better after a change, which is undone if not."""
    before = best.best
    change()
    best.update(model)
    best.restore(model)
    return bool(best.best > before)


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall time of a function."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
