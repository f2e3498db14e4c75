"""Type-I inference by quadrature for weights of rotated functions, one integral per weight.

Given the noise variance the weights are independent a posteriori, so that there is one integral
over each of them and one over the noise. Trapezoidal sums of smooth functions that vanish at both
ends, over logarithms: their error falls faster than any power of the spacing.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.inference.rotation import Rotation
from gpflow_sparse.models.grief.type_one import LogNormal, Prior

# Nodes over a weight: largest spacing, also as a fraction of the narrowest posterior, and smallest
# range on both sides, all in standard deviations of the log weight's prior.
_SPACING, _FINENESS, _REACH = 0.08, 0.5, 8.0
# Nodes over the noise, nodes of one round of the search for their range, and the logarithm of the
# density, relative to the peak, below which it is negligible.
_NOISE_NODES, _SEARCH_NODES, _LOG_NEGLIGIBLE = 61, 21, -40.0
# Smallest logarithm of a noise variance, below which squares could underflow.
_LOWEST_LOG_NOISE = -300.0
# Largest number of nodes of all weights together: a few tensors of 512 MiB.
_MAX_NODES = 2**26


class Quadrature(NamedTuple):
    """The posterior as a mixture over J values of the noise variance, all in float64."""

    log_evidence: tf.Tensor
    """Log density of the data, weights and noise integrated out: a scalar, in nats."""
    noise: tf.Tensor
    """Noise variances ``[J]``."""
    log_weights: tf.Tensor
    """Logarithms of their posterior probabilities, ``[J]``."""
    means: tf.Tensor
    """Means of the coefficients of the rotated functions given the noise, ``[J, p, P]``."""
    variances: tf.Tensor
    """Variances of these coefficients, ``[J, p, P]``."""


class _Nodes(NamedTuple):
    """Nodes of the integral over a weight and logarithms of their prior probabilities."""

    weights: tf.Tensor
    log_shares: tf.Tensor


def quadrature(rotated: Rotation, prior: Prior) -> Quadrature:
    """
    The type-I posterior of weights of rotated functions, exact up to the error of the sums.

    Given the noise, the posterior of a weight is its prior times ``prod_q N(rho_q | 0, noise + w
    s^2)``. Coefficients have the moments of
    :func:`gpflow_sparse.inference.rotation.coefficient_moments`, averaged over it; the variance of
    their means is in the variance. A function that is zero on the data keeps the prior: mean 0, and
    variance ``E[w]``.

    Weights have nodes at most 0.08 prior standard deviations apart, over 8 of these on both sides,
    or more where the data can move the posterior further: at least 201. The noise has 61 over the
    range in which its density is at least e^-40 of its peak. Time O(p K) for each of about 150
    values of the noise; measured on two cores, p = 1000, N of 2e4 and of 2e6: 0.5 s. Memory O(p (K
    + 61 P)).

    :raises ValueError: for a prior so sharp that it would take too many nodes.
    """
    nodes = _weight_nodes(rotated, prior.weights)

    def log_density(x: np.ndarray) -> np.ndarray:
        return np.array([_log_marginal(rotated, nodes, prior.noise, value) for value in x])

    low, high = _noise_range(log_density, *_bracket(rotated, prior.noise))
    x = np.linspace(low, high, _NOISE_NODES)
    log_joint = tf.constant(log_density(x))
    total = tf.reduce_logsumexp(log_joint)
    noise = tf.constant(np.exp(x))
    moments = [_coefficient_moments(rotated, nodes, value) for value in noise]
    return Quadrature(
        log_evidence=total + math.log(x[1] - x[0]),
        noise=noise,
        log_weights=log_joint - total,
        means=tf.stack([mean for mean, _ in moments]),
        variances=tf.stack([variance for _, variance in moments]),
    )


def _weight_nodes(rotated: Rotation, prior: LogNormal) -> _Nodes:
    """
    Nodes in ``z = (log w - mu) / sd``, where the posterior has its mode between the modes of prior
    and likelihood.

    The mode of the likelihood is at most ``w = rho^2 / (P s^2)``. Towards 0 the log likelihood
    rises by at most P / 2 per unit of log w, so that it shifts the mode by at most ``sd P / 2``;
    its curvature in log w is at most P / 2 too.
    """
    outputs = rotated.num_outputs
    best = tf.math.divide_no_nan(rotated.energies, outputs * rotated.squares)
    pulled = (math.log(max(float(tf.reduce_max(best)), 1e-300)) - prior.mu) / prior.sd
    low = -_REACH - 0.5 * prior.sd * outputs
    high = _REACH + max(prior.sd, pulled)  # E[w] has its mass at z = sd
    narrowest = (1.0 + 0.5 * prior.sd**2 * outputs) ** -0.5
    spacing = min(_SPACING, _FINENESS * narrowest)
    count = math.ceil((high - low) / spacing) + 1
    if count * int(best.shape[0]) > _MAX_NODES:
        raise ValueError(
            f"weight_prior is too sharp for quadrature, which would need {count} nodes for each of "
            f"{best.shape[0]} weights: give it a larger variance, or take method='nuts'."
        )
    z = np.linspace(low, high, count)
    log_shares = -0.5 * z**2 + math.log((z[1] - z[0]) / math.sqrt(2.0 * math.pi))
    return _Nodes(tf.constant(np.exp(prior.mu + prior.sd * z)), tf.constant(log_shares))


def _log_terms(rotated: Rotation, nodes: _Nodes, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """``D [p, K]``, and the logarithm of prior share times likelihood relative to ``w = 0``."""
    D = noise + rotated.squares[:, None] * nodes.weights
    fit = rotated.energies[:, None] / D + rotated.num_outputs * tf.math.log(D / noise)
    return D, nodes.log_shares - 0.5 * fit


def _log_marginal(rotated: Rotation, nodes: _Nodes, prior: LogNormal, x: float) -> float:
    """Log density of the data and of ``x = log noise``, weights integrated out."""
    noise = tf.constant(math.exp(x), tf.float64)
    _, terms = _log_terms(rotated, nodes, noise)
    weights = tf.reduce_sum(tf.reduce_logsumexp(terms, axis=1))
    count = rotated.num_outputs * rotated.num_rows
    rest = rotated.tail / noise + count * (math.log(2.0 * math.pi) + x)
    log_prior = -0.5 * ((x - prior.mu) / prior.sd) ** 2 - 0.5 * math.log(2 * math.pi * prior.sd**2)
    return float(weights - 0.5 * rest) + log_prior


def _coefficient_moments(
    rotated: Rotation, nodes: _Nodes, noise: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance ``[p, P]`` of the coefficients given the noise."""
    D, terms = _log_terms(rotated, nodes, noise)
    shares = tf.nn.softmax(terms, axis=1)  # [p, K]
    shrunk = nodes.weights / D  # mean of a coefficient over its projection
    mean = tf.reduce_sum(shares * shrunk, axis=1, keepdims=True)  # [p, 1]
    # by deviations: the difference of two large moments would cancel
    spread = tf.reduce_sum(shares * tf.square(shrunk - mean), axis=1, keepdims=True)
    variance = noise * mean + spread * tf.square(rotated.projections)
    return mean * rotated.projections, variance


def _bracket(rotated: Rotation, prior: LogNormal) -> tuple[float, float]:
    """
    An interval; outside it the posterior of the log noise is negligible.

    As a function of ``x = log noise`` the log likelihood rises by at most ``|e|^2 / (2 noise)`` and
    falls by at most ``N P / 2``; and it rises wherever ``noise < tail / (N P)``.
    """
    count = rotated.num_outputs * float(rotated.num_rows)
    tail = float(rotated.tail)
    squares = tail + float(tf.reduce_sum(rotated.energies))
    pulled = prior.mu - 0.5 * count * prior.sd**2
    if tail > 0.0:
        pulled = max(pulled, math.log(tail / count))
    low = min(prior.mu, pulled) - 12.0 * prior.sd
    high = max(prior.mu, math.log(squares) if squares > 0.0 else prior.mu) + 12.0 * prior.sd
    return max(low, _LOWEST_LOG_NOISE), high


def _noise_range(
    log_density: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> tuple[float, float]:
    """The part of ``[low, high]`` in which a density with one peak is not negligible."""
    while True:
        x = np.linspace(low, high, _SEARCH_NODES)
        values = log_density(x)
        inside = np.flatnonzero(values > values.max() + _LOG_NEGLIGIBLE)
        first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, _SEARCH_NODES - 1)
        if last - first > 0.7 * _SEARCH_NODES:
            return x[first], x[last]
        low, high = x[first], x[last]
