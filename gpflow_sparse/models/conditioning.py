"""New rows for a variational model, by its old posterior in the place of the prior.

With Z and the hyperparameters of the old model the bound of Bui, Nguyen and Turner, "Streaming
Sparse Gaussian Process Approximations" (2017, arXiv:1705.07131), eq. (5), is

    sum over new rows of E_q[log p(y | f)]  -  KL[q(u) || q_old(u)].

For ``q_old(u) = N(m, R R^T)`` and ``u = m + R w`` this is the ordinary bound of weights with prior
``w ~ N(0, I)`` and the features ``B = R^T A``, so that for Gaussian noise the optimum is the one of
:mod:`gpflow_sparse.inference.collapsed`. For another likelihood each row is replaced by a Gaussian
site, and steps of natural gradients move the sites to the optimum, see
:mod:`gpflow_sparse.inference.gaussian_sites`; for Gaussian noise the first step leads to it.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.inference import collapsed
from gpflow_sparse.inference.blocks import Block, kl_from_standard_normal, marginals
from gpflow_sparse.inference.gaussian_sites import Limits, Sites, converge, prior_sites, propose
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.multioutput import MultioutputPosterior, mixed

# Steps of natural gradients at most, until means of f change by less than this part of their
# standard deviations; variances of f below the last are zero.
_MAX_STEPS, _TOLERANCE, _LEAST_VARIANCE = 200, 1e-7, 1e-30


class OldPosterior(NamedTuple):
    """``f = mean + B^T w + r`` at the new rows under q_old, of the L functions of one kernel."""

    mean: tf.Tensor
    """``[n, L]``, prior mean excluded."""
    variance: tf.Tensor
    """``[n, L]``"""
    residual: tf.Tensor
    """Variance of r, ``[n]``."""
    features: Sequence[Any]
    """B ``[M, n]`` of each function, of any class that the solver takes."""


class Weights(NamedTuple):
    """q of the weights w of one function, and what it says of f at the new rows."""

    mean: Any
    """One ``[M_b]`` per set of independent weights."""
    factor: Any
    """One lower triangular ``[M_b, M_b]`` per set."""
    change: tf.Tensor
    """``B^T E[w] [n]``."""
    spread: tf.Tensor
    """Variance of ``B^T w``, ``[n]``."""
    kl: tf.Tensor
    """``KL[q(w) || N(0, I)]``."""


Solver = Callable[[Any, tf.Tensor, tf.Tensor], Weights]


class _Found(NamedTuple):
    """The first four fields of a :class:`~gpflow_sparse.inference.gaussian_sites.Pass`."""

    bound: tf.Tensor
    proposed: Sites
    mean: tf.Tensor
    var: tf.Tensor
    weights: list[Weights]


def update(
    model: Any, data: tuple[tf.Tensor, tf.Tensor], parts: Sequence[OldPosterior], solve: Solver
) -> list[Weights]:
    """
    The best q of the weights of each latent function given new rows.

    Some passes over the features, which are kept: O(n M) numbers.

    :param model: whose likelihood, mean function and kernel, if it mixes functions, are used.
    :param data: ``(X [n, D], Y [n, P])``.
    :param parts: one for each latent kernel.
    :param solve: the best weights for given features, precisions ``[n]`` of Gaussian sites and
        their linear terms ``[n]``, about ``B^T w``.
    """
    X, Y = data
    prior_mean = model.mean_function(X)
    features = [B for part in parts for B in part.features]
    widths = [len(part.features) for part in parts]
    old_mean = tf.concat([tf.cast(part.mean, tf.float64) for part in parts], axis=1)  # [n, L]
    residual = tf.concat(
        [tf.repeat(tf.cast(p.residual, tf.float64)[:, None], len(p.features), 1) for p in parts], 1
    )

    def expected(mean: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        pairs = zip(*(tf.split(tf.cast(t, X.dtype), widths, 1) for t in (mean, var)), strict=True)
        Fmu, Fvar = mixed(model.kernel, list(pairs), False, False)
        each = model.likelihood.variational_expectations(X, Fmu + prior_mean, Fvar, Y)
        return tf.cast(tf.reduce_sum(each), mean.dtype)

    def evaluate(sites: Sites) -> _Found:
        linear = sites.linear - sites.precision * old_mean
        found = [solve(B, sites.precision[:, l], linear[:, l]) for l, B in enumerate(features)]
        mean = old_mean + tf.stack([w.change for w in found], axis=1)
        var = residual + tf.stack([w.spread for w in found], axis=1)
        var = tf.maximum(var, _LEAST_VARIANCE)
        value, proposed = propose(expected, sites, mean, var, start.precision)
        return _Found(value - tf.add_n([w.kl for w in found]), proposed, mean, var, found)

    variance = tf.concat([tf.cast(part.variance, tf.float64) for part in parts], axis=1)
    variance = tf.maximum(tf.reduce_max(variance, axis=1), _LEAST_VARIANCE)
    start = prior_sites(variance, len(features))
    limits = Limits(_TOLERANCE, _MAX_STEPS, X.dtype)
    _, best, converged = converge(evaluate, start, evaluate(start), limits)
    if not np.isfinite(float(best.bound)):
        raise ValueError(
            f"the bound of {type(model).__name__} is not finite at the new rows: check Y, or train "
            "the model on all rows by gs.training.fit."
        )
    if not converged:
        warnings.warn(
            "q of the new rows has not converged; it is better for them than the old q.",
            stacklevel=2,
        )
    return best.weights


def condition_blocks(
    model: Any, data: tuple[tf.Tensor, tf.Tensor], q_sqrt: Sequence[tf.Tensor]
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """
    Changes of the means ``[M_b, L]`` and new factors ``[L, M_b, M_b]`` of q, set by set, for a
    model with a :class:`~gpflow_sparse.posteriors.base.BlockPosterior`.

    :param q_sqrt: factors ``[L, M_b, M_b]`` in the model's own parametrization, whitened or not.
    """
    posterior = model.posterior(None)
    several = isinstance(posterior, MultioutputPosterior)
    parts = []
    for part in posterior._parts() if several else [posterior]:
        blocks = part.blocks(None, data[0])
        moments = marginals(part._prior_variances(data[0], blocks), blocks)
        features = [_features(blocks, l) for l in range(moments[0].shape[1])]
        parts.append(OldPosterior(*moments, features))
    sizes = [int(R.shape[-1]) for R in q_sqrt]
    found = update(model, data, parts, dense_solver(sizes))
    changes = []
    for b, R in enumerate(q_sqrt):
        mean = tf.stack([tf.cast(w.mean[b], R.dtype) for w in found])[:, :, None]  # [L, M_b, 1]
        factor = tf.stack([tf.cast(w.factor[b], R.dtype) for w in found])
        change = tf.transpose(tf.linalg.matmul(R, mean)[:, :, 0])
        changes.append((change, tf.linalg.band_part(tf.linalg.matmul(R, factor), -1, 0)))
    return changes


def dense_solver(sizes: Sequence[int]) -> Solver:
    """The solver for sets of independent weights with these sizes; O(n M^2 + M^3)."""

    def solve(B: tf.Tensor, precision: tf.Tensor, linear: tf.Tensor) -> Weights:
        root = tf.sqrt(precision)
        sums = collapsed.row_sums(B * root, (linear / root)[:, None], tf.zeros_like(root))
        means, factors = collapsed.optimal_q(sums, tf.ones([], tf.float64), sizes)
        spread, kl = tf.zeros_like(root), tf.zeros([], tf.float64)
        for m, R, part in zip(means, factors, tf.split(B, list(sizes), axis=0), strict=True):
            spread += tf.reduce_sum(tf.square(linalg.lower_matmul(R, part, adjoint=True)), axis=0)
            kl += kl_from_standard_normal(m, R[None])
        change = tf.linalg.matvec(B, tf.concat(means, axis=0)[:, 0], transpose_a=True)
        return Weights([m[:, 0] for m in means], factors, change, spread, kl)

    return solve


def _features(blocks: Sequence[Block], latent: int) -> tf.Tensor:
    """``R^T A [M, n]`` of all sets for one latent function, in float64."""
    factors = [tf.convert_to_tensor(block.q_sqrt)[latent] for block in blocks]
    parts = [
        linalg.lower_matmul(R, block.A, adjoint=True)
        for R, block in zip(factors, blocks, strict=True)
    ]
    return tf.cast(tf.concat(parts, axis=0), tf.float64)
