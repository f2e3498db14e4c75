r"""Bounds that let q shrink the residual process, by a closed form of its covariance.

``f = g + r`` with the residual process r of the prior given the inducing variables, ``r(X) ~ N(0,
D)`` at the data, ``D = Kff - Qff``. The usual ELBO keeps ``q(r) = p(r)``. With ``q(r(X)) = N(0,
D^1/2 V D^1/2)`` and Gaussian noise of variance s2 the best block-diagonal V, ``(I + D_bb /
s2)^-1``, replaces the trace term of every block b of rows,

    - tr(D_bb) / (2 s2)    by    - log |I + D_bb / s2| / 2:

"log" of SOLVEGP and SOLVEGPR has one row in each block, "block" of SOLVEGPR neighboring rows
(``models/solvegp/residual_blocks.py``). ``docs/bounds.md`` has the derivation. Titsias, "New bounds
for sparse variational Gaussian processes" (2025, arXiv:2502.08730); Bui, Ashman and Turner,
"Tighter sparse variational Gaussian processes" (2025, arXiv:2502.04750).
"""

from typing import NamedTuple

import tensorflow as tf


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
    """Variances of the residual process ``[n, P]``, for SOLVEGP; else None."""


def log_gain(ratio: tf.Tensor) -> tf.Tensor:
    """
    ``(x - log(1 + x)) / 2`` for each ``x = d / s2``, at least zero: by how much "log" exceeds the
    standard bound.
    """
    return 0.5 * (ratio - tf.math.log1p(ratio))
