"""Checks of the options and components of SWSGP."""

from typing import Any

import tensorflow as tf
from gpflow.kernels import MultioutputKernel

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.posteriors import latent_kernels
from gpflow_sparse.validation import checks, component_checks


def require_inducing(value: Any) -> NeighborInducingPoints:
    """:raises ValueError: for anything else."""
    wanted = "gs.inducing_variables.NeighborInducingPoints(Z, num_neighbors)"
    return component_checks.require_kind(value, NeighborInducingPoints, "inducing_variable", wanted)


def require_objective(
    covariance: Any, kl_weighting: Any, union: Any, inducing_variable: NeighborInducingPoints
) -> None:
    """:raises ValueError: for unknown options, and those that do not go together."""
    checks.require_choice(covariance, "covariance", ("diag", "dense", "low_rank"))
    checks.require_choice(kl_weighting, "kl_weighting", ("usage", "paper", "chain"))
    if covariance == "low_rank" and kl_weighting == "chain":
        raise ValueError(
            "kl_weighting must be 'usage' or 'paper' with covariance='low_rank': 'chain' needs "
            "log |S| of all inducing variables as a sum over them."
        )
    if union is None:
        return
    num_inducing = inducing_variable.Z.shape[0]
    if checks.require_count(union, "union") > num_inducing:
        raise ValueError(
            f"union must be from 1 to {num_inducing}, the number of inducing points, got {union}."
        )
    if union <= len(inducing_variable.global_indices):
        raise ValueError(
            f"union must be more than the {len(inducing_variable.global_indices)} global points, "
            f"got {union}."
        )
    if kl_weighting != "usage":
        raise ValueError(
            f"kl_weighting={kl_weighting!r} has no meaning with union={union}: there is one KL, of "
            "the active points. Leave kl_weighting out."
        )


def require_components(model: Any) -> None:
    """
    Refuse components that do not fit each other; they can be assigned.

    :raises ValueError: naming the component.
    """
    iv = require_inducing(model.inducing_variable)
    component_checks.require_dtype(iv, "inducing_variable", model.dtype)
    component_checks.require_jitter(model.jitter)
    M, L = int(iv.Z.shape[0]), model.num_latent_gps
    iv.require_sound()
    require_objective(model.covariance, model.kl_weighting, model.union, iv)
    num_kernels = 1
    if isinstance(model.kernel, MultioutputKernel):
        num_kernels = len(latent_kernels(model.kernel))
        if model.kernel.num_latent_gps != L:
            raise ValueError(
                f"kernel ({type(model.kernel).__name__}) has {model.kernel.num_latent_gps} latent "
                f"functions, but the model num_latent_gps={L}; make a new model."
            )
    shapes: dict[str, tuple[int | None, ...]] = {"q_mu": (M, L), "usage": (M, num_kernels)}
    if model.covariance != "dense":
        shapes["q_log_scale"] = (M, L)
    if model.covariance != "diag":
        columns = M if model.covariance == "dense" else None
        shapes["q_factor"] = (M, L, columns)
    for name, shape in shapes.items():
        found = getattr(getattr(model, name), "shape", None)
        if found is None or not tf.TensorShape(shape).is_compatible_with(found):
            found = None if found is None else tuple(found)
            raise ValueError(f"{name} must have shape {shape}, got {found}.")
