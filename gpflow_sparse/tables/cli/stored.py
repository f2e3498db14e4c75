"""A model in a run folder or in a file, its data, and its predictions as a table."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import gpflow
import numpy as np
import pandas as pd

from gpflow_sparse import persistence
from gpflow_sparse.data import Dataset, Standardizer, read_table
from gpflow_sparse.data.limits import listed
from gpflow_sparse.inference.calibration import has_classes
from gpflow_sparse.tables.cli.config import MODEL, RECORD, RunConfig, read_record
from gpflow_sparse.tables.cli.rows import (
    checksum,
    load_data,
    original_units,
    read_weights,
)
from gpflow_sparse.tables.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.fitting.choice import Attempt
from gpflow_sparse.tables.fitting.evaluation import (
    class_probabilities,
    moments_in_chunks,
    predict_interval,
)
from gpflow_sparse.tables.fitting.observations import BLOCK
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.rows import require_range
from gpflow_sparse.tables.reading.columns import Column, TableEncoder, as_frame
from gpflow_sparse.tables.reading.table_format import TableFormat
from gpflow_sparse.tables.reading.tables import column_named, notes_of


@dataclass(frozen=True)
class StoredModel:
    """A model from a run folder, or from a file written by ``gpflow_sparse.save``."""

    model: gpflow.models.GPModel
    title: str
    standardizer: Standardizer
    num_classes: int | None
    feature_names: tuple[str, ...] | None
    """Names of the training columns; None if only the model was saved."""
    target_name: str | None
    config: RunConfig | None
    """Configuration of the run, or None."""
    record: dict[str, Any] | None
    """Record of the run, see :func:`config.read_record`, or None."""
    table: TableFormat | None = None
    """The table of training; None if the model was trained on arrays, or on a file of images."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes; none for regression."""
        known = self.table.labels if self.table else None
        return known or tuple(map(str, range(self.num_classes or 0)))

    @property
    def predictor(self) -> Any:
        """An object that predicts as the method of the run does."""
        recipe = None if self.config is None else self.config.recipe
        return CachedModel(self.model) if recipe is None else recipe.predictor(self.model)


def open_model(path: Path) -> StoredModel:
    """
    Load a model from its run folder or from its file.

    :raises FileNotFoundError: if there is no model.
    :raises ValueError: if the files are damaged, or the model has no standardizer.
    """
    file = path / MODEL if os.path.isdir(path) else path
    if not os.path.isfile(file):
        raise FileNotFoundError(
            f"no saved model at {path}: give a run folder of gpflow-sparse fit, or a file written "
            "by gpflow_sparse.save."
        )
    model = persistence.load(file)
    scaler = getattr(model, "standardizer", None)
    if scaler is None:
        raise ValueError(
            f"the model in {path} has no standardizer: set model.standardizer (see "
            "gpflow_sparse.Standardizer) before saving, or use gpflow_sparse.load in Python."
        )
    num_classes, text = _count_classes(model.likelihood), getattr(model, "table", None)
    if not isinstance(text, str | None):
        raise ValueError(
            f"{file} is damaged: its table must be text, got {type(text).__name__}; restore the "
            "file or train again."
        )
    table = None if text is None else TableFormat.from_json(text, str(file))
    _require_fit(file, table, scaler, num_classes)
    names = target = None
    if table is not None:
        names, target = tuple(table.encoder.get_feature_names_out()), table.target.name
    if not os.path.isdir(path):
        title = type(model).__name__
        return StoredModel(model, title, scaler, num_classes, names, target, None, None, table)
    config, record = read_record(path)
    info, title = record["dataset"], record["results"][0]["title"]
    if table is None:
        names, target = tuple(info["feature_names"]), info["target_name"]
    _require_names(path / RECORD, tuple(info["feature_names"]), scaler)
    try:
        config.recipe.require_model(model)
    except ValueError as error:
        raise ValueError(f"{path / RECORD} is damaged: config.{error}") from error
    return StoredModel(model, title, scaler, num_classes, names, target, config, record, table)


def load_run_data(stored: StoredModel) -> Dataset:
    """
    The standardized data that the run was trained and tested on.

    :raises ValueError: if the model is from no run, or the data file is missing or has changed.
    """
    if stored.config is None or stored.record is None:
        raise ValueError("data is missing: a model file has no test rows; give --data.")
    try:
        dataset = load_data(stored.config, only_numbers=stored.table is None, known=stored.table)
    except FileNotFoundError as error:
        raise ValueError(
            f"the data file of the run, {stored.config.data}, is missing: give rows with --data."
        ) from error
    if checksum(dataset) != stored.record["dataset"]["checksum"]:
        raise ValueError(
            f"{stored.config.data} has changed since the run, so its test rows are no longer "
            "known: give rows with --data."
        )
    return dataset


def read_pairs(
    stored: StoredModel, data: str | None, target: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """
    Inputs and outputs to score, in original units: rows of a file, or the test rows of the run.

    :param target: column to predict; None for the target of training.
    :return: with them the weights of the rows, or None for 1.
    :raises ValueError: if a column is missing, or the test rows of the run are not known.
    """
    if data is None:
        dataset = load_run_data(stored)
        rows = original_units(dataset, dataset.test)
        return *rows, dataset.test_weights
    target = target or stored.target_name
    if target is None and not data.endswith(".npz"):
        raise ValueError(f"target is missing: which column of {data} should be compared?")
    X, Y, frame = _read(stored, data, target)
    if Y is None:
        raise ValueError(f"{data} has no array y to compare with.")
    _require_range(stored, data, X, Y)
    return X, Y, None if frame is None else _weights_in(stored, frame)


def estimator_of(stored: StoredModel, *, is_encoded: bool) -> Any:
    """
    The fitted estimator of a stored model.

    :param is_encoded: whether its rows are encoded inputs in place of a table.
    """
    is_class = stored.num_classes is not None
    estimator: Any = (SparseGPClassifier if is_class else SparseGPRegressor)()
    names = stored.feature_names or [f"x{i}" for i in range(stored.standardizer.x_mean.shape[0])]
    columns = tuple(Column(name, "number") for name in names)
    table = None if is_encoded else stored.table
    estimator.encoder_ = TableEncoder.from_columns(columns) if table is None else table.encoder
    estimator.model_, estimator._posterior = stored.model, stored.predictor
    estimator.recipe_ = RunConfig().recipe if stored.config is None else stored.config.recipe
    estimator.method_, estimator._one_dimensional = stored.title, True
    estimator.n_features_in_ = estimator.encoder_.n_features_in_
    estimator.feature_names_in_ = estimator.encoder_.feature_names_in_
    choice = (stored.record or {}).get("choice", {"reason": "", "attempts": []})
    estimator.reason_ = choice["reason"]
    estimator.attempts_ = tuple(Attempt(**attempt) for attempt in choice["attempts"])
    if is_class:
        estimator.classes_ = np.array(stored.labels)
    return estimator


def frame_of(stored: StoredModel, data: str | None, X: np.ndarray) -> tuple[pd.DataFrame, bool]:
    """
    The cells of the rows scored, and whether these are encoded inputs: of named data sets, files of
    numbers and folders.

    :param data: the file of the rows; None for the test rows of the run.
    :param X: their encoded inputs.
    """
    dataset = load_run_data(stored) if data is None else None
    numbers = np.arange(len(X)) if dataset is None else dataset.test_rows
    if stored.table is None or numbers is None:
        names = stored.feature_names or [f"x{i}" for i in range(X.shape[1])]
        frame = pd.DataFrame(X, columns=list(names))
        return frame.set_axis(1 + (np.arange(len(X)) if numbers is None else numbers)), True
    path = data or stored.config.data  # type: ignore[union-attr]
    frame = as_frame(stored.table.read(path)).reset_index(drop=True)
    names = [column.name for column in stored.table.columns]
    return frame.iloc[numbers].set_axis(1 + numbers).reindex(columns=names), False


def _weights_in(stored: StoredModel, frame: pd.DataFrame) -> np.ndarray | None:
    """
    The weights of rows of a table that has the column of weights of the run; None for others.

    :raises ValueError: for wrong weights, or if none is above 0.
    """
    if stored.config is None or stored.config.row_weights is None:
        return None
    try:
        name = column_named(stored.config.row_weights, list(frame.columns), "", "row_weights")
    except ValueError:
        return None
    weights = read_weights(frame, name).to_numpy()
    if not weights.any():
        raise ValueError(f"row_weights {name!r} must be above 0 in a row to score or more.")
    return weights


def read_table_of(
    stored: StoredModel, data: str, target: str | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """
    The model's input columns of a file, ``[N, D]`` in original units, and its target column.

    Columns are chosen by name if the names are known; else all columns are taken in order. One
    sentence on standard error names each column with cells that had to be replaced.

    :raises ValueError: if columns are missing or, for a model that was not trained on a table, hold
        other values than finite numbers.
    """
    X, Y, _ = _read(stored, data, target)
    _require_range(stored, data, X)
    return X, Y


def _read(
    stored: StoredModel, data: str, target: str | None
) -> tuple[np.ndarray, np.ndarray | None, pd.DataFrame | None]:
    """:func:`read_table_of`, and the table itself for a model that was trained on one."""
    names = stored.feature_names
    if stored.table is not None:
        frame = stored.table.read(data)
        _print_notes(notes_of(frame))
        try:
            X = stored.table.encoder.transform(frame)
        except ValueError as error:
            raise ValueError(f"{data}: {error}") from error
        if target is not None:
            target = column_named(target, list(frame.columns), data)
        _print_notes(stored.table.gaps(frame, target))
        return X, None if target is None else stored.table.outputs(frame, target), frame
    if data.endswith(".npz"):
        names = None
    needed = None if names is None else [*names, target] if target else names
    table = read_table(data, target=target, columns=needed)
    _print_notes(table.notes)
    if names is None:
        return table.X, table.Y, None
    missing = [name for name in names if name not in table.feature_names]
    if missing:
        raise ValueError(
            f"{data} lacks columns of the training data: {listed(missing)}; it has "
            f"{listed(table.feature_names)}."
        )
    return table.X[:, [table.feature_names.index(name) for name in names]], table.Y, None


def _require_range(
    stored: StoredModel, data: str, X: np.ndarray, Y: np.ndarray | None = None
) -> None:
    """:raises ValueError: for a row, in original units, with values that cannot be squared."""
    source, dtype = f"{data}, once standardized,", gpflow.default_float()
    names = stored.feature_names or [f"x{i}" for i in range(X.shape[1])]
    with np.errstate(over="ignore"):
        require_range(stored.standardizer.transform_inputs(X), names, source, dtype)
        if Y is not None and stored.num_classes is None:
            outputs = stored.standardizer.transform_outputs(Y)
            require_range(outputs, [stored.target_name or "y"] * Y.shape[1], source, dtype)


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(note, err=True)


def predict_table(stored: StoredModel, X: np.ndarray, chunk_size: int) -> pd.DataFrame:
    """
    Predictions in original units as named columns.

    :param chunk_size: rows per call of the model, which bounds the memory.
    :return: mean, standard deviation of an observation, and the central 95 % interval, with the
        median in place of the mean for transformed outputs; or the probability of each class and
        the likeliest class.
    """
    return pd.concat(predict_parts(stored, X, chunk_size), ignore_index=True)


def predict_parts(
    stored: StoredModel,
    X: np.ndarray,
    chunk_size: int,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[pd.DataFrame]:
    """
    :func:`predict_table` in parts, so that no more than one of them is in memory.

    :param advance: called with the number of rows of each chunk that is done.
    """
    predictor = stored.predictor
    size = math.lcm(chunk_size, BLOCK)  # so that draws of observations do not depend on the parts
    for start in range(0, len(X), size):
        yield _predict_part(stored, predictor, X[start : start + size], chunk_size, advance)


def _predict_part(
    stored: StoredModel,
    predictor: Any,
    X: np.ndarray,
    chunk_size: int,
    advance: Callable[[int], None],
) -> pd.DataFrame:
    scaler = stored.standardizer
    if stored.num_classes is not None:
        rows = scaler.transform_inputs(X)
        moments = moments_in_chunks(predictor, "predict_y", rows, chunk_size, advance)
        P = class_probabilities(scaler.inverse_mean_variance(*moments)[0], stored.num_classes)
        frame = pd.DataFrame(P, columns=[f"probability_{label}" for label in stored.labels])
        return frame.assign(**{"class": np.array(stored.labels)[P.argmax(axis=1)]})
    (point, _, variance), (low, high) = predict_interval(
        predictor, scaler, X, chunk_size=chunk_size, advance=advance
    )
    suffixes = [""] if point.shape[1] == 1 else [f"_{p}" for p in range(point.shape[1])]
    columns = {
        "mean" if scaler.y_transform == "none" else "median": point,
        "standard_deviation": np.sqrt(variance),
        "lower_95": low,
        "upper_95": high,
    }
    names = [f"{name}{suffix}" for name in columns for suffix in suffixes]
    return pd.DataFrame(np.column_stack(list(columns.values())), columns=names)


def _count_classes(likelihood: Any) -> int | None:
    if isinstance(likelihood, gpflow.likelihoods.Bernoulli):
        return 2
    return int(likelihood.num_classes) if has_classes(likelihood) else None


def _require_fit(
    file: Path, table: TableFormat | None, scaler: Standardizer, num_classes: int | None
) -> None:
    """:raises ValueError: for a table that cannot belong to the model in the same file."""
    if table is None:
        return
    num_columns, num_labels = len(table.encoder.get_feature_names_out()), len(table.labels or ())
    expected = int(scaler.x_mean.shape[0]), num_classes or 0
    if (num_columns, num_labels) != expected:
        raise ValueError(
            f"{file} is damaged: its table must have {expected[0]} encoded columns and "
            f"{expected[1]} labels, got {num_columns} and {num_labels}; restore the file or train "
            "again."
        )


def _require_names(path: Path, names: tuple[str, ...], scaler: Standardizer) -> None:
    """:raises ValueError: for names of columns that cannot belong to the model."""
    num_columns = int(scaler.x_mean.shape[0])
    if len(names) != num_columns or len(set(names)) < len(names):
        raise ValueError(
            f"{path} is damaged: dataset.feature_names must be {num_columns} different names, as "
            f"many as the model has inputs, got {listed(names)}."
        )
