"""The options of one run of the command line; nothing here imports TensorFlow."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import GenericAlias
from typing import Any

from gpflow_sparse.persistence.schema import Given, read_json, require_type
from gpflow_sparse.tables.methods.automatic import Auto
from gpflow_sparse.tables.methods.base import Recipe, option, require_valid
from gpflow_sparse.tables.methods.convolutional import parse_shape
from gpflow_sparse.tables.methods.registry import AUTO, baseline_of, recipe_of, stored_recipe

# Files in the folder of a run.
RECORD = "result.json"
MODEL = "model.safetensors"
CHECKPOINTS = "checkpoints"
CONFIG = "config.json"
CHOICE, START = "choice.json", "start.safetensors"
PAGE, INDEX = "report.html", "index.html"


@dataclass(frozen=True)
class RunConfig:
    """Options of one run: data and precision, and the method with its options."""

    recipe: Recipe = dataclasses.field(default_factory=Auto)
    """The method; the automatic choice by default."""
    data: str = option(
        "robot_arm",
        "Name of a data set (see `datasets`), a csv, npz, parquet or feather file, or a folder of "
        "such files that need not fit into memory.",
    )
    target: str | None = option(None, "Column of the file to predict; default the last.")
    row_weights: str | None = option(
        None,
        "Column of the file with weights of rows, which is no input: in training a row of weight 2 "
        "counts as two equal rows, and one of weight 0 is left out. Test rows count equally.",
    )
    task: str | None = option(
        None,
        "Task for a file; default regression for numbers, classification for text. A named data "
        "set determines its own.",
        choices=["regression", "classification"],
    )
    split: int = option(0, "Number of the train/test split.", least=0)
    transform: str = option(
        "auto",
        "Transform of the target before the training; densities, intervals and means are of the "
        "target itself. The automatic choice tries them on held-out rows of a skewed target; for "
        "other methods auto is none.",
        choices=["auto", "none", "log", "yeo-johnson"],
    )
    baseline: bool = option(True, "Train GPflow's SVGP with the same M beside it; auto does not.")
    float32: bool = option(False, "Precision.", off="--float64")

    def __post_init__(self) -> None:
        require_valid(self)
        recipe = self.recipe
        if recipe.for_classes and self.task == "classification":
            raise ValueError(
                f"task must be regression for {recipe.name}; {recipe.for_classes} takes classes "
                "too."
            )
        if self.float32 and getattr(recipe, "precision", "full") == "mixed":
            raise ValueError("precision must be full with float32, got mixed.")

    @classmethod
    def of_method(cls, method: str, **chosen: Any) -> "RunConfig":
        """
        A run with the defaults of its method for all options that are not chosen.

        :raises ValueError: for an option, or a value, that the method does not have.
        """
        own = {name: chosen.pop(name) for name in RUN_OPTIONS if name in chosen}
        return cls(recipe_of(method, **chosen), **own)

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.recipe.name

    @property
    def image(self) -> tuple[int, int, int] | None:
        """Height, width and channels of images, from the option ``image_shape``."""
        options = getattr(self.recipe, "options", {})
        return parse_shape(getattr(self.recipe, "image_shape", options.get("image_shape")))

    def with_recipe(self, recipe: Recipe) -> "RunConfig":
        """The same run with another method, or other options of it."""
        return dataclasses.replace(self, recipe=recipe)

    def as_baseline(self) -> "RunConfig":
        """The run of the baseline: an SVGP with as many points, or with one set of patches."""
        return dataclasses.replace(self, recipe=baseline_of(self.recipe), baseline=False)

    def to_record(self) -> dict[str, Any]:
        """All options by name, as they are stored."""
        own = {name: getattr(self, name) for name in RUN_OPTIONS}
        options = dataclasses.asdict(self.recipe)
        return {"method": self.method, **own, **options.pop("options", {}), **options}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "RunConfig":
        """
        The run whose options are stored.

        :raises ValueError: naming an option with a wrong value.
        """
        chosen = {name: value for name, value in record.items() if name in RUN_OPTIONS}
        options = {name: value for name, value in record.items() if name not in chosen}
        return cls(stored_recipe(options.pop("method", AUTO), options), **chosen)


RUN_OPTIONS = [field.name for field in dataclasses.fields(RunConfig) if field.name != "recipe"]
"""Options of a run beside the method and its options."""

_REMEDY = "restore the file or train again into another folder"
_SCORES = ("rmse", "error_rate", "nlpd", "crps", "brier", "seconds")
# Types of the fields of result.json that are read again; it has other fields too.
_RECORD_SCHEMA = {
    "config": dict,
    "dataset": {
        "source": str,
        "checksum": str,
        "feature_names": [str],
        "target_name": str,
    },
    "results": [{"title": str}],
}
_ATTEMPT = {"method": str, "nlpd": float, "error": float, "num_steps": int, "seconds": float}
ATTEMPTS = GenericAlias(list, (_ATTEMPT,))
"""The type of the attempts of a choice of a method."""
# Fields that are missing in records of some runs.
_OPTIONAL_SCHEMA = Given(
    {
        "choice": {"reason": str, "attempts": ATTEMPTS},
        "dataset": Given({"num_train": int, "num_test": int}),
        "results": [Given(dict.fromkeys(_SCORES, float) | {"error": str})],
        "versions": dict[str, str],
        "seconds": float,
        "seed": int,
    }
)


def read_with_config(path: Path, schema: Any, remedy: str) -> tuple[RunConfig, Any]:
    """
    A record in a file, see :func:`~gpflow_sparse.persistence.schema.read_json`, and the run whose
    options are its ``config``, perhaps written by an older version.

    :raises ValueError: naming the file, if it is damaged.
    """
    record = read_json(path, {**schema, "config": dict}, remedy)
    try:
        return RunConfig.from_record(record["config"]), record
    except ValueError as error:
        raise ValueError(f"{path} is damaged: config.{error} To continue, {remedy}.") from error


def read_record(directory: Path) -> tuple[RunConfig, dict[str, Any]]:
    """
    The configuration and the record of an earlier run in ``directory``.

    :raises FileNotFoundError: if the folder holds no run.
    :raises ValueError: if the record is damaged, naming file and field.
    """
    path = directory / RECORD
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{directory} holds no run: {RECORD} is missing.")
    config, record = read_with_config(path, _RECORD_SCHEMA, _REMEDY)
    require_type(record, _OPTIONAL_SCHEMA, str(path), _REMEDY)
    require_type(record, Given({"choice": Given({"seconds": float})}), str(path), _REMEDY)
    # the absolute path of the data file, whatever the working folder is now
    return dataclasses.replace(config, data=record["dataset"]["source"]), record
