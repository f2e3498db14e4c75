"""Checks of the options and of the components of SWSGP, which can be assigned at any time."""

from typing import Any

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models.base import require_shape
from gpflow_sparse.models.swsgp.union import require_union
from gpflow_sparse.validation import checks, component_checks


def require_objective(
    covariance: Any, kl_weighting: Any, union: Any, inducing_variable: NeighborInducingPoints
) -> None:
    """:raises ValueError: for unknown options, and those that do not go together."""
    checks.require_choice(covariance, "covariance", ("diag", "dense"))
    checks.require_choice(kl_weighting, "kl_weighting", ("counts", "paper", "chain"))
    require_union(union, kl_weighting, inducing_variable)


def require_points(inducing_variable: Any) -> NeighborInducingPoints:
    """:raises ValueError: for anything else than points with neighbors."""
    wanted = "gs.inducing_variables.NeighborInducingPoints(Z, num_neighbors)"
    return component_checks.require_kind(
        inducing_variable, NeighborInducingPoints, "inducing_variable", wanted
    )


def require_components(model: Any) -> None:
    """Refuse components that do not fit each other; they can be assigned."""
    iv = model.points
    component_checks.require_dtype(iv, "inducing_variable", model.dtype)
    M, L = int(iv.Z.shape[0]), model.num_latent_gps
    iv.validate_neighbors()
    require_objective(model.covariance, model.kl_weighting, model.union, iv)
    require_shape(model.q_mu, "q_mu", (M, L))
    require_shape(model.usage, "usage", (M, len(model._latents)))
    if model.covariance == "diag":
        require_shape(model.q_log_scale, "q_log_scale", (M, L))
    else:
        require_shape(model.q_factor, "q_factor", (M, L, M))
