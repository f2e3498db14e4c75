"""Training and scoring of the model of a run and of its baseline."""

import contextlib
import dataclasses
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
from gpflow.keras import tf_keras
from gpflow.models import InternalDataTrainingLossMixin

from gpflow_sparse import training
from gpflow_sparse.data import Dataset
from gpflow_sparse.models import SoftKI
from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.saving import save_as
from gpflow_sparse.runs import outputs
from gpflow_sparse.runs.build import (
    Pair,
    build_model,
    checksum,
    original_units,
    scaler_of,
    source_of,
    with_weights,
)
from gpflow_sparse.runs.config import CHECKPOINTS, CONFIG, MODEL, RunConfig
from gpflow_sparse.runs.evaluation import evaluate, predictor
from gpflow_sparse.runs.methods import BASELINES, METHODS, SAMPLED_METHODS
from gpflow_sparse.training.checkpoints import remove_checkpoints

_PACKAGES = ("gpflow_sparse", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
# Adam's rate for hyperparameters beside Adagrad on weights: their gradients are noisier.
_DENSE_RATE = 0.002


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


def run(
    config: RunConfig, dataset: Dataset, folder: Path, *, resume: bool
) -> tuple[list[Trained], dict[str, Any]]:
    """
    Train the model and its baseline, and write the model and the record into a prepared folder.

    The model is written before it is scored, and its record before the baseline is trained. A
    baseline that fails is reported, and the run is complete without it.

    :param dataset: standardized.
    :param folder: after :func:`outputs.prepare_folder`.
    :return: the trained models, and the record.
    """
    trained = [train(config, dataset, folder, resume=resume, keep=True)]
    record = _summary(config, dataset, trained)
    outputs.write_record(folder, record)
    if config.baseline and config.method not in BASELINES:
        baseline = config.as_baseline()
        try:
            trained.append(train(baseline, dataset, folder, resume=resume))
            record = _summary(config, dataset, trained)
        except Exception as error:  # of any kind: the model itself is already trained
            reason = str(error).split("\n")[0] or type(error).__name__
            click.echo(
                f"{_title(baseline)} failed, and the run goes on without it: {reason}", err=True
            )
            record["results"].append({"title": _title(baseline), "error": reason})
        outputs.write_record(folder, record)
    _remove_checkpoints(folder)
    return trained, record


def train(
    config: RunConfig, dataset: Dataset, folder: Path, *, resume: bool = False, keep: bool = False
) -> Trained:
    """
    Build, train and score one model.

    :param dataset: standardized.
    :param folder: of the run; checkpoints go into it until the run is complete.
    :param resume: continue from the checkpoints in the folder.
    :param keep: save the model in the folder before it is scored.
    """
    start = time.perf_counter()
    # equal commands give equal bits; random numbers outside of training follow the seed too
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(config.seed)
    model = build_model(config, dataset)
    seconds = time.perf_counter() - start
    click.echo(f"{_title(config)}: started in {seconds:.1f} s", err=True)
    history = fit_model(
        model,
        config,
        dataset.train,
        checkpoint_dir=folder / CHECKPOINTS / config.method,
        resume=resume,
        deterministic=True,
    )
    if config.inference == "type1":
        model = with_weights(config, model)
    if keep:
        save_as(outputs.FIT, model, folder / MODEL)
    test, classes = original_units(dataset, dataset.test), dataset.num_classes
    predictions = predictor(model, config.inference)
    scores = evaluate(predictions, scaler_of(dataset), *test, classes)
    tail = history.elbo[-max(1, history.num_steps // 10) :]
    seconds = float(history.seconds[-1])
    return Trained(_title(config), model, *scores, float(np.mean(tail)), seconds)


def fit_model(
    model: gpflow.models.GPModel, config: RunConfig, rows: Pair, **options: Any
) -> training.History:
    """
    Train a model as its method is trained: by steps, or for grief and basis_gpr by L-BFGS.

    :param rows: standardized training rows ``(X, Y)``.
    :param options: further arguments of ``training.fit``.
    """
    if config.method in ("grief", "basis_gpr"):
        return training.fit_in_rounds(
            model, num_rounds=-(-config.num_steps // 10), progress=options.get("progress", True)
        )
    holds_data = isinstance(model, InternalDataTrainingLossMixin)
    no_natural = holds_data or config.method in ("softki", "swsgp", *SAMPLED_METHODS)
    history = training.fit(
        model,
        None if holds_data else rows,
        optimizer=_optimizer(config),
        num_steps=config.num_steps,
        batch_size=None if holds_data else min(config.batch_size, len(rows[0])),
        natural_gradients=False if no_natural else config.natural_gradients,
        seed=config.seed,
        **options,
    )
    if isinstance(model, SoftKI):
        model.fit_posterior(rows)
    return history


def _optimizer(config: RunConfig) -> Any:
    rate: Any = config.learning_rate
    steps, constant = config.num_steps, config.schedule == "constant"
    adam = training.adam(rate)
    if not constant:
        adam = training.adam(rate, decay_steps=steps, warmup_steps=min(20, steps - 1))
        rate = tf_keras.optimizers.schedules.CosineDecay(rate, steps)
    if config.method == "swsgp":
        return training.SparseAdam(rate, dense=adam)
    if config.method in SAMPLED_METHODS:
        dense = None if constant else training.adam(_DENSE_RATE, decay_steps=steps)
        return training.SparseAdagrad(rate, dense=dense)
    return adam


def _title(config: RunConfig) -> str:
    """Method and sizes of inducing sets, of each layer in deep models: "SOLVE-GP(256+256)"."""
    layers = f", {config.num_layers} layers" if config.num_layers > 1 else ""
    return f"{METHODS[config.method]['name']}({'+'.join(map(str, config.sizes))}){layers}"


def _summary(config: RunConfig, dataset: Dataset, runs: list[Trained]) -> dict[str, Any]:
    """The record of a run: configuration, data set, metrics, versions and seed."""
    return {
        "config": dataclasses.asdict(config),
        "dataset": {
            "name": dataset.name,
            "source": source_of(config),
            "checksum": checksum(dataset),
            "num_train": len(dataset.train[0]),
            "num_test": len(dataset.test[0]),
            "input_dim": dataset.train[0].shape[1],
            "num_classes": dataset.num_classes,
            "feature_names": list(dataset.feature_names),
            "target_name": dataset.target_name,
        },
        "results": [
            {"title": r.title, "elbo": r.elbo, "seconds": r.seconds, **r.metrics} for r in runs
        ],
        "versions": package_versions(),
        "seed": config.seed,
    }


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide results."""
    return {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()}


def _remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a complete run; last the note that it is not complete."""
    checkpoints = folder / CHECKPOINTS
    for method in METHODS:
        remove_checkpoints(checkpoints / method)
    for path in (*checkpoints.glob(files.TEMPORARY), checkpoints / CONFIG):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a person's files are in it
        checkpoints.rmdir()
