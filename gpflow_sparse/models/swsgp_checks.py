"""Checks of the options and components of SWSGP."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization, MultioutputKernel
from gpflow.likelihoods import Gaussian

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.posteriors import latent_kernels
from gpflow_sparse.validation import checks, component_checks


def require_inducing(value: Any) -> NeighborInducingPoints:
    """:raises ValueError: for anything else."""
    if not isinstance(value, NeighborInducingPoints):
        raise ValueError(
            "inducing_variable must be gs.inducing_variables.NeighborInducingPoints(Z, "
            f"num_neighbors), got {type(value).__name__}."
        )
    return value


def require_objective(
    covariance: Any, kl_weighting: Any, union: Any, inducing_variable: NeighborInducingPoints
) -> None:
    """:raises ValueError: for unknown options, and those that do not go together."""
    checks.require_choice(covariance, "covariance", ("diag", "dense", "low_rank"))
    checks.require_choice(kl_weighting, "kl_weighting", ("usage", "paper", "chain"))
    if covariance == "low_rank" and kl_weighting == "chain":
        raise ValueError(
            "kl_weighting must be 'usage' or 'paper' with covariance='low_rank': log |S| of all "
            "inducing variables is no sum over them, which 'chain' needs."
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
    latents = getattr(model.kernel, "num_latent_gps", L)
    if isinstance(model.kernel, MultioutputKernel) and latents != L:
        raise ValueError(
            f"kernel ({type(model.kernel).__name__}) has {latents} latent functions, but the model "
            f"num_latent_gps={L}; make a new model."
        )
    shapes: dict[str, tuple[int | None, ...]] = {
        "q_mu": (M, L),
        "usage": (M, len(latent_kernels(model.kernel, L))),
    }
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


def require_fixed_chain(model: Any, data: Any) -> None:
    """:raises ValueError: if the objective of these data draws terms of its KL in every call."""
    if model.kl_weighting != "chain" or model.union is not None:
        return
    M = model.q_mu.shape[0]
    if not isinstance(data, Iterator):
        num_rows = model._require_data(data)[0].shape[0]
        if num_rows is not None and num_rows >= M:
            return
    raise ValueError(
        f"kl_weighting='chain' draws its terms in every call from fewer than {M} rows, one for "
        "each inducing point, which an optimizer that compares values cannot use: take "
        "gs.training.fit, or all rows at once."
    )


def require_natural(model: Any, gamma: Any) -> None:
    """:raises ValueError: for models without natural steps, and other step sizes."""
    if model.covariance != "diag" or model.kl_weighting == "chain" or model.union is not None:
        raise ValueError(
            "natural_step needs covariance='diag', kl_weighting 'usage' or 'paper' and union=None; "
            f"got {model.covariance!r}, {model.kl_weighting!r} and {model.union}."
        )
    number = isinstance(gamma, int | float | np.number) and not isinstance(gamma, bool)
    if not (number and 0.0 < gamma <= 1.0):
        raise ValueError(f"gamma must be above 0 and at most 1, got {gamma!r}.")


def require_conjugate(model: Any) -> None:
    """:raises ValueError: for models whose optimal q has no closed form."""
    if not isinstance(model.likelihood, Gaussian) or model.likelihood.variance is None:
        raise ValueError(
            "update_posterior needs a Gaussian likelihood with a constant variance, got "
            f"{type(model.likelihood).__name__}: train by gs.training.fit, or take natural_step."
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise ValueError(
            "update_posterior needs outputs that are latent functions; LinearCoregionalization "
            "mixes them. Take natural_step."
        )
    if model.union is not None or model.covariance != "diag":
        raise ValueError(
            "update_posterior needs covariance='diag' and union=None, got "
            f"{model.covariance!r} and {model.union}."
        )
