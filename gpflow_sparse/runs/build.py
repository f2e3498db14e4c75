"""The standardized data and the untrained model of a run, from its configuration."""

import dataclasses
import functools
import warnings
import zlib
from pathlib import Path
from typing import Any

import gpflow
import numpy as np

from gpflow_sparse import bases, initialization, likelihoods, models
from gpflow_sparse.data import Dataset, Standardizer, load, read_table
from gpflow_sparse.data.images import ImageShape, image_shape_of
from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.kernels import product_of
from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.methods import BASIS_METHODS, IMAGE_METHODS

_KERNELS = {
    "matern12": gpflow.kernels.Matern12,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
    "squared_exponential": gpflow.kernels.SquaredExponential,
}
# Least starting value of the noise variance, as a fraction of the variance of the outputs: an exact
# GP may fit a few rows almost without noise, with which a sparse model starts at minus billions.
_MIN_NOISE = 0.01
# Sizes and strides of patches by layer; wider images have larger patches and strides.
_SMALL_WIDTH = 16
_SMALL, _WIDE = ((3, 1), (3, 1), (3, 1)), ((5, 2), (4, 2), (5, 1))
# Channels of hidden layers of models of images, as in the paper.
_CHANNELS = 10


def load_data(config: RunConfig) -> Dataset:
    """
    The standardized data of a run: a named set, or a file split by ``config.split``.

    For methods of images all pixels of a channel share one mean and one scale.

    :raises ValueError: if the file's columns cannot be used, labels are not integers, or a value
        of a training or test row is too large to compute with.
    """
    if not Path(config.data).suffix:
        dataset = _standardized(config, load(config.data, split=config.split))
        for part, pair in (("training", dataset.train), ("test", dataset.test)):
            source = f"the {part} part of {config.data}, once standardized,"
            _require_range(source, dataset, pair, np.arange(len(pair[0])), gpflow.default_float())
        return dataset
    if config.target is None and Path(config.data).suffix != ".npz":
        raise ValueError(f"target is missing: which column of {config.data} should be predicted?")
    table = read_table(config.data, target=config.target)
    if table.Y is None:
        raise ValueError(f"{config.data} has no outputs: give the column to predict as target.")
    rows = np.random.default_rng(config.split).permutation(len(table.X))
    num_test = max(1, len(rows) // 10)
    train, test = np.sort(rows[:-num_test]), np.sort(rows[-num_test:])
    raw = Dataset(
        name=Path(config.data).stem,
        train=(table.X[train], table.Y[train]),
        test=(table.X[test], table.Y[test]),
        feature_names=table.feature_names,
        target_name=table.target_name or "y",
        num_classes=_count_classes(table.Y) if config.task == "classification" else None,
    )
    _require_range(config.data, raw, (table.X, table.Y), np.arange(len(rows)), np.float64)
    dataset = _standardized(config, raw)
    for numbers, pair in ((train, dataset.train), (test, dataset.test)):
        source = f"{config.data}, once standardized,"
        _require_range(source, dataset, pair, numbers, gpflow.default_float())
    return dataset


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
    source: str,
    dataset: Dataset,
    pair: tuple[np.ndarray, np.ndarray],
    numbers: np.ndarray,
    dtype: type,
) -> None:
    """Refuse rows with values whose squares overflow; ``numbers`` are row numbers in the file."""
    limit = float(np.finfo(dtype).max) ** 0.5 / 1e3
    values = np.concatenate(pair, axis=1)
    for row, column in np.argwhere(~(np.abs(values) < limit))[:1]:
        name = (*dataset.feature_names, dataset.target_name)[column]
        raise ValueError(
            f"row {numbers[row] + 1} of {source} (its header not counted) holds "
            f"{values[row, column]:.3g} in column {name!r}, but its square must not overflow in "
            f"{np.dtype(dtype).name}: it must be smaller than {limit:.0e} in size. Drop that row."
        )


def _standardized(config: RunConfig, dataset: Dataset) -> Dataset:
    if config.method not in IMAGE_METHODS:
        return dataset.standardized()
    columns = dataset.train[0].shape[1]
    shape = config.image or dataset.image_shape or image_shape_of(columns)
    if np.prod(shape) != columns:
        raise ValueError(
            f"image_shape {','.join(map(str, shape))} has {np.prod(shape)} values, but "
            f"{dataset.name} has {columns} input columns."
        )
    return dataclasses.replace(dataset, image_shape=shape).standardized(per_channel=True)


def source_of(config: RunConfig) -> str:
    """Name of the data set, or absolute path of its file."""
    return str(Path(config.data).resolve()) if Path(config.data).suffix else config.data


def checksum(dataset: Dataset) -> str:
    """CRC-32 of the training and test rows, in hexadecimal digits."""
    parts = (*dataset.train, *dataset.test)
    return f"{functools.reduce(lambda old, part: zlib.crc32(part.tobytes(), old), parts, 0):08x}"


def original_units(
    dataset: Dataset, pair: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
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


def build_model(config: RunConfig, dataset: Dataset) -> gpflow.models.GPModel:
    """
    The model of ``config.method``, with inducing points and hyperparameters initialized from the
    data, and with the standardizer of the data.

    :param dataset: standardized.
    :raises ValueError: if there are fewer training rows than inducing points, patches do not fit
        into the images, or the method is for regression and the data set has classes.
    """
    if config.method in IMAGE_METHODS:
        model = _image_model(config, dataset)
    else:
        kernel, noise_variance = _start_kernel(config, dataset)
        likelihood = _make_likelihood(config, dataset, noise_variance)
        if config.method in BASIS_METHODS:
            model = _basis_model(config, kernel, likelihood, dataset)
        else:
            model = _inducing_model(config, kernel, likelihood, dataset)
    model.standardizer = dataset.standardizer
    return model


def _start_kernel(config: RunConfig, dataset: Dataset) -> tuple[gpflow.kernels.Kernel, float]:
    """A kernel and a noise variance: those of an exact GP on some rows, or medians and 0.1."""
    X, Y = dataset.train
    kernel = _make_kernel(config, initialization.median_lengthscales(X, seed=config.seed))
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
    return kernel, max(noise, _MIN_NOISE)


def _make_kernel(config: RunConfig, lengthscales: np.ndarray) -> gpflow.kernels.Kernel:
    """A kernel of unit variance; one lengthscale, the median of those given, unless ARD."""
    scales = lengthscales if config.ard else float(np.median(lengthscales))
    kind = _KERNELS[config.kernel]
    if not config.on_grid or kind is gpflow.kernels.SquaredExponential:
        return kind(lengthscales=scales)
    product = product_of(kind, np.broadcast_to(scales, lengthscales.shape))
    for part in () if config.ard else getattr(product, "kernels", ())[1:]:
        part.lengthscales = product.kernels[0].lengthscales
    return product


def _make_likelihood(
    config: RunConfig, dataset: Dataset, noise_variance: float = 0.1
) -> gpflow.likelihoods.Likelihood:
    """
    The likelihood of ``config``; by default Gaussian, Bernoulli for two classes, else robust-max.

    :raises ValueError: for a likelihood that does not fit the data or the method.
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
        return likelihoods.Laplace((0.5 * noise_variance) ** 0.5)  # of the same variance
    if name == "bernoulli_logit":
        return likelihoods.BernoulliLogit()
    if name == "bernoulli":
        return gpflow.likelihoods.Bernoulli()
    return gpflow.likelihoods.Gaussian(noise_variance)


def _require_regression(config: RunConfig, dataset: Dataset, instead: str = "") -> None:
    if dataset.num_classes is not None:
        raise ValueError(
            f"method {config.method} is for regression, but {dataset.name} has classes{instead}."
        )


def _options(likelihood: gpflow.likelihoods.Likelihood, dataset: Dataset) -> dict[str, Any]:
    """Arguments that all variational models take."""
    return {
        "num_latent_gps": int(likelihood.latent_dim or 1),
        "num_data": len(dataset.train[0]),
    }


def _inducing_points(
    config: RunConfig, kernel: gpflow.kernels.Kernel, dataset: Dataset, *sizes: int
) -> tuple[np.ndarray, ...]:
    return initialization.split_orthogonal(
        dataset.train[0], *sizes, kernel=kernel, method=config.initialization, seed=config.seed
    )


def _inducing_model(
    config: RunConfig,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    dataset: Dataset,
) -> gpflow.models.GPModel:
    """A model with inducing points."""
    if sum(config.sizes) > len(dataset.train[0]):
        raise ValueError(
            f"num_inducing + num_orthogonal = {sum(config.sizes)} exceeds the "
            f"{len(dataset.train[0])} training rows; take fewer inducing points."
        )
    points = _inducing_points(config, kernel, dataset, *config.sizes)
    Z, options = points[0], _options(likelihood, dataset)
    if config.method == "svgp":
        return gpflow.models.SVGP(kernel, likelihood, Z, whiten=config.whiten, **options)
    if config.method == "softki":
        _require_regression(config, dataset, "; basis_svgp with basis soft takes them")
        return models.SoftKI(
            kernel,
            Z,
            noise_variance=likelihood.variance.numpy(),
            temperature=config.temperature,
            tied=True,
            num_data=options["num_data"],
        )
    if config.method == "swsgp":
        return models.SWSGP(
            kernel,
            likelihood,
            NeighborInducingPoints(Z, min(config.num_neighbors, len(Z))),
            covariance=config.covariance or "diag",
            kl_weighting=config.kl_weighting,
            **options,
        )
    sets = OrthogonalInducingVariables(*points)
    if config.method == "solvegpr":
        _require_regression(config, dataset)
        noise = likelihood.variance.numpy()
        return models.SOLVEGPR(dataset.train, kernel, sets, noise_variance=noise)
    if config.method == "odvgp":
        options["num_columns"] = min(config.num_columns, config.num_orthogonal) or None
        return models.ODVGP(kernel, likelihood, sets, whiten=config.whiten, **options)
    return models.SOLVEGP(kernel, likelihood, sets, whiten=config.whiten, **options)


def _basis_model(
    config: RunConfig,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    dataset: Dataset,
) -> gpflow.models.GPModel:
    """A model of the weights of a finite basis."""
    options = _options(likelihood, dataset)
    if config.method in ("grief", "basis_gpr"):
        _require_regression(config, dataset, "; basis_svgp takes them")
        noise = likelihood.variance.numpy()
        if config.method == "basis_gpr":
            basis = _make_basis(config, kernel, dataset)
            return models.BasisGPR(dataset.train, basis, noise_variance=noise)
        return models.GRIEF(
            dataset.train,
            kernel,
            num_eigenfunctions=config.num_basis,
            points_per_dimension=config.points_per_dimension,
            noise_variance=noise,
        )
    if config.method == "basis_svgp":
        return models.BasisSVGP(_make_basis(config, kernel, dataset), likelihood, **options)
    for name in ("covariance", "num_dense_columns", "variance_reduction", "site_estimator"):
        options[name] = getattr(config, name)
    options["num_support"] = config.num_support
    if config.method == "rvm":
        kernel.variance.assign(1.0)  # precisions are relative to the functions' size
        gpflow.utilities.set_trainable(kernel.variance, False)
        centers = _distinct_rows(config, dataset)
        most = len(centers) + 1 - (config.num_dense_columns or 0)
        size = min(config.basis_batch_size, most)
        return models.RVM(centers, kernel, likelihood, basis_batch_size=size, **options)
    basis = _make_basis(config, kernel, dataset)
    dense = 0 if config.covariance == "diag" else config.num_dense_columns or basis.num_leading
    size = max(1, min(config.basis_batch_size, basis.num_basis - dense))
    return models.QSGP(basis, likelihood, basis_batch_size=size, **options)


def _make_basis(
    config: RunConfig, kernel: gpflow.kernels.Kernel, dataset: Dataset
) -> bases.FiniteBasis:
    X, size = dataset.train[0], config.num_basis
    if config.basis == "fourier":
        return bases.RandomFourier(kernel, size, seed=config.seed)
    if config.basis == "dictionary":
        return bases.KernelDictionary(kernel, _distinct_rows(config, dataset))
    if config.basis == "grid":
        return bases.GridEigenfunctions(kernel, X, size, config.points_per_dimension)
    (Z,) = _inducing_points(config, kernel, dataset, config.num_inducing)
    if config.basis == "soft":
        return bases.SoftInterpolation(kernel, Z, temperature=config.temperature, tied=True)
    return bases.Hybrid(kernel, Z, size - config.num_inducing, seed=config.seed)


def _distinct_rows(config: RunConfig, dataset: Dataset) -> np.ndarray:
    """At most ``num_basis`` distinct training inputs, chosen at random."""
    X = dataset.train[0]
    count = min(config.num_basis, len(np.unique(X, axis=0)))
    return initialization.random_subset(X, count, seed=config.seed)


def with_weights(config: RunConfig, model: models.GRIEF) -> models.GRIEF:
    """The model for type-I inference: rotated weights, with the hyperparameters of ``model``."""
    weighted = models.GRIEF(
        model.data,
        model.kernel,
        num_eigenfunctions=config.num_basis,
        reweighted="rotated",
        noise_variance=model.likelihood.variance.numpy(),
        grid=model.basis.grid,
    )
    weighted.standardizer = model.standardizer
    return weighted


def architecture(config: RunConfig, shape: ImageShape) -> list[models.ConvSpec]:
    """
    Patches of each layer: 3 x 3 with stride 1; in images more than 16 pixels wide 5 x 5 with
    stride 2, then 4 x 4 with stride 2, then 5 x 5 with stride 1, or as large as fits. Options of
    ``config`` replace those of the first layer.
    """
    plan = _SMALL if shape[1] <= _SMALL_WIDTH else _WIDE
    size, stride = plan[0]
    first = (config.patch_size or size, config.stride or stride)
    least, specs = min(shape[:2]), []
    for layer, (size, stride) in enumerate((first, *plan[1 : config.num_layers])):
        size = size if layer == 0 else min(size, least)
        least = (least - size) // stride + 1
        specs.append(models.ConvSpec(size, stride, _CHANNELS))
    return [*specs[:-1], specs[-1]._replace(num_outputs=None)]


def _image_model(config: RunConfig, dataset: Dataset) -> gpflow.models.GPModel:
    """A convolutional GP, or a deep GP of convolutional layers."""
    shape = config.image or dataset.image_shape or image_shape_of(dataset.train[0].shape[1])
    model = models.deep_convolutional(
        dataset.train[0],
        shape,
        _make_likelihood(config, dataset),
        num_inducing=config.num_inducing,
        num_orthogonal=0 if config.method == "conv-svgp" else config.num_orthogonal,
        architecture=architecture(config, shape),
        tick=config.tick,
        whiten=config.whiten,
        # on the digits a step takes a third of the time of "marginal", which keeps more covariances
        sampling="shared_inducing",
        seed=config.seed,
    )
    if config.method == "conv-solvegp" or not isinstance(model, models.SOLVEGP):
        return model
    (patches,) = model.inducing_variable.sets
    options = {name: getattr(model, name) for name in ("num_latent_gps", "whiten", "num_data")}
    return gpflow.models.SVGP(model.kernel, model.likelihood, patches, **options)
