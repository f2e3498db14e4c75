"""Gaussian observations of f from single rows, against direct optimization by SciPy."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize, stats

from gpflow_sparse import likelihoods
from gpflow_sparse.initialization.row_observations import (
    likelihood_of_starts,
    row_observations,
    row_posteriors,
)

X = np.zeros((1, 1))


def log_student_t(y, f):
    return stats.t.logpdf(y, 3.0, f, 0.1)


def log_laplace(y, f):
    return stats.laplace.logpdf(y, f, 0.1)


def log_poisson(y, f):
    return stats.poisson.logpmf(y, np.exp(f))


def log_exponential(y, f):
    return stats.expon.logpdf(y, scale=np.exp(f))


CASES = {
    "student_t": (likelihoods.StudentT(0.1), log_student_t, 2.5, 4.0),
    "GPflow's student_t": (gpflow.likelihoods.StudentT(0.1), log_student_t, 2.5, 60.0),
    "laplace": (likelihoods.Laplace(0.1), log_laplace, -3.0, 60.0),
    "poisson": (gpflow.likelihoods.Poisson(), log_poisson, 4000.0, 1.0),
    "poisson, none": (gpflow.likelihoods.Poisson(), log_poisson, 0.0, 2.0),
    "exponential": (gpflow.likelihoods.Exponential(), log_exponential, 1e-3, 2000.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_posterior_of_a_row_is_the_closest_gaussian(name):
    """Far from the prior mean too, where one step leaves the output behind."""
    likelihood, log_density, y, var = CASES[name]
    likelihood = likelihood_of_starts(likelihood)
    Y, mean = np.array([[y]]), np.zeros((1, 1))
    arguments = (likelihood, X, Y, tf.constant(mean), tf.constant([[var]], tf.float64))
    m, v = (float(part) for part in row_posteriors(*arguments))

    z = np.linspace(-9.0, 9.0, 20_001)

    def loss(q):
        logs = log_density(y, q[0] + np.exp(0.5 * q[1]) * z)
        expected = np.average(logs, weights=stats.norm.pdf(z))
        return 0.5 * ((q[0] ** 2 + np.exp(q[1])) / var - q[1]) - expected

    found = optimize.minimize(loss, [m, np.log(v)], method="Nelder-Mead", tol=1e-7).x
    assert abs(m - found[0]) < 0.03 * v**0.5
    np.testing.assert_allclose(np.log(v), found[1], atol=0.05)


@pytest.mark.parametrize("distance", [10.0, 20.0, 40.0, 1e6])
def test_an_outlier_of_laplace_noise_is_no_observation_far_away(distance):
    """Its precision would be 1e-292 at a distance of 40, and t 1e292."""
    likelihood, Y = likelihoods.Laplace(0.3), np.array([[distance]])
    mean, var = (tf.constant([[value]], tf.float64) for value in (0.0, 1.0))
    q = row_posteriors(likelihood, X, Y, mean, var)
    targets, precisions = row_observations(likelihood, X, Y, *q)
    assert np.abs(targets).max() < 1e9
    np.testing.assert_array_equal(precisions, 0.0)
