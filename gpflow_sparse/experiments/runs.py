"""One run from configuration to a folder of results, and back."""

import dataclasses
import json
import platform
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import gpflow
import numpy as np

from gpflow_sparse import training
from gpflow_sparse.data import Dataset, Standardizer, read_table
from gpflow_sparse.experiments.build import (
    assemble,
    build_model,
    load_data,
    make_kernel,
    make_likelihood,
)
from gpflow_sparse.experiments.config import METHODS, RECORD, RunConfig, read_record
from gpflow_sparse.experiments.evaluation import evaluate

_PACKAGES = ("gpflow_sparse", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
_PARAMETERS = "parameters.npz"


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


def train(config: RunConfig, dataset: Dataset) -> Trained:
    """
    Build, train and score one model.

    :param dataset: standardized.
    """
    start = time.perf_counter()
    model = build_model(config, dataset)
    print_progress(f"{title(config)}: started in {time.perf_counter() - start:.1f} s")
    if config.schedule == "cosine":
        warmup = min(20, config.num_steps - 1)
        optimizer = training.adam(
            config.learning_rate, decay_steps=config.num_steps, warmup_steps=warmup
        )
    else:
        optimizer = training.adam(config.learning_rate)
    history = training.fit(
        model,
        dataset.train,
        optimizer=optimizer,
        num_steps=config.num_steps,
        batch_size=min(config.batch_size, len(dataset.train[0])),
        natural_gradients=config.natural_gradients,
        seed=config.seed,
    )
    test = original_units(dataset, dataset.test)
    scores, predictions = evaluate(model, scaler_of(dataset), *test, dataset.num_classes)
    tail = history.elbo[-max(1, history.num_steps // 10) :]
    return Trained(
        title(config), model, scores, predictions, float(np.mean(tail)), float(history.seconds[-1])
    )


def title(config: RunConfig) -> str:
    """The method and its sizes, such as "SOLVE-GP(256+256)"."""
    return f"{METHODS[config.method][0]}({'+'.join(map(str, config.sizes))})"


def original_units(
    dataset: Dataset, pair: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Standardized rows of ``dataset`` as they came from the file."""
    scaler = scaler_of(dataset)
    X = pair[0] * scaler.x_scale.numpy() + scaler.x_mean.numpy()
    return X, pair[1] if dataset.num_classes else scaler.inverse_outputs(pair[1])


def scaler_of(dataset: Dataset) -> Standardizer:
    """
    :raises ValueError: if the data set has not been standardized.
    """
    if dataset.standardizer is None:
        raise ValueError(f"data set {dataset.name!r} must be standardized first.")
    return dataset.standardizer


def summary(config: RunConfig, dataset: Dataset, runs: list[Trained]) -> dict[str, Any]:
    """What a run leaves behind: configuration, metrics, versions, seed; one JSON line."""
    return {
        "config": dataclasses.asdict(config),
        "dataset": {
            "name": dataset.name,
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
    """Write the record and the parameters of the run's model; no pickle."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
    np.savez(directory / _PARAMETERS, **gpflow.utilities.read_values(model))


def load_run(directory: Path) -> tuple[RunConfig, dict[str, Any], gpflow.models.GPModel]:
    """
    The configuration, record and trained model of an earlier run.

    :raises FileNotFoundError: if the folder holds no run.
    :raises ValueError: if its files are damaged.
    """
    config, record = read_record(directory)
    info = record["dataset"]
    if not (directory / _PARAMETERS).is_file():
        raise FileNotFoundError(f"{directory} holds no run: {_PARAMETERS} is missing.")
    try:
        with np.load(directory / _PARAMETERS, allow_pickle=False) as stored:
            values = dict(stored)
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise ValueError(f"the run in {directory} is damaged: {error}") from error
    prefix = ".standardizer."
    scaler = Standardizer(
        **{key.removeprefix(prefix): values[key] for key in values if key.startswith(prefix)}
    )
    points = tuple(values[key] for key in sorted(values) if key.endswith(".Z"))
    shell = Dataset(
        name=info["name"],
        train=(np.zeros((info["num_train"], 0)), np.zeros((info["num_train"], 1))),
        test=(np.zeros((0, 0)), np.zeros((0, 1))),
        feature_names=tuple(info["feature_names"]),
        target_name=info["target_name"],
        num_classes=info["num_classes"],
        standardizer=scaler,
    )
    kernel = make_kernel(config, np.ones(info["input_dim"]))
    model = assemble(config, kernel, make_likelihood(info["num_classes"]), points, shell)
    gpflow.utilities.multiple_assign(model, values)
    return config, record, model


def rows_to_score(
    config: RunConfig, record: dict[str, Any], data: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """
    Rows in original units: those of a file, or the run's own test rows.

    :raises ValueError: if a column the model was trained on is missing.
    """
    if data is None:
        dataset = load_data(config)
        return original_units(dataset, dataset.test)
    info = record["dataset"]
    table = read_table(data, target=None if data.endswith(".npz") else info["target_name"])
    missing = set(info["feature_names"]) - set(table.feature_names)
    if table.Y is None or missing:
        raise ValueError(
            f"{data} lacks columns of the training data: {', '.join(sorted(missing)) or 'y'}; "
            f"it has {', '.join(table.feature_names)}."
        )
    order = [table.feature_names.index(name) for name in info["feature_names"]]
    return table.X[:, order], table.Y


def print_progress(text: str) -> None:
    """A line for a person watching; standard output is kept for results."""
    print(text, file=sys.stderr, flush=True)
