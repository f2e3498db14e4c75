"""Initial values of q(u) of points with neighbors."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.inference.neighborhoods import NeighborPrior
from gpflow_sparse.models.starting import shaped
from gpflow_sparse.models.swsgp.posterior import independent_scales


def closest_scales(
    points: NeighborInducingPoints, priors: Sequence[tuple[NeighborPrior, slice]]
) -> np.ndarray:
    """
    Standard deviations ``[M, L]`` of the independent u_j that are closest to the prior in
    ``KL[q || p]``; see :func:`~gpflow_sparse.models.swsgp.posterior.independent_scales`.

    :param priors: the prior of each latent kernel, and the latent functions that have it.
    """
    found = []
    for prior, columns in priors:
        found += [independent_scales(points, prior)] * (columns.stop - columns.start)
    return np.stack(found, axis=1)


def neighbor_q(
    model: Any, covariance: str, q_mu: Any, q_sqrt: Any
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """
    q of SWSGP: means ``[M, L]``, and standard deviations ``[M, L]`` and factors ``[M, L, .]`` or
    None.

    :param q_sqrt: as in a posterior; None for the prior if ``covariance`` can express it, else the
        closest diagonal, from the neighbors of each point.
    :raises ValueError: for values of a wrong shape.
    """
    M, L = model.points.Z.shape[0], model.num_latent_gps
    dtype = gpflow.default_float()
    mean = np.zeros((M, L), dtype) if q_mu is None else shaped(q_mu, (M, L), "q_mu").numpy()
    if covariance == "dense":
        if q_sqrt is None:
            sqrt = _dense_prior_factors(model)
        else:
            sqrt = shaped(q_sqrt, (L, M, M), "q_sqrt").numpy()
        rows = np.ascontiguousarray(np.swapaxes(np.tril(sqrt), 0, 1))
        return mean, None, rows.astype(dtype)
    scales: np.ndarray = (
        closest_scales(model.points, model.priors).astype(dtype)
        if q_sqrt is None
        else shaped(q_sqrt, (M, L), "q_sqrt").numpy()
    )
    if not (scales > 0.0).all() or not np.square(scales).all():
        raise ValueError("q_sqrt must be positive standard deviations with this covariance.")
    return mean, scales, None


def _dense_prior_factors(model: Any) -> np.ndarray:
    """Factors ``[L, M, M]`` of the prior covariance of points with neighbors, O(M^3)."""
    factors: list[np.ndarray] = []
    for prior, columns in model.priors:
        factors += [prior.factor(prior.Z).numpy()] * (columns.stop - columns.start)
    return np.stack(factors)
