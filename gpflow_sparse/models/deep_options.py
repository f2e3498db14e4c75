"""What the layers of a deep model, its options and given draws may be."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gpflow_sparse.models.conv_layer import ConvLayer
from gpflow_sparse.models.layers import GPLayer
from gpflow_sparse.posteriors.layer import SAMPLING
from gpflow_sparse.validation import checks


def require_layers(layers: Any) -> tuple[GPLayer, ...]:
    """:raises ValueError: for what is no layer, or none that fits the one before."""
    if not isinstance(layers, Sequence) or not layers:
        raise ValueError("layers must be a list of gs.models.GPLayer or ConvLayer, first to last.")
    for i, layer in enumerate(layers):
        if not isinstance(layer, GPLayer):
            raise ValueError(
                f"layers[{i}] must be a gs.models.GPLayer or ConvLayer, got {type(layer).__name__}."
            )
        before = layers[i - 1].output_dim if i else None
        if None not in (before, layer.input_dim) and before != layer.input_dim:
            raise ValueError(
                f"layers[{i}] takes {layer.input_dim} columns, but layers[{i - 1}] puts out "
                f"{before}."
            )
    if isinstance(layers[-1], ConvLayer):
        raise ValueError(
            "the last layer must be a GPLayer, whose kernel may be gs.kernels.Convolutional: a "
            "ConvLayer puts out an image."
        )
    return tuple(layers)


def require_options(
    num_samples: Any, num_prediction_samples: Any, sampling: Any, seed: Any
) -> None:
    """:raises ValueError: for numbers of draws, a kind of draws or a seed that are none."""
    checks.require_count(num_samples, "num_samples")
    checks.require_count(num_prediction_samples, "num_prediction_samples")
    checks.require_choice(sampling, "sampling", SAMPLING)
    if seed is not None:
        checks.require_seed(seed)


def as_noise(eps: Any, X: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
    """
    Draws that were given, one ``[N, S, .]`` for each hidden layer.

    :param eps: ``[S, N, .]`` each.
    :param X: ``[N, D]``.
    :param sizes: how many numbers each layer takes for a row.
    :raises ValueError: for another number of arrays, or arrays of other shapes.
    """
    if not isinstance(eps, Sequence) or len(eps) != len(sizes):
        found = len(eps) if isinstance(eps, Sequence) else type(eps).__name__
        raise ValueError(
            f"eps must be a list of one array for each of {len(sizes)} hidden layers, got {found}."
        )
    noise = [checks.as_tensor(part, f"eps[{i}]", X.dtype) for i, part in enumerate(eps)]
    samples = next((part.shape[0] for part in noise if part.shape.rank == 3), None)
    for i, (part, size) in enumerate(zip(noise, sizes, strict=True)):
        if not samples or not part.shape.is_compatible_with((samples, X.shape[0], size)):
            raise ValueError(
                f"eps[{i}] must have shape [S, N, {size}] with the same S of at least 1 for all "
                f"layers and N = {X.shape[0]} rows, got {tuple(part.shape)}."
            )
    return [tf.transpose(part, [1, 0, 2]) for part in noise]
