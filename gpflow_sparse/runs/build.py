"""From a run's configuration to data and a model that is ready to train."""

import dataclasses
import functools
import warnings
import zlib
from pathlib import Path
from typing import Any

import gpflow
import numpy as np

from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset, Standardizer, load, read_table
from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.kernels import product_of
from gpflow_sparse.likelihoods import BernoulliLogit, Laplace
from gpflow_sparse.models import ODVGP, SOLVEGP, SOLVEGPR, SWSGP, SoftKI
from gpflow_sparse.runs.build_basis import basis_model
from gpflow_sparse.runs.build_images import image_model, image_shape
from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.methods import BASIS_METHODS, IMAGE_METHODS
from gpflow_sparse.runs.row_checks import require_range, require_ranges

_KERNELS = {
    "matern12": gpflow.kernels.Matern12,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
    "squared_exponential": gpflow.kernels.SquaredExponential,
}
# An exact GP on a few rows may explain them almost without noise; a sparse model cannot, and would
# start with a bound of minus billions. Fraction of the variance of the standardized outputs.
_NOISE_FLOOR = 0.01


def load_data(config: RunConfig) -> Dataset:
    """
    The standardized data of a run: a named set, or a file split by ``config.split``.

    For methods of images all pixels of a channel have one mean and one scale.

    :raises ValueError: if the file's columns cannot be used, labels are not integers, or a number
        of a training or test row is too large to compute with.
    """
    if not Path(config.data).suffix:
        dataset = _standardized(config, load(config.data, split=config.split))
        require_ranges(dataset, config.data, gpflow.default_float())
        return dataset
    if config.target is None and Path(config.data).suffix != ".npz":
        raise ValueError(f"target is missing: which column of {config.data} should be predicted?")
    table = read_table(config.data, target=config.target)
    if table.Y is None:
        raise ValueError(f"{config.data} has no outputs: give the column to predict as target.")
    target_name = table.target_name or "y"
    require_range(config.data, (*table.feature_names, target_name), (table.X, table.Y))
    rows = np.random.default_rng(config.split).permutation(len(table.X))
    num_test = max(1, len(rows) // 10)
    train, test = np.sort(rows[:-num_test]), np.sort(rows[-num_test:])
    dataset = Dataset(
        name=Path(config.data).stem,
        train=(table.X[train], table.Y[train]),
        test=(table.X[test], table.Y[test]),
        feature_names=table.feature_names,
        target_name=target_name,
        num_classes=_count_classes(table.Y) if config.task == "classification" else None,
    )
    dataset = _standardized(config, dataset)
    require_ranges(dataset, config.data, gpflow.default_float(), (train, test))
    return dataset


def _standardized(config: RunConfig, dataset: Dataset) -> Dataset:
    if config.method not in IMAGE_METHODS:
        return dataset.standardized()
    shape = image_shape(config, dataset)
    return dataclasses.replace(dataset, image_shape=shape).standardized(per_channel=True)


def source_of(config: RunConfig) -> str:
    """The data set's name, or the full path of its file."""
    return str(Path(config.data).resolve()) if Path(config.data).suffix else config.data


def checksum(dataset: Dataset) -> str:
    """Tells these rows, split as they are, from others."""
    parts = (*dataset.train, *dataset.test)
    return f"{functools.reduce(lambda old, part: zlib.crc32(part.tobytes(), old), parts, 0):08x}"


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


def build_model(config: RunConfig, dataset: Dataset) -> gpflow.models.GPModel:
    """
    The model of ``config.method``, with inducing points and hyperparameters started from the data.

    :param dataset: standardized.
    :raises ValueError: if there are fewer training rows than inducing points, or the method is for
        regression and the data set has classes.
    """
    X, _ = dataset.train
    if config.method in IMAGE_METHODS:
        return image_model(config, make_likelihood(config, dataset), dataset)
    kernel, noise = _start_kernel(config, dataset)
    if config.method in BASIS_METHODS:
        return basis_model(config, kernel, make_likelihood(config, dataset, noise), dataset)
    if sum(config.sizes) > len(X):
        raise ValueError(
            f"num_inducing + num_orthogonal = {sum(config.sizes)} exceeds the {len(X)} training "
            "rows; take fewer inducing points."
        )
    points = initialization.split_orthogonal(
        X,
        *config.sizes,
        kernel=kernel,
        method=config.initialization,
        seed=config.seed,
    )
    return assemble(config, kernel, make_likelihood(config, dataset, noise), points, dataset)


def assemble(
    config: RunConfig,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    points: tuple[np.ndarray, ...],
    dataset: Dataset,
) -> gpflow.models.GPModel:
    """The model class of ``config.method`` around its parts; the standardizer goes with it."""
    options: dict[str, Any] = {
        "num_latent_gps": int(likelihood.latent_dim or 1),
        "whiten": config.whiten,
        "num_data": len(dataset.train[0]),
    }
    if config.method == "svgp":
        model = gpflow.models.SVGP(kernel, likelihood, np.concatenate(points), **options)
    elif config.method == "softki":
        model = _interpolation(config, kernel, likelihood, points[0], dataset)
    elif config.method == "swsgp":
        model = _with_neighbors(config, kernel, likelihood, points[0], dataset)
    elif config.method == "solvegpr":
        model = _regression(kernel, likelihood, points, dataset)
    elif config.method == "odvgp":
        columns = min(config.num_columns, config.num_orthogonal) or None
        inducing = OrthogonalInducingVariables(*points)
        model = ODVGP(kernel, likelihood, inducing, num_columns=columns, **options)
    else:
        model = SOLVEGP(kernel, likelihood, OrthogonalInducingVariables(*points), **options)
    model.standardizer = dataset.standardizer
    return model


def _regression(
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    points: tuple[np.ndarray, ...],
    dataset: Dataset,
) -> SOLVEGPR:
    if dataset.num_classes is not None:
        raise ValueError(f"method solvegpr is for regression, but {dataset.name} has classes.")
    inducing = OrthogonalInducingVariables(*points)
    noise = likelihood.variance.numpy()
    return SOLVEGPR(dataset.train, kernel, inducing, noise_variance=noise)


def _interpolation(
    config: RunConfig,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    Z: np.ndarray,
    dataset: Dataset,
) -> SoftKI:
    if dataset.num_classes is not None:
        raise ValueError(
            f"method softki is for regression, but {dataset.name} has classes; basis_svgp with "
            "basis soft takes them."
        )
    return SoftKI(
        kernel,
        Z,
        noise_variance=likelihood.variance.numpy(),
        temperature=config.temperature,
        tied=True,
        num_data=len(dataset.train[0]),
    )


def _with_neighbors(
    config: RunConfig,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    Z: np.ndarray,
    dataset: Dataset,
) -> SWSGP:
    return SWSGP(
        kernel,
        likelihood,
        NeighborInducingPoints(Z, min(config.num_neighbors, len(Z))),
        covariance=config.covariance or "diag",
        kl_weighting=config.kl_weighting,
        num_latent_gps=int(likelihood.latent_dim or 1),
        num_data=len(dataset.train[0]),
    )


def make_kernel(config: RunConfig, lengthscales: np.ndarray) -> gpflow.kernels.Kernel:
    """A kernel of unit variance; one lengthscale, the median of those given, unless ARD."""
    scales = lengthscales if config.ard else float(np.median(lengthscales))
    kind = _KERNELS[config.kernel]
    if not config.on_grid or kind is gpflow.kernels.SquaredExponential:
        return kind(lengthscales=scales)
    product = product_of(kind, np.broadcast_to(scales, lengthscales.shape))
    for part in () if config.ard else getattr(product, "kernels", ())[1:]:
        part.lengthscales = product.kernels[0].lengthscales
    return product


def make_likelihood(
    config: RunConfig, dataset: Dataset, noise_variance: float = 0.1
) -> gpflow.likelihoods.Likelihood:
    """
    That of ``config``, or Gaussian for regression, Bernoulli for two classes, robust-max for more.

    :raises ValueError: for one that does not go with the data, or with the method.
    """
    classes = dataset.num_classes
    usual = "gaussian" if classes is None else "bernoulli" if classes == 2 else "multiclass"
    name = config.likelihood or usual
    known = {"gaussian": ("gaussian", "laplace"), "bernoulli": ("bernoulli", "bernoulli_logit")}
    choices = known.get(usual, (usual,))
    if config.method in ("grief", "basis_gpr", "solvegpr", "softki"):
        choices = ("gaussian",)
    if name not in choices and config.likelihood is not None:
        raise ValueError(
            f"likelihood must be {' or '.join(choices)} for {config.method} on {dataset.name}; got "
            f"{name!r}."
        )
    if classes is not None and name == "multiclass":
        return gpflow.likelihoods.MultiClass(classes)
    if name == "laplace":
        return Laplace((0.5 * noise_variance) ** 0.5)  # of the same variance
    if name == "bernoulli_logit":
        return BernoulliLogit()
    if name == "bernoulli":
        return gpflow.likelihoods.Bernoulli()
    return gpflow.likelihoods.Gaussian(noise_variance)


def _start_kernel(config: RunConfig, dataset: Dataset) -> tuple[gpflow.kernels.Kernel, float]:
    X, Y = dataset.train
    kernel = make_kernel(config, initialization.median_lengthscales(X, seed=config.seed))
    if dataset.num_classes is not None or not config.num_subset:
        return kernel, 0.1
    num_rows = min(config.num_subset, len(X))
    try:
        noise = initialization.subset_hyperparameters(
            X, Y, kernel, num_rows=num_rows, seed=config.seed
        )
    except ValueError as error:
        warnings.warn(f"training starts from median lengthscales: {error}", stacklevel=2)
        return kernel, 0.1
    return kernel, max(noise, _NOISE_FLOOR)


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
