"""Cached predictions of every model, beside those of GPflow's SVGP of the same size."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from bench.step_variants import compiled, kernel_of, made_rows, make
from bench.steps import Step, Tables, time_in_turn
from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.inducing_variables import (
    NeighborInducingPoints,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.kernels import Convolutional
from gpflow_sparse.models import (
    GRIEF,
    QSGP,
    RVM,
    SOLVEGP,
    SOLVEGPR,
    SWSGP,
    BasisGPR,
    BasisSVGP,
    NearestNeighborGP,
)

# Neighbors of a row, and training rows of models that hold them, for each inducing point.
_NEIGHBORS, _HELD = 32, 4
# Height and width of images and of patches, and rows of other models for each image.
_IMAGE, _PATCH, _ROWS_PER_IMAGE = (14, 14), (5, 5), 10

Models = dict[str, Callable[[], Any]]
"""Builders of models, by their titles."""


def predictions(num_inducing: int, num_rows: int, input_dim: int, repeats: int) -> Tables:
    """
    Mean and variance of f, from a cached posterior in a compiled function, per row.

    The ratio is to GPflow's whitened SVGP with a dense covariance and M points: as many as a model
    has inducing points in all, or basis functions. With neighbors, a row depends on 32 of M points,
    of GPnn of 4 M rows, which are searched in the same time. Convolutional models have M patches,
    and a row is an image of 14 x 14 pixels.

    :param num_inducing: M, even.
    """
    X = made_rows(num_rows, input_dim)[0]
    Z = made_rows(num_inducing, input_dim, 1)[0].numpy()
    held = made_rows(_HELD * num_inducing, input_dim, 2)
    svgp = f"GPflow SVGP({num_inducing})"
    models = {svgp: partial(make, "svgp", Z)} | _of_points(Z, held) | _of_functions(Z, held)
    images = made_rows(-(-num_rows // _ROWS_PER_IMAGE), _IMAGE[0] * _IMAGE[1])[0]
    return {
        "rows": _timed(models | _of_rows(Z, held), svgp, X, repeats),
        "images": _timed(_of_patches(num_inducing), "GPflow convolutional", images, repeats),
    }


def _timed(models: Models, reference: str, X: tf.Tensor, repeats: int) -> list[dict[str, Any]]:
    steps = {title: partial(_prediction, build, X) for title, build in models.items()}
    unit = ("microseconds", 1e6)
    return time_in_turn(steps, repeats, reference, calls=len(X), unit=unit)


def _prediction(build: Callable[[], Any], X: tf.Tensor) -> Step:
    return compiled(partial(build().posterior().predict_f, X))


def _of_points(Z: np.ndarray, held: Any) -> Models:
    """Models with inducing points."""
    (M, _), (first, second) = Z.shape, np.split(Z, 2)
    halves, near = f"({M // 2}+{M // 2})", f"({M}, H = {_NEIGHBORS})"

    def swsgp(covariance: str) -> SWSGP:
        points = NeighborInducingPoints(Z, min(_NEIGHBORS, M))
        return SWSGP(kernel_of(Z), _noise(), points, covariance=covariance, num_data=len(held[0]))

    def softki() -> Any:
        model = make("softki", Z)
        model.fit_posterior(held, refit_noise=False)
        return model

    sets = partial(OrthogonalInducingVariables, first, second)
    return {
        f"SOLVEGP{halves}": partial(make, "solvegp", first, second),
        f"ODVGP{halves}": partial(make, "odvgp", first, second),
        f"SOLVEGPR{halves}": lambda: SOLVEGPR(held, kernel_of(Z), sets(), noise_variance=0.1),
        f"SWSGP{near}, diag": partial(swsgp, "diag"),
        f"SWSGP{near}, dense": partial(swsgp, "dense"),
        f"SoftKI({M})": softki,
    }


def _of_functions(Z: np.ndarray, held: Any) -> Models:
    """Models of the weights of a basis."""
    M, kernel = len(Z), partial(kernel_of, Z)
    sampled: dict[str, Any] = {"num_data": len(held[0]), "basis_batch_size": max(1, M // 4)}

    def fourier() -> RandomFourier:
        return RandomFourier(kernel(), M)

    return {
        f"GRIEF({M})": lambda: GRIEF(held, kernel(), num_eigenfunctions=M, noise_variance=0.1),
        f"BasisGPR({M})": lambda: BasisGPR(held, fourier(), noise_variance=0.1),
        f"BasisSVGP({M})": lambda: BasisSVGP(fourier(), _noise(), num_data=len(held[0])),
        f"QSGP({M})": lambda: QSGP(fourier(), _noise(), **sampled),
        f"RVM({M})": lambda: RVM(Z, kernel(), **sampled),
    }


def _of_rows(Z: np.ndarray, held: Any) -> Models:
    """Models whose points are training rows."""

    def gpnn() -> NearestNeighborGP:
        options: dict[str, Any] = {"num_neighbors": _NEIGHBORS, "noise_variance": 0.1}
        return NearestNeighborGP(held, kernel_of(Z), **options)

    return {f"NearestNeighborGP({len(held[0])}, H = {_NEIGHBORS})": gpnn}


def _of_patches(num_inducing: int) -> Models:
    """GPflow's convolutional SVGP and this package's."""
    shapes, Z = (_IMAGE, _PATCH), made_rows(num_inducing, _PATCH[0] * _PATCH[1], 1)[0].numpy()

    def theirs() -> gpflow.models.SVGP:
        kernel = gpflow.kernels.Convolutional(kernel_of(Z), *shapes)
        return gpflow.models.SVGP(kernel, _noise(), gpflow.inducing_variables.InducingPatches(Z))

    def ours() -> SOLVEGP:
        patches = OrthogonalInducingVariables(Patches(Z))
        return SOLVEGP(Convolutional(kernel_of(Z), *shapes), _noise(), patches)

    return {"GPflow convolutional": theirs, "SOLVEGP, convolutional": ours}


def _noise() -> gpflow.likelihoods.Gaussian:
    return gpflow.likelihoods.Gaussian(0.1)
