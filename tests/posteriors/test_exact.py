"""GPflow's exact regression by NumPy against GPflow."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.kernels import LinearMap
from gpflow_sparse.posteriors.exact import log_marginal_likelihood, posterior_of
from gpflow_sparse.tables.methods.steps import evaluate_once

KERNELS = {
    "matern": lambda: gpflow.kernels.Matern32(0.7, lengthscales=[0.8, 1.5]),
    "mapped": lambda: LinearMap(gpflow.kernels.Matern52(0.7, 0.9), [[0.6, 0.8], [-0.8, 0.6]]),
    "product": lambda: gpflow.kernels.Matern32() * gpflow.kernels.Linear(),  # by GPflow itself
}


def model_of(kind, rng):
    X = rng.normal(size=(60, 2))
    Y = np.hstack([np.sin(X[:, :1]), X[:, 1:]]) + 0.2 * rng.normal(size=(60, 2))
    mean = gpflow.functions.Constant(0.3 * np.ones(2))
    return gpflow.models.GPR((X, Y), KERNELS[kind](), mean_function=mean, noise_variance=0.1)


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("full_cov", [False, True])
def test_predictions_are_those_of_gpflow(kind, full_cov, rng):
    model, X = model_of(kind, rng), rng.normal(size=(7, 2))
    found = posterior_of(model).predict_f(X, full_cov=full_cov)
    wanted = model.posterior().predict_f(X, full_cov=full_cov)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KERNELS)
def test_log_densities_are_those_of_gpflow(kind, rng):
    model = model_of(kind, rng)
    wanted = float(model.log_marginal_likelihood())
    assert log_marginal_likelihood(model) == pytest.approx(wanted, rel=1e-12)
    assert evaluate_once(model).elbo[0] == pytest.approx(-float(model.training_loss()), rel=1e-12)


def test_noise_that_depends_on_inputs_is_left_to_gpflow(rng):
    X, Y = rng.normal(size=(2, 20, 1))
    noise = gpflow.likelihoods.Gaussian(variance=gpflow.functions.Constant(0.2))
    model = gpflow.models.GPR((X, Y), gpflow.kernels.Matern32(), likelihood=noise)
    wanted = float(model.log_marginal_likelihood())
    assert log_marginal_likelihood(model) == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(posterior_of(model).predict_f(X), model.predict_f(X), rtol=1e-10)
