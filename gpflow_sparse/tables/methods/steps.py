"""Training by minibatch steps, with the closed forms of a method before and after them."""

import time
from typing import Any

import gpflow_sparse as gs

# Least number of steps between two evaluations on validation rows, and evaluations in a run.
_MIN_BETWEEN, _NUM_EVALUATIONS = 20, 10
_WARMUP = 20


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
    with recipe.closed_forms(model, rows) as callbacks:
        given: list[Any] = [*options.get("callbacks", ()), *callbacks]
        options["callbacks"] = [*given, lambda state: time.perf_counter() > until]
        arguments = _arguments(recipe, model, rows, len(rows[0]))
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


def evaluation_interval(num_steps: int) -> int:
    """Steps between two evaluations on validation rows."""
    return max(_MIN_BETWEEN, num_steps // _NUM_EVALUATIONS)


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
