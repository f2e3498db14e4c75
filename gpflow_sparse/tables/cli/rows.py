"""The standardized data of a run: a named set, or the rows of a file."""

import dataclasses
import functools
import zlib
from collections.abc import Sequence
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd

from gpflow_sparse.data import Dataset, Standardizer, load, read_table
from gpflow_sparse.data.images import ImageShape, image_shape_of
from gpflow_sparse.tables.cli.config import RunConfig
from gpflow_sparse.tables.cli.folders import is_folder, load_folder
from gpflow_sparse.tables.fitting.copies import distinct_rows_of
from gpflow_sparse.tables.fitting.observations import has_heavy_tails, is_standardized
from gpflow_sparse.tables.fitting.transforms import AUTO_TRANSFORM, resolve
from gpflow_sparse.tables.fitting.weights import advice_on_mean, weights_of_copies
from gpflow_sparse.tables.methods.rows import Pair, require_range
from gpflow_sparse.tables.reading.cells import numbers as numbers_of
from gpflow_sparse.tables.reading.columns import Column, TableEncoder, as_frame
from gpflow_sparse.tables.reading.table_format import TableFormat
from gpflow_sparse.tables.reading.tables import column_named, notes_of, read_frame
from gpflow_sparse.tables.reading.targets import Target, split_target
from gpflow_sparse.validation.checks import mean_at_most_one

# Two rows for training, in which a column may vary, and one for testing.
_MIN_ROWS = 3


def load_data(
    config: RunConfig, *, only_numbers: bool = False, known: TableFormat | None = None
) -> Dataset:
    """
    The standardized data of a run: a named set, or a file or folder split by ``config.split``.

    For methods of images, and for the automatic choice where the shape of images is known, all
    pixels of a channel share one mean and one scale.

    :param only_numbers: refuse other cells than finite numbers and keep all columns, as for images.
    :param known: how the cells of the file were read in training; None to learn it from them.
    :raises ValueError: if the file's columns cannot be used, or a value of a training or test row
        is too large to compute with.
    """
    is_file = Path(config.data).suffix and not is_folder(config.data)
    if config.row_weights is not None and (not is_file or only_numbers or _has_images(config)):
        raise ValueError(
            f"row_weights must be a column of a table in one file, got {config.row_weights!r} for "
            f"{config.data}{'' if not is_file else ' of images'}; leave it out."
        )
    if is_folder(config.data):
        return load_folder(config)
    numbers: tuple[np.ndarray, ...]
    if Path(config.data).suffix:
        raw, numbers = _split_file(config, only_numbers or _has_images(config), known)
        _require_range([config.data] * 2, raw, numbers, np.float64)
        parts = [config.data] * 2
    else:
        raw = load(config.data, split=config.split)
        numbers = tuple(np.arange(len(X)) for X, _ in (raw.train, raw.test))
        parts = [f"the {part} part of {config.data}" for part in ("training", "test")]
    dataset = _standardized(config, raw)
    sources = [f"{part}, once standardized," for part in parts]
    _require_range(sources, dataset, numbers, gpflow.default_float())
    return dataset


def _split_file(
    config: RunConfig, only_numbers: bool, known: TableFormat | None
) -> tuple[Dataset, tuple[np.ndarray, ...]]:
    """The rows of a file, a tenth of them for testing, and the numbers of both parts' rows."""
    table: TableFormat | None = None
    weights: pd.Series | None = None
    if only_numbers:
        inputs, target, notes = _read_numbers(config)
    else:
        cells = read_frame(config.data) if known is None else known.read(config.data)
        frame, notes = as_frame(cells).reset_index(drop=True), notes_of(cells)
        frame, weights, advice = _split_weights(frame, config.row_weights)
        notes += advice
        _require_rows(config, len(frame))
        column = known.target if known else None
        inputs, target = split_target(frame, _target_of(config, frame.columns), config.task, column)
    inputs, target, weights, note = _without_copies(config, inputs, target, weights)
    notes += (note,) if note else ()
    _require_rows(config, len(inputs))
    train, test = _split_rows(len(inputs), config.split)
    names = tuple(inputs.columns)
    if only_numbers:
        X = inputs.to_numpy()
    else:
        given = inputs.iloc[train], target.values[train], target.num_classes
        encoder = known.encoder if known else TableEncoder().fit(*given)
        X, names = encoder.transform(inputs), tuple(encoder.get_feature_names_out())
        X[train] = encoder.transform_training(*given)
        table = TableFormat(encoder.columns_, target.column)
    Y, numbers = target.values[:, None], inputs.index.to_numpy()
    return Dataset(
        name=Path(config.data).stem,
        train=(X[train], Y[train]),
        test=(X[test], Y[test]),
        feature_names=names,
        target_name=target.column.name,
        num_classes=target.num_classes,
        table=table,
        test_rows=numbers[test],
        notes=notes,
        weights=None if weights is None else weights.loc[numbers[train]].to_numpy(),
        test_weights=None if weights is None else weights.loc[numbers[test]].to_numpy(),
    ), (numbers[train], numbers[test])


def _split_rows(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of training rows, and of a tenth of the rows for testing, in increasing order."""
    rows = np.random.default_rng(seed).permutation(num_rows)
    num_test = max(1, num_rows // 10)
    return np.sort(rows[:-num_test]), np.sort(rows[-num_test:])


def _without_copies(
    config: RunConfig, inputs: pd.DataFrame, target: Target, weights: pd.Series | None
) -> tuple[pd.DataFrame, Target, pd.Series | None, str]:
    """The rows of a regression that are not copies of others, their weights, and a note."""
    if target.num_classes is not None:
        return inputs, target, weights, ""
    given = None if weights is None else weights.loc[inputs.index].to_numpy()
    kept, summed, note = distinct_rows_of(inputs, target.values[:, None], given)
    if given is None:
        conformal = bool(getattr(config.recipe, "conformal", False))
        summed = weights_of_copies(summed, config.recipe.name, conformal)
    inputs, target = inputs.iloc[kept], target._replace(values=target.values[kept])
    return inputs, target, None if summed is None else pd.Series(summed, inputs.index), note


def _split_weights(
    frame: pd.DataFrame, name: str | None
) -> tuple[pd.DataFrame, pd.Series | None, tuple[str, ...]]:
    """
    The rows of positive weight without the column of weights, their weights, and advice on these.

    :raises ValueError: for an unknown column, or weights that are no finite numbers of at least 0.
    """
    if name is None:
        return frame, None, ()
    name = column_named(name, list(frame.columns), "the table", "row_weights")
    values = read_weights(frame, name)
    used = values > 0.0
    advice = advice_on_mean(values[used].to_numpy()) if used.any() else ""
    notes = (f"row_weights {name!r} has {advice}",) if advice else ()
    weights = pd.Series(mean_at_most_one(values[used].to_numpy()), values[used].index)
    return frame[used].drop(columns=name), weights, notes


def read_weights(frame: pd.DataFrame, name: str) -> pd.Series:
    """
    The weights of rows in a column.

    :raises ValueError: for weights that are no finite numbers of at least 0.
    """
    values = pd.Series(numbers_of(frame[name]), frame.index)
    bad = np.flatnonzero(~((values >= 0.0) & np.isfinite(values)))
    if len(bad):
        raise ValueError(
            f"row_weights {name!r} must be a finite number of at least 0 in every row, but "
            f"{len(bad)} cells are not, such as {str(frame[name].iloc[bad[0]])!r} in row "
            f"{bad[0] + 1} (the header not counted)."
        )
    return values


def _target_of(config: RunConfig, names: Sequence[str]) -> str | None:
    """The requested target, or for a .npz file its y."""
    if Path(config.data).suffix != ".npz":
        return config.target
    if names[-1] not in ("y", "Y"):
        raise ValueError(f"{config.data} has no outputs: give the column to predict as target.")
    return names[-1]


def _require_rows(config: RunConfig, num_rows: int) -> None:
    if num_rows < _MIN_ROWS:
        raise ValueError(
            f"{config.data} has too few rows: {num_rows} with a target, but at least {_MIN_ROWS} "
            "are needed, one of them for testing. Add rows."
        )


def _read_numbers(config: RunConfig) -> tuple[pd.DataFrame, Target, tuple[str, ...]]:
    """The inputs, the target and the notes of a file of numbers, whose labels are 0 to C - 1."""
    if config.target is None and Path(config.data).suffix != ".npz":
        raise ValueError(f"target is missing: which column of {config.data} should be predicted?")
    table = read_table(config.data, target=config.target)
    if table.Y is None:
        raise ValueError(f"{config.data} has no outputs: give the column to predict as target.")
    count = _count_classes(table.Y) if config.task == "classification" else 0
    kind, levels = ("category" if count else "number"), tuple(map(str, range(count)))
    column = Column(table.target_name or "y", kind, levels=levels)
    inputs = pd.DataFrame(table.X, columns=list(table.feature_names))
    return inputs, Target(column, table.Y[:, 0]), table.notes


def _count_classes(Y: np.ndarray) -> int:
    labels = np.unique(Y)
    if not np.array_equal(labels, np.arange(len(labels))):
        raise ValueError(
            f"target must hold the labels 0, 1, ..., C - 1 for classification, but holds "
            f"{', '.join(f'{v:g}' for v in labels[:8])}{', ...' if len(labels) > 8 else ''}; "
            "recode it, or use task=regression."
        )
    if len(labels) < 2:
        raise ValueError("target holds a single class.")
    return len(labels)


def _require_range(
    sources: list[str], dataset: Dataset, numbers: tuple[np.ndarray, ...], dtype: type
) -> None:
    """
    Refuse rows with values whose squares overflow.

    :param sources: names of the training and the test part, in the message.
    :param numbers: row numbers in the file of both parts.
    """
    names = (*dataset.feature_names, dataset.target_name)
    parts = zip(sources, (dataset.train, dataset.test), numbers, strict=True)
    for source, pair, part_numbers in parts:
        require_range(np.concatenate(pair, axis=1), names, source, dtype, part_numbers)


def _standardized(config: RunConfig, dataset: Dataset) -> Dataset:
    if not _has_images(config, dataset):
        standard = is_standardized(config.recipe.likelihood)
        robust = has_heavy_tails(config.recipe.likelihood)
        transform = config.transform
        if transform == AUTO_TRANSFORM:
            tried = config.recipe.is_choice and standard and dataset.num_classes is None
            tried = tried and not robust  # by densities of Gaussian noise
            seed = config.recipe.seed
            transform = resolve(transform, *dataset.train, seed) if tried else "none"
        if transform != "none" and not (standard and dataset.num_classes is None):
            raise ValueError(
                "transform must be none for classes and for likelihood "
                f"{config.recipe.likelihood}, got {config.transform!r}."
            )
        return dataset.standardized(outputs=standard, transform=transform, robust=robust)
    columns = dataset.train[0].shape[1]
    shape = shape_of_images(config, dataset)
    if np.prod(shape) != columns:
        raise ValueError(
            f"image_shape {','.join(map(str, shape))} has {np.prod(shape)} values, but "
            f"{dataset.name} has {columns} input columns."
        )
    return dataclasses.replace(dataset, image_shape=shape).standardized(per_channel=True)


def _has_images(config: RunConfig, dataset: Dataset | None = None) -> bool:
    """Whether rows are images for a run: by its method or, of the automatic choice, by a shape."""
    is_known = dataset is not None and dataset.image_shape is not None
    known = config.image is not None or is_known
    return config.recipe.takes_images or (config.recipe.is_choice and known)


def shape_of_images(config: RunConfig, dataset: Dataset) -> ImageShape:
    """Height, width and channels, as given, as the data set has them, or square."""
    return config.image or dataset.image_shape or image_shape_of(dataset.train[0].shape[1])


def source_of(config: RunConfig) -> str:
    """Name of the data set, or absolute path of its file or folder."""
    is_path = Path(config.data).suffix or is_folder(config.data)
    return str(Path(config.data).resolve()) if is_path else config.data


def checksum(dataset: Dataset) -> str:
    """CRC-32 of the rows in memory, and of the fingerprint of others, in hexadecimal digits."""
    parts = [part.tobytes() for part in (*dataset.train, *dataset.test)]
    if dataset.shards is not None:
        parts.append(dataset.shards.fingerprint.encode())
    return f"{functools.reduce(lambda old, part: zlib.crc32(part, old), parts, 0):08x}"


def original_units(dataset: Dataset, pair: Pair) -> Pair:
    """Standardized rows of a data set, back in the units of its file."""
    scaler = scaler_of(dataset)
    X = pair[0] * scaler.x_scale.numpy() + scaler.x_mean.numpy()
    return X, pair[1] if dataset.num_classes else scaler.inverse_outputs(pair[1])


def scaler_of(dataset: Dataset) -> Standardizer:
    """
    The standardizer of a data set.

    :raises ValueError: if the data set has not been standardized.
    """
    if dataset.standardizer is None:
        raise ValueError(f"data set {dataset.name!r} must be standardized first.")
    return dataset.standardizer
