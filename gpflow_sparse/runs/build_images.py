"""Models of images, ready to train."""

import gpflow
import numpy as np

from gpflow_sparse.data import Dataset
from gpflow_sparse.data.images import ImageShape, image_shape_of
from gpflow_sparse.models import SOLVEGP, ConvSpec, deep_convolutional
from gpflow_sparse.runs.config import RunConfig

# Wider images get larger patches, further apart; and so on in deeper layers.
_SMALL_WIDTH = 16
_SMALL, _WIDE = ((3, 1), (3, 1), (3, 1)), ((5, 2), (4, 2), (5, 1))
# Channels of hidden layers, as in the paper.
_CHANNELS = 10


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


def architecture(config: RunConfig, shape: ImageShape) -> list[ConvSpec]:
    """
    Patches of each layer: 3 x 3, one pixel apart; in images more than 16 pixels wide 5 x 5 two
    pixels apart, then 4 x 4 likewise, then 5 x 5, as large as fits. The first as asked for.
    """
    plan = _SMALL if shape[1] <= _SMALL_WIDTH else _WIDE
    size, stride = plan[0]
    first = (config.patch_size or size, config.stride or stride)
    least, specs = min(shape[:2]), []
    for layer, (size, stride) in enumerate((first, *plan[1 : config.num_layers])):
        size = size if layer == 0 else min(size, least)
        least = (least - size) // stride + 1
        specs.append(ConvSpec(size, stride, _CHANNELS))
    return [*specs[:-1], specs[-1]._replace(num_outputs=None)]


def image_model(
    config: RunConfig, likelihood: gpflow.likelihoods.Likelihood, dataset: Dataset
) -> gpflow.models.GPModel:
    """
    The model of ``config.method``, started from the training images; the standardizer goes with it.

    :param dataset: standardized, with its image shape.
    :raises ValueError: for patches that do not fit, or more than there are.
    """
    shape = image_shape(config, dataset)
    model = deep_convolutional(
        dataset.train[0],
        shape,
        likelihood,
        num_inducing=config.num_inducing,
        num_orthogonal=0 if config.method == "conv-svgp" else config.num_orthogonal,
        architecture=architecture(config, shape),
        tick=config.tick,
        whiten=config.whiten,
        # of a step on the digits it takes a third of the time of "marginal", and less is left out
        sampling="shared_inducing",
        seed=config.seed,
    )
    if config.method == "conv-svgp" and isinstance(model, SOLVEGP):
        model = _as_stock(model)
    model.standardizer = dataset.standardizer
    return model


def _as_stock(model: SOLVEGP) -> gpflow.models.SVGP:
    """GPflow's model of the one set of ours."""
    (patches,) = model.inducing_variable.sets
    return gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        patches,
        num_latent_gps=model.num_latent_gps,
        whiten=model.whiten,
        num_data=model.num_data,
    )
