"""Initial values of ``q_mu`` and ``q_sqrt`` of models and layers."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter

from gpflow_sparse.inducing_variables import BasisFeatures, NeighborInducingPoints
from gpflow_sparse.inference.neighborhoods import NeighborPrior
from gpflow_sparse.posteriors import OrthogonalPosterior, latent_kernels
from gpflow_sparse.posteriors.neighbor import independent_scales
from gpflow_sparse.validation import checks, component_checks


def parameter(value: Any, shape: tuple[int, ...], name: str, transform: Any = None) -> Parameter:
    """:raises ValueError: for another shape."""
    tensor = _shaped(value, shape, name)
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


def prior_factors(owner: Any) -> list[Any]:
    """
    Factors with which q is the prior, one ``[L, M_b, M_b]`` per set: the identity, or Luu, Lvv, ...
    if un-whitened. For points with neighbors standard deviations, of :func:`closest_scales`.

    :param owner: a model or a layer.
    """
    iv, L = owner.inducing_variable, owner.num_latent_gps
    if isinstance(iv, NeighborInducingPoints):
        pairs = latent_kernels(owner.kernel, L)
        return [closest_scales(iv, [(NeighborPrior(k, iv.Z, owner.jitter), of) for k, of in pairs])]
    if isinstance(iv, BasisFeatures) or owner.whiten:
        sizes = (iv.basis.num_basis,) if isinstance(iv, BasisFeatures) else iv.sizes
        return [np.eye(size)[None].repeat(L, axis=0) for size in sizes]
    factors = []
    for kernel, columns in latent_kernels(owner.kernel, L):
        nothing = [None] * len(iv.sizes)
        posterior = OrthogonalPosterior(kernel, iv, nothing, nothing, jitter=owner.jitter)
        with component_checks.explain_failures(owner):
            blocks = posterior.prior_factors()
        factors.append([tf.repeat(R[None], columns.stop - columns.start, 0) for R in blocks])
    return [tf.concat(per_set, axis=0) for per_set in zip(*factors, strict=True)]


def closest_scales(
    points: NeighborInducingPoints, priors: Sequence[tuple[NeighborPrior, slice]]
) -> np.ndarray:
    """
    Standard deviations ``[M, L]`` of the independent u_j that are closest to the prior in
    ``KL[q || p]``; see :func:`gpflow_sparse.posteriors.neighbor.independent_scales`.

    :param priors: the prior of each latent kernel, and the latent functions that have it.
    """
    found = []
    for prior, columns in priors:
        found += [independent_scales(points, prior)] * (columns.stop - columns.start)
    return np.stack(found, axis=1)


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
    M, L = model.points.Z.shape[0], model.num_latent_gps
    dtype = gpflow.default_float()
    factors: np.ndarray | None = None
    mean = np.zeros((M, L), dtype) if q_mu is None else _shaped(q_mu, (M, L), "q_mu").numpy()
    if covariance == "dense":
        if q_sqrt is None:
            sqrt = _dense_prior_factors(model)
        else:
            sqrt = _shaped(q_sqrt, (L, M, M), "q_sqrt").numpy()
        rows = np.ascontiguousarray(np.swapaxes(np.tril(sqrt), 0, 1))
        return mean, None, rows.astype(dtype)
    if covariance == "low_rank":
        checks.require_count(rank, "rank")
        # small random values, so that columns have different gradients
        factors = (1e-3 * np.random.default_rng(0).normal(size=(M, L, rank))).astype(dtype)
        if q_sqrt is not None:
            q_sqrt, given = _require_pair(q_sqrt)
            factors = np.swapaxes(_shaped(given, (L, M, rank), "q_sqrt[1]").numpy(), 0, 1)
    scales: np.ndarray = (
        closest_scales(model.points, model.priors_of_passes).astype(dtype)
        if q_sqrt is None
        else _shaped(q_sqrt, (M, L), "q_sqrt").numpy()
    )
    if not (scales > 0.0).all() or not np.square(scales).all():
        raise ValueError("q_sqrt must be positive standard deviations with this covariance.")
    return mean, scales, factors


def _dense_prior_factors(model: Any) -> np.ndarray:
    """Factors ``[L, M, M]`` of the prior covariance of points with neighbors, O(M^3)."""
    factors: list[np.ndarray] = []
    for prior, columns in model.priors:
        factors += [prior.factor(prior.Z).numpy()] * (columns.stop - columns.start)
    return np.stack(factors)


def _require_pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(
            "q_sqrt must be a pair (standard deviations [M, L], factors [L, M, rank]) with "
            f"covariance='low_rank', got {type(value).__name__}."
        )
    return value[0], value[1]


def layer_sizes(num_inducing: Any, num_orthogonal: Any, count: int) -> list[tuple[int, ...]]:
    """
    Sizes of the inducing sets of every layer, first to last.

    :param num_inducing: M of every layer, or one number for each.
    :param num_orthogonal: M2, likewise; 0 for none.
    :param count: number of layers.
    :raises ValueError: for other numbers.
    """
    given = {"num_inducing": num_inducing, "num_orthogonal": num_orthogonal}
    columns = []
    for name, value in given.items():
        several = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim)
        numbers = list(value) if several else [value] * count
        least = 1 if name == "num_inducing" else 0
        if len(numbers) != count or min(checks.require_whole(n, name) for n in numbers) < least:
            raise ValueError(
                f"{name} must be a number of at least {least}, or one for each of {count} "
                f"layer(s); got {value!r}."
            )
        columns.append(numbers)
    return [(M, M2) if M2 else (M,) for M, M2 in zip(*columns, strict=True)]


def _shaped(value: Any, shape: tuple[int, ...], name: str) -> tf.Tensor:
    tensor = checks.as_tensor(value, name)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}.")
    return tensor
