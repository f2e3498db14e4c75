"""Rows of any likelihood as Gaussian observations of f, each from its own output alone.

With ``E(m, v)`` the expectation of ``log p(y | f)`` under ``f ~ N(m, v)``, the observation ``N(t;
f, 1 / lambda)`` of a row at ``N(m, v)`` has ``lambda = -2 dE/dv`` and ``t = m + (dE/dm) / lambda``:
a step of variational message passing (Khan and Lin, 2017, arXiv:1703.04265). For Gaussian noise it
is the row itself, wherever it is taken.
"""

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gpflow_likelihoods
from gpflow.likelihoods import Exponential, Gamma, Likelihood, Poisson

from gpflow_sparse.likelihoods import Laplace, NegativeBinomial, StudentT, ZeroInflatedPoisson

_FROM_ROWS = (
    *(StudentT, Laplace, Poisson, NegativeBinomial, ZeroInflatedPoisson),
    *(Exponential, Gamma),
)

_MAX_ITERATIONS = 50
_TOLERANCE = 2e-2  # of means in posterior standard deviations, and of logarithms of variances
_LEAST = 1e-8  # precision of an observation, relative to the precision of f
_FIRST_VARIANCE = 1.0  # at most: exp(f) overflows for a prior variance of 1500


def likelihood_of_starts(likelihood: Likelihood) -> Likelihood | None:
    """
    The likelihood, with accurate expectations, if starting values of q are taken from posteriors
    given single rows (:func:`row_posteriors`): for counts, positive outputs and noise with heavy
    tails. None for all others, whose start is the prior.
    """
    if isinstance(likelihood, gpflow_likelihoods.StudentT) and not isinstance(likelihood, StudentT):
        return StudentT(likelihood.scale, likelihood.df)
    base = getattr(likelihood, "base", likelihood)  # of rows with weights, or missing outputs
    return likelihood if isinstance(base, _FROM_ROWS) else None


def row_observations(
    likelihood: Likelihood, X: tf.Tensor, Y: tf.Tensor, mean: tf.Tensor, var: tf.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """
    ``t - mean`` and ``lambda [n, L]``, at least 0, at the moments ``mean, var [n, L]`` of f.

    Where lambda is 0, so is the first; also where lambda is less than 1e-8 / var, as with Laplace
    noise far from the output, since t would be so far away that its square overflows.
    """
    by_mean, by_var = _gradients(likelihood, X, Y, mean, var)
    known = np.maximum(-2.0 * by_var.numpy(), 0.0)
    known = np.where(known * np.asarray(var) > _LEAST, known, 0.0)
    slope = by_mean.numpy()
    return np.divide(slope, known, out=np.zeros_like(slope), where=known > 0.0), known


def row_posteriors(
    likelihood: Likelihood, X: tf.Tensor, Y: tf.Tensor, mean: tf.Tensor, var: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Moments ``[n, L]`` of the Gaussian q(f_n) of each row that is closest in ``KL[q || p]`` to its
    posterior given its own output and the prior ``N(mean, var)``, nearly, and of at most the prior
    variance.

    Where y is far from the prior mean, a single step from there leaves it far behind: the log
    density of Student's t noise is convex in f, that of Laplace noise has no curvature, and that of
    a count next to none below it. Here a mean moves by at most a prior standard deviation in each
    of up to 50 steps. Each evaluates the likelihood at all rows.
    """
    m, v = mean, tf.minimum(var, tf.constant(_FIRST_VARIANCE, var.dtype))
    most = tf.sqrt(var)
    for _ in range(_MAX_ITERATIONS):
        by_mean, by_var = _gradients(likelihood, X, Y, m, v)
        before, v = v, 1.0 / (1.0 / var + tf.maximum(-2.0 * by_var, 0.0))
        step = tf.clip_by_value(v * (by_mean - (m - mean) / var), -most, most)
        m += step
        moved = tf.maximum(tf.abs(step) / tf.sqrt(v), tf.abs(tf.math.log(v / before)))
        if bool(tf.reduce_all(moved <= _TOLERANCE)):
            break
    return m, v


def _gradients(
    likelihood: Likelihood, X: tf.Tensor, Y: tf.Tensor, mean: tf.Tensor, var: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """``dE/dm`` and ``dE/dv [n, L]``."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, var])
        expected = tf.reduce_sum(likelihood.variational_expectations(X, mean, var, Y))
    by_mean, by_var = tape.gradient(expected, [mean, var])
    return by_mean, by_var
