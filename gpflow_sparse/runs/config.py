"""What a run is, as plain data; no TensorFlow."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpflow_sparse.persistence.schema import read_json
from gpflow_sparse.runs.methods import (
    BASELINES,
    BASES,
    BASIS_METHODS,
    COVARIANCES,
    IMAGE_METHODS,
    INFERENCES,
    INITIALIZATIONS,
    KERNELS,
    KL_WEIGHTINGS,
    LIKELIHOODS,
    METHODS,
    REDUCTIONS,
    SAMPLED_METHODS,
    SCHEDULES,
    SITE_ESTIMATORS,
)

# Points of the SVGP beside a model that has many more.
_MOST_BASELINE = 512
RECORD = "result.json"
MODEL = "model.safetensors"
CHECKPOINTS = "checkpoints"
CONFIG = "config.json"
# What a run draws; the others than the first are of ``IMAGE_METHODS``.
PICTURES = ("predictions.png", "patches.png", "confusion.png", "uncertain.png")


_POSITIVE = (
    *("num_inducing", "num_steps", "batch_size", "num_basis", "points_per_dimension"),
    *("basis_batch_size", "num_support", "num_neighbors"),
)
MOST_LAYERS = 3


@dataclass(frozen=True)
class RunConfig:
    """One run of the command line; every field is an option of ``gpflow-sparse fit``."""

    data: str = "robot_arm"
    """Name of a data set, or path of a csv, npz or parquet file."""
    target: str | None = None
    """Column to predict, for a file."""
    task: str = "regression"
    """"regression" or "classification"; data sets by name know their own."""
    image_shape: str | None = None
    """Height and width, or these and channels, with commas, of the images that rows are, for
    ``IMAGE_METHODS``; None for what the data set knows, or square images of 1 or 3 channels."""
    patch_size: int | None = None
    """Height and width of patches; None for 3, or 5 in images more than 16 pixels wide."""
    stride: int | None = None
    """Pixels between patches; None for 1, or 2 in images more than 16 pixels wide."""
    num_layers: int = 1
    """Of ``IMAGE_METHODS``: convolutional GPs before the one whose patches are summed, and it."""
    tick: bool = True
    """Whether that one also sees where a patch is."""
    split: int = 0
    """Which train/test split."""
    method: str = "solvegp"
    """Key of ``METHODS``."""
    num_inducing: int = 256
    """M, points of the base set."""
    num_neighbors: int = 32
    """H, inducing points that a row sees, for swsgp."""
    kl_weighting: str = "usage"
    """One of ``KL_WEIGHTINGS``, for swsgp."""
    num_orthogonal: int = 256
    """M2, points of the orthogonal set; SVGP has none."""
    num_columns: int = 256
    """Columns of ODVGP's penalty drawn in a step; at most M2, 0 for all of them."""
    num_basis: int = 1000
    """Basis functions of the methods that have them; at most, for a grid."""
    basis: str = "grid"
    """One of ``BASES``: eigenfunctions on a grid, random Fourier features, these beside M inducing
    points, covariances with random training rows (hyperparameters fixed), or softmax interpolation
    between M points."""
    basis_batch_size: int = 1000
    """Functions in each of the two draws of a step of qsgp or rvm; at most all of them."""
    covariance: str | None = None
    """One of ``COVARIANCES``, for qsgp, rvm (None for what suits the basis) and swsgp (diag)."""
    num_dense_columns: int | None = None
    """Of the covariance, for qsgp and rvm; None for what suits the basis."""
    variance_reduction: str | None = None
    """One of ``REDUCTIONS``, for qsgp and rvm; None for anchored where that can be."""
    site_estimator: str = "split"
    """One of ``SITE_ESTIMATORS``, for qsgp and rvm with another than Gaussian noise."""
    num_support: int = 500
    """Rows where qsgp and rvm keep their mean exactly."""
    likelihood: str | None = None
    """One of ``LIKELIHOODS``; None for gaussian, bernoulli or multiclass, as the data have it."""
    points_per_dimension: int = 10
    """Nodes of the grid in each input column."""
    temperature: float = 0.3
    """Of softmax weights (softki, basis soft), in lengthscales, to start from."""
    inference: str = "type2"
    """One of ``INFERENCES``: "type1" integrates over weights and noise of GP-GRIEF."""
    kernel: str = "matern52"
    """One of ``KERNELS``; on a grid, a product of such kernels of one column each."""
    ard: bool = True
    """One lengthscale per input column."""
    whiten: bool = True
    """Parametrize q relative to the prior."""
    initialization: str = "kmeans"
    """One of ``INITIALIZATIONS``: where the inducing points start."""
    num_subset: int = 1000
    """Rows of the exact GP that gives the starting hyperparameters; 0 for none."""
    num_steps: int = 600
    """Training steps; iterations of L-BFGS, at most, for grief and basis_gpr."""
    batch_size: int = 1024
    """Rows per step; all of them if there are fewer, or if ``method`` is solvegpr."""
    learning_rate: float = 0.02
    """Peak rate of Adam; for qsgp and rvm that of Adagrad on the weights."""
    schedule: str = "cosine"
    """One of ``SCHEDULES``: warm-up and decay to zero over the run, or constant."""
    natural_gradients: float = 0.1
    """Step size of natural gradients on q; 0 leaves q to Adam. Not for qsgp and rvm."""
    baseline: bool = True
    """Also train GPflow's SVGP with the same M."""
    float32: bool = False
    """Single precision."""
    seed: int = 0
    """Rows, inducing points, everything."""

    def __post_init__(self) -> None:
        _require_choice("method", self.method, METHODS)
        _require_choice("kernel", self.kernel, KERNELS)
        _require_choice("initialization", self.initialization, INITIALIZATIONS)
        _require_choice("schedule", self.schedule, SCHEDULES)
        _require_choice("task", self.task, ("regression", "classification"))
        _require_choice("basis", self.basis, BASES)
        _require_choice("inference", self.inference, INFERENCES)
        _require_choice("site_estimator", self.site_estimator, SITE_ESTIMATORS)
        _require_choice("kl_weighting", self.kl_weighting, KL_WEIGHTINGS)
        optional = (COVARIANCES, REDUCTIONS, LIKELIHOODS)
        names = ("covariance", "variance_reduction", "likelihood")
        for name, choices in zip(names, optional, strict=True):
            if getattr(self, name) is not None:
                _require_choice(name, getattr(self, name), choices)
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")
        other = {"solvegpr": "solvegp", "grief": "basis_svgp", "basis_gpr": "basis_svgp"}
        other["softki"] = "basis_svgp --basis soft"
        if self.method in other and self.task == "classification":
            raise ValueError(
                f"task must be regression for {self.method}; {other[self.method]} takes classes "
                "too."
            )
        self._require_basis()
        self._require_images()
        if self.method == "odvgp" and self.num_orthogonal == 0:
            raise ValueError("num_orthogonal must be positive for odvgp; 0 makes it an SVGP.")
        for name in ("num_orthogonal", "num_columns", "num_subset", "seed", "split"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}.")
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")
        if not 0 <= self.natural_gradients <= 1:
            raise ValueError(
                f"natural_gradients must be from 0 to 1, got {self.natural_gradients}."
            )

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
        if not 1 <= self.num_layers <= MOST_LAYERS:
            raise ValueError(f"num_layers must be from 1 to {MOST_LAYERS}, got {self.num_layers}.")
        for name in ("patch_size", "stride"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive, got {value}.")
        for name in ("image_shape", "patch_size", "stride", "num_layers", "tick"):
            given = getattr(self, name) != type(self).__dataclass_fields__[name].default
            if given and self.method not in IMAGE_METHODS:
                raise ValueError(
                    f"{name} is for {' and '.join(IMAGE_METHODS)}, not for {self.method}."
                )
        _ = self.image

    @property
    def image(self) -> tuple[int, int, int] | None:
        """Height, width and channels, of ``image_shape``."""
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
    def pictures(self) -> tuple[str, ...]:
        """Names of the files that a run draws."""
        return PICTURES if self.method in IMAGE_METHODS else PICTURES[:1]

    @property
    def on_grid(self) -> bool:
        """Whether the kernel must be a product over input columns."""
        return self.method in BASIS_METHODS and self.basis == "grid"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of points of each inducing set, or of basis functions."""
        if self.method in BASIS_METHODS:
            return (self.num_inducing if self.basis == "soft" else self.num_basis,)
        if self.method in (*BASELINES, "softki", "swsgp") or not self.num_orthogonal:
            return (self.num_inducing,)
        return (self.num_inducing, self.num_orthogonal)

    def shrunk_to(self, num_distinct: int) -> "RunConfig":
        """
        The same run with at most a quarter of the distinct rows in each inducing set; images have
        patches enough.
        """
        if self.method in IMAGE_METHODS:
            return self
        most = max(1, num_distinct // 4)
        num_inducing = min(self.num_inducing, most)
        if self.method in BASIS_METHODS and self.basis == "hybrid":
            num_inducing -= (self.num_basis - num_inducing) % 2  # features come in pairs
        return dataclasses.replace(
            self,
            num_inducing=max(1, num_inducing),
            num_orthogonal=min(self.num_orthogonal, most),
        )

    def as_baseline(self) -> "RunConfig":
        """
        The same run with GPflow's SVGP on M points, of images with one set of M patches; beside
        swsgp on at most 512 points from k-means.
        """
        name = "conv-svgp" if self.method in IMAGE_METHODS else "svgp"
        changed: dict[str, Any] = {"method": name, "baseline": False}
        if self.method in SAMPLED_METHODS:  # whose rate is that of another optimizer
            changed["learning_rate"] = RunConfig.learning_rate
        if self.method == "swsgp":
            changed["num_inducing"] = min(self.num_inducing, _MOST_BASELINE)
            changed["initialization"] = "kmeans"
        return dataclasses.replace(self, **changed)


_REMEDY = "restore the file or train again into another folder"
# Fields of result.json that are read again; it has others.
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


def read_record(directory: Path) -> tuple[RunConfig, dict[str, Any]]:
    """
    The configuration and the record that an earlier run left in ``directory``.

    :raises FileNotFoundError: if the folder holds no run.
    :raises ValueError: if the record is damaged, naming file and field.
    """
    path = directory / RECORD
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{directory} holds no run: {RECORD} is missing.")
    record = read_json(path, _RECORD_SCHEMA, _REMEDY)
    try:
        # where the data file was, from wherever the folder is opened
        return RunConfig(**{**record["config"], "data": record["dataset"]["source"]}), record
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error} To go on, {_REMEDY}.") from error


def _require_choice(name: str, value: Any, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
