"""Functions drawn from posteriors have the moments of predict_f, and their seeds."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.kernels import LinearMap, MainEffects
from gpflow_sparse.models import SOLVEGP

D, S = 2, 2000
KERNELS = {
    "squared exponential": lambda: gpflow.kernels.RBF(variance=1.7, lengthscales=[0.5, 0.9]),
    "matern12": lambda: gpflow.kernels.Matern12(variance=0.6, lengthscales=0.8),
    "matern52": lambda: gpflow.kernels.Matern52(variance=1.7, lengthscales=[0.5, 0.9]),
    "one column": lambda: gpflow.kernels.Matern32(lengthscales=[0.6], active_dims=[1]),
    "sum": lambda: KERNELS["matern52"]() + gpflow.kernels.RBF(0.4, 0.3, active_dims=[0]),
    "single columns": lambda: MainEffects(gpflow.kernels.Matern32(1.4, 0.6)),
    "mapped sum": lambda: LinearMap(KERNELS["sum"](), [[0.8, 0.6], [-0.6, 0.8]]),
    "a user's": lambda: OfUser(),
}


class OfUser(gpflow.kernels.RBF):
    """With a spectral density of its own: lengthscales 0.7 of a squared exponential."""

    def __init__(self):
        super().__init__(lengthscales=0.7)

    def draw_frequencies(self, count, num_columns, generator):
        return generator.normal(size=(count, num_columns)) / 0.7


def build(kernel=KERNELS["matern52"], sizes=(7, 5), *, P=2, whiten=True, jitter=None):
    rng = np.random.default_rng(1)
    model = SOLVEGP(
        kernel(),
        gpflow.likelihoods.Gaussian(),
        OrthogonalInducingVariables(*(rng.normal(size=(M, D)) for M in sizes)),
        mean_function=gpflow.functions.Linear(np.full((D, P), 0.4), np.full(P, 0.5)),
        num_latent_gps=P,
        whiten=whiten,
    )
    model.jitter = jitter
    for q_mu, q_sqrt in model.variational_parameters:
        q_mu.assign(rng.normal(size=q_mu.shape))
        q_sqrt.assign(0.5 * q_sqrt + np.tril(0.3 * rng.normal(size=q_sqrt.shape)))
    return model


def inputs(rows=6, seed=2):
    return np.random.default_rng(seed).normal(size=(rows, D))


def deviations(posterior, X, num_features=16, num_samples=S):
    """
    How many standard errors the mean, the covariance over inputs and the covariance of the two
    outputs of the draws are from those of ``predict_f``; the largest of each.
    """
    draws = posterior.sample_functions(num_samples, num_features=num_features, seed=3)(X).numpy()
    mean, cov = (part.numpy() for part in posterior.predict_f(X, full_cov=True))
    residuals = draws - mean

    def largest(products, expected=0.0):
        error = products.std(axis=0) / np.sqrt(num_samples)
        return np.abs((products.mean(axis=0) - expected) / error).max()

    squares = np.einsum("snp,smp->spnm", residuals, residuals)
    cross = residuals[:, :, 0] * residuals[:, :, -1] if draws.shape[-1] > 1 else residuals
    return largest(residuals), largest(squares, cov), largest(cross)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_mean_and_covariance_are_those_of_predict_f_whatever_the_number_of_features(kernel):
    """Within 4.5 standard errors of 2,000 draws: among, at and far from the inducing inputs."""
    posterior = build(kernel).posterior()
    Z = posterior.X_data.sets[0].Z.numpy()
    X = np.concatenate([inputs(4), Z[:2], 6.0 + inputs(2)])
    for num_features in (4, 64):
        assert max(deviations(posterior, X, num_features)) < 4.5


def test_a_sharp_q_pins_the_draws_at_the_inducing_inputs():
    """Up to the jitter, a noise of 1e-3 standard deviations of the prior."""
    model = build(sizes=(7,), whiten=False)
    model.q_sqrt[0].assign(1e-9 * np.eye(7)[None].repeat(2, axis=0))
    Z = model.inducing_variable.sets[0].Z
    expected = model.q_mu[0] + model.mean_function(Z)
    draws = model.posterior().sample_functions(50, num_features=32, seed=4)
    assert np.ptp(draws(Z + 1.0), axis=0).min() > 0.1
    for draw in draws(Z):
        np.testing.assert_allclose(draw, expected, atol=5 * np.sqrt(1.7e-6) * 3)


def test_seeds():
    posterior, X = build().posterior(), inputs()
    fixed = [posterior.sample_functions(2, num_features=8, seed=1)(X) for _ in range(2)]
    np.testing.assert_array_equal(*fixed)
    fresh = [posterior.sample_functions(2, num_features=8)(X) for _ in range(2)]
    assert np.abs(fresh[0] - fresh[1]).max() > 0.1
    again = []
    for _ in range(2):
        tf.random.set_seed(11)
        again.append(posterior.sample_functions(2, num_features=8)(X))
    np.testing.assert_array_equal(*again)
