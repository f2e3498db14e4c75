"""SWSGP-U, ``SWSGP(union=m)``: all rows of a batch are conditioned on the same m points."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.inference.neighborhoods import GaussianRows, JointConditional, NeighborPrior
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks


def require_union(union: Any, kl_weighting: str, inducing_variable: NeighborInducingPoints) -> None:
    """:raises ValueError: for a number of points that cannot be, and another ``kl_weighting``."""
    if union is None:
        return
    most, least = inducing_variable.Z.shape[0], len(inducing_variable.global_indices)
    if not least < checks.require_count(union, "union") <= most:
        raise ValueError(f"union must be from {least + 1} to M = {most}, got {union}.")
    if kl_weighting != "counts":
        raise ValueError(
            f"kl_weighting={kl_weighting!r} has no meaning with union={union}: there is one KL, of "
            "the active points. Leave kl_weighting out."
        )


def active_sets(model: Any, X: tf.Tensor) -> Sequence[Sequence[tf.Tensor]]:
    """The active points ``[m]`` of the rows ``X [n, D]``, for each latent kernel."""
    return [[model.points.ranked(X, kernel, model.union)] for kernel, _ in model._latents]


def union_terms(prior: NeighborPrior, X: tf.Tensor, active: tf.Tensor, q: GaussianRows) -> Terms:
    """
    Terms of the latent functions with one kernel at ``X [n, D]``, prior mean excluded.

    :param active: ``[m]``.
    :param q: q of these points.
    """
    joint = prior.joint(X, active, q)
    diagonal = prior.kernel(X, full_cov=False)
    residual = tf.maximum(diagonal - tf.reduce_sum(tf.square(joint.A), axis=0), 0.0)  # [n]
    spread = [tf.reduce_sum(tf.square(half), axis=1) for half in joint.halves()]  # [P, n] each
    variance = residual[:, None] + tf.transpose(tf.add_n(spread))
    mean = joint.mean()
    return Terms(mean, variance, _kl(joint), residual[:, None] + tf.zeros_like(mean))


def _kl(joint: JointConditional) -> tf.Tensor:
    """``KL[q(u_A) || p(u_A)]`` summed over outputs."""
    parts = (None if part is None else part[None] for part in joint.q)
    S, half_log_det = GaussianRows(*parts).covariances()
    mean = linalg.solve_triangular(joint.L, joint.q.mean)
    eye = tf.eye(tf.shape(joint.L)[0], dtype=joint.L.dtype)
    inverse = tf.linalg.cholesky_solve(joint.L, eye)
    if S.shape.rank == 3:
        trace = tf.reduce_sum(tf.linalg.diag_part(inverse)[:, None] * S[0])
    else:
        trace = tf.reduce_sum(inverse * S[0])
    num_outputs, size = (tf.cast(n, mean.dtype) for n in (tf.shape(mean)[1], tf.size(mean)))
    log_det = num_outputs * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(joint.L)))
    return 0.5 * (trace + tf.reduce_sum(tf.square(mean)) - size) + log_det - half_log_det[0]
