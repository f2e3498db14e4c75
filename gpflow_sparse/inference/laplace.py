"""Posteriors of hyperparameters around their mode: Laplace's method, and importance weights."""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm, qmc

from gpflow_sparse.numerics.linalg import FactorizationError
from gpflow_sparse.numerics.searches import OutOfTimeError, warn_if_unmoved
from gpflow_sparse.numerics.threads import threads_for

Array = np.ndarray
Density = Callable[[Array], tuple[float, Array]]
"""A log density, up to a constant, and its gradient, at a vector ``[p]``."""

# Step of the differences of gradients, in standard deviations of the prior.
_STEP = 1e-3
# Bound of each entry's distance from its start: values within a factor of exp(12) of it.
_MOST = 12.0
_FAILURES = FactorizationError, ArithmeticError, np.linalg.LinAlgError, tf.errors.OpError
# A value in place of a log density that cannot be computed.
_FAILED = 1e12


class Around(NamedTuple):
    """A Gaussian approximation of a density around its mode."""

    mode: Array
    """``[p]``"""
    factor: Array
    """``[p, p]``; ``factor @ factor.T`` is the covariance."""
    log_evidence: float
    """Laplace's approximation of the log integral of the density."""


class WeightedDraws(NamedTuple):
    """Draws from a Gaussian approximation, weighted by the density itself."""

    vectors: Array
    """``[S, p]``"""
    log_weights: Array
    """``[S]``, of self-normalized importance sampling: the weights sum to 1."""
    log_evidence: float
    """The importance sampling estimate of the log integral of the density."""

    @property
    def effective_number(self) -> float:
        """``1 / sum_s w_s^2``: of S equal weights S."""
        return float(np.exp(-logsumexp(2.0 * self.log_weights)))


def find_mode(
    density: Density,
    start: Array,
    *,
    num_rows: int = 0,
    max_iterations: int = 100,
    until: float = math.inf,
    bounds: Sequence[tuple[float, float]] | None = None,
    tolerance: float = 1e-7,
) -> Array:
    """
    The mode of a density by L-BFGS; the best vector so far where the density fails on the way.

    A warning says where the search ends at its start without a stationary point there.

    :param num_rows: of the matrices that the density factorizes in NumPy; 0 for none.
    :param until: value of ``time.perf_counter`` after which no evaluation but the first begins.
    :param bounds: of every entry; None for 12 below and above its start.
    :param tolerance: relative change of the density in an iteration at which the search ends.
    :raises ValueError: if the density cannot be computed at the start.
    """
    best: tuple[float, Array, Array] = (-np.inf, start, np.zeros_like(start))

    def loss(vector: Array) -> tuple[float, Array]:
        nonlocal best
        if best[0] > -np.inf and time.perf_counter() > until:
            raise OutOfTimeError
        try:
            value, gradient = density(vector)
        except _FAILURES:
            value, gradient = np.nan, vector
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return _FAILED, np.zeros_like(vector)
        if value > best[0]:
            best = value, vector.copy(), gradient
        return -value, -gradient

    within = np.stack([start - _MOST, start + _MOST], axis=1) if bounds is None else bounds
    options = {"maxiter": max_iterations, "ftol": tolerance}
    try:
        with threads_for(num_rows):
            minimize(loss, start, jac=True, method="L-BFGS-B", bounds=within, options=options)
    except OutOfTimeError:
        return best[1]
    if best[0] == -np.inf:
        raise ValueError(
            "data and kernel: the log density of the hyperparameters is not finite at their "
            "starting values. Standardize X and Y, or start from other values."
        )
    warn_if_unmoved("hyperparameters", start, *best[1:])
    return best[1]


def laplace(
    density: Density, log_prior: Density, mode: Array, *, least_curvature: float = 0.3
) -> Around:
    """
    Laplace's approximation in the coordinates in which the prior has unit curvature at the mode.

    The Hessian is the difference of p + 1 gradients.

    :param density: log prior density plus log likelihood.
    :param log_prior: its curvature gives the coordinates.
    :param least_curvature: lower bound of the eigenvalues of the Hessian, which without a
        likelihood are 1: a direction in which the density is flat or convex at its mode would
        otherwise get arbitrarily large draws.
    """
    size = len(mode)
    scale = np.linalg.cholesky(_prior_precision(log_prior, mode))
    W = np.linalg.inv(scale).T  # [p, p]: vector = mode + W z
    value, gradient = density(mode)
    columns = [(density(mode + _STEP * w)[1] - gradient) / _STEP for w in W.T]
    H = -W.T @ np.stack(columns, axis=1)  # [p, p]
    eigenvalues, V = np.linalg.eigh(0.5 * (H + H.T))
    eigenvalues = np.maximum(eigenvalues, least_curvature)
    factor = W @ (V / np.sqrt(eigenvalues))
    log_det = np.linalg.slogdet(factor)[1]
    return Around(mode, factor, value + 0.5 * size * np.log(2.0 * np.pi) + float(log_det))


def _prior_precision(log_prior: Density, mode: Array) -> Array:
    """Minus the Hessian of the log prior density, with eigenvalues of at least a tenth."""
    size = len(mode)
    ends = [
        (log_prior(mode + _STEP * e)[1] - log_prior(mode - _STEP * e)[1]) / (2.0 * _STEP)
        for e in np.eye(size)
    ]
    H = -np.stack(ends, axis=1)
    eigenvalues, V = np.linalg.eigh(0.5 * (H + H.T))
    return (V * np.maximum(eigenvalues, 0.1)) @ V.T


def standard_draws(size: int, num_draws: int, seed: int) -> Array:
    """Scrambled Sobol points as standard normal vectors ``[S, p]``; zero for a single one."""
    if num_draws == 1:
        return np.zeros((1, size))
    points = qmc.Sobol(size, seed=seed).random_base2(int(np.ceil(np.log2(num_draws))))
    return np.asarray(norm.ppf(np.clip(points[:num_draws], 1e-10, 1.0 - 1e-10)))


def weigh(around: Around, Z: Array, log_densities: Array) -> WeightedDraws:
    """
    Importance weights of the draws ``mode + factor @ z`` of a Gaussian approximation.

    :param Z: standard normal vectors ``[S, p]``.
    :param log_densities: the density's logarithm at the draws ``[S]``; minus infinity where it
        cannot be computed.
    """
    log_det = np.linalg.slogdet(around.factor)[1]
    log_proposal = -0.5 * np.sum(Z**2, axis=1) - 0.5 * Z.shape[1] * np.log(2.0 * np.pi) - log_det
    ratios = log_densities - log_proposal
    total = logsumexp(ratios)
    vectors = around.mode + Z @ around.factor.T
    return WeightedDraws(vectors, ratios - total, float(total - np.log(len(Z))))
