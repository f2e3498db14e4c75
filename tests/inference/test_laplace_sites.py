"""Laplace's approximation by blocks against dense algebra."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from tests.oracles import dual


def logistic(f):
    return 1.0 / (1.0 + np.exp(-f))


def problem(rng, name):
    """Rows, likelihood, and slope and curvature of its log density at ``f``."""
    X = rng.uniform(-2.0, 2.0, size=(90, 2))
    f = 2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1]
    if name == "bernoulli":
        y = (rng.uniform(size=90) < logistic(f)).astype(float)
        likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
        return X, y, likelihood, lambda f: y - logistic(f), lambda f: logistic(f) * logistic(-f)
    y = rng.poisson(np.exp(f)).astype(float)
    return X, y, gpflow.likelihoods.Poisson(), lambda f: y - np.exp(f), np.exp


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_sites_give_the_mode_and_the_covariance_of_laplace(rng, name):
    X, y, likelihood, slope, curvature = problem(rng, name)
    kernel = gpflow.kernels.Matern52(variance=2.0, lengthscales=[0.8, 1.1])
    K = kernel(X).numpy() + 1e-10 * np.eye(90)
    mode, cov = dual.laplace(K, slope, curvature)
    exact = gs.models.DualOptions(block_size=30, tolerance=1e-9, precision="float64")
    sites = gs.models.laplace_sites(
        (X, y[:, None]), kernel, likelihood, options=exact, tolerance=1e-7
    )
    assert 2 <= sites.num_steps <= 12
    np.testing.assert_allclose(sites.noise, 1.0 / curvature(mode), rtol=1e-5)
    rows = (X, sites.targets)
    model = gs.models.DualGPR(rows, kernel, noise_variance=1.1e-6, row_noise=sites.noise)
    model.solve(exact)
    mean, var = model.predict_f_directly(X[:20], options=exact)
    np.testing.assert_allclose(mean[:, 0], mode[:20], atol=1e-4)
    np.testing.assert_allclose(var[:, 0], np.diag(cov)[:20], atol=1e-4)


def test_another_number_of_columns_is_refused(rng):
    X, y, likelihood, *_ = problem(rng, "bernoulli")
    with pytest.raises(ValueError, match=r"Y \[N, 1\]"):
        gs.models.laplace_sites((X, np.stack([y, y], 1)), gpflow.kernels.Matern52(), likelihood)
    with pytest.raises(ValueError, match="likelihood of one latent function"):
        softmax = gpflow.likelihoods.Softmax(3)
        gs.models.laplace_sites((X, y[:, None]), gpflow.kernels.Matern52(), softmax)
