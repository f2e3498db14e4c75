"""The rows of a folder of files, of which a run keeps only samples in memory."""

import dataclasses
from pathlib import Path

from gpflow_sparse import data
from gpflow_sparse.data import Dataset, Standardizer, list_datasets
from gpflow_sparse.data.standardize import robust_mean_and_scale
from gpflow_sparse.tables.cli.config import RunConfig
from gpflow_sparse.tables.fitting.observations import has_heavy_tails, is_standardized
from gpflow_sparse.tables.methods.registry import RECIPES

# Most rows for testing, for calibration, and for the choice of points and hyperparameters.
_TEST, _CALIBRATION, _SAMPLE = 10_000, 1000, 20_000


def is_folder(path: str) -> bool:
    """Whether the data of a run are a folder; ``./NAME`` for one with the name of a data set."""
    return Path(path).is_dir() and path not in {info.name for info in list_datasets()}


def load_folder(config: RunConfig) -> Dataset:
    """
    Standardized samples of the rows, drawn by ``config.split``, and all others on disk.

    A tenth of the rows, at most 10,000, for testing, a twentieth, at most 1000, for calibration;
    ``train`` holds 20,000 of the others at most, from which points and hyperparameters start.

    :raises ValueError: for a method or a task that needs all rows in memory, and for files that
        cannot be used.
    """
    if not config.recipe.streams:
        streaming = ", ".join(name for name, recipe in RECIPES.items() if recipe.streams)
        raise ValueError(
            f"method must be one of {streaming} for a folder, got {config.method}. Others need all "
            "rows in memory: give one file."
        )
    for name, wanted in (("task", (None, "regression")), ("transform", ("auto", "none"))):
        if getattr(config, name) not in wanted:
            raise ValueError(f"{name} must be {wanted[-1]} for a folder.")
    rows, seed = data.open_shards(config.data, config.target), config.split
    if rows.files[0].types[rows.target_name] == "bool":
        raise ValueError(
            f"target {rows.target_name!r} must hold numbers in a folder, got booleans: write them "
            "as 1 and 0, or give one file, whose booleans are predicted by classification."
        )
    if rows.num_rows < 20:
        raise ValueError(f"data must have at least 20 rows in a folder, got {rows.num_rows}.")
    rest, test = rows.hold_out(min(rows.num_rows // 10, _TEST), seed)
    rest, held_out = rest.hold_out(min(rows.num_rows // 20, _CALIBRATION), seed + 1)
    sample = rest.hold_out(min(rest.num_rows - 1, _SAMPLE), seed + 2)[1]
    rest = rest.standardized(outputs=is_standardized(config.recipe.likelihood))
    scaler = rest.standardizer
    assert scaler is not None
    if has_heavy_tails(config.recipe.likelihood):
        of_y = robust_mean_and_scale(sample[1])
        scaler = Standardizer(scaler.x_mean.numpy(), scaler.x_scale.numpy(), *of_y)
        rest = dataclasses.replace(rest, standardizer=scaler)
    return Dataset(
        name=Path(config.data).resolve().name,
        train=scaler.transform(*sample),
        test=scaler.transform(*test),
        feature_names=rest.column_names,
        target_name=rest.target_name,
        num_classes=None,
        standardizer=scaler,
        shards=rest,
        held_out=scaler.transform(*held_out),
        notes=rest.notes,
    )
