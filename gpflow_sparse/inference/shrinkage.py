"""Calibration parameters, fitted to held-out rows and shrunk toward no correction."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from gpflow_sparse.numerics.searches import warn_if_unmoved

Array = np.ndarray
Densities = Callable[[Array, Array], tuple[Array, Array]]
"""From logarithms of corrections, and weights of rows, to the log densities of the rows ``[N]`` and
the gradient of their weighted sum."""

_LARGEST_LOG = 12.0
_NUM_FOLDS = 10
# Largest start of a search, in units of the bound, where it still has a slope.
_INSIDE = 1.0 - 1e-6


def shrunk(
    evaluate: Densities,
    num_rows: int,
    size: int,
    prior_deviation: float | Array,
    largest: float = _LARGEST_LOG,
    row_weights: Array | None = None,
) -> tuple[list[float], float]:
    """
    The most probable corrections, shrunk towards 1 by the cross-validated gain ``g`` of a row, over
    ten folds, and its standard error ``e``: logarithms are multiplied by ``1 - (e / g)^2``, or 0.

    :param size: number of corrections.
    :param prior_deviation: standard deviation of their logarithms a priori, or one of each.
    :param largest: bound of the logarithms.
    :param row_weights: weights of the rows ``[N]``; None for 1.
    :return: the corrections, and the gain in nats; 0 where they are 1.
    """
    everything = np.ones(num_rows) if row_weights is None else row_weights
    best = most_probable(evaluate, everything, np.zeros(size), prior_deviation, largest)
    folds = np.arange(num_rows) % _NUM_FOLDS
    gains = -evaluate(np.zeros(size), everything)[0]
    for fold in range(_NUM_FOLDS):
        weights = np.where(folds != fold, everything, 0.0)
        logs = most_probable(evaluate, weights, best, prior_deviation, largest)
        gains[folds == fold] += evaluate(logs, everything)[0][folds == fold]
    mean = float(np.average(gains, weights=row_weights))
    variance = float(np.average(np.square(gains - mean), weights=row_weights))
    error = (variance / everything.sum()) ** 0.5
    share = max(0.0, 1.0 - (error / mean) ** 2) if mean > 0.0 else 0.0
    return [float(factor) for factor in np.exp(share * best)], mean if share else 0.0


def most_probable(
    evaluate: Densities,
    weights: Array,
    start: Array,
    prior_deviation: float | Array,
    largest: float = _LARGEST_LOG,
) -> Array:
    """
    Logarithms of corrections of the largest log likelihood plus log prior density.

    They are ``largest * tanh(x / largest)`` of the x that is searched. With bounds in place of that
    the first step of L-BFGS-B may go to a bound, where log densities of counts are not finite, and
    the search ends at its start.
    """

    def loss(x: Array) -> tuple[float, Array]:
        logs = largest * np.tanh(x / largest)
        densities, gradient = evaluate(logs, weights)
        precision = 1.0 / np.square(prior_deviation)
        value = 0.5 * np.sum(precision * logs**2) - np.sum(weights * densities)
        return value, (precision * logs - gradient) * (1.0 - np.square(logs / largest))

    x = largest * np.arctanh(np.clip(start / largest, -_INSIDE, _INSIDE))
    options = {"ftol": 1e-13, "gtol": 1e-8}
    found = minimize(loss, x, jac=True, method="L-BFGS-B", options=options)
    warn_if_unmoved("a calibration", x, found.x, found.jac)
    return largest * np.tanh(found.x / largest)  # type: ignore[no-any-return]


def tempered_densities(log_probabilities: Array, labels: Array) -> Densities:
    """
    Log probabilities of labels as a function of the logarithm of a temperature T, where class c has
    a probability proportional to ``p_c^(1 / T)``.

    :param log_probabilities: ``log p [N, C]``.
    :param labels: integers ``[N]``.
    """
    rows = np.arange(len(labels))

    def evaluate(logs: Array, weights: Array) -> tuple[Array, Array]:
        scaled = log_probabilities / np.exp(logs[0])
        scaled = scaled - scaled.max(axis=1, keepdims=True)
        unnormalized = np.exp(scaled)
        total = unnormalized.sum(axis=1)
        chosen = scaled[rows, labels]
        expected = np.sum(unnormalized * scaled, axis=1) / total
        gradient = np.sum(weights * (expected - chosen))  # of log p_y by log T
        return chosen - np.log(total), np.array([gradient])

    return evaluate


TEMPERATURE_DEVIATION = 0.5
"""Prior deviation of the log of a temperature: three out of four are between 0.56 and 1.8."""


def best_temperature(
    log_probabilities: Array, labels: Array, row_weights: Array | None = None
) -> tuple[float, float]:
    """The shrunk temperature, and the gain of a row; see :func:`tempered_densities`."""
    evaluate = tempered_densities(log_probabilities, labels)
    count, deviation = len(labels), TEMPERATURE_DEVIATION
    (found,), gain = shrunk(evaluate, count, 1, deviation, row_weights=row_weights)
    return found, gain
