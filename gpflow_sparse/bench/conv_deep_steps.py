"""What a training step of a convolutional GP of two layers costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.bench.conv_sizes import DeepSizes
from gpflow_sparse.bench.steps import alternate, value_and_gradient
from gpflow_sparse.inducing_variables import LocatedPatches, OrthogonalInducingVariables
from gpflow_sparse.kernels import TICK
from gpflow_sparse.models import ConvLayer, DeepGP, GPLayer

# The paper's two layers, table 5: patches of images of three colors, and then of ten channels.
_PATCHES, _STRIDES, _CHANNELS, _OUTPUTS = ((5, 5), (4, 4)), (1, 2), 3, 10
# Patches of standardized images are about 12 apart at 75 numbers each.
_LENGTHSCALE, _VARIANCE = 5.0, 5.0
_NUM_DATA = 50_000


@dataclass(frozen=True)
class DeepStep:
    """Median wall time of one compiled value and gradient of all parameters."""

    title: str
    milliseconds: float
    ratio: float
    """To the SVGP with as many patches in one set of each layer."""


def deep_steps(sizes: DeepSizes, *, repeats: int = 20, seed: int = 0) -> list[DeepStep]:
    """
    Alternate the steps of three models on one batch in one process.

    The models, on this package's layers: SOLVE-GP with M + M patches in each layer; SVGP with 2 M
    in one set; SVGP with M. Not whitened, squared exponentials, TICK in the last layer, robust-max
    over ten classes, one draw of the hidden layer, all parameters trainable, as in the paper
    (appendix G.2). Images are independent normal pixels, and so are patches.

    :param repeats: timed rounds, after three that are not.
    """
    rng, kind = np.random.default_rng(seed), gpflow.default_float()
    pixels = sizes.image_size**2 * _CHANNELS
    X = tf.constant(rng.normal(size=(sizes.num_images, pixels)), kind)
    Y = tf.constant(rng.integers(_OUTPUTS, size=(sizes.num_images, 1)), kind)
    single = (sizes.hidden, sizes.last)
    double = tuple(2 * size for size in single)
    models = {
        "SOLVE-GP({}+{}, {}+{})".format(*(m for m in single for _ in range(2))): (single, 2),
        "SVGP({}, {})".format(*double): (double, 1),
        "SVGP({}, {})".format(*single): (single, 1),
    }
    steps = [
        value_and_gradient(two_layers(sizes.image_size, rng, *form), (X, Y))
        for form in models.values()
    ]
    times = alternate(steps, repeats)
    return [
        DeepStep(title, 1e3 * value, value / times[1])
        for title, value in zip(models, times, strict=True)
    ]


def two_layers(
    image_size: int, rng: np.random.Generator, patches: Sequence[int], num_sets: int
) -> DeepGP:
    """
    :param patches: of each set, hidden layer first.
    :param num_sets: of each layer.
    """
    hidden = ConvLayer(
        _base(),
        OrthogonalInducingVariables(*_sets(rng, patches[0], num_sets, _PATCHES[0], _CHANNELS)),
        (image_size, image_size, _CHANNELS),
        _PATCHES[0],
        stride=_STRIDES[0],
        num_latent_gps=_OUTPUTS,
        whiten=False,
    )
    kernel = TICK(_base(), hidden.output_shape, _PATCHES[1], stride=_STRIDES[1])
    far = np.array(kernel.grid.shape) - 1
    sets = [
        LocatedPatches(Z, (far * rng.uniform(size=(len(Z), 2))).astype(Z.dtype))
        for Z in _sets(rng, patches[1], num_sets, _PATCHES[1], _OUTPUTS)
    ]
    last = GPLayer(
        kernel, OrthogonalInducingVariables(*sets), num_latent_gps=_OUTPUTS, whiten=False
    )
    likelihood = gpflow.likelihoods.MultiClass(_OUTPUTS)
    return DeepGP([hidden, last], likelihood, num_data=_NUM_DATA)


def _sets(
    rng: np.random.Generator, size: int, count: int, patch: tuple[int, int], channels: int
) -> list[np.ndarray]:
    shape = (size, patch[0] * patch[1] * channels)
    return [rng.normal(size=shape).astype(gpflow.default_float()) for _ in range(count)]


def _base() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=_LENGTHSCALE, variance=_VARIANCE)
