"""Models over the weights of a basis, ready to train, and the fully Bayesian one after training."""

import gpflow
import numpy as np

from gpflow_sparse import initialization
from gpflow_sparse.bases import (
    FiniteBasis,
    GridEigenfunctions,
    Hybrid,
    KernelDictionary,
    RandomFourier,
    SoftInterpolation,
)
from gpflow_sparse.data import Dataset
from gpflow_sparse.models import GRIEF, QSGP, RVM, BasisGPR, BasisSVGP
from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.methods import SAMPLED_METHODS


def basis_model(
    config: RunConfig,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    dataset: Dataset,
) -> gpflow.models.GPModel:
    """
    The model of ``config.method`` around its parts; the standardizer goes with it.

    :raises ValueError: for classes in a method for regression.
    """
    if config.method in ("grief", "basis_gpr") and dataset.num_classes is not None:
        raise ValueError(
            f"method {config.method} is for regression, but {dataset.name} has classes; "
            "basis_svgp takes them."
        )
    if config.method == "grief":
        model: gpflow.models.GPModel = GRIEF(
            dataset.train,
            kernel,
            num_eigenfunctions=config.num_basis,
            points_per_dimension=config.points_per_dimension,
            noise_variance=likelihood.variance.numpy(),
        )
    elif config.method == "basis_gpr":
        basis = _make_basis(config, kernel, dataset)
        model = BasisGPR(dataset.train, basis, noise_variance=likelihood.variance.numpy())
    elif config.method in SAMPLED_METHODS:
        model = _sampled_model(config, kernel, likelihood, dataset)
    else:
        model = BasisSVGP(
            _make_basis(config, kernel, dataset),
            likelihood,
            num_latent_gps=int(likelihood.latent_dim or 1),
            num_data=len(dataset.train[0]),
        )
    model.standardizer = dataset.standardizer
    return model


def with_weights(config: RunConfig, model: GRIEF) -> GRIEF:
    """The model for type-I inference: rotated weights, at the hyperparameters of ``model``."""
    weighted = GRIEF(
        model.data,
        model.kernel,
        num_eigenfunctions=config.num_basis,
        reweighted="rotated",
        noise_variance=model.likelihood.variance.numpy(),
        grid=model.basis.grid,
    )
    weighted.standardizer = model.standardizer
    return weighted


def _sampled_model(
    config: RunConfig,
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    dataset: Dataset,
) -> QSGP:
    names = ("covariance", "num_dense_columns", "variance_reduction", "site_estimator")
    options = {name: getattr(config, name) for name in (*names, "num_support")}
    options["num_latent_gps"] = int(likelihood.latent_dim or 1)
    options["num_data"] = len(dataset.train[0])
    if config.method == "rvm":
        kernel.variance.assign(1.0)  # precisions are relative to the functions' size
        gpflow.utilities.set_trainable(kernel.variance, False)
        centers = _some_rows(config, dataset)
        most = len(centers) + 1 - (config.num_dense_columns or 0)
        size = min(config.basis_batch_size, most)
        return RVM(centers, kernel, likelihood, basis_batch_size=size, **options)
    basis = _make_basis(config, kernel, dataset)
    head = 0 if config.covariance == "diag" else config.num_dense_columns or basis.num_leading
    size = max(1, min(config.basis_batch_size, basis.num_basis - head))
    return QSGP(basis, likelihood, basis_batch_size=size, **options)


def _some_rows(config: RunConfig, dataset: Dataset) -> np.ndarray:
    """Distinct training inputs, all or ``num_basis`` of them."""
    X = dataset.train[0]
    count = min(config.num_basis, len(np.unique(X, axis=0)))
    return initialization.random_subset(X, count, seed=config.seed)


def _make_basis(config: RunConfig, kernel: gpflow.kernels.Kernel, dataset: Dataset) -> FiniteBasis:
    if config.basis == "fourier":
        return RandomFourier(kernel, config.num_basis, seed=config.seed)
    if config.basis == "dictionary":
        return KernelDictionary(kernel, _some_rows(config, dataset))
    if config.basis in ("hybrid", "soft"):
        (Z,) = initialization.split_orthogonal(
            dataset.train[0],
            config.num_inducing,
            kernel=kernel,
            method=config.initialization,
            seed=config.seed,
        )
        if config.basis == "soft":
            return SoftInterpolation(kernel, Z, temperature=config.temperature, tied=True)
        return Hybrid(kernel, Z, config.num_basis - config.num_inducing, seed=config.seed)
    return GridEigenfunctions(
        kernel, dataset.train[0], config.num_basis, config.points_per_dimension
    )
