"""Training by steps."""

import time
from typing import Any

import gpflow_sparse as gs

# Least number of steps between two evaluations on validation rows, and evaluations in a run.
_MIN_BETWEEN, _NUM_EVALUATIONS = 20, 10
_WARMUP = 20


def fit_steps(
    recipe: Any, model: Any, rows: Any, until: float, options: dict[str, Any], optimizer: Any = None
) -> Any:
    """
    Train by the steps of a recipe.

    :param rows: the pair ``(X, Y)``.
    :param until: value of ``time.perf_counter`` after which no step begins.
    :param options: further arguments of :func:`gpflow_sparse.training.fit`.
    :param optimizer: None for Adam.
    """
    from gpflow.models import InternalDataTrainingLossMixin

    given: dict[str, Any] = {
        "optimizer": adam(recipe) if optimizer is None else optimizer,
        "num_steps": recipe.num_steps,
        "precision": getattr(recipe, "precision", "full"),
        "seed": recipe.seed,
    }
    if not isinstance(model, InternalDataTrainingLossMixin):  # others take all rows in each step
        given |= {
            "data": rows,
            "batch_size": min(recipe.batch_size, len(rows[0])),
            "natural_gradients": getattr(recipe, "natural_gradients", False),
        }
    callbacks = [*options.get("callbacks", ()), lambda state: time.perf_counter() > until]
    return gs.training.fit(model, **given, **{**options, "callbacks": callbacks})


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
