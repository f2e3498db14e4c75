"""Initial values of ``q_mu`` and ``q_sqrt`` of models and layers."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter

from gpflow_sparse.validation import checks


def parameter(value: Any, shape: tuple[int, ...], name: str, transform: Any = None) -> Parameter:
    """:raises ValueError: for another shape."""
    tensor = shaped(value, shape, name)
    return Parameter(tensor, transform=transform, dtype=gpflow.default_float())


def parameters(
    values: Any, shapes: Sequence[tuple[int, ...]], name: str, transform: Any = lambda: None
) -> tuple[Parameter, ...]:
    """
    One parameter per set.

    :param values: one per set; None for zeros.
    :param transform: function that makes the transform of a parameter.
    :raises ValueError: for another number of values, or other shapes.
    """
    values = [np.zeros(shape) for shape in shapes] if values is None else values
    if not isinstance(values, Sequence) or len(values) != len(shapes):
        found = len(values) if isinstance(values, Sequence) else type(values).__name__
        raise ValueError(
            f"{name} must be a tuple with one entry per set, {len(shapes)}; got {found}."
        )
    pairs = enumerate(zip(values, shapes, strict=True))
    return tuple(parameter(v, shape, f"{name}[{i}]", transform()) for i, (v, shape) in pairs)


def shaped(value: Any, shape: tuple[int, ...], name: str) -> tf.Tensor:
    """:raises ValueError: for another shape."""
    tensor = checks.as_tensor(value, name)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}.")
    return tensor
