"""Fits of exact GPs by dual blocks: steps on hyperparameters, then passes, with checkpoints."""

import contextlib
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import tensorflow as tf

from gpflow_sparse import training
from gpflow_sparse.models import DualGPR, DualOptions
from gpflow_sparse.models.dual import ConvergenceError, DualState, HyperparameterStep
from gpflow_sparse.training.checkpoints import CheckpointFolder
from gpflow_sparse.training.state import Progress, Snapshot, describe_model, named_variables

STEP_ROWS = 8000
"""Most rows to which hyperparameters are fitted: a step takes as long as some passes over them."""
_HISTORY = "solver.history"


def solve(
    model: DualGPR,
    *,
    num_steps: int,
    learning_rate: float,
    seed: int,
    checkpoint_dir: Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> training.History:
    """
    Steps on the hyperparameters of an exact GP, and its weights.

    Each pass is kept in a checkpoint, from which a resumed run ends with the same bits; steps on
    hyperparameters that are interrupted are taken anew.

    :param num_steps: steps on hyperparameters.
    :param learning_rate: rate of Adam in these steps.
    :param checkpoint_dir: folder of checkpoints; None for none.
    :param progress: print a line for each step and pass.
    :return: a history of the passes, which have no objective.
    :raises TrainingInterrupted: after Ctrl-C in a pass; the model has the weights of earlier
        passes.
    """
    settings = {"model": describe_model(model), "seed": seed}
    options, state, seconds = DualOptions(seed=seed), None, list[float]()
    folder: Any = contextlib.nullcontext()
    if checkpoint_dir is not None:
        folder = CheckpointFolder(checkpoint_dir, settings, resume=resume)
    with folder as kept:
        found = kept.newest() if kept is not None and resume else None
        if found is None:
            _fit_hyperparameters(model, num_steps, learning_rate, progress=progress)
        else:
            state, seconds = _restore(model, *found)
        start = time.perf_counter() - (seconds[-1] if seconds else 0.0)

        def report(state: DualState) -> None:
            seconds.append(time.perf_counter() - start)
            if kept is not None:
                kept.save(*_checkpoint(model, state, seconds))
            line = f"pass {state.num_passes}: relative residual {state.relative_residual:.2g}"
            _say(f"{line}, {seconds[-1]:.1f} s", progress)

        try:
            model.solve(options, state=state, callback=report)
        except KeyboardInterrupt as error:
            if not seconds:
                raise
            message = f"stopped after {len(seconds)} passes; the model has the weights of these"
            raise training.TrainingInterrupted(message) from error
    return training.History(np.full(len(seconds), np.nan), np.array(seconds), False)


def _fit_hyperparameters(
    model: DualGPR, num_steps: int, learning_rate: float, *, progress: bool
) -> None:
    """Steps on some rows; where one fails, the parameters of the step before are kept."""
    start, count = time.perf_counter(), min(STEP_ROWS, len(model.data[0]))
    steps: list[HyperparameterStep] = []
    options = {"num_rows": count, "optimizer": training.adam(learning_rate)}
    try:
        model.fit_hyperparameters(num_steps, callback=steps.append, **options)
    except ConvergenceError as error:
        _say(str(error), progress)
    seconds = time.perf_counter() - start
    noise = float(model.likelihood.variance.numpy())
    _say(
        f"{len(steps)} steps on hyperparameters, {count} rows: {seconds:.1f} s; the noise variance "
        f"is {noise:.2g}",
        progress,
    )


def _checkpoint(
    model: DualGPR, state: DualState, seconds: list[float]
) -> tuple[Snapshot, Progress]:
    """Parameters and the state after a pass."""
    arrays = {name: np.array(variable.numpy()) for name, variable in _parameters(model).items()} | {
        "solver.weights": state.weights,
        "solver.residuals": state.residuals,
        _HISTORY: np.array([*state.history, state.refreshed]),
    }
    count = state.num_passes
    progress = Progress(step=count, elbo=[np.nan] * count, seconds=list(seconds))
    return Snapshot(count, arrays, []), progress


def _restore(
    model: DualGPR, snapshot: Snapshot, progress: Progress
) -> tuple[DualState, list[float]]:
    """Assign the parameters of a checkpoint, whose model has been compared; return the rest."""
    arrays = snapshot.variables
    for name, variable in _parameters(model).items():
        variable.assign(arrays[name])
    *history, refreshed = arrays[_HISTORY].tolist()
    weights, residuals = arrays["solver.weights"], arrays["solver.residuals"]
    return DualState(weights, residuals, tuple(history), refreshed), progress.seconds


def _parameters(model: DualGPR) -> dict[str, tf.Variable]:
    """Variables of the model but its weights, which are solved for."""
    own = {id(variable) for variable in model.weights.variables}
    return {n: v for n, v in named_variables(model).items() if id(v) not in own}


def _say(line: str, progress: bool) -> None:
    if progress:
        click.echo(line, err=True)
