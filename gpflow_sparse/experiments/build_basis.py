"""Models over the weights of a basis, ready to train, and the fully Bayesian one after training."""

import gpflow

from gpflow_sparse.bases import FiniteBasis, GridEigenfunctions, RandomFourier
from gpflow_sparse.data import Dataset
from gpflow_sparse.experiments.config import RunConfig
from gpflow_sparse.models import GRIEF, BasisGPR, BasisSVGP


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
    if config.method != "basis_svgp" and dataset.num_classes is not None:
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


def _make_basis(config: RunConfig, kernel: gpflow.kernels.Kernel, dataset: Dataset) -> FiniteBasis:
    if config.basis == "fourier":
        return RandomFourier(kernel, config.num_basis, seed=config.seed)
    return GridEigenfunctions(
        kernel, dataset.train[0], config.num_basis, config.points_per_dimension
    )
