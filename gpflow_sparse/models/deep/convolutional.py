"""Convolutional models of one, two or three layers, with starting values from images."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, SquaredExponential
from gpflow.likelihoods import Likelihood

from gpflow_sparse.covariances.patch_grids import PatchGrid, make_grid
from gpflow_sparse.inducing_variables import (
    LocatedPatches,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.initialization.image_patches import (
    glorot_filters,
    patch_centers,
    random_locations,
)
from gpflow_sparse.kernels import TICK, Convolutional
from gpflow_sparse.mean_functions import RectifiedFilters
from gpflow_sparse.models.deep.layers import ConvLayer, GPLayer, layer_sizes
from gpflow_sparse.models.deep.model import DeepGP
from gpflow_sparse.models.solvegp import SOLVEGP, OrthogonalPosterior
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks

# Number of images from which inducing patches are taken.
_NUM_IMAGES = 1000
# Variance of patch kernels, and lengthscale relative to the root of the number of values of a
# patch, of the last layer: the paper's.
_LAST = 5.0, 1.0
# Variance and relative lengthscale in hidden layers, where the variance of f is noise for the next
# layer: with the paper's values it was as large as the signal in a second hidden layer.
_HIDDEN = 0.1, 2.0
# Standard deviation of the last layer's starting means, relative to the prior's.
_DIFFERENCE = 0.01
# Least residual variance of an orthogonal set, relative to the base set and in units of the jitter.
_MIN_SHARE, _MIN_JITTERS = 1e-3, 100


class ConvSpec(NamedTuple):
    """Patches and output channels of one layer."""

    patch_size: int
    """Height and width of a patch in pixels."""
    stride: int = 1
    num_outputs: int | None = None
    """Channels of a hidden layer's output; None for the last layer."""


TABLE_5 = {
    1: (ConvSpec(5),),
    2: (ConvSpec(5, 1, 10), ConvSpec(4, 2)),
    3: (ConvSpec(5, 1, 10), ConvSpec(4, 2, 10), ConvSpec(5)),
}
"""Layers of the models of Shi, Titsias and Mnih (2020), appendix G.2, by their number."""


def deep_convolutional(
    X: Any,
    image_shape: Any,
    likelihood: Likelihood,
    *,
    num_inducing: int | Sequence[int],
    num_orthogonal: int | Sequence[int] = 0,
    num_layers: int = 1,
    architecture: Sequence[ConvSpec] | None = None,
    tick: bool = True,
    zero_mean: bool = False,
    whiten: bool = True,
    num_data: int | None = None,
    num_samples: int = 1,
    sampling: str = "shared_inducing",
    num_prediction_samples: int = 10,
    seed: int = 0,
) -> SOLVEGP | DeepGP:
    """
    A convolutional Gaussian process for classes or any other likelihood, ready to be trained.

    The models of table 5 in Shi, Titsias and Mnih (2020, arXiv:1910.10596v5) for ``num_layers`` of
    1, 2 or 3, or of an ``architecture``. Kernels are squared exponential on patches. The kernel of
    the last layer has variance 5 and, since pixels should have mean 0 and variance 1, lengthscale
    ``sqrt(L)`` for patches of L values: 5 for 5 x 5 pixels, as printed.

    Hidden layers have trained filters with a rectifier for mean function
    (:class:`gpflow_sparse.mean_functions.RectifiedFilters`), which start at random Glorot filters,
    and about it a prior of variance 0.1 and lengthscale ``2 sqrt(L)``, at which q starts. The paper
    has zero means and the kernel of the last layer: it does not say what breaks the symmetry of q
    at the prior, whose outputs do not depend on inputs. With ``zero_mean`` q starts at Glorot
    filters, :meth:`GPLayer.start_at`. The last of several layers starts at small random means.

    Inducing patches are centers by k-means of 100 patches for each, from 1000 images; for deeper
    layers from these images after the filters.

    :param X: training images ``[N, H W C]``, each channel standardized.
    :param image_shape: ``(H, W)`` or ``(H, W, C)``.
    :param likelihood: such as ``gpflow.likelihoods.MultiClass(10)``; it determines the number of
        functions of the last layer.
    :param num_inducing: M of every layer, or one number for each.
    :param num_orthogonal: M2 of every layer, or one number for each; 0 for none, which is SVGP.
    :param num_layers: number of layers, if no architecture is given.
    :param architecture: one :class:`ConvSpec` for each layer, the last without ``num_outputs``.
    :param tick: whether the last layer has a location kernel, as in the paper.
    :param zero_mean: whether hidden layers have prior mean zero and kernels as the last one.
    :param whiten: parametrize q relative to the prior; the paper does so with one layer only.
    :param num_data: N; None for the rows of X.
    :param num_samples: draws of the hidden layers in a step,
    :param sampling: kind of these draws,
    :param num_prediction_samples: and draws in predictions, see :class:`DeepGP`.
    :param seed: seed of the choice of images, filters, patches and locations.
    :return: :class:`SOLVEGP` for one layer, else :class:`DeepGP`.
    :raises ValueError: for images, shapes or counts that do not fit each other.
    """
    images = _require_images(X, make_grid(image_shape, (1, 1)))
    specs = _require_architecture(num_layers, architecture)
    checks.require_flag(tick, "tick")
    checks.require_flag(zero_mean, "zero_mean")
    checks.require_likelihood(likelihood, int(getattr(likelihood, "latent_dim", None) or 1))
    sizes = layer_sizes(num_inducing, num_orthogonal, len(specs))
    rng = np.random.default_rng(checks.require_seed(seed))
    num_data = len(images) if num_data is None else num_data
    rows = images[np.sort(rng.permutation(len(images))[:_NUM_IMAGES])]
    layers, shape = [], make_grid(image_shape, (1, 1)).image_shape
    for spec, size in zip(specs[:-1], sizes[:-1], strict=True):
        layer, rows = _hidden(rows, shape, spec, size, (zero_mean, whiten), rng)
        layers.append(layer)
        shape = layer.output_shape
    kernel, inducing = _last(rows, shape, specs[-1], sizes[-1], tick, rng)
    latents = int(likelihood.latent_dim or 1)
    _warn_of_noise(kernel, inducing)
    if not layers:
        return SOLVEGP(
            kernel, likelihood, inducing, num_latent_gps=latents, whiten=whiten, num_data=num_data
        )
    last = GPLayer(kernel, inducing, num_latent_gps=latents, whiten=whiten)
    _randomize_means(last, rng)
    return DeepGP(
        [*layers, last],
        likelihood,
        num_data=num_data,
        num_samples=num_samples,
        sampling=sampling,
        num_prediction_samples=num_prediction_samples,
    )


def _hidden(
    rows: np.ndarray,
    shape: tuple[int, int, int],
    spec: ConvSpec,
    sizes: tuple[int, ...],
    flags: tuple[bool, bool],
    rng: np.random.Generator,
) -> tuple[ConvLayer, np.ndarray]:
    """
    A hidden layer, and the images after the filters that it starts at.

    :param flags: ``zero_mean`` and ``whiten``.
    """
    grid = make_grid(shape, (spec.patch_size, spec.patch_size), spec.stride)
    centers = patch_centers(rows, grid, sizes, rng)
    weights = glorot_filters(rows, grid, int(spec.num_outputs or 1), rng)
    zero_mean, whiten = flags
    # half of the second moment of a response remains behind the rectifier
    mean_function = None if zero_mean else RectifiedFilters(np.sqrt(2.0) * weights)
    layer = ConvLayer(
        _kernel(grid, *(_LAST if zero_mean else _HIDDEN)),
        OrthogonalInducingVariables(*centers),
        shape,
        grid.patch_shape,
        stride=spec.stride,
        num_latent_gps=spec.num_outputs,
        mean_function=mean_function,
        whiten=whiten,
    )
    if mean_function is None:
        layer.start_at(weights)
    patches = rows[:, grid.pixels()]  # [N, P, L]
    responses = patches @ weights if mean_function is None else mean_function(patches).numpy()
    return layer, responses.reshape(len(rows), -1)


def _last(
    rows: np.ndarray,
    shape: tuple[int, int, int],
    spec: ConvSpec,
    sizes: tuple[int, ...],
    tick: bool,
    rng: np.random.Generator,
) -> tuple[Kernel, OrthogonalInducingVariables]:
    grid = make_grid(shape, (spec.patch_size, spec.patch_size), spec.stride)
    centers = patch_centers(rows, grid, sizes, rng)
    options: dict[str, Any] = {"stride": spec.stride}
    if not tick:
        plain = Convolutional(_kernel(grid, *_LAST), shape, grid.patch_shape, **options)
        return plain, OrthogonalInducingVariables(*(Patches(Z) for Z in centers))
    located = [LocatedPatches(Z, random_locations(grid, len(Z), rng)) for Z in centers]
    kernel = TICK(_kernel(grid, *_LAST), shape, grid.patch_shape, **options)
    return kernel, OrthogonalInducingVariables(*located)


def _randomize_means(layer: GPLayer, rng: np.random.Generator) -> None:
    """
    Set small random means. With q at the prior all classes are equal, and under robust-max, which
    does not depend on scale, the objective has no gradient in hidden layers at the first step.
    """
    for m, R in layer.variational_parameters:
        eps = rng.normal(size=(*R.shape[:2], 1))  # [L, M, 1]
        m.assign(_DIFFERENCE * (R.numpy() @ eps)[..., 0].T)


def _warn_of_noise(kernel: Kernel, inducing: OrthogonalInducingVariables) -> None:
    """
    Warn of orthogonal patches of the last layer whose residual covariance is little more than
    jitter. In hidden layers it is small on purpose, since it is noise for the next layer.
    """
    nothing = [None] * len(inducing.sizes)
    factors = OrthogonalPosterior(kernel, inducing, nothing, nothing).prior_factors()
    scales = [float(tf.reduce_mean(tf.reduce_sum(tf.square(L), axis=-1))) for L in factors]
    least = max(_MIN_SHARE, _MIN_JITTERS * linalg.relative_jitter(factors[0].dtype))
    if min(scales) < least * scales[0]:
        warnings.warn(
            "orthogonal inducing patches have hardly any variance left: the mean of the diagonal "
            f"of Cvv is {min(scales):.1e}, of Kuu {scales[0]:.1e}. Standardize each channel "
            "of the images, or take fewer patches.",
            stacklevel=3,
        )


def _kernel(grid: PatchGrid, variance: float, scale: float) -> SquaredExponential:
    length = scale * float(np.sqrt(grid.patch_length))
    return SquaredExponential(variance=variance, lengthscales=length)


def _require_images(X: Any, grid: PatchGrid) -> np.ndarray:
    tensor = checks.require_matrix(X, "X")
    if tensor.shape[1] != grid.num_pixels:
        raise ValueError(
            f"X must have {grid.num_pixels} columns for images of shape {grid.image_shape}, got "
            f"{tensor.shape[1]}."
        )
    return np.asarray(tensor, dtype=gpflow.default_float())


def _require_architecture(
    num_layers: int, architecture: Sequence[ConvSpec] | None
) -> tuple[ConvSpec, ...]:
    if architecture is None:
        if checks.require_whole(num_layers, "num_layers") not in TABLE_5:
            raise ValueError(
                f"num_layers must be 1, 2 or 3, got {num_layers!r}; give an architecture for more."
            )
        return TABLE_5[num_layers]
    specs = tuple(architecture) if isinstance(architecture, Sequence) else ()
    if not specs or not all(isinstance(spec, ConvSpec) for spec in specs):
        raise ValueError("architecture must be a list of ConvSpec, one for each layer.")
    if any(spec.num_outputs is None for spec in specs[:-1]) or specs[-1].num_outputs is not None:
        raise ValueError(
            "architecture must give num_outputs for hidden layers, and none for the last, whose "
            "functions are as many as the likelihood has."
        )
    return specs
