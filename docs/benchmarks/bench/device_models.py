"""The models of the benchmark of devices, of about the sizes at which each is used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from bench.step_variants import kernel_of, made_rows, make
from gpflow_sparse import models
from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.inducing_variables import (
    NeighborInducingPoints,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.kernels import Convolutional

_COLUMNS, _IMAGE, _PATCH = 8, (28, 28), (5, 5)
_NOISE: dict[str, Any] = {"noise_variance": 0.1}


@dataclass(frozen=True)
class Sizes:
    """Sizes of all models."""

    num_data: int = 20_000
    batch_size: int = 1024
    num_inducing: int = 1024
    """Inducing points or basis functions in all."""
    num_neighbors: int = 32
    num_points: int = 50_000
    """Inducing points of models with neighbors."""
    num_basis: int = 100_000
    num_images: int = 64
    num_predicted: int = 10_000


@dataclass(frozen=True)
class Case:
    """A model and its rows; ``trained`` is its objective, of a batch or of all rows."""

    build: Callable[[], Any]
    data: tuple[tf.Tensor, tf.Tensor]
    batch_size: int
    num_predicted: int
    trained: str = "batch"


Built = Mapping[str, Callable[[], Any]]
"""Builders of models, by their titles."""


class Cases:
    """All models, on the same rows."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._data = made_rows(sizes.num_data, _COLUMNS)
        self._X: np.ndarray = self._data[0].numpy()
        self._count: dict[str, Any] = {"num_data": sizes.num_data}

    def all(self) -> dict[str, Case]:
        """The cases, by their titles."""
        sizes, few = self._sizes, tuple(part[: 4 * self._sizes.num_inducing] for part in self._data)
        base = Case(self._kernel, self._data, sizes.batch_size, sizes.num_predicted)
        images = made_rows(sizes.num_images, _IMAGE[0] * _IMAGE[1])
        of_images = Case(self._kernel, images, sizes.num_images, sizes.num_images)
        groups = {
            **dict.fromkeys((self._of_points, self._of_neighbors, self._of_weights), base),
            self._of_images: of_images,
            self._of_rows: replace(base, trained="held"),
        }
        found = {t: replace(c, build=b) for of, c in groups.items() for t, b in of().items()}
        size = len(few[0])
        exact = replace(base, build=partial(self._exact, few), data=few, trained="held")
        return found | {f"GPflow GPR({size})": exact}

    def _of_points(self) -> Built:
        M, count, X = self._sizes.num_inducing, self._count, self._X
        half, pair = M // 2, (X[: M // 2], X[M // 2 : M])
        sizes, soft = f"({half}+{half})", f"SoftKI({half})"
        return {
            f"GPflow SVGP({M})": partial(make, "svgp", X[:M], **count),
            f"SOLVEGP{sizes}": partial(make, "solvegp", *pair, **count),
            f"SOLVEGP{sizes}, log": partial(make, "solvegp", *pair, bound="log", **count),
            f"ODVGP{sizes}": partial(make, "odvgp", *pair, **count),
            soft: partial(make, "softki", pair[0], **count),
            f"{soft}, pseudo": partial(make, "softki", pair[0], objective="pseudo", **count),
            f"DeepGP({half // 2}, {half // 2})": self._deep,
        }

    def _of_neighbors(self) -> Built:
        M, m, H = self._sizes.num_inducing, self._sizes.num_points, self._sizes.num_neighbors
        X = self._X

        def diagonal() -> Any:
            Z = made_rows(m, _COLUMNS, 1)[0].numpy()
            q: dict[str, Any] = {"q_mu": np.zeros([m, 1]), "q_sqrt": np.full([m, 1], 0.1)}
            points = NeighborInducingPoints(Z, H)
            return models.SWSGP(self._kernel(), _noise(), points, **q, **self._count)

        def dense() -> Any:
            options = {"covariance": "dense", **self._count}
            points = NeighborInducingPoints(X[:M], 4)
            return models.SWSGP(self._kernel(), _noise(), points, **options)

        return {
            f"SWSGP({m}, H = {H})": diagonal,
            f"SWSGP({M}, H = 4), dense": dense,
        }

    def _of_weights(self) -> Built:
        sizes, count = self._sizes, self._count
        drawn = min(10_000, sizes.num_basis)
        sampled = {"basis_batch_size": drawn, "num_control_rows": sizes.batch_size, **count}

        def qsgp() -> Any:
            return models.QSGP(self._basis(sizes.num_basis), _noise(), **sampled)

        return {
            f"QSGP({sizes.num_basis})": qsgp,
            f"RVM({sizes.num_data})": lambda: models.RVM(self._X, self._kernel(), **sampled),
            f"BasisSVGP({sizes.num_inducing})": lambda: models.BasisSVGP(
                self._basis(sizes.num_inducing), _noise(), **count
            ),
        }

    def _of_images(self) -> Built:
        half = self._sizes.num_inducing // 2

        def convolutional() -> Any:
            Z = made_rows(2 * half, _PATCH[0] * _PATCH[1], 1)[0].numpy()
            sets = OrthogonalInducingVariables(Patches(Z[:half]), Patches(Z[half:]))
            kernel = Convolutional(kernel_of(Z), _IMAGE, _PATCH)
            return models.SOLVEGP(kernel, _noise(), sets, **self._count)

        def stock() -> Any:
            Z = gpflow.inducing_variables.InducingPatches(made_rows(2 * half, 25, 1)[0].numpy())
            kernel = gpflow.kernels.Convolutional(kernel_of(Z.Z.numpy()), _IMAGE, _PATCH)
            return gpflow.models.SVGP(kernel, _noise(), Z, **self._count)

        return {
            f"GPflow SVGP({2 * half}), convolutional": stock,
            f"SOLVEGP({half}+{half}), convolutional": convolutional,
        }

    def _of_rows(self) -> Built:
        """Models that hold the rows."""
        M, H, X, data = self._sizes.num_inducing, self._sizes.num_neighbors, self._X, self._data
        half, kernel = M // 2, self._kernel

        def solvegpr() -> Any:
            sets = OrthogonalInducingVariables(X[:half], X[half:M])
            return models.SOLVEGPR(data, kernel(), sets, **_NOISE)

        return {
            f"GPflow SGPR({half})": lambda: gpflow.models.SGPR(data, kernel(), X[:half], **_NOISE),
            f"SOLVEGPR({half}+{half})": solvegpr,
            f"GRIEF({M})": lambda: models.GRIEF(data, kernel(), num_eigenfunctions=M, **_NOISE),
            f"BasisGPR({M})": lambda: models.BasisGPR(data, self._basis(M), **_NOISE),
            f"NearestNeighborGP({len(X)}, H = {H})": lambda: models.NearestNeighborGP(
                data, kernel(), num_neighbors=H, **_NOISE
            ),
        }

    def _deep(self) -> Any:
        Z, kernel = self._X[: self._sizes.num_inducing // 4], self._kernel
        layers = [models.GPLayer(kernel(), Z, num_latent_gps=L) for L in (_COLUMNS, 1)]
        for layer in layers:  # at the prior, the last layer would see no draw of the first
            layer.start_at(np.eye(_COLUMNS, layer.num_latent_gps), scale=0.5)
        return models.DeepGP(layers, _noise(), **self._count)

    def _exact(self, data: Any) -> Any:
        return gpflow.models.GPR(data, self._kernel(), **_NOISE)

    def _basis(self, size: int) -> RandomFourier:
        return RandomFourier(self._kernel(), size)

    def _kernel(self) -> gpflow.kernels.Kernel:
        return kernel_of(self._X)


def _noise() -> gpflow.likelihoods.Gaussian:
    return gpflow.likelihoods.Gaussian(0.1)
