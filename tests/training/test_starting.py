"""The first q of training by natural gradients: dense algebra, and data far from the prior."""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.initialization.row_observations import row_observations, row_posteriors
from gpflow_sparse.tables.fitting.weights import WeightedLikelihood
from gpflow_sparse.training.starting import start_from_rows

N, M = 40, 9


def data(rng, noise="student_t"):
    X = rng.uniform(-2.0, 2.0, (N, 1))
    f = np.sin(2.0 * X)
    if noise == "counts":
        return X, rng.poisson(np.exp(f + 7.0)).astype(float)
    return X, f + 0.1 * rng.standard_t(3.0, (N, 1))


def svgp(likelihood, **options):
    Z = np.linspace(-2.0, 2.0, M)[:, None]
    return gpflow.models.SVGP(gpflow.kernels.Matern52(60.0), likelihood, Z, **options)


def orthogonal(likelihood, **options):
    Z = np.linspace(-2.0, 2.0, M)[:, None]
    sets = gs.inducing_variables.OrthogonalInducingVariables(Z[::2], Z[1::2])
    return gs.models.SOLVEGP(gpflow.kernels.Matern52(60.0), likelihood, sets, **options)


@pytest.mark.parametrize("whiten", [True, False])
def test_q_is_the_posterior_given_observations_of_single_rows(rng, whiten):
    """For one set the optimum, q(u) = N(Kuu B^-1 Kuf L t, Kuu B^-1 Kuu), B = Kuu + Kuf L Kfu."""
    X, Y = data(rng)
    model = svgp(gs.likelihoods.StudentT(0.1), num_data=10 * N, whiten=whiten)
    moments = model.predict_f(X)
    start_from_rows(model, (X, Y), (0, 0))
    assert type(model.likelihood) is gs.likelihoods.StudentT
    assert model.num_data == 10 * N
    m, v = row_posteriors(model.likelihood, X, Y, *moments)
    targets, precisions = row_observations(model.likelihood, X, Y, m, v)
    k, Z = model.kernel, model.inducing_variable.Z.numpy()
    Kuu, Kuf = k(Z).numpy() + 1e-6 * np.eye(M), k(Z, X).numpy()
    B = np.linalg.inv(Kuu + Kuf * precisions.T @ Kuf.T)
    f, cov = model.predict_f(Z, full_cov=True)
    np.testing.assert_allclose(f, Kuu @ B @ Kuf @ (precisions * (m + targets)), rtol=1e-5)
    np.testing.assert_allclose(cov[0], Kuu @ B @ Kuu, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("noise", ["student_t", "laplace", "counts"])
@pytest.mark.parametrize("build", [svgp, orthogonal])
def test_the_first_steps_stay_at_the_data(rng, noise, build):
    """Without it counts of thousands end the training, and other means leave the data by far."""
    X, Y = data(rng, noise)
    likelihood = {
        "student_t": gs.likelihoods.StudentT(0.1),
        "laplace": gs.likelihoods.Laplace(0.1),
        "counts": gpflow.likelihoods.Poisson(),
    }[noise]
    model = build(likelihood, num_data=N)
    gs.training.fit(model, (X, Y), num_steps=3, natural_gradients=0.1, progress=False)
    shift = 7.0 if noise == "counts" else 0.0
    error = model.predict_f(X)[0] - np.sin(2.0 * X) - shift
    assert float(np.sqrt(np.mean(error**2))) < 0.12


def test_a_start_that_is_worse_is_not_taken(rng):
    """Of outputs e^9 times smaller than the prior mean single rows tell next to nothing."""
    X, _ = data(rng)
    Y = 1e-4 * rng.exponential(np.exp(np.sin(2.0 * X)))
    model = svgp(gpflow.likelihoods.Exponential(), num_data=N)
    model.kernel.variance.assign(1.0)
    before = float(model.elbo((X, Y)))
    start_from_rows(model, (X, Y), (0, 0))
    assert float(model.elbo((X, Y))) >= before


def test_rows_with_weights_start_at_the_data_too(rng):
    X, Y = data(rng, "counts")
    weighted = WeightedLikelihood(gpflow.likelihoods.Poisson(), 1)
    model = svgp(weighted, num_data=N)
    rows = X, np.concatenate([Y, rng.uniform(0.5, 1.5, Y.shape)], axis=1)
    gs.training.fit(model, rows, num_steps=3, natural_gradients=0.1, progress=False)
    error = model.predict_f(X)[0] - np.sin(2.0 * X) - 7.0
    assert float(np.sqrt(np.mean(error**2))) < 0.12
