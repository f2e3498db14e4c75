"""Gaussian processes with one Gaussian site in place of every factor of a likelihood.

With prior ``f ~ N(mu, K)`` at N rows and sites ``exp(b_n f_n - lambda_n f_n^2 / 2)``,

    q(f) = N(m, V),    V = (K^-1 + Lambda)^-1,    K^-1 (m - mu) = alpha = b - Lambda m,

independently for each of P latent functions. K is never inverted: with ``S = Lambda^1/2`` and ``B =
I + S K S = L L^T``, whose eigenvalues are all at least 1,

    alpha = c - S B^-1 S K c,    c = b - Lambda mu,
    V     = K - K S B^-1 S K.

The bound ``sum_n E_q[log p(y_n | f_n)] - KL[q || p]`` is largest where ``lambda_n = -2 dE_n /
dV_nn`` and ``alpha_n = dE_n / dm_n`` (Opper and Archambeau, "The Variational Gaussian Approximation
Revisited", 2009). A step of natural gradients of length r moves the sites by the fraction r to
these values at the present q (Khan and Lin, "Conjugate-Computation Variational Inference", 2017,
arXiv:1703.04265). Here precisions move in their logarithms, each row by a fraction of its own: a
precision that grows fast with the variance that it determines would else jump back and forth.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.tracing import compiled

# Least precision of a site, relative to the prior precision 1 / K_nn: variances, which are computed
# as (1 - [B^-1]_nn) / lambda_n, then have relative errors of 1e-8 or less.
_LEAST_PRECISION = 1e-7
# Shortest step; largest decrease of the bound that counts as rounding, relative to it, and change
# of means below which sites can converge, by the float type of the likelihood.
_SHORTEST = 1e-3
_ROUNDING = {tf.float64: 1e-10, tf.float32: 1e-5}
_LEAST_CHANGE = {tf.float64: 1e-9, tf.float32: 1e-4}
# Change below which sites have converged too if changes do not fall any more: rounding, where
# precisions are large.
_STALLED = {tf.float64: 1e-6, tf.float32: 1e-3}
# Relative change of variances whose effect on the precisions is a difference.
_CHANGE = 0.01


class Sites(NamedTuple):
    """One Gaussian factor for each row and latent function."""

    precision: tf.Tensor
    """lambda ``[N, P]``, positive."""
    linear: tf.Tensor
    """b ``[N, P]``."""


class Conditioned(NamedTuple):
    """A prior conditioned on sites: all that predictions need."""

    alpha: tf.Tensor
    """``K^-1 (m - mu) [N, P]``."""
    root: tf.Tensor
    """Diagonals of S, ``[P, N]``."""
    L: tf.Tensor
    """Lower factors of ``I + S K S``, ``[P, N, N]``."""


class Pass(NamedTuple):
    """The bound at some sites, and the sites to which a step leads."""

    bound: tf.Tensor
    """A scalar, in nats."""
    proposed: Sites
    mean: tf.Tensor
    """m ``[N, P]``."""
    var: tf.Tensor
    """Diagonals of V, ``[N, P]``."""
    alpha: tf.Tensor
    """``[N, P]``."""
    scaled: tf.Tensor
    """Lower triangular ``L^-1 S [P, N, N]``."""


def condition(K: tf.Tensor, prior_mean: tf.Tensor, sites: Sites) -> Conditioned:
    """
    Condition a prior on sites, in O(P N^3).

    :param K: ``[N, N]``, common to all latent functions.
    :param prior_mean: mu ``[N, P]``.
    """
    root = tf.sqrt(tf.transpose(sites.precision))  # [P, N]
    L = linalg.cholesky(_scaled(K, root), "I + S K S (covariance of the rows and sites)")
    c = sites.linear - sites.precision * prior_mean
    white = linalg.solve_triangular(L, (root * tf.transpose(K @ c))[:, :, None])
    solved = linalg.solve_triangular(L, white, adjoint=True)[:, :, 0]  # B^-1 S K c  [P, N]
    return Conditioned(c - tf.transpose(root * solved), root, L)


def moments(
    K: tf.Tensor, prior_mean: tf.Tensor, sites: Sites, found: Conditioned
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Mean ``[N, P]`` and variance ``[N, P]`` of q at the rows, and its KL to the prior ``[]``."""
    A = linalg.solve_triangular(found.L, found.root[:, :, None] * K)  # L^-1 S K  [P, N, N]
    var = tf.linalg.diag_part(K)[:, None] - tf.transpose(tf.reduce_sum(tf.square(A), axis=1))
    change = K @ found.alpha  # m - mu
    kl = 0.5 * tf.reduce_sum(change * found.alpha - sites.precision * var)
    kl += tf.reduce_sum(tf.math.log(tf.linalg.diag_part(found.L)))
    return prior_mean + change, var, kl


def cavities(sites: Sites, mean: tf.Tensor, var: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance of f at each row without the site of that row, ``[N, P]`` each: with Gaussian
    noise exactly the leave-one-out posterior, else its approximation with the other sites as they
    are.
    """
    without = var / (1.0 - sites.precision * var)
    return without * (mean / var - sites.linear), without


def site_pass(
    likelihood: Likelihood, X: tf.Tensor, Y: tf.Tensor, row_weights: tf.Tensor | None = None
) -> Callable[[tf.Tensor, tf.Tensor, Sites], Pass]:
    """
    The compiled function from ``K [N, N]``, ``mu [N, P]`` and sites, all float64, to a
    :class:`Pass`: some 2 P N^3 / 3 operations. What cannot be computed is NaN.

    :param likelihood: its variational expectations are sums over latent functions, or
        concave in their variances; its parameters are read at every call.
    :param row_weights: factors of the expectations of each row ``[N]``; None for 1.
    """

    def expected(mean: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        Fmu, Fvar = (tf.cast(part, X.dtype) for part in (mean, var))
        each = likelihood.variational_expectations(X, Fmu, Fvar, Y)
        return tf.cast(weighted_sum(each, row_weights), mean.dtype)

    def evaluate(K: tf.Tensor, prior_mean: tf.Tensor, sites: Sites) -> Pass:
        with linalg.unchecked():
            alpha, root, L = condition(K, prior_mean, sites)
        eye = tf.eye(K.shape[0], batch_shape=[root.shape[0]], dtype=K.dtype)
        R = linalg.solve_lower(L, eye)  # L^-1  [P, N, N]
        ratio = 1.0 - tf.transpose(tf.reduce_sum(tf.square(R), axis=1))  # lambda V_nn  [N, P]
        mean, var = prior_mean + K @ alpha, ratio / sites.precision
        kl = 0.5 * tf.reduce_sum((mean - prior_mean) * alpha - ratio)
        kl += tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)))
        least = _LEAST_PRECISION / tf.linalg.diag_part(K)[:, None]
        value, proposed = propose(expected, sites, mean, var, least)
        return Pass(value - kl, proposed, mean, var, alpha, R * root[:, None, :])

    return compiled(evaluate)  # type: ignore[no-any-return]


def propose(
    expected: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    sites: Sites,
    mean: tf.Tensor,
    var: tf.Tensor,
    least: tf.Tensor,
) -> tuple[tf.Tensor, Sites]:
    """
    The expected log density of the rows, and the sites to which a step of natural gradients leads.

    :param expected: the first as a function of ``mean`` and ``var`` ``[N, P]``, moments of q.
    :param least: least precisions ``[N, P]`` or ``[N, 1]``.
    """
    value, by_mean, by_var = _with_slopes(expected, mean, var)
    other_by_var = _with_slopes(expected, mean, (1.0 + _CHANGE) * var)[2]
    precision = _damped(sites.precision, -2.0 * by_var, -2.0 * other_by_var, least)
    return value, Sites(precision, by_mean + precision * mean)


def _damped(present: tf.Tensor, best: tf.Tensor, changed: tf.Tensor, least: tf.Tensor) -> tf.Tensor:
    """
    Precisions on the way to the ones that are best for the present variances, as far as is safe.

    With ``s = d log lambda / d log V_nn`` a common change of all log precisions by t lowers log
    variances by t at most, so that ``1 / (1 + s)`` of the way leads to the fixed point or less far.

    :param changed: the best precisions for variances larger by the fraction ``_CHANGE``.
    """
    best, changed = tf.maximum(best, least), tf.maximum(changed, least)
    slope = tf.maximum(tf.math.log(changed / best), 0.0) / np.log1p(_CHANGE)
    return present * tf.pow(best / present, 1.0 / (1.0 + slope))


def covariance_slope(alpha: tf.Tensor, scaled: tf.Tensor) -> tf.Tensor:
    """
    The derivative of the bound by K ``[N, N]`` at fixed m and V, ``sum_p (alpha alpha^T - S B^-1 S)
    / 2``. At the best sites it is the total derivative.

    :param alpha: ``[N, P]``.
    :param scaled: ``L^-1 S [P, N, N]``.
    """
    lower = tf.reduce_sum(linalg.lower_adjoint_product(scaled, scaled), axis=0)  # S B^-1 S
    full = lower + tf.linalg.matrix_transpose(lower)
    full = tf.linalg.set_diag(full, tf.linalg.diag_part(lower))
    return 0.5 * (tf.linalg.matmul(alpha, alpha, transpose_b=True) - full)


def prior_sites(diagonal: tf.Tensor, num_latent_gps: int) -> Sites:
    """
    Sites with which q is the prior, but for rounding.

    :param diagonal: prior variances ``[N]``.
    """
    precision = tf.repeat(_LEAST_PRECISION / diagonal[:, None], num_latent_gps, 1)
    return Sites(precision, tf.zeros_like(precision))


class Limits(NamedTuple):
    """When to end the search for the best sites."""

    tolerance: float
    """Largest change of a mean of f in a step, in its standard deviations, with which they have
    converged; rounding allows 1e-9, and 1e-4 in float32, and less where precisions are large."""
    max_passes: int
    dtype: tf.DType = tf.float64
    """Float type in which the likelihood is computed."""


def converge(
    evaluate: Callable[[Sites], Any], sites: Sites, found: Any, limits: Limits
) -> tuple[Sites, Any, bool]:
    """
    Sites of the largest bound, by steps that are halved where the bound decreases.

    :param evaluate: a function of the sites that returns a :class:`Pass`, or another tuple with its
        first four fields.
    :param sites: where to start, and ``found``, the pass there.
    :return: the sites, the pass at them, and whether they have converged.
    """
    length, last = 1.0, np.inf
    tolerance = max(limits.tolerance, _LEAST_CHANGE[limits.dtype])
    for _ in range(limits.max_passes):
        step = _step(sites, found.proposed, length)
        after = evaluate(step)
        before, gained = float(found.bound), float(after.bound - found.bound)
        if not gained >= -_ROUNDING[limits.dtype] * abs(before):  # also NaN
            length *= 0.5
            if length < _SHORTEST:
                return sites, found, False
            continue
        change = float(tf.reduce_max(tf.square(after.mean - found.mean) / after.var)) ** 0.5
        sites, found = step, after
        stalled = 0.5 * last < change < _STALLED[limits.dtype]
        if length == 1.0 and (change < tolerance or stalled):
            return sites, found, True
        last = change
        length = min(1.0, 2.0 * length)
    return sites, found, False


def _step(sites: Sites, proposed: Sites, length: float) -> Sites:
    precision = sites.precision * tf.pow(proposed.precision / sites.precision, length)
    return Sites(precision, sites.linear + length * (proposed.linear - sites.linear))


def _scaled(K: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    """``I + S K S [P, N, N]``."""
    return linalg.add_jitter(root[:, :, None] * K * root[:, None, :], tf.ones([], K.dtype))


def weighted_sum(each: tf.Tensor, row_weights: tf.Tensor | None) -> tf.Tensor:
    """The sum of values of rows ``[N]``, times their weights unless these are None."""
    return tf.reduce_sum(each if row_weights is None else row_weights * each)


def _with_slopes(
    expected: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], mean: tf.Tensor, var: tf.Tensor
) -> Any:
    """The value of a function of mean and variance, and its derivatives by both."""
    with tf.GradientTape() as tape:
        tape.watch((mean, var))
        value = expected(mean, var)
    return value, *tape.gradient(value, (mean, var))
