"""The options of one run of the command line; nothing here imports TensorFlow."""

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import GenericAlias
from typing import Any

from gpflow_sparse.persistence.schema import Given, read_json, require_type
from gpflow_sparse.runs.methods import (
    AUTO,
    BASELINES,
    BASIS_METHODS,
    EXACT_METHODS,
    FOR_CLASSES,
    IMAGE_METHODS,
    METHODS,
    SAMPLED_METHODS,
    read_toml,
    require_options,
)
from gpflow_sparse.runs.options import require_valid

# Files in the folder of a run.
RECORD = "result.json"
MODEL = "model.safetensors"
CHECKPOINTS = "checkpoints"
CONFIG = "config.json"
CHOICE, START = "choice.json", "start.safetensors"
PAGE = "report.html"
# All pictures; those after the first are made for ``IMAGE_METHODS`` only.
PICTURES = ("predictions.png", "patches.png", "confusion.png", "uncertain.png")
OPTIONS = read_toml(Path(__file__).with_name("options.toml"))
"""Help and limits of the options, by field."""
OPTIONS["method"]["choices"] = [AUTO, *METHODS]
# Largest number of inducing points of the SVGP that is the baseline of SWSGP.
_MOST_BASELINE = 512
# Largest number of points of each hidden layer of a deep model of a table, which has a q for each
# column: on validation rows of kin8nm NLPD was 0.052 with 128 and 0.086 with 64.
_MOST_HIDDEN = 128


@dataclass(frozen=True)
class RunConfig:
    """
    Options of one run; every field is an option of ``gpflow-sparse fit``, explained in
    ``options.toml``.
    """

    data: str = "robot_arm"
    target: str | None = None
    task: str | None = None
    split: int = 0
    method: str = AUTO
    minutes: float = 5.0
    num_inducing: int = 256
    num_orthogonal: int = 256
    num_columns: int = 256
    num_neighbors: int | None = None
    kl_weighting: str = "usage"
    bound: str = "standard"
    image_shape: str | None = None
    patch_size: int | None = None
    stride: int | None = None
    num_layers: int = 1
    tick: bool = True
    num_basis: int = 1000
    basis: str = "grid"
    basis_batch_size: int = 1000
    covariance: str | None = None
    num_dense_columns: int | None = None
    variance_reduction: str = "anchored"
    num_support: int = 500
    likelihood: str | None = None
    transform: str = "none"
    points_per_dimension: int = 10
    temperature: float = 0.3
    inference: str = "type2"
    kernel: str = "matern52"
    ard: bool = True
    whiten: bool = True
    initialization: str = "kmeans"
    num_subset: int = 500
    num_steps: int = 600
    batch_size: int = 1024
    learning_rate: float = 0.02
    schedule: str = "cosine"
    natural_gradients: float = 0.1
    calibrate: bool = True
    conformal: bool = False
    baseline: bool = True
    trees: bool = False
    float32: bool = False
    precision: str = "full"
    seed: int = 0

    @classmethod
    def of_method(cls, method: str, **chosen: Any) -> "RunConfig":
        """
        A run with the defaults of its method for all options that are not chosen.

        :raises ValueError: for an option, or a choice, that the method does not have.
        """
        if method == "swsgp" and chosen.get("whiten"):
            raise ValueError(
                "--whiten is not for swsgp, whose neighborhoods overlap; leave it out."
            )
        if method in (AUTO, *METHODS):
            require_options(method, chosen)
        defaults = dict(METHODS[method].get("defaults", {})) if method in METHODS else {}
        if method == "solvegp" and chosen.get("num_neighbors") is not None:
            if chosen.get("whiten") is False:
                raise ValueError("whiten must be true for solvegp with num_neighbors.")
            defaults |= METHODS[method]["with_neighbors"]
        if method == "deep" and chosen.get("num_neighbors") is not None:
            defaults = dict(METHODS[method]["with_neighbors"])
        config = cls(method=method, **defaults | chosen)
        if method != AUTO:
            config._require_read(chosen)
        if config.on_grid and "kernel" not in chosen:
            config = dataclasses.replace(config, kernel="squared_exponential")
        return config

    def _require_read(self, chosen: Iterable[str]) -> None:
        """Refuse options that the method reads only with another basis."""
        is_read = {
            "temperature": self.method == "softki" or self.basis == "soft",
            "points_per_dimension": self.on_grid,
        }
        for name in chosen:
            if not is_read.get(name, True):
                raise ValueError(
                    f"{name} is for {self.method} with another basis than {self.basis} alone; "
                    "leave it out."
                )

    def __post_init__(self) -> None:
        require_valid(self, OPTIONS)
        if self.method in FOR_CLASSES and self.task == "classification":
            raise ValueError(
                f"task must be regression for {self.method}; {FOR_CLASSES[self.method]} takes "
                "classes too."
            )
        if self.method == "odvgp" and self.num_orthogonal == 0:
            raise ValueError("num_orthogonal must be positive for odvgp; 0 makes it an SVGP.")
        if self.precision == "mixed" and (
            self.method != "solvegp" or self.has_neighbors or self.float32
        ):
            raise ValueError(
                "precision must be full; mixed is for solvegp, without num_neighbors and float32."
            )
        self._require_basis()
        self._require_images()

    def _require_basis(self) -> None:
        if self.inference == "type1" and self.method != "grief":
            raise ValueError(f"inference must be type2 for {self.method}; grief has type1.")
        if self.method == "grief" and self.basis != "grid":
            raise ValueError("basis must be grid for grief; basis_gpr takes fourier.")
        if self.method == "rvm" and self.basis != "dictionary":
            raise ValueError("basis must be dictionary for rvm; qsgp takes others.")
        if self.method not in BASIS_METHODS:
            return
        if self.basis == "fourier" and self.num_basis % 2:
            raise ValueError(f"num_basis must be even for fourier, got {self.num_basis}.")
        rest = self.num_basis - self.num_inducing
        if self.basis == "hybrid" and (rest < 2 or rest % 2):
            raise ValueError(
                "num_basis must be num_inducing and an even number of random features for hybrid; "
                f"got {self.num_basis} and {self.num_inducing}."
            )

    def _require_images(self) -> None:
        for name in ("image_shape", "patch_size", "stride", "num_layers", "tick"):
            given = getattr(self, name) != getattr(RunConfig, name)
            others = {"num_layers": ["deep"], "image_shape": [AUTO]}
            takers = (*IMAGE_METHODS, *others.get(name, []))
            if given and self.method not in takers:
                raise ValueError(f"{name} is for {' and '.join(takers)}, not for {self.method}.")
        _ = self.image

    @property
    def image(self) -> tuple[int, int, int] | None:
        """Height, width and channels, from ``image_shape``."""
        if self.image_shape is None:
            return None
        parts = [part.strip() for part in self.image_shape.split(",")]
        if len(parts) not in (2, 3) or not all(p.isdecimal() and int(p) for p in parts):
            raise ValueError(
                "image_shape must be height and width, or these and channels, such as 28,28 or "
                f"32,32,3; got {self.image_shape!r}."
            )
        height, width, channels = map(int, (*parts, "1")[:3])
        return height, width, channels

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that differ from their defaults, but for the method."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "method" and getattr(self, field.name) != field.default
        }

    @property
    def pictures(self) -> tuple[str, ...]:
        """Names of the picture files of the run."""
        return PICTURES if self.method in IMAGE_METHODS else PICTURES[:1]

    @property
    def on_grid(self) -> bool:
        """Whether the kernel must be a product over input columns."""
        return self.method in BASIS_METHODS and self.basis == "grid"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of points of each inducing set, or number of basis functions."""
        if self.method in EXACT_METHODS:
            return ()
        if self.method in BASIS_METHODS:
            return (self.num_inducing if self.basis == "soft" else self.num_basis,)
        if self.method in (*BASELINES, "softki", "swsgp") or not self.num_orthogonal:
            return (self.num_inducing,)
        return (self.num_inducing, self.num_orthogonal)

    @property
    def num_hidden_inducing(self) -> int:
        """Number of points of each hidden layer of a deep model of a table."""
        return min(self.num_inducing, _MOST_HIDDEN)

    @property
    def has_neighbors(self) -> bool:
        """Whether each row sees a few of many inducing points, in steps that change few rows."""
        on_residual = self.method == "solvegp" and self.num_neighbors is not None
        return self.method == "swsgp" or (on_residual and self.num_orthogonal > 0)

    def shrunk_to(self, num_distinct: int, num_rows: int | None = None) -> "RunConfig":
        """
        The same run with at most a quarter of the distinct training rows in each inducing set.
        Where rows repeat and the sets have room for all that are distinct, all are points, in the
        base set first: the approximation is then exact at all rows. Runs on images are not changed,
        since images have many patches.

        :param num_rows: of all training rows; None if none is repeated.
        """
        if self.method in IMAGE_METHODS:
            return self
        if num_rows is not None and num_distinct < num_rows:
            room = self.num_inducing + (self.num_orthogonal if len(self.sizes) == 2 else 0)
            if num_distinct <= room:
                return self._with_all_rows(num_distinct)
        most = max(1, num_distinct // 4)
        num_inducing = min(self.num_inducing, most)
        if self.method in BASIS_METHODS and self.basis == "hybrid":
            num_inducing -= (self.num_basis - num_inducing) % 2  # features come in pairs
        return dataclasses.replace(
            self,
            num_inducing=max(1, num_inducing),
            num_orthogonal=min(self.num_orthogonal, most),
        )

    def _with_all_rows(self, num_distinct: int) -> "RunConfig":
        """The run with points at so many distinct rows, all that there are."""
        base = min(self.num_inducing, num_distinct)
        rest = max(num_distinct - base, int(self.method == "odvgp"))  # which has no single set
        if self.has_neighbors and len(self.sizes) == 2:  # those of the residual of few points
            base, rest = min(base, max(1, num_distinct // 4)), num_distinct
        num_basis = self.num_basis
        if self.method in BASIS_METHODS and self.basis == "hybrid":
            num_basis -= (num_basis - base) % 2  # features come in pairs
        return dataclasses.replace(
            self, num_inducing=base, num_orthogonal=rest, num_basis=num_basis
        )

    def as_baseline(self) -> "RunConfig":
        """
        The configuration of the baseline: GPflow's SVGP with M points, or with one set of M patches
        of images; for swsgp with at most 512 points from k-means.
        """
        name = "conv-svgp" if self.method in IMAGE_METHODS else "svgp"
        changed: dict[str, Any] = {"method": name, "baseline": False, "precision": "full"}
        if self.method in (*SAMPLED_METHODS, "dual"):  # a rate of Adagrad, or of few steps
            changed["learning_rate"] = RunConfig.learning_rate
        if self.method == "dual":
            changed["num_steps"] = RunConfig.num_steps
        if self.method == "deep":
            changed["num_layers"] = 1
        if self.has_neighbors:
            changed["num_inducing"] = min(self.num_inducing, _MOST_BASELINE)
            changed["initialization"] = "kmeans"
        return dataclasses.replace(self, **changed)


# Options and values that older versions had, and the values that stand for these in their records.
_FORMER_OPTIONS = ("site_estimator",)
_FORMER_VALUES: dict[tuple[str, str | None], str] = {
    ("covariance", "low_rank"): "dense",
    **{("variance_reduction", value): "anchored" for value in (None, "eq3", "tracked")},
}
_REMEDY = "restore the file or train again into another folder"
_SCORES = ("rmse", "error_rate", "nlpd", "crps", "brier", "seconds")
# Types of the fields of result.json that are read again; it has other fields too.
_RECORD_SCHEMA = {
    "config": RunConfig,
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


def read_with_config(path: Path, schema: Any, remedy: str) -> Any:
    """
    As :func:`~gpflow_sparse.persistence.schema.read_json`, for a record whose ``config`` may be of
    an older version: options that no longer exist are left out, values that do not are replaced.
    """
    record = read_json(path, {"config": dict}, remedy)
    record["config"] = {
        name: _FORMER_VALUES.get((name, value), value) if isinstance(value, str | None) else value
        for name, value in record["config"].items()
        if name not in _FORMER_OPTIONS
    }
    require_type(record, schema, str(path), remedy)
    return record


def read_record(directory: Path) -> tuple[RunConfig, dict[str, Any]]:
    """
    The configuration and the record of an earlier run in ``directory``.

    :raises FileNotFoundError: if the folder holds no run.
    :raises ValueError: if the record is damaged, naming file and field.
    """
    path = directory / RECORD
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{directory} holds no run: {RECORD} is missing.")
    record = read_with_config(path, _RECORD_SCHEMA, _REMEDY)
    require_type(record, _OPTIONAL_SCHEMA, str(path), _REMEDY)
    require_type(record, Given({"choice": Given({"seconds": float})}), str(path), _REMEDY)
    try:
        # the absolute path of the data file, whatever the working folder is now
        return RunConfig(**{**record["config"], "data": record["dataset"]["source"]}), record
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error} To go on, {_REMEDY}.") from error
