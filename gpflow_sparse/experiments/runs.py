"""One run from configuration to a folder of results, and back."""

import dataclasses
import json
import platform
import shutil
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from gpflow.keras import tf_keras
from gpflow.models import InternalDataTrainingLossMixin

from gpflow_sparse import persistence, training
from gpflow_sparse.data import Dataset
from gpflow_sparse.experiments.build import (
    build_model,
    checksum,
    original_units,
    scaler_of,
    source_of,
)
from gpflow_sparse.experiments.build_basis import with_weights
from gpflow_sparse.experiments.config import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    RECORD,
    RunConfig,
)
from gpflow_sparse.experiments.evaluation import evaluate, predictor
from gpflow_sparse.experiments.methods import METHODS, SAMPLED_METHODS
from gpflow_sparse.models import SoftKI
from gpflow_sparse.persistence import files

_PACKAGES = ("gpflow_sparse", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
# Of the hyperparameters beside sampled functions.
_DENSE_RATE = 0.002


@dataclass(frozen=True)
class Trained:
    """A trained model, how it scored, and what it predicted for the test rows."""

    title: str
    model: gpflow.models.GPModel
    metrics: dict[str, float]
    predictions: dict[str, np.ndarray]
    elbo: float
    """Mean objective of the last tenth of the steps."""
    seconds: float
    """Wall time of the training loop, compilation included."""


def train(config: RunConfig, dataset: Dataset, folder: Path, *, resume: bool = False) -> Trained:
    """
    Build, train and score one model.

    :param dataset: standardized.
    :param folder: of the run; checkpoints go into it until the run is complete.
    :param resume: go on from the checkpoints there.
    """
    start = time.perf_counter()
    model = build_model(config, dataset)
    print_progress(f"{title(config)}: started in {time.perf_counter() - start:.1f} s")
    if config.method in ("grief", "basis_gpr"):
        history = training.fit_in_rounds(model, num_rounds=-(-config.num_steps // 10))
        if config.inference == "type1":
            model = with_weights(config, model)
    else:
        history = _fit(model, config, dataset, folder, resume=resume)
    if isinstance(model, SoftKI):
        model.fit_posterior(*dataset.train)
    test = original_units(dataset, dataset.test)
    scores, predictions = evaluate(
        predictor(model, config.inference), scaler_of(dataset), *test, dataset.num_classes
    )
    tail = history.elbo[-max(1, history.num_steps // 10) :]
    return Trained(
        title(config), model, scores, predictions, float(np.mean(tail)), float(history.seconds[-1])
    )


def _fit(
    model: gpflow.models.GPModel,
    config: RunConfig,
    dataset: Dataset,
    folder: Path,
    *,
    resume: bool,
) -> training.History:
    """By Adam and natural gradients, or by a sparse optimizer on some rows; with checkpoints."""
    holds_data = isinstance(model, InternalDataTrainingLossMixin)
    no_natural = holds_data or config.method in ("softki", "swsgp", *SAMPLED_METHODS)
    return training.fit(
        model,
        None if holds_data else dataset.train,
        optimizer=_optimizer(config),
        num_steps=config.num_steps,
        batch_size=None if holds_data else min(config.batch_size, len(dataset.train[0])),
        natural_gradients=False if no_natural else config.natural_gradients,
        checkpoint_dir=folder / CHECKPOINTS / config.method,
        resume=resume,
        seed=config.seed,
    )


def _optimizer(config: RunConfig) -> Any:
    if config.method in SAMPLED_METHODS:
        return _adagrad(config)
    if config.method == "swsgp":
        return training.SparseAdam(_decayed(config), dense=_adam(config))
    return _adam(config)


def _decayed(config: RunConfig) -> Any:
    if config.schedule == "constant":
        return config.learning_rate
    return tf_keras.optimizers.schedules.CosineDecay(config.learning_rate, config.num_steps)


def _adam(config: RunConfig) -> Any:
    if config.schedule == "constant":
        return training.adam(config.learning_rate)
    warmup = min(20, config.num_steps - 1)
    return training.adam(config.learning_rate, decay_steps=config.num_steps, warmup_steps=warmup)


def _adagrad(config: RunConfig) -> Any:
    """Hyperparameters, whose gradients are noisier than those of the weights, by Adam."""
    if config.schedule == "constant":
        return training.SparseAdagrad(config.learning_rate)
    dense = training.adam(_DENSE_RATE, decay_steps=config.num_steps)
    return training.SparseAdagrad(_decayed(config), dense=dense)


def prepare_folder(folder: Path, config: RunConfig, *, resume: bool) -> None:
    """
    Make sure that a run neither overwrites an unfinished one nor goes on with another.

    :raises ValueError: saying which option to add or to change.
    """
    note = folder / CHECKPOINTS / CONFIG
    mine = dataclasses.asdict(config)
    if not any(note.parent.glob("*/checkpoint-*")):
        if (folder / RECORD).is_file():
            if resume:
                raise ValueError(f"the run in {folder} is complete: nothing to resume.")
            _require_same(_read(folder / RECORD)["config"], mine, f"the finished run in {folder}")
        files.write_text(note, json.dumps(mine))
        return
    if not resume:
        raise ValueError(
            f"an unfinished run is in {folder}: add --resume to go on with it, choose another "
            f"--output, or delete {folder / CHECKPOINTS}."
        )
    _require_same(_read(note), mine, f"the unfinished run in {folder}")


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): choose another --output.") from error


def _require_same(theirs: dict[str, Any], mine: dict[str, Any], what: str) -> None:
    changed = [name for name in mine if theirs.get(name) != mine[name]]
    if changed:
        name = changed[0]
        raise ValueError(
            f"{what} has {name}={theirs.get(name)!r}, this one {mine[name]!r}: take the same "
            "options, or choose another --output."
        )


def title(config: RunConfig) -> str:
    """The method and its sizes, such as "SOLVE-GP(256+256)"; of deep models those of each layer."""
    layers = f", {config.num_layers} layers" if config.num_layers > 1 else ""
    return f"{METHODS[config.method][0]}({'+'.join(map(str, config.sizes))}){layers}"


def summary(config: RunConfig, dataset: Dataset, runs: list[Trained]) -> dict[str, Any]:
    """What a run leaves behind: configuration, metrics, versions, seed; one JSON line."""
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
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
        "seed": config.seed,
    }


def save_run(directory: Path, record: dict[str, Any], model: gpflow.models.GPModel) -> None:
    """Write the model, then the record that says that the run is complete."""
    directory.mkdir(parents=True, exist_ok=True)
    persistence.save(model, directory / MODEL)
    files.write_text(directory / RECORD, json.dumps(record) + "\n")
    shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)


def print_progress(text: str) -> None:
    """A line for a person watching; standard output is kept for results."""
    print(text, file=sys.stderr, flush=True)
