"""One run from configuration to a folder of results, and back."""

import contextlib
import dataclasses
import json
import platform
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

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
from gpflow_sparse.persistence.schema import read_json
from gpflow_sparse.runs import outputs
from gpflow_sparse.runs.build import (
    build_model,
    checksum,
    original_units,
    scaler_of,
    source_of,
)
from gpflow_sparse.runs.build_basis import with_weights
from gpflow_sparse.runs.config import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    RECORD,
    RunConfig,
)
from gpflow_sparse.runs.evaluation import evaluate, predictor
from gpflow_sparse.runs.methods import BASELINES, METHODS, SAMPLED_METHODS
from gpflow_sparse.training.checkpoints import remove_checkpoints

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


def run(
    config: RunConfig, dataset: Dataset, folder: Path, *, resume: bool
) -> tuple[list[Trained], dict[str, Any]]:
    """
    Train the model and its baseline, and keep the model and the record in a prepared folder.

    The model is kept before it is scored, and its record before the baseline is trained. A baseline
    that fails is reported, and the run is complete without it.

    :param dataset: standardized.
    :param folder: after :func:`prepare_folder`.
    :return: what was trained, and the record.
    """
    trained = [train(config, dataset, folder, resume=resume, keep=True)]
    record = _keep_record(folder, summary(config, dataset, trained))
    if config.baseline and config.method not in BASELINES:
        baseline = config.as_baseline()
        try:
            trained.append(train(baseline, dataset, folder, resume=resume))
            record = summary(config, dataset, trained)
        except Exception as error:  # of whatever kind: it is not worth the model
            reason = str(error).split("\n")[0] or type(error).__name__
            print_progress(f"{title(baseline)} failed, and the run goes on without it: {reason}")
            record["results"].append({"title": title(baseline), "error": reason})
        _keep_record(folder, record)
    _clear_checkpoints(folder)
    return trained, record


def train(
    config: RunConfig, dataset: Dataset, folder: Path, *, resume: bool = False, keep: bool = False
) -> Trained:
    """
    Build, train and score one model.

    :param dataset: standardized.
    :param folder: of the run; checkpoints go into it until the run is complete.
    :param resume: go on from the checkpoints there.
    :param keep: save the model in the folder before it is scored.
    """
    start = time.perf_counter()
    _make_deterministic(config.seed)
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
    if keep:
        save_as(outputs.FIT, model, folder / MODEL)
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
        deterministic=True,
    )


def _make_deterministic(seed: int) -> None:
    """The same command gives the same bits; draws outside of training follow the seed."""
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(seed)


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


def prepare_folder(folder: Path, config: RunConfig, *, resume: bool, plot: bool = True) -> None:
    """
    Make sure that a run replaces and removes only what a run wrote, does not start on top of an
    unfinished one, and does not go on with another.

    :param plot: whether pictures will be drawn.
    :raises ValueError: naming the file that no run wrote, or saying which option to add or change.
    """
    note = folder / CHECKPOINTS / CONFIG
    mine = dataclasses.asdict(config)
    unfinished = _read(note) if outputs.is_unfinished(folder) else None
    recorded = outputs.recorded(folder)
    outputs.require_own(folder, (MODEL, *(config.pictures if plot else ())), outputs.FIT)
    if unfinished is not None:  # a baseline may be left out, or added, on the way
        unfinished["baseline"] = config.baseline
    if any(note.parent.glob("*/checkpoint-*")):
        if not resume:
            raise ValueError(
                f"an unfinished run is in {folder}: add --resume to go on with it, choose another "
                f"--output, or delete {folder / CHECKPOINTS}."
            )
        _require_same(unfinished or {}, mine, f"the unfinished run in {folder}")
    elif recorded is not None:
        if unfinished is not None:
            recorded["baseline"] = config.baseline
        elif resume:
            raise ValueError(f"the run in {folder} is complete: nothing to resume.")
        _require_same(recorded, mine, f"the finished run in {folder}")
    files.write_text(note, json.dumps({"written_by": outputs.FIT, "config": mine}))


def _read(path: Path) -> dict[str, Any]:
    """Configuration in the note of an unfinished run."""
    schema = {"written_by": str, "config": RunConfig}
    return dict(read_json(path, schema, "choose another --output")["config"])


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


def _keep_record(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    files.write_text(folder / RECORD, json.dumps(record) + "\n")
    return record


def _clear_checkpoints(folder: Path) -> None:
    """Remove what a run does not need once it is complete; last the note that it is not."""
    checkpoints = folder / CHECKPOINTS
    for method in METHODS:
        remove_checkpoints(checkpoints / method)
    for path in (*checkpoints.glob(files.TEMPORARY), checkpoints / CONFIG):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a person's files are in it
        checkpoints.rmdir()


def print_progress(text: str) -> None:
    """A line for a person watching; standard output is kept for results."""
    print(text, file=sys.stderr, flush=True)
