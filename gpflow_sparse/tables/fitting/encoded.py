"""The standardized rows that models are trained on, from the columns of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpflow_sparse.data import Dataset, Standardizer
from gpflow_sparse.data.images import ImageShape, image_shape_of
from gpflow_sparse.tables.fitting.copies import identifiers_of
from gpflow_sparse.tables.fitting.observations import has_heavy_tails, is_standardized
from gpflow_sparse.tables.fitting.splits import INDEPENDENT, Groups
from gpflow_sparse.tables.fitting.transforms import AUTO_TRANSFORM, resolve, warn_of_outliers
from gpflow_sparse.tables.methods.convolutional import parse_shape
from gpflow_sparse.tables.methods.registry import kind_of
from gpflow_sparse.tables.reading.cells import ReadingOptions
from gpflow_sparse.tables.reading.columns import Column
from gpflow_sparse.tables.reading.encoder import TableEncoder

# Scale of the outputs where all are equal, relative to them.
_CONSTANT = 1e-6


def encoded_rows(
    frame: pd.DataFrame,
    Y: np.ndarray,
    method: str,
    options: Mapping[str, Any],
    *,
    likelihood: Any = None,
    tries_transforms: bool = False,
    reading: ReadingOptions | None = None,
    weights: np.ndarray | None = None,
    noise_variance: np.ndarray | None = None,
    labels: Sequence[str] = (),
    groups: Groups = INDEPENDENT,
) -> tuple[TableEncoder, Dataset]:
    """
    The rows of a table as standardized training rows, and the encoder that has learned its columns.

    Images keep all of their columns, and all pixels of a channel share one mean and one scale, so
    that patches can be compared.

    :param Y: outputs [N, P], or positions among the labels [N, 1].
    :param method: a method, or "auto".
    :param options: of the method, among them ``seed`` and the ``transform`` of the outputs.
    :param likelihood: a likelihood, its name, or None for the usual one.
    :param tries_transforms: whether the transform "auto" is chosen on held-out rows; else it is
        "none".
    :param reading: how cells are read where they do not show it.
    :param weights: weights of the rows [N], positive; None for 1.
    :param noise_variance: known variances of the noise of one output [N], which is not transformed;
        None for 0.
    :param labels: names of the classes; none for regression.
    :param groups: of the rows that are held out together.
    :raises ValueError: for a transform of outputs that are not standardized, or a shape of images
        that does not fit the number of columns.
    """
    num_classes = len(labels) or None
    shape = _image_shape(method, options.get("image_shape"), frame.shape[1])
    if shape is None:
        encoder, X = _encoded(frame, Y, num_classes, reading)
    else:
        encoder = TableEncoder.from_columns([Column(str(name), "number") for name in frame])
        X = encoder.transform(frame)
    outputs = Y if num_classes is None and is_standardized(likelihood) else None
    heavy = has_heavy_tails(likelihood)
    if outputs is not None and not heavy:
        warn_of_outliers(outputs)
    standardizer = Standardizer.fit(
        X,
        outputs,
        num_channels=None if shape is None else shape[2],
        row_weights=weights,
        transform=_transform(options, X, outputs, groups, is_tried=tries_transforms and not heavy),
        robust=heavy,
    )
    if outputs is not None and standardizer.y_scale is not None:
        # a constant target predicts itself: its noise is of its own digits, not of a unit of 1
        constant = outputs.min(axis=0) == outputs.max(axis=0)
        least = _CONSTANT * np.maximum(np.abs(outputs[0]), 1.0)
        standardizer.y_scale.assign(np.where(constant, least, standardizer.y_scale.numpy()))
    rows = standardizer.transform(X, Y)
    return encoder, Dataset(
        name="the data",
        train=rows,
        test=(rows[0][:0], rows[1][:0]),
        feature_names=tuple(encoder.get_feature_names_out()),
        target_name="y",
        num_classes=num_classes,
        standardizer=standardizer,
        image_shape=shape,
        weights=weights,
        noise_variance=_in_units(noise_variance, standardizer),
        groups=groups.of_row,
        in_time=groups.in_time,
    )


def _in_units(noise_variance: np.ndarray | None, standardizer: Standardizer) -> np.ndarray | None:
    """Noise variances of standardized outputs. :raises ValueError: for transformed ones."""
    if noise_variance is None:
        return None
    if standardizer.y_transform != "none":
        raise ValueError(
            "transform must be none where noise variances are known, which are of y itself; got "
            f"{standardizer.y_transform!r}."
        )
    scale = standardizer.y_scale
    return noise_variance if scale is None else noise_variance / scale.numpy() ** 2


def _encoded(
    frame: pd.DataFrame, Y: np.ndarray, num_classes: int | None, reading: ReadingOptions | None
) -> tuple[TableEncoder, np.ndarray]:
    """The encoder of all columns that do not number the rows, and the encoded rows [N, D]."""
    encoder, identifiers = TableEncoder(options=reading), identifiers_of(frame)
    used = frame.assign(**dict.fromkeys(identifiers))  # empty columns are not used
    X = encoder.fit_transform(used, Y if Y.shape[1] == 1 else None, num_classes)
    encoder.columns_ = tuple(
        _identifier(column.name) if column.name in identifiers else column
        for column in encoder.columns_
    )
    encoder.warn_of_losses(used)
    return encoder, X


def _identifier(name: str) -> Column:
    note = f"{name!r} numbers the rows and is not used."
    return Column(name, "dropped", note=note)


def _image_shape(method: str, text: str | None, num_columns: int) -> ImageShape | None:
    """Height, width and channels where the rows are images; by default these are square."""
    given = parse_shape(text)
    if given is None and not kind_of(method).takes_images:
        return None
    shape = given or image_shape_of(num_columns)
    if int(np.prod(shape)) != num_columns:
        raise ValueError(
            f"image_shape {','.join(map(str, shape))} has {np.prod(shape)} values, but there are "
            f"{num_columns} input columns."
        )
    return shape


def _transform(
    options: Mapping[str, Any],
    X: np.ndarray,
    Y: np.ndarray | None,
    groups: Groups,
    *,
    is_tried: bool,
) -> str:
    """The transform of outputs ``Y`` to standardize, None if there are none."""
    transform: str = options.get("transform", AUTO_TRANSFORM)
    if Y is None and transform not in (AUTO_TRANSFORM, "none"):
        raise ValueError(
            "transform must be none for classes and for outputs that are not standardized, got "
            f"{transform!r}."
        )
    if Y is None or (transform == AUTO_TRANSFORM and not is_tried):
        return "none"
    return resolve(transform, X, Y, options["seed"], groups)
