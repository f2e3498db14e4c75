"""Levels with learned thresholds against SciPy's normal distribution."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.likelihoods import OrderedProbit
from tests.oracles import counts as oracle

EDGES = [-0.7, 0.1, 1.5]


def test_logarithms_are_those_of_scipy_also_far_in_both_tails():
    site = OrderedProbit(4, EDGES)
    for f in (-25.0, -3.0, 0.4, 30.0):
        for y in range(4):
            found = site.log_prob(None, np.array([f]), np.array([float(y)]))
            expected = oracle.ordered_probit(f, y, EDGES)
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15)


def test_probabilities_of_levels_are_averages_over_f(rng):
    site, m, v = OrderedProbit(4, EDGES), 0.6, 0.8
    moments = np.array([[m]]), np.array([[v]])

    def average(y, log):
        def value(f):
            return oracle.ordered_probit(f, y, EDGES)

        return oracle.average(lambda f: value(f) if log else np.exp(value(f)), m, v)

    P = np.exp(site.log_probabilities(*moments))[0, 0]
    np.testing.assert_allclose(P, [average(y, False) for y in range(4)], rtol=1e-10)
    np.testing.assert_allclose(P.sum(), 1.0, rtol=1e-14)
    mean, var = site.predict_mean_and_var(None, *moments)
    np.testing.assert_allclose(mean, [[P @ np.arange(4)]], rtol=1e-13)
    np.testing.assert_allclose(var, [[P @ (np.arange(4) - P @ np.arange(4)) ** 2]], rtol=1e-13)
    for y in range(4):
        Y = np.array([[float(y)]])
        np.testing.assert_allclose(site.predict_log_density(None, *moments, Y), np.log(P[y]))
        found = site.variational_expectations(None, *moments, Y)
        np.testing.assert_allclose(found, average(y, True), rtol=1e-9)


def test_thresholds_are_learned(rng):
    """Of 3,000 levels of a known f: within three standard errors or so, from equal levels."""
    f = rng.normal(size=(3000, 1))
    Y = np.sum(f + rng.normal(size=f.shape) > np.array(EDGES), axis=1, keepdims=True).astype(float)
    site = OrderedProbit(4)

    def loss():
        return -tf.reduce_sum(site.log_prob(None, f, Y))

    gpflow.optimizers.Scipy().minimize(loss, site.trainable_variables)
    np.testing.assert_allclose(site.bin_edges, EDGES, atol=0.1)
    np.testing.assert_array_equal(site.sigma, 1.0)


def test_sites_learn_thresholds_with_the_kernel(rng):
    """Thresholds are a vector whose transform acts on all of them together."""
    X = rng.uniform(0.0, 6.0, size=(40, 1))
    Y = np.digitize(np.sin(X) + 0.2 * rng.normal(size=X.shape), [-0.5, 0.5]).astype(float)
    model = gs.models.SiteVGP((X, Y), gpflow.kernels.SquaredExponential(), OrderedProbit(3))
    model.fit_sites()
    before, edges = float(model.elbo()), model.likelihood.bin_edges.numpy()
    assert model.fit_hyperparameters(max_iterations=10) > before + 1.0
    found = model.likelihood.bin_edges.numpy()
    assert np.all(np.diff(found) > 0.0)
    assert np.all(np.abs(found - edges) > 1e-3)


def test_other_thresholds_and_levels_are_refused():
    with pytest.raises(ValueError, match="num_levels must be at least 2, got 1"):
        OrderedProbit(1)
    with pytest.raises(ValueError, match="bin_edges must be 2 numbers, got 3"):
        OrderedProbit(3, EDGES)
    with pytest.raises(ValueError, match="bin_edges must be a list of increasing numbers"):
        OrderedProbit(3, [1.0, 1.0])
    Z = gs.inducing_variables.OrthogonalInducingVariables(np.zeros((1, 1)))
    model = gs.models.SOLVEGP(gpflow.kernels.Matern32(), OrderedProbit(3), Z)
    with pytest.raises(ValueError, match="Y must hold integer levels from 0 to 2"):
        model.elbo((np.zeros((2, 1)), np.array([[1.0], [3.0]])))
