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
from gpflow_sparse.inference.neighborhoods import NeighborPrior
from gpflow_sparse.posteriors import OrthogonalPosterior, latent_kernels
from gpflow_sparse.posteriors.neighbor import independent_scales
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
        with component_checks.explain_failures(owner):
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


def neighbor_q(
    model: Any, covariance: str, rank: int, q_mu: Any, q_sqrt: Any
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """
    q of SWSGP: means ``[M, L]``, standard deviations ``[M, L]`` or None, factors ``[M, L, .]`` or
    None.

    :param q_sqrt: as of a posterior; None for the prior if ``covariance`` can express it, else the
        closest diagonal, from the neighbors of each point.
    :raises ValueError: for values of a wrong shape.
    """
    M, L = model.inducing_variable.Z.shape[0], model.num_latent_gps
    dtype = gpflow.default_float()
    mean = np.zeros((M, L)) if q_mu is None else _array(q_mu, (M, L), "q_mu")
    if covariance == "dense":
        shape = (L, M, M)
        sqrt = _dense_prior_factors(model) if q_sqrt is None else _array(q_sqrt, shape, "q_sqrt")
        rows = np.ascontiguousarray(np.swapaxes(np.tril(sqrt), 0, 1))
        return mean.astype(dtype), None, rows.astype(dtype)
    factors = None
    if covariance == "low_rank":
        checks.require_count(rank, "rank")
        # small random values, so that columns have different gradients
        factors = 1e-3 * np.random.default_rng(0).normal(size=(M, L, rank))
        if q_sqrt is not None:
            q_sqrt, given = _require_pair(q_sqrt)
            factors = np.swapaxes(_array(given, (L, M, rank), "q_sqrt[1]"), 0, 1)
        factors = factors.astype(dtype)
    own = q_sqrt is not None
    scales = _array(q_sqrt, (M, L), "q_sqrt") if own else closest_scales(model)
    if not (scales > 0.0).all() or not np.square(scales).all():
        raise ValueError("q_sqrt must be positive standard deviations with this covariance.")
    return mean.astype(dtype), scales.astype(dtype), factors


def closest_scales(owner: Any) -> np.ndarray:
    """
    Standard deviations ``[M, L]`` of the independent u_j that are closest to the prior in
    ``KL[q || p]``; see :func:`gpflow_sparse.posteriors.neighbor.independent_scales`.

    :param owner: a model or a layer over points with neighbors.
    """
    iv = owner.inducing_variable
    return np.concatenate(
        [
            np.tile(
                independent_scales(iv, NeighborPrior(kernel, iv.Z, owner.jitter))[:, None],
                columns.stop - columns.start,
            )
            for kernel, columns in latent_kernels(owner.kernel, owner.num_latent_gps)
        ],
        axis=1,
    )


def _dense_prior_factors(model: Any) -> np.ndarray:
    """Factors ``[L, M, M]`` of the prior covariance of points with neighbors, O(M^3)."""
    factors, Z = [], model.inducing_variable.Z
    for kernel, columns in latent_kernels(model.kernel, model.num_latent_gps):
        prior = NeighborPrior(kernel, Z, model.jitter)
        factors += [prior.factor(prior.Z).numpy()] * (columns.stop - columns.start)
    return np.stack(factors)


def _require_pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(
            "q_sqrt must be a pair (standard deviations [M, L], factors [L, M, rank]) with "
            f"covariance='low_rank', got {type(value).__name__}."
        )
    return value[0], value[1]


def _array(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    tensor = checks.as_tensor(value, name)
    checks.require_range(tensor, name)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}.")
    return tensor.numpy()
