r"""Bounds that let q shrink the residual process, by a closed form of its covariance.

``f = g + r`` with the residual process r of the prior given the inducing variables, ``r(X) ~ N(0,
D)`` at the data, ``D = Kff - Qff``. The usual ELBO keeps ``q(r) = p(r)``. With ``q(r(X)) = N(0,
D^1/2 V D^1/2)`` and Gaussian noise of variance s2 the best block-diagonal V, ``(I + D_bb /
s2)^-1``, replaces the trace term of every block b of rows,

    - tr(D_bb) / (2 s2)    by    - log |I + D_bb / s2| / 2:

"log" has one row in each block; "block" of SOLVEGPR (``models/solvegp/residual_blocks.py``) has
neighboring rows. ``docs/bounds.md`` has the derivation and says for which models these are lower
bounds. Titsias, "New bounds for sparse variational Gaussian processes" (2025, arXiv:2502.08730);
Bui, Ashman and Turner, "Tighter sparse variational Gaussian processes" (2025, arXiv:2502.04750).
"""

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.likelihoods import Likelihood

BOUNDS = ("standard", "log")


class Terms(NamedTuple):
    """Terms of an ELBO, from a posterior at the rows of a batch."""

    mean: tf.Tensor
    """``[n, P]``, mean function included."""
    variance: tf.Tensor
    """``[n, P]``, with the residual process at its prior."""
    kl: tf.Tensor
    """
    What is subtracted for q, a scalar: the KL divergence of the inducing variables to their prior;
    for SWSGP its weighted KL terms.
    """
    residual: tf.Tensor | None = None
    """Variances of the residual process ``[n, P]``; None for a posterior that has no such."""


def sum_over_rows(
    likelihood: Likelihood,
    data: tuple[tf.Tensor, tf.Tensor],
    terms: Terms,
    *,
    scale: Any = None,
    num_latent_gps: int = 1,
) -> tf.Tensor:
    """
    ``sum_n E_q[log p(y_n | f_n)] - KL[q(r) || p(r)]`` of the bound "log", a scalar in nats.

    :param data: ``(X [n, D], Y [n, P])``.
    :param scale: v, for other than Gaussian noise: ``q(r) = N(0, v D)``, one v for all
        rows, since the KL is then n times a function of v whatever D is.
    :param num_latent_gps: number of independent residual processes, for ``scale``.
    """
    (X, Y), (mean, var, _, residual) = data, terms
    if scale is not None:
        v = tf.convert_to_tensor(scale)
        expectations = likelihood.variational_expectations(X, mean, var - (1.0 - v) * residual, Y)
        count = tf.cast(tf.shape(X)[0] * num_latent_gps, v.dtype)
        return tf.reduce_sum(expectations) - 0.5 * count * (v - 1.0 - tf.math.log(v))
    total = tf.reduce_sum(likelihood.variational_expectations(X, mean, var, Y))
    noise = likelihood.conditional_variance(X, mean)  # [n, P]
    return total + tf.reduce_sum(log_gain(residual / noise))


def log_gain(ratio: tf.Tensor) -> tf.Tensor:
    """
    ``(x - log(1 + x)) / 2`` for each ``x = d / s2``, at least zero: by how much "log" exceeds the
    standard bound.
    """
    return 0.5 * (ratio - tf.math.log1p(ratio))
