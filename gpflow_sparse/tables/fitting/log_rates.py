"""Outputs with a logarithmic link, counts or positive numbers, as noisy observations of f."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from scipy.special import digamma

# Of the mean output, below which an output counts as this; the logarithm of 0 is infinite.
_LOWEST = 1e-4


def log_rates(likelihood: gpflow.likelihoods.Likelihood, Y: np.ndarray) -> Any:
    """
    Estimates ``[N, P]`` of f, each from its own output, and the mean of f ``[P]``.

    Exponential and gamma outputs y of the scale exp(f) have ``E[log y] = f + digamma(shape)``;
    counts have nearly ``E[log(y + 1/2)] = f`` unless they are few. With these estimates starting
    hyperparameters are found as for regression, and a prior mean makes them independent of the unit
    of Y.

    :return: None for other likelihoods and links.
    """
    if getattr(likelihood, "invlink", None) is not tf.exp:
        return None
    if isinstance(likelihood, gpflow.likelihoods.Poisson):
        rates = Y / float(likelihood.binsize)
        estimates = np.log(rates + 0.5 / float(likelihood.binsize))
        least = np.maximum(rates.mean(axis=0), 0.5 / rates.shape[0])
        return estimates, np.minimum(estimates.mean(axis=0), np.log(least))
    if not isinstance(likelihood, gpflow.likelihoods.Exponential | gpflow.likelihoods.Gamma):
        return None
    shape = likelihood.shape.numpy() if isinstance(likelihood, gpflow.likelihoods.Gamma) else 1.0
    estimates = np.log(np.maximum(Y, _LOWEST * Y.mean(axis=0))) - digamma(shape)
    return estimates, estimates.mean(axis=0)
