"""Covariances and training steps of convolutional GPs, compared with GPflow's."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf
from gpflow.kernels import Kernel

from bench.step_variants import compiled, loss_step
from bench.steps import Row, Step, Tables, measure_memory, time_in_turn
from gpflow_sparse.inducing_variables import LocatedPatches, OrthogonalInducingVariables, Patches
from gpflow_sparse.kernels import TICK, Convolutional
from gpflow_sparse.models import SOLVEGP, deep_convolutional

OURS, ONE_SHOT, GPFLOW = "ours", "one shot", "GPflow Convolutional"
_NUM_DATA = 60_000


@dataclass(frozen=True)
class Images:
    """A batch of gray images, and inducing patches: independent normal pixels."""

    num_images: int = 64
    """N."""
    size: int = 28
    """Height and width."""
    patch: int = 5
    """Height and width of a patch; the stride is 1."""
    num_classes: int = 10
    """Latent functions; the likelihood is robust-max."""
    num_inducing: int = 500
    """M, patches of the base set."""
    num_orthogonal: int = 500
    """M2, patches of the orthogonal set."""

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shapes of an image and of a patch."""
        return (self.size, self.size), (self.patch, self.patch)

    @property
    def X(self) -> tf.Tensor:
        """Pixels ``[N, D]``."""
        return tf.constant(_normal(0, self.num_images, self.size**2))

    @property
    def Z(self) -> np.ndarray:
        """All inducing patches ``[M + M2, L]``."""
        return _normal(1, self.num_inducing + self.num_orthogonal, self.patch**2)


def conv(
    num_inducing: int, num_orthogonal: int, batch_size: int, repeats: int, memory: bool
) -> Tables:
    """
    Covariances, with and without their gradient; steps of one layer, with and without the
    covariances; steps of two layers.

    :param memory: measure, instead, the memory of the covariances.
    """
    images = Images(batch_size, num_inducing=num_inducing, num_orthogonal=num_orthogonal)
    if memory:
        return {"memory": covariance_memory(images)}
    kernels = []
    for ways in _covariance_steps(images):
        variants = {title: partial(step, images.X) for title, step in ways.items()}
        kernels += time_in_turn(variants, repeats, list(ways)[1])
    deep = two_layers()
    last = time_in_turn(deep, repeats, list(deep)[1])
    return {"kernels": kernels, "steps": layer_steps(images, repeats), "deep": last}


def layer_steps(images: Images, repeats: int) -> list[Row]:
    """Whole steps of one layer, and their algebra outside of the covariances with images."""
    steps = []
    for stored, suffix in ((False, ", whole step"), (True, ", outside Kuf and Kdiag")):
        models, data = image_models(images, stored)
        whole = {f"{title}{suffix}": partial(loss_step, m, data) for title, m in models.items()}
        steps += time_in_turn(whole, repeats, list(whole)[1])
    return steps


def covariance_memory(images: Images) -> list[Row]:
    """Memory of two calls, above that of a process after the same calls with two images."""
    return [
        measure_memory(title, partial(_rehearse, step, images), step, 2)
        for steps in _covariance_steps(images)
        for title, step in steps.items()
    ]


def _covariance_steps(images: Images) -> Iterator[dict[str, Callable[[tf.Tensor], Step]]]:
    """Steps that compute covariances of images, by title; those with gradient first."""
    step = partial(covariance_step, images=images)
    for gradient, ways in ((", with gradient", (OURS, ONE_SHOT)), ("", (OURS, ONE_SHOT, GPFLOW))):
        yield {
            f"Kuf and Kdiag, {way}{gradient}": partial(step, way=way, gradient=bool(gradient))
            for way in ways
        }


def _rehearse(step: Callable[[tf.Tensor], Step], images: Images) -> tuple[tf.Tensor]:
    """A first call with two images, after which threads and libraries are initialized."""
    X = images.X
    step(X[:2])()
    return (X,)


def covariance_step(X: tf.Tensor, *, images: Images, way: str, gradient: bool = False) -> Step:
    """
    ``Kuf [M, N]`` and ``Kdiag [N]``; or a weighted sum of all their entries and its gradient to
    patches, weights, lengthscale and variance.

    :param way: by the package's functions; every covariance of two patches at once; or GPflow's.
    """
    kind = gpflow.kernels.Convolutional if way == GPFLOW else Convolutional
    kernel = kind(_base(), *images.shapes)
    patches = gpflow.inducing_variables.InducingPatches if way == GPFLOW else Patches
    points = patches(images.Z)

    def covariances() -> Sequence[tf.Tensor]:
        if way == ONE_SHOT:
            return _in_one_shot(kernel, points, X)
        return Kuf(points, kernel, X), kernel(X, full_cov=False)

    if not gradient:
        return compiled(covariances)
    weights = [tf.constant(_normal(2, len(images.Z), len(X))), tf.constant(_normal(3, len(X)))]
    variables = [*kernel.trainable_variables, *points.trainable_variables]

    def step() -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            pairs = zip(weights, covariances(), strict=True)
            total = tf.add_n([tf.reduce_sum(w * K) for w, K in pairs])
        return total, tape.gradient(total, variables)

    return compiled(step)


def _in_one_shot(kernel: Convolutional, points: Patches, X: tf.Tensor) -> Sequence[tf.Tensor]:
    """With tensors ``[M, N, P]`` and ``[N, P, P]``."""
    patches, w = kernel.grid.patches(X), kernel.patch_weights  # [N, P, L], [P]
    flat = tf.reshape(patches, [-1, patches.shape[-1]])
    responses = kernel.base_kernel(tf.convert_to_tensor(points.Z), flat)  # [M, N P]
    cross = tf.reshape(responses, [-1, *patches.shape[:2]])
    own = kernel.base_kernel(patches)  # [N, P, P]
    return tf.einsum("mnp,p->mn", cross, w), tf.einsum("npq,p,q->n", own, w, w)


class _StoredTICK(TICK):
    """A kernel whose variances at a batch are a trainable tensor: only Kuu is evaluated."""

    stored: tf.Variable

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.stored


class _StoredPatches(LocatedPatches):
    """Inducing patches whose covariance with a batch is a trainable tensor."""

    stored: tf.Variable


@Kuf.register(_StoredPatches, _StoredTICK, object)
def _stored_covariance(patches: _StoredPatches, kernel: _StoredTICK, Xnew: Any) -> tf.Tensor:
    return tf.convert_to_tensor(patches.stored)


def image_models(
    images: Images, stored: bool
) -> tuple[dict[str, gpflow.models.SVGP], tuple[tf.Tensor, tf.Tensor]]:
    """
    Three models of one layer, and a batch.

    SOLVE-GP(M + M2); GPflow's SVGP with all M + M2 patches in one set; the same SVGP on this
    package's factorization. TICK kernel over a squared exponential with one lengthscale, whitened,
    all parameters trainable.

    :param stored: whether Kuf and Kdiag are tensors, whose gradient is taken.
    """
    X, classes, Z = images.X, images.num_classes, images.Z
    rng = np.random.default_rng(0)
    Y = tf.constant(rng.integers(classes, size=(len(X), 1)), X.dtype)
    places = rng.uniform(0.0, images.size - images.patch, size=(len(Z), 2)).astype(Z.dtype)
    options = {"num_latent_gps": classes, "num_data": _NUM_DATA}

    def made(model: Any, *cuts: int) -> gpflow.models.SVGP:
        kernel = (_StoredTICK if stored else TICK)(_base(), *images.shapes)
        parts = zip(np.split(Z, cuts), np.split(places, cuts), strict=True)
        sets = [(_StoredPatches if stored else LocatedPatches)(*part) for part in parts]
        if stored:
            kernel.stored = tf.Variable(TICK.K_diag(kernel, X))
            for points in sets:
                at = tf.convert_to_tensor(points.Z), tf.convert_to_tensor(points.locations)
                points.stored = tf.Variable(kernel.located_response_covariance(*at, X))
            gpflow.set_trainable(kernel.weights, False)  # not used with stored covariances
        inducing = OrthogonalInducingVariables(*sets) if model is SOLVEGP else sets[0]
        return model(kernel, gpflow.likelihoods.MultiClass(classes), inducing, **options)

    M, M2, total = images.num_inducing, images.num_orthogonal, len(Z)
    models = {
        f"SOLVE-GP({M}+{M2})": made(SOLVEGP, M),
        f"GPflow SVGP({total})": made(gpflow.models.SVGP),
        f"SVGP({total}) on our factorization": made(SOLVEGP),
    }
    return models, (X, Y)


def two_layers(
    num_images: int = 16, size: int = 32, patches: tuple[int, int] = (128, 320)
) -> dict[str, Callable[[], Step]]:
    """
    Value and gradient of three models of two layers, of the paper's architecture for color images.

    SOLVE-GP with M + M patches in each layer; SVGP with 2 M in one set; SVGP with M.

    :param patches: M of the hidden layer and of the last; a third of the paper's.
    """
    X = tf.constant(_normal(0, num_images, size**2 * 3))
    Y = tf.constant(np.random.default_rng(0).integers(10, size=(num_images, 1)), X.dtype)
    (M, L), double = patches, [2 * m for m in patches]

    def step(num_inducing: Sequence[int], num_orthogonal: Sequence[int] | int = 0) -> Step:
        sizes: Any = {"num_inducing": num_inducing, "num_orthogonal": num_orthogonal}
        model = deep_convolutional(
            X.numpy(),
            (size, size, 3),
            gpflow.likelihoods.MultiClass(10),
            num_layers=2,
            num_data=_NUM_DATA,
            **sizes,
        )
        return loss_step(model, (X, Y))

    return {
        f"SOLVE-GP({M}+{M}, {L}+{L})": partial(step, patches, patches),
        "SVGP({}, {})".format(*double): partial(step, double),
        f"SVGP({M}, {L})": partial(step, patches),
    }


def _base() -> Kernel:
    """Base kernel for patches of standardized images, whose distances are 7 to 12."""
    return gpflow.kernels.SquaredExponential(lengthscales=5.0, variance=5.0)


def _normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(gpflow.default_float())
