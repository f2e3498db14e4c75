"""The untrained model of a run, from its configuration and its standardized data."""

import copy
import dataclasses
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_sparse import bases, initialization, models
from gpflow_sparse.data import Dataset
from gpflow_sparse.data.images import ImageShape
from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.methods import (
    BASIS_METHODS,
    EXACT_METHODS,
    FOR_CLASSES,
    IMAGE_METHODS,
    SAMPLED_METHODS,
)
from gpflow_sparse.runs.observations import make_likelihood
from gpflow_sparse.runs.rows import Pair, num_distinct, shape_of_images, watched_rows
from gpflow_sparse.runs.starts import START_NOISE, Starts
from gpflow_sparse.validation import checks

MIN_NOISE = 0.01
"""Least starting value of the noise variance, as a fraction of the variance of the outputs: an
exact GP may fit a few rows almost without noise, with which a sparse model starts at minus
billions."""
# Neighbors of a row where neither the method nor the user says how many; of GPnn four times that.
_NEIGHBORS = 32
MOST_EXACT_ROWS = 10_000
"""Rows of the largest exact GP: its covariance takes 8 N^2 bytes, its factor N^3 / 3 operations."""
# Sizes and strides of patches by layer; wider images have larger patches and strides.
_SMALL_WIDTH = 16
_SMALL, _WIDE = ((3, 1), (3, 1), (3, 1)), ((5, 2), (4, 2), (5, 1))
# Channels of hidden layers of models of images, as in the paper.
_CHANNELS = 10


def build_model(
    config: RunConfig,
    dataset: Dataset,
    *,
    kernel: gpflow.kernels.Kernel | None = None,
    likelihood: Any = None,
    noise_variance: float | None = None,
    start: gpflow.models.GPModel | None = None,
) -> gpflow.models.GPModel:
    """
    The model of ``config.method``, with inducing points and hyperparameters initialized from the
    data, and with the standardizer of the data.

    :param dataset: standardized.
    :param kernel: copied in place of the one that ``config`` names.
    :param likelihood: a likelihood to copy, or a name, in place of the one that ``config`` names.
    :param noise_variance: start of the noise variance beside that of ``kernel``, which are then not
        fitted; see :class:`~gpflow_sparse.runs.starts.Starts`.
    :param start: a trained model of the same method, whose parameters are the start.
    :raises ValueError: if there are fewer training rows than inducing points, patches do not fit
        into the images, or the method is for regression and the data set has classes.
    """
    if config.method in FOR_CLASSES and dataset.num_classes is not None:
        raise ValueError(
            f"method {config.method} is for regression, but {dataset.name} has classes; "
            f"{FOR_CLASSES[config.method]} takes them."
        )
    likelihood = likelihood or config.likelihood
    if config.method in IMAGE_METHODS:
        model = _image_model(config, dataset, make_likelihood(likelihood, dataset.num_classes, 0.1))
    else:
        kernel = copy.deepcopy(kernel)
        starts = Starts(dataset, likelihood, kernel)
        if start is not None:  # its values replace those of kernel, noise and inducing points
            config = dataclasses.replace(config, initialization="random")
            kernel, noise_variance = starts.untrained_kernel(config), START_NOISE
        elif kernel is None or noise_variance is None:
            kernel, noise_variance = starts.find(config)[:2]
        # in double precision the optimum of exact GPs is not only a start
        if config.method not in EXACT_METHODS or gpflow.default_float() != np.float64:
            noise_variance = max(noise_variance, MIN_NOISE)
        likelihood = make_likelihood(likelihood, dataset.num_classes, noise_variance)
        model = make_model(config, dataset.train, kernel, likelihood)
    if start is not None:
        _copy_parameters(start, model)
    return with_units(model, dataset)


def require_outputs(dataset: Dataset, likelihood: Any) -> None:
    """
    Refuse training outputs that the likelihood does not have, before anything is trained.

    :param likelihood: a likelihood, its name, or None for the usual one.
    :raises ValueError: for these, such as negative counts, or for an unknown name.
    """
    made = make_likelihood(likelihood, dataset.num_classes, START_NOISE)
    checks.require_data(dataset.train, likelihood=made)


def _copy_parameters(source: gpflow.models.GPModel, target: gpflow.models.GPModel) -> None:
    """Give a model all parameters of another one that have the same path and shape."""
    values = gpflow.utilities.parameter_dict(source)
    for path, parameter in gpflow.utilities.parameter_dict(target).items():
        if path in values and values[path].shape == parameter.shape:
            parameter.assign(values[path])


def with_units(model: gpflow.models.GPModel, dataset: Dataset) -> gpflow.models.GPModel:
    """The model, with the standardizer and the table of its data, which are saved with it."""
    model.standardizer = dataset.standardizer
    if dataset.table is not None:
        model.table = dataset.table.to_json()
    return model


class _Parts(NamedTuple):
    """Everything that a model is made of."""

    config: RunConfig
    data: Pair
    kernel: gpflow.kernels.Kernel
    likelihood: gpflow.likelihoods.Likelihood
    options: dict[str, Any]
    """Further arguments of the model's class."""

    @property
    def noise_variance(self) -> np.ndarray:
        """Variance of a Gaussian likelihood."""
        return self.likelihood.variance.numpy()

    @property
    def variational(self) -> dict[str, Any]:
        """Arguments that all variational models take."""
        latents = int(self.likelihood.latent_dim or 1)
        return {"num_latent_gps": latents, "num_data": len(self.data[0])} | self.options

    def choose_points(self, *sizes: int) -> tuple[np.ndarray, ...]:
        """Sets of inducing points among the training inputs."""
        method, seed = self.config.initialization, self.config.seed
        return initialization.split_orthogonal(
            self.data[0], *sizes, kernel=self.kernel, method=method, seed=seed
        )

    def distinct_rows(self) -> np.ndarray:
        """At most ``num_basis`` distinct training inputs, chosen at random."""
        return random_rows(self.data[0], self.config.num_basis, self.config.seed)


def random_rows(X: np.ndarray, most: int, seed: int) -> np.ndarray:
    """At most that many distinct rows, chosen at random; all in their order."""
    count = min(most, num_distinct(X))
    return X if count == len(X) else initialization.random_subset(X, count, seed=seed)


def make_model(
    config: RunConfig,
    data: Pair,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    *,
    points: tuple[np.ndarray, ...] | None = None,
    basis: bases.FiniteBasis | None = None,
    **options: Any,
) -> gpflow.models.GPModel:
    """
    The untrained model of a method, from its kernel and likelihood; not for methods of images.

    :param data: training rows ``(X, Y)``.
    :param points: sets of inducing points; chosen as ``config.initialization`` says if None.
    :param basis: made as ``config.basis`` says if None.
    :param options: further arguments of the model's class.
    :raises ValueError: if there are fewer training rows than inducing points.
    """
    parts = _Parts(config, data, kernel, likelihood, options)
    if config.method in FOR_CLASSES and not isinstance(likelihood, gpflow.likelihoods.Gaussian):
        raise ValueError(
            f"likelihood must be gaussian for method {config.method}, got "
            f"{type(likelihood).__name__}; {FOR_CLASSES[config.method]} takes any."
        )
    if config.method in EXACT_METHODS:
        return _exact_model(parts)
    if config.method in SAMPLED_METHODS:
        return _sampled_model(parts, basis)
    if config.method in BASIS_METHODS:
        return _basis_model(parts, basis)
    if config.method == "deep":
        return _deep_model(parts)
    if points is None and config.has_neighbors and config.method == "solvegp":
        among = data[0][watched_rows(len(data[0]))[1]]
        O = random_rows(among, config.num_orthogonal, config.seed)
        points = *parts.choose_points(_num_base(config, data[0])), O
    if points is None:
        if sum(config.sizes) > len(data[0]) == num_distinct(data[0]):
            raise ValueError(
                f"num_inducing + num_orthogonal = {sum(config.sizes)} exceeds the "
                f"{len(data[0])} training rows; take fewer inducing points."
            )
        points = parts.choose_points(*config.sizes)
    return _inducing_model(parts, points)


def _num_base(config: RunConfig, X: np.ndarray) -> int:
    """Points of the base set beside neighbors on its residual, which is zero if it has all rows."""
    count = num_distinct(X)
    few = count <= config.num_inducing and count < len(X)
    return max(1, count // 4) if few else config.num_inducing


def _exact_model(parts: _Parts) -> gpflow.models.GPModel:
    """GPflow's exact regression, that by dual blocks, or that on the nearest rows."""
    config, given = parts.config, {"noise_variance": parts.noise_variance, **parts.options}
    if config.method == "gpnn":
        given = {"num_neighbors": config.num_neighbors or 4 * _NEIGHBORS, **given}
        return models.NearestNeighborGP(parts.data, parts.kernel, **given)
    if config.method == "dual":
        return models.DualGPR(parts.data, parts.kernel, **{"seed": config.seed, **given})
    if len(parts.data[0]) > MOST_EXACT_ROWS:
        raise ValueError(
            f"method exact takes at most {MOST_EXACT_ROWS} rows, got {len(parts.data[0])}; take "
            "dual or auto."
        )
    X, Y = map(gpflow.utilities.to_default_float, parts.data)
    return gpflow.models.GPR((X, Y), parts.kernel, noise_variance=parts.noise_variance)


def _inducing_model(parts: _Parts, points: tuple[np.ndarray, ...]) -> gpflow.models.GPModel:
    """A model with inducing points."""
    config, data, kernel, likelihood, options = parts
    Z, variational = points[0], parts.variational
    if config.method == "svgp":
        return gpflow.models.SVGP(kernel, likelihood, Z, whiten=config.whiten, **variational)
    if config.method == "softki":
        given = {"temperature": config.temperature, "tied": True, "num_data": len(data[0])}
        noise = parts.noise_variance
        return models.SoftKI(kernel, Z, noise_variance=noise, **given | options)
    if config.method == "swsgp":
        neighbors = NeighborInducingPoints(Z, min(config.num_neighbors or _NEIGHBORS, len(Z)))
        variational |= {
            "covariance": config.covariance or "diag",
            "kl_weighting": config.kl_weighting,
        }
        return models.SWSGP(kernel, likelihood, neighbors, bound=config.bound, **variational)
    if config.has_neighbors:
        O = points[1]
        H = min(config.num_neighbors or _NEIGHBORS, len(O))
        sets = OrthogonalInducingVariables(Z, NeighborInducingPoints(O, H))
        variational |= {
            "covariance": config.covariance or "diag",
            "kl_weighting": config.kl_weighting,
            "bound": config.bound,
        }
        return models.ResidualNeighborGP(kernel, likelihood, sets, **variational)
    if config.method == "odvgp" and not len(points[1]):
        # All distinct rows are in the base set. ODVGP needs another point, and one far from them
        # changes nothing there.
        points = Z, Z.max(axis=0, keepdims=True) + 1.0
    sets = OrthogonalInducingVariables(*points)
    if config.method == "solvegpr":
        options = {"noise_variance": parts.noise_variance, "bound": config.bound, **options}
        return models.SOLVEGPR(data, kernel, sets, **options)
    variational |= {"whiten": config.whiten, "bound": config.bound}
    if config.method == "odvgp":
        variational["num_columns"] = min(config.num_columns, sum(sets.sizes[1:])) or None
        return models.ODVGP(kernel, likelihood, sets, **variational)
    return models.SOLVEGP(kernel, likelihood, sets, **variational)


def _deep_model(parts: _Parts) -> gpflow.models.GPModel:
    """Layers of points; hidden ones, of a function for each column, have fewer."""
    config, X = parts.config, parts.data[0]
    hidden = config.num_layers - 1
    few = config.num_hidden_inducing
    return models.deep(
        X,
        parts.likelihood,
        num_inducing=[few] * hidden + [config.num_inducing],
        num_orthogonal=[0] * hidden + [config.num_orthogonal],
        num_layers=config.num_layers,
        num_neighbors=config.num_neighbors,
        kernel=parts.kernel,
        bound=config.bound,
        seed=config.seed,
        **parts.options,
    )


def _basis_model(parts: _Parts, basis: bases.FiniteBasis | None) -> gpflow.models.GPModel:
    """A model of all weights of a basis."""
    config, data, kernel, likelihood, options = parts
    if config.method == "grief":
        return models.GRIEF(
            data,
            kernel,
            num_eigenfunctions=config.num_basis,
            points_per_dimension=config.points_per_dimension,
            noise_variance=parts.noise_variance,
            **{"bound": config.bound, **options},
        )
    basis = basis or _make_basis(parts)
    if config.method == "basis_gpr":
        return models.BasisGPR(data, basis, noise_variance=parts.noise_variance, **options)
    return models.BasisSVGP(basis, likelihood, bound=config.bound, **parts.variational)


def _sampled_model(parts: _Parts, basis: bases.FiniteBasis | None) -> models.QSGP:
    """A model whose steps sample functions of a basis."""
    config, kernel, likelihood = parts.config, parts.kernel, parts.likelihood
    names = ("covariance", "num_dense_columns", "variance_reduction", "num_support")
    options = {name: getattr(config, name) for name in names} | parts.variational
    if config.method == "rvm":
        kernel.variance.assign(1.0)  # precisions are relative to the functions' size
        gpflow.utilities.set_trainable(kernel.variance, False)
        centers = parts.distinct_rows()
        most = len(centers) + 1 - (config.num_dense_columns or 0)
        size = min(config.basis_batch_size, most)
        return models.RVM(centers, kernel, likelihood, basis_batch_size=size, **options)
    basis, X = basis or _make_basis(parts), parts.data[0]
    is_whole = isinstance(basis, bases.KernelDictionary) and basis.num_basis == len(X)
    if is_whole and isinstance(likelihood, gpflow.likelihoods.Gaussian):
        options = {"augmentation": X, **options}  # else there is no variance far from the rows
    dense = 0 if config.covariance == "diag" else config.num_dense_columns or basis.num_leading
    size = max(1, min(config.basis_batch_size, basis.num_basis - dense))
    return models.QSGP(basis, likelihood, basis_batch_size=size, **options)


def _make_basis(parts: _Parts) -> bases.FiniteBasis:
    config, kernel, size = parts.config, parts.kernel, parts.config.num_basis
    if config.basis == "fourier":
        return bases.RandomFourier(kernel, size, seed=config.seed)
    if config.basis == "dictionary":
        return bases.KernelDictionary(kernel, parts.distinct_rows())
    if config.basis == "grid":
        X = parts.data[0]
        return bases.GridEigenfunctions(kernel, X, size, config.points_per_dimension)
    (Z,) = parts.choose_points(config.num_inducing)
    if config.basis == "soft":
        return bases.SoftInterpolation(kernel, Z, temperature=config.temperature, tied=True)
    return bases.Hybrid(kernel, Z, (size - len(Z)) // 2 * 2, seed=config.seed)


def with_weights(config: RunConfig, model: models.GRIEF, dataset: Dataset) -> models.GRIEF:
    """The model for type-I inference: rotated weights, with the hyperparameters of ``model``."""
    parts = config, model.data, model.kernel, model.likelihood
    return with_units(
        make_model(*parts, reweighted="rotated", grid=model.basis.grid, bound="standard"), dataset
    )


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


def _image_model(
    config: RunConfig, dataset: Dataset, likelihood: gpflow.likelihoods.Likelihood
) -> gpflow.models.GPModel:
    """
    A convolutional GP, or a deep GP of convolutional layers, with orthogonal patches in the last
    layer only, since those of hidden layers gain less than they cost.
    """
    shape = shape_of_images(config, dataset)
    num_last = 0 if config.method == "conv-svgp" else config.num_orthogonal
    model = models.deep_convolutional(
        dataset.train[0],
        shape,
        likelihood,
        num_inducing=config.num_inducing,
        num_orthogonal=[0] * (config.num_layers - 1) + [num_last],
        architecture=architecture(config, shape),
        tick=config.tick,
        whiten=config.whiten,
        seed=config.seed,
    )
    if config.method == "conv-solvegp" or not isinstance(model, models.SOLVEGP):
        return model
    (patches,) = model.inducing_variable.sets
    options = {name: getattr(model, name) for name in ("num_latent_gps", "whiten", "num_data")}
    return gpflow.models.SVGP(model.kernel, model.likelihood, patches, **options)
