"""The density of standardized errors under a distribution whose scale and tails are fitted."""

import numpy as np
from scipy.special import gammaln

# Degrees of freedom that are tried, and iterations for the scale of each.
_DEGREES, _ITERATIONS = (2.0, 4.0, 8.0, 16.0, np.inf), 20


def improvement(errors: np.ndarray, counts: np.ndarray | float = 1.0) -> float:
    """
    By how much the sum of the log densities of errors, in nats, is higher under the Student t
    distribution of mean 0 whose scale and degrees of freedom are the most likely of a few, than
    under the standard normal distribution.

    Errors in units of predicted standard deviations are compared in this way where predictions
    will be calibrated: by a normal density few outliers decide, each with half of its square.

    :param errors: finite ``[n]``.
    :param counts: how many equal errors each stands for ``[n]``, at least 0.
    """
    squares = np.square(errors.astype(np.float64))
    counts = np.broadcast_to(counts, squares.shape)
    normal = -0.5 * float(np.sum(counts * (np.log(2.0 * np.pi) + squares)))
    return max(_log_density(squares, counts, degrees) for degrees in _DEGREES) - normal


def _log_density(squares: np.ndarray, counts: np.ndarray, degrees: float) -> float:
    """The sum for given degrees of freedom; the scale by expectation maximization."""
    scale = max(np.average(squares, weights=counts), np.finfo(float).tiny)  # squared
    if np.isinf(degrees):
        return -0.5 * float(np.sum(counts) * (np.log(2.0 * np.pi * scale) + 1.0))
    for _ in range(_ITERATIONS):
        weights = (degrees + 1.0) / (degrees + squares / scale)
        scale = max(np.average(weights * squares, weights=counts), np.finfo(float).tiny)
    constant = gammaln(0.5 * (degrees + 1.0)) - gammaln(0.5 * degrees)
    constant -= 0.5 * np.log(degrees * np.pi * scale)
    each = constant - 0.5 * (degrees + 1.0) * np.log1p(squares / (degrees * scale))
    return float(np.sum(counts * each))
