"""What a training step of a convolutional GP costs: all of it, and the algebra alone."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf

from gpflow_sparse.bench.conv_sizes import ImageSizes
from gpflow_sparse.bench.steps import alternate, value_and_gradient
from gpflow_sparse.inducing_variables import LocatedPatches, OrthogonalInducingVariables
from gpflow_sparse.kernels import TICK
from gpflow_sparse.models import SOLVEGP

WHOLE, ALGEBRA = "whole step", "outside Kuf and Kdiag"
# Patches of standardized images are about 7 apart at 25 numbers each.
_LENGTHSCALE, _VARIANCE = 5.0, 5.0
_NUM_DATA = 60_000


@dataclass(frozen=True)
class ImageStep:
    """Median wall time of one compiled value and gradient of all parameters."""

    title: str
    part: str
    """``WHOLE``, or ``ALGEBRA``: Kuf and Kdiag are tensors, whose gradient is taken."""
    milliseconds: float
    ratio: float
    """To the SVGP with as many patches, of the same part."""


class StoredTICK(TICK):
    """A kernel that has been evaluated: what is left is the covariance of inducing patches."""

    def store(self, X: tf.Tensor) -> None:
        """Keep the variances at these images ``[N, D]`` as something to be trained."""
        self.stored = tf.Variable(super().K_diag(X))
        gpflow.set_trainable(self.weights, False)  # nothing that is left reads them

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.stored


class StoredPatches(LocatedPatches):
    """Inducing patches whose covariance with a batch is known."""

    def store(self, kernel: TICK, X: tf.Tensor) -> None:
        """Keep the covariance with these images ``[N, D]`` as something to be trained."""
        Z, locations = (tf.convert_to_tensor(part) for part in (self.Z, self.locations))
        self.stored = tf.Variable(kernel.located_response_covariance(Z, locations, X))


@Kuf.register(StoredPatches, StoredTICK, object)
def _stored_covariance(patches: StoredPatches, kernel: StoredTICK, Xnew: Any) -> tf.Tensor:
    return tf.convert_to_tensor(patches.stored)


def image_steps(sizes: ImageSizes, *, repeats: int = 20, seed: int = 0) -> list[ImageStep]:
    """
    Alternate the steps of three models on one batch in one process.

    The models: SOLVE-GP(M + M2); GPflow's SVGP with all M + M2 patches in one set; the same SVGP on
    this package's factorization. TICK kernel over a squared exponential with one lengthscale,
    robust-max, whitened, all parameters trainable. Images are independent normal pixels, and so are
    patches.

    :param repeats: timed rounds, after three that are not.
    """
    total = sizes.num_patches
    titles = (
        f"SOLVE-GP({sizes.num_inducing}+{sizes.num_orthogonal})",
        f"GPflow SVGP({total})",
        f"SVGP({total}) on our factorization",
    )
    steps: dict[tuple[str, str], Callable[[], Any]] = {}
    for part in (WHOLE, ALGEBRA):
        models, data = made_models(sizes, stored=part == ALGEBRA, seed=seed)
        for title, model in zip(titles, models, strict=True):
            steps[title, part] = value_and_gradient(model, data)
    times = dict(zip(steps, alternate(list(steps.values()), repeats), strict=True))
    return [
        ImageStep(title, part, 1e3 * value, value / times[titles[1], part])
        for (title, part), value in times.items()
    ]


def made_models(
    sizes: ImageSizes, *, stored: bool, seed: int = 0
) -> tuple[Sequence[gpflow.models.GPModel], tuple[tf.Tensor, tf.Tensor]]:
    """
    The models of :func:`image_steps`, and the batch.

    :param stored: with covariances that have been evaluated on the batch.
    """
    rng = np.random.default_rng(seed)
    kind: Any = gpflow.default_float()
    X = tf.constant(rng.normal(size=(sizes.num_images, sizes.image_size**2)), kind)
    Y = tf.constant(rng.integers(sizes.num_classes, size=(sizes.num_images, 1)), kind)
    total = sizes.num_patches
    Z = rng.normal(size=(total, sizes.patch_size**2)).astype(kind)
    far = sizes.image_size - sizes.patch_size
    places = rng.uniform(0.0, far, size=(total, 2)).astype(kind)
    split = [sizes.num_inducing]

    def patches(kernel: TICK, rows: slice) -> LocatedPatches:
        if not stored:
            return LocatedPatches(Z[rows], places[rows])
        found = StoredPatches(Z[rows], places[rows])
        found.store(kernel, X)
        return found

    models = []
    for own, ends in ((True, split), (False, []), (True, [])):
        kernel = _kernel(sizes, StoredTICK if stored else TICK)
        if isinstance(kernel, StoredTICK):
            kernel.store(X)
        edges = [0, *ends, total]
        sets = [patches(kernel, slice(*pair)) for pair in itertools.pairwise(edges)]
        models.append(_model(kernel, sets, own, sizes.num_classes))
    return models, (X, Y)


def _kernel(sizes: ImageSizes, kind: type[TICK]) -> TICK:
    base = gpflow.kernels.SquaredExponential(lengthscales=_LENGTHSCALE, variance=_VARIANCE)
    return kind(base, (sizes.image_size,) * 2, (sizes.patch_size,) * 2)


def _model(
    kernel: TICK, sets: Sequence[LocatedPatches], own: bool, num_classes: int
) -> gpflow.models.GPModel:
    likelihood = gpflow.likelihoods.MultiClass(num_classes)
    options: dict[str, Any] = {"num_latent_gps": num_classes, "num_data": _NUM_DATA}
    if own:
        return SOLVEGP(kernel, likelihood, OrthogonalInducingVariables(*sets), **options)
    return gpflow.models.SVGP(kernel, likelihood, *sets, **options)
