"""Models of images, ready to train, and what of them can be looked at."""

from typing import Any

import gpflow
import numpy as np

from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset
from gpflow_sparse.data.images import ImageShape, image_shape_of
from gpflow_sparse.experiments.config import RunConfig
from gpflow_sparse.images import PatchGrid, make_grid
from gpflow_sparse.inducing_variables import (
    LocatedPatches,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.kernels import TICK, Convolutional
from gpflow_sparse.models import SOLVEGP

# Wider images get larger patches, further apart.
_SMALL_WIDTH = 16


def image_shape(config: RunConfig, dataset: Dataset) -> ImageShape:
    """
    Of the rows of a data set: what was asked for, what it knows, or square images.

    :raises ValueError: if rows are of another length, or of no square image.
    """
    columns = dataset.train[0].shape[1]
    shape = config.image or dataset.image_shape or image_shape_of(columns)
    if np.prod(shape) != columns:
        raise ValueError(
            f"image_shape {','.join(map(str, shape))} is of {np.prod(shape)} numbers, but "
            f"{dataset.name} has {columns} input columns."
        )
    return shape


def patch_grid(config: RunConfig, shape: ImageShape) -> PatchGrid:
    """
    Of the first layer: as asked for, or 3 x 3 patches, 5 x 5 two pixels apart in wide images.

    :raises ValueError: if a patch does not fit.
    """
    small = shape[1] <= _SMALL_WIDTH
    size = config.patch_size or (3 if small else 5)
    return make_grid(shape, (size, size), config.stride or (1 if small else 2))


def image_model(
    config: RunConfig, likelihood: gpflow.likelihoods.Likelihood, dataset: Dataset
) -> gpflow.models.GPModel:
    """The model of ``config.method``; the standardizer goes with it."""
    grid = patch_grid(config, image_shape(config, dataset))
    model = deep_convolutional(
        dataset.train[0],
        grid.image_shape,
        likelihood,
        num_layers=config.num_layers,
        num_inducing=config.num_inducing,
        num_orthogonal=0 if config.method == "conv-svgp" else config.num_orthogonal,
        patch_size=grid.patch_shape[0],
        stride=grid.stride,
        tick=config.tick,
        seed=config.seed,
    )
    model.standardizer = dataset.standardizer
    return model


def deep_convolutional(
    X,
    shape,
    likelihood,
    *,
    num_layers=1,
    num_inducing,
    num_orthogonal=0,
    patch_size,
    stride=1,
    tick=True,
    seed=0,
):
    grid = make_grid(shape, (patch_size, patch_size), stride)
    rng = np.random.default_rng(seed)
    images = X[rng.permutation(len(X))[:1000]]
    patches = grid.patches(images).numpy()
    flat = patches.reshape(-1, grid.patch_length)
    sizes = (num_inducing, num_orthogonal) if num_orthogonal else (num_inducing,)
    flat = flat[rng.permutation(len(flat))[: 100 * sum(sizes)]]
    sets = initialization.split_orthogonal(flat, *sizes, seed=seed)
    base = gpflow.kernels.SquaredExponential(lengthscales=5.0, variance=5.0)
    kind = TICK if tick else Convolutional
    kernel = kind(base, grid.image_shape, grid.patch_shape, stride=grid.stride)
    H, W = grid.shape
    t = gpflow.default_float()
    points = [
        LocatedPatches(Z.astype(t), (rng.uniform(size=(len(Z), 2)) * [H - 1, W - 1]).astype(t))
        if tick
        else Patches(Z.astype(t))
        for Z in sets
    ]
    options: dict[str, Any] = {
        "num_latent_gps": int(likelihood.latent_dim or 1),
        "num_data": len(X),
    }
    if len(sets) == 1:
        return gpflow.models.SVGP(kernel, likelihood, *points, **options)
    return SOLVEGP(kernel, likelihood, OrthogonalInducingVariables(*points), **options)
