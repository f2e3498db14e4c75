"""Covariances of convolutional kernels: ours, in one shot, and GPflow's, as work to be measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf
from gpflow.kernels import Kernel

from gpflow_sparse.bench.conv_sizes import GPFLOW, ONE_SHOT, OURS, ImageSizes
from gpflow_sparse.bench.steps import alternate, compiled
from gpflow_sparse.inducing_variables import Patches
from gpflow_sparse.kernels import Convolutional

# Patches of standardized images are about 7 apart at 25 numbers each.
_LENGTHSCALE, _VARIANCE = 5.0, 5.0


@dataclass(frozen=True)
class KernelTime:
    """Median wall time of the covariances of a batch."""

    title: str
    gradient: bool
    """Whether the gradient is taken too: to patches, weights, lengthscale and variance."""
    milliseconds: float


@dataclass(frozen=True)
class KernelWork:
    """``Kuf [M, N]`` and ``Kdiag [N]`` of a kernel of its own, as a function of images."""

    kernel: Kernel
    points: Any
    covariances: Callable[[Any, Any, tf.Tensor], Sequence[tf.Tensor]]

    def forward(self, X: tf.Tensor) -> Callable[[], Any]:
        """A compiled function that returns both."""
        return compiled(lambda: self.covariances(self.kernel, self.points, X))

    def gradient(self, X: tf.Tensor) -> Callable[[], Any]:
        """A compiled function that returns a weighted sum of all their entries, and its gradient
        to all trainable variables."""
        rng = np.random.default_rng(0)
        shapes = ((int(self.points.num_inducing), len(X)), (len(X),))
        weights = [tf.constant(rng.normal(size=shape), X.dtype) for shape in shapes]
        variables = [*self.kernel.trainable_variables, *self.points.trainable_variables]

        def step() -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                found = self.covariances(self.kernel, self.points, X)
                pairs = zip(weights, found, strict=True)
                total = tf.add_n([tf.reduce_sum(w * K) for w, K in pairs])
            return total, tape.gradient(total, variables)

        return compiled(step)


def kernel_times(sizes: ImageSizes, *, repeats: int = 20) -> list[KernelTime]:
    """
    Alternate them in one process.

    :param repeats: timed rounds, after three that are not.
    """
    X, works = made_work(sizes)
    steps: dict[tuple[str, bool], Callable[[], Any]] = {}
    for title in (OURS, ONE_SHOT):
        steps[title, True] = works[title].gradient(X)
    for title, work in works.items():
        steps[title, False] = work.forward(X)
    times = alternate(list(steps.values()), repeats)
    return [KernelTime(*key, 1e3 * value) for key, value in zip(steps, times, strict=True)]


def kernel_ratios(times: Sequence[KernelTime]) -> dict[str, float]:
    """Of the times that are to be compared, by what is compared."""
    found = {(time.title, time.gradient): time.milliseconds for time in times}
    return {
        "value and gradient, ours over one shot": found[OURS, True] / found[ONE_SHOT, True],
        "value, ours over one shot": found[OURS, False] / found[ONE_SHOT, False],
        "value, ours over GPflow Convolutional": found[OURS, False] / found[GPFLOW, False],
    }


def made_work(sizes: ImageSizes, seed: int = 0) -> tuple[tf.Tensor, dict[str, KernelWork]]:
    """
    Images of independent normal pixels ``[N, D]``, and the same work in three ways.

    GPflow's kernel is its ``Convolutional`` with inducing patches of its own, the same patches.
    """
    rng = np.random.default_rng(seed)
    kind: Any = gpflow.default_float()
    image = (sizes.image_size, sizes.image_size)
    patch = (sizes.patch_size, sizes.patch_size)
    X = tf.constant(rng.normal(size=(sizes.num_images, image[0] * image[1])), kind)
    Z = rng.normal(size=(sizes.num_patches, patch[0] * patch[1])).astype(kind)
    plain = gpflow.kernels.Convolutional(_base(), image, patch)
    stock = KernelWork(plain, gpflow.inducing_variables.InducingPatches(Z), _ours)
    return X, {
        OURS: KernelWork(Convolutional(_base(), image, patch), Patches(Z), _ours),
        ONE_SHOT: KernelWork(Convolutional(_base(), image, patch), Patches(Z), _in_one_shot),
        GPFLOW: stock,
    }


def _base() -> Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=_LENGTHSCALE, variance=_VARIANCE)


def _ours(kernel: Kernel, points: Any, X: tf.Tensor) -> Sequence[tf.Tensor]:
    """By the registered functions of the library whose kernel it is."""
    return Kuf(points, kernel, X), kernel(X, full_cov=False)


def _in_one_shot(kernel: Convolutional, points: Patches, X: tf.Tensor) -> Sequence[tf.Tensor]:
    """Every covariance of two patches at once: ``[M, N, P]`` and ``[N, P, P]``."""
    patches, w = kernel.grid.patches(X), kernel.patch_weights  # [N, P, L], [P]
    flat = tf.reshape(patches, [-1, patches.shape[-1]])
    responses = kernel.base_kernel(tf.convert_to_tensor(points.Z), flat)  # [M, N P]
    cross = tf.reshape(responses, [-1, *patches.shape[:2]])
    own = kernel.base_kernel(patches)  # [N, P, P]
    return tf.einsum("mnp,p->mn", cross, w), tf.einsum("npq,p,q->n", own, w, w)
