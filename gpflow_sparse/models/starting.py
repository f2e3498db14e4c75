"""Initial values of ``q_mu`` and ``q_sqrt`` of models and layers."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.utilities import positive, triangular

from gpflow_sparse.inducing_variables import (
    NeighborInducingPoints,
    OrthogonalInducingVariables,
)
from gpflow_sparse.models.swsgp_options import closest_scales
from gpflow_sparse.posteriors import OrthogonalPosterior, latent_kernels
from gpflow_sparse.validation import checks, component_checks


def prior_factors(owner: Any) -> list[Any]:
    """
    Factors with which q is the prior, one ``[L, M_b, M_b]`` per set: the identity, or Luu, Lvv, ...
    if un-whitened.

    :param owner: a model or a layer over orthogonal sets.
    """
    iv, latents = owner.inducing_variable, owner.num_latent_gps
    if owner.whiten:
        return [np.eye(size)[None].repeat(latents, axis=0) for size in iv.sizes]
    factors = []
    for kernel, columns in latent_kernels(owner.kernel, latents):
        nothing = [None] * len(iv.sizes)
        posterior = OrthogonalPosterior(kernel, iv, nothing, nothing, jitter=owner.jitter)
        with component_checks.blame(owner):
            blocks = posterior.prior_factors()
        factors.append([tf.repeat(L[None], columns.stop - columns.start, 0) for L in blocks])
    return [tf.concat(per_set, axis=0) for per_set in zip(*factors, strict=True)]


def layer_shapes(layer: Any) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Shapes of the entries of a layer's ``q_mu`` and of those of its ``q_sqrt``."""
    iv, latents = layer.inducing_variable, layer.num_latent_gps
    if isinstance(iv, NeighborInducingPoints):
        shape = (int(iv.Z.shape[0]), latents)
        return [shape], [shape]
    orthogonal = isinstance(iv, OrthogonalInducingVariables)
    sizes = iv.sizes if orthogonal else (int(iv.basis.num_basis),)
    return [(size, latents) for size in sizes], [(latents, size, size) for size in sizes]


def layer_q(
    layer: Any, q_mu: Sequence[Any] | None, q_sqrt: Sequence[Any] | None
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """
    ``q_mu`` and ``q_sqrt`` of a layer, one entry per set.

    :raises ValueError: for values of other shapes.
    """
    mean_shapes, sqrt_shapes = layer_shapes(layer)
    means = [np.zeros(shape) for shape in mean_shapes] if q_mu is None else q_mu
    transform = (
        positive if isinstance(layer.inducing_variable, NeighborInducingPoints) else triangular
    )
    start = _prior_sqrt(layer) if q_sqrt is None else q_sqrt
    return (
        parameters(means, mean_shapes, "q_mu"),
        parameters(start, sqrt_shapes, "q_sqrt", transform),
    )


def _prior_sqrt(layer: Any) -> list[Any]:
    iv = layer.inducing_variable
    if isinstance(iv, OrthogonalInducingVariables):
        return prior_factors(layer)
    if isinstance(iv, NeighborInducingPoints):
        return [closest_scales(layer)]
    return [np.eye(iv.basis.num_basis)[None].repeat(layer.num_latent_gps, axis=0)]


def parameters(
    values: Sequence[Any], shapes: Sequence[tuple[int, ...]], name: str, transform: Any = None
) -> tuple[Parameter, ...]:
    """
    One parameter per set.

    :raises ValueError: for another number of values, or other shapes.
    """
    if not isinstance(values, Sequence) or len(values) != len(shapes):
        found = len(values) if isinstance(values, Sequence) else type(values).__name__
        raise ValueError(
            f"{name} must be a tuple with one entry per set, {len(shapes)}; got {found}."
        )
    made = []
    for i, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        tensor = checks.as_tensor(value, f"{name}[{i}]")
        checks.require_range(tensor, f"{name}[{i}]")
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name}[{i}] must have shape {shape}, got {tuple(tensor.shape)}.")
        own = transform() if transform is not None else None
        made.append(Parameter(tensor, transform=own, dtype=gpflow.default_float()))
    return tuple(made)
