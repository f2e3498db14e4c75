"""Training and scoring of the model of a run and of its baseline."""

import contextlib
import json
import math
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.data import Dataset
from gpflow_sparse.numerics.replicas import Replicas
from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.saving import load, save_of_run
from gpflow_sparse.persistence.schema import require_type
from gpflow_sparse.tables.cli import outputs
from gpflow_sparse.tables.cli.config import (
    ATTEMPTS,
    CHECKPOINTS,
    CHOICE,
    CONFIG,
    MODEL,
    START,
    RunConfig,
    read_with_config,
)
from gpflow_sparse.tables.cli.rows import checksum, original_units, scaler_of, source_of
from gpflow_sparse.tables.cli.terminal import phase
from gpflow_sparse.tables.fitting import calibration
from gpflow_sparse.tables.fitting.building import attach_units, build_model, require_outputs
from gpflow_sparse.tables.fitting.choice import Attempt, Choice, choose, first_line, within
from gpflow_sparse.tables.fitting.evaluation import evaluate
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.weights import weighted_rows, weights_of_batches
from gpflow_sparse.tables.methods.automatic import Auto
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.registry import RECIPES, baseline_of
from gpflow_sparse.tables.methods.rows import sized
from gpflow_sparse.training import TrainingInterrupted
from gpflow_sparse.training.checkpoints import remove_checkpoints

# Seconds that a worker waits for one that scores the model or trains the baseline.
_LONGEST = 1e6
_PACKAGES = ("gpflow_sparse", "gpflow", "tensorflow", "tensorflow-probability", "numpy")


@dataclass(frozen=True)
class Trained:
    """A trained model, its scores, and its predictions for the test rows."""

    title: str
    model: gpflow.models.GPModel
    metrics: dict[str, float]
    predictions: dict[str, np.ndarray]
    elbo: float
    """Mean objective of the last tenth of the steps."""
    seconds: float
    """Wall time of the training loop, compilation included."""
    interruption: BaseException | None = None
    """The exception of Ctrl-C, if it ended the training."""


def train_beside_chief(
    config: RunConfig, dataset: Dataset, folder: Path, *, resume: bool, strategy: Any
) -> None:
    """Take part in the training of the model of a run as a worker that writes nothing."""
    recipe = config.recipe
    require_outputs(dataset, recipe.likelihood)
    rest, _ = calibration.split_rows(recipe, dataset)
    model = _started(Choice(recipe, ""), rest)
    with contextlib.suppress(TrainingInterrupted):
        options = _options(folder, recipe, resume, strategy)
        with weighted_rows(model, rest.train, weights_of_batches(recipe, rest)) as rows:
            recipe.train(model, dataset.shards or rows, **options)
    end_together(strategy)


def end_together(strategy: Any) -> None:
    """Wait until all workers are here: TensorFlow ends the others if one leaves earlier."""
    Replicas(strategy, timeout=_LONGEST).over_workers([0.0])


def _options(folder: Path, recipe: Recipe, resume: bool, strategy: Any) -> dict[str, Any]:
    """Options of `training.fit` that do not depend on the method."""
    checkpoints = folder / CHECKPOINTS / recipe.name
    options = {"checkpoint_dir": checkpoints, "resume": resume, "deterministic": True}
    return options if strategy is None else options | {"strategy": strategy}


def run(
    config: RunConfig, dataset: Dataset, folder: Path, *, resume: bool, strategy: Any = None
) -> tuple[list[Trained], dict[str, Any]]:
    """
    Choose a method if none is given, train its model and the baseline, and write the model and the
    record into a prepared folder.

    The model is written before it is scored, and its record before the baseline is trained. A
    baseline that fails is reported, and the run is complete without it. After Ctrl-C the model is
    written and scored as it is then.

    :param dataset: standardized.
    :param folder: after :func:`outputs.prepare_folder`.
    :param strategy: strategy of ``tf.distribute``, for training the model and not the baseline.
    :return: the trained models, and the record.
    :raises TrainingInterrupted: after Ctrl-C.
    """
    begin = time.perf_counter()
    choice = _choose(config.recipe, dataset, folder, resume=resume)
    choice_seconds = time.perf_counter() - begin
    trained = [train(choice, dataset, folder, resume=resume, keep=True, strategy=strategy)]
    chosen = _record_of(choice, choice_seconds)
    record = _summary(config, dataset, trained) | chosen
    record["seconds"] = time.perf_counter() - begin
    outputs.write_record(folder, record)
    if trained[0].interruption is not None:
        raise trained[0].interruption
    if config.baseline and config.recipe.baseline_name:
        baseline = _baseline_for(choice.recipe, dataset.train[0])
        try:
            trained.append(train(Choice(baseline, ""), dataset, folder, resume=resume))
            record = _summary(config, dataset, trained) | chosen
        except Exception as error:  # of any kind: the model itself is already trained
            reason = first_line(error)
            click.echo(
                f"{baseline.full_title} failed, and the run continues without it: {reason}",
                err=True,
            )
            record["results"].append({"title": baseline.full_title, "error": reason})
        record["seconds"] = time.perf_counter() - begin
        outputs.write_record(folder, record)
    _remove_checkpoints(folder)
    return trained, record


def _baseline_for(recipe: Recipe, X: np.ndarray) -> Recipe:
    """The baseline of a method, with as many inducing points as the method if it has any."""
    baseline = baseline_of(recipe)
    return baseline if hasattr(recipe, "num_inducing") else sized(baseline, X, ())


def _choose(recipe: Recipe, dataset: Dataset, folder: Path, *, resume: bool) -> Choice:
    """
    The method of a run: the one given, with the steps that fit into its time if there is one, or
    the best on held-out rows; a choice or a number of steps is kept for a resumption.
    """
    if not isinstance(recipe, Auto):
        require_outputs(dataset, recipe.likelihood)
        if recipe.minutes is None:
            return Choice(recipe, "")
    kept, start = folder / CHECKPOINTS / CHOICE, folder / CHECKPOINTS / START
    if resume and kept.is_file():
        remedy = "choose another --output"
        schema = {"reason": str, "attempts": list[list]}
        config, found = read_with_config(kept, schema, remedy)
        named = [dict(zip(Attempt._fields, values, strict=False)) for values in found["attempts"]]
        require_type({"attempts": named}, {"attempts": ATTEMPTS}, str(kept), remedy)
        attempts = tuple(Attempt(**attempt) for attempt in named)
        model = load(start) if start.is_file() else None
        return Choice(config.recipe, found["reason"], attempts, model)
    try:
        choice = _made_choice(recipe, dataset)
    except KeyboardInterrupt as error:
        raise TrainingInterrupted("stopped before the first model was trained") from error
    click.echo(choice.reason, err=True)
    if not choice.interrupted:
        if choice.start is not None:
            save_of_run(outputs.FIT, choice.start, start)
        plain = {"config": RunConfig(choice.recipe).to_record(), "reason": choice.reason}
        files.write_text(kept, json.dumps(plain | {"attempts": choice.attempts}))
    return choice


def _made_choice(recipe: Recipe, dataset: Dataset) -> Choice:
    """The choice of a method, or of the number of steps of one, in the time of the recipe."""
    minutes = recipe.minutes
    assert minutes is not None
    if not isinstance(recipe, Auto):
        phase(f"{recipe.full_title}: measuring the time of a step")
        choice = within(Task(dataset, likelihood=recipe.likelihood), recipe, 60.0 * minutes, "")
        steps = choice.recipe.num_iterations
        words = f"{steps} steps fit into {minutes:g} min."
        return choice._replace(reason=choice.reason or words)
    seconds = None if "num_steps" in recipe.options else 60.0 * minutes
    task = Task(dataset, likelihood=recipe.likelihood, options=recipe.for_candidates)
    return choose(task, seconds=seconds, report=lambda line: click.echo(line, err=True))


def train(
    choice: Choice,
    dataset: Dataset,
    folder: Path,
    *,
    resume: bool = False,
    keep: bool = False,
    strategy: Any = None,
) -> Trained:
    """
    Build, train and score one model.

    :param choice: its method, or the model to score.
    :param dataset: standardized.
    :param folder: folder of the run; checkpoints go into it until the run is complete.
    :param resume: continue from the checkpoints in the folder.
    :param keep: save the model in the folder before it is scored, also after Ctrl-C.
    :param strategy: strategy of ``tf.distribute``.
    """
    recipe, elbo, seconds, interruption = choice.recipe, math.nan, math.nan, None
    rest, held_out = calibration.split_rows(recipe, dataset)
    if choice.is_model:
        assert choice.start is not None
        model = attach_units(choice.start, dataset)
        if choice.interrupted:
            interruption = TrainingInterrupted(
                f"stopped during the choice of a method: {recipe.full_title} is the best so far"
            )
    else:
        model = _started(choice, rest)
        try:
            options = _options(folder, recipe, resume, strategy)
            with weighted_rows(model, rest.train, weights_of_batches(recipe, rest)) as rows:
                options = {"until": choice.end, **options}
                history = recipe.train(model, dataset.shards or rows, **options)
            elbo = float(np.mean(history.elbo[-max(1, history.num_steps // 10) :]))
            seconds = float(history.seconds[-1])
        except TrainingInterrupted as error:
            if not keep:
                raise
            interruption = error
    model = attach_units(recipe.finish(model, choice.finish_seconds), dataset)
    calibration.calibrate(model, held_out, recipe)
    if keep:
        save_of_run(outputs.FIT, model, folder / MODEL)
    test = original_units(dataset, dataset.test)
    phase(f"{recipe.full_title}: scoring {len(test[0])} test rows")
    options = {"num_classes": dataset.num_classes, "row_weights": dataset.test_weights}
    scores = evaluate(recipe.predictor(model), scaler_of(dataset), *test, **options)
    return Trained(recipe.full_title, model, *scores, elbo, seconds, interruption)


def _started(choice: Choice, dataset: Dataset) -> gpflow.models.GPModel:
    """The untrained model of a run; prints the time that it took to build it."""
    recipe, begin = choice.recipe, time.perf_counter()
    phase(f"{recipe.full_title}: fitting starting hyperparameters and choosing points")
    # equal commands give equal bits; random numbers outside of training follow the seed too
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(recipe.seed)
    model = build_model(recipe, dataset, start=choice.start)
    seconds = time.perf_counter() - begin
    steps = f", {recipe.num_iterations} steps" if recipe.num_iterations else ""
    phase(f"{recipe.full_title}: training{steps}; the start took {seconds:.1f} s")
    return model


def _summary(config: RunConfig, dataset: Dataset, runs: list[Trained]) -> dict[str, Any]:
    """The record of a run: configuration, data set, metrics, versions and seed."""
    return {
        "config": config.to_record(),
        "dataset": {
            "name": dataset.name,
            "source": source_of(config),
            "checksum": checksum(dataset),
            "num_train": dataset.num_train,
            "num_test": len(dataset.test[0]),
            "input_dim": dataset.train[0].shape[1],
            "num_classes": dataset.num_classes,
            "feature_names": list(dataset.feature_names),
            "target_name": dataset.target_name,
        },
        "results": [
            {"title": r.title}
            | _finite(elbo=r.elbo, seconds=r.seconds)
            | r.metrics
            | calibration.summary(r.model)
            for r in runs
        ],
        "versions": package_versions(),
        "seed": config.recipe.seed,
    }


def _record_of(choice: Choice, seconds: float) -> dict[str, Any]:
    """The entry of a choice of a method, or of a number of steps, in the record of a run."""
    if not choice.reason:
        return {}
    entry = {
        "method": choice.recipe.name,
        "num_steps": choice.recipe.num_iterations,
        "reason": choice.reason,
        "seconds": seconds,
        "attempts": [attempt._asdict() for attempt in choice.attempts],
    }
    return {"choice": entry}


def _finite(**values: float) -> dict[str, float]:
    """The entries with a value; there is none for a run that was interrupted."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide results."""
    return {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()}


def _remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a complete run; last the note that it is not complete."""
    checkpoints = folder / CHECKPOINTS
    for method in RECIPES:
        remove_checkpoints(checkpoints / method)
    mine = (checkpoints / name for name in (CHOICE, START, CONFIG))
    for path in (*checkpoints.glob(files.TEMPORARY), *mine):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a person's files are in it
        checkpoints.rmdir()
