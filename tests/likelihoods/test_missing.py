"""Outputs of which a part is not observed, against exact regression on the observed entries."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods

import gpflow_sparse as gs
from gpflow_sparse.likelihoods import (
    GaussianWithKnownVariance,
    MissingOutputs,
    NegativeBinomial,
    OneVersusRest,
    OrderedProbit,
    StudentT,
)

FAMILIES = {
    "gaussian": likelihoods.Gaussian(0.3),
    "student_t": StudentT(0.3),
    "poisson": likelihoods.Poisson(),
    "negative_binomial": NegativeBinomial(),
    "gamma": likelihoods.Gamma(),
    "beta": likelihoods.Beta(),
    "bernoulli": likelihoods.Bernoulli(),
    "ordered": OrderedProbit(3),
}


@pytest.mark.parametrize("base", FAMILIES.values(), ids=FAMILIES)
def test_terms_are_those_of_observed_entries_alone(base, rng):
    """Row by row, by the likelihood of one output; with finite gradients."""
    Y = np.full((5, 3), 0.6 if isinstance(base, likelihoods.Beta) else 1.0)
    Y[rng.random(Y.shape) < 0.4] = np.nan
    m, v = rng.normal(size=Y.shape), rng.uniform(0.1, 0.5, size=Y.shape)
    m, v = tf.constant(m), tf.constant(v)
    site = MissingOutputs(base)
    for method in ("variational_expectations", "predict_log_density"):
        expected = np.zeros(5)
        for n, p in np.argwhere(~np.isnan(Y)):
            entry = np.s_[n : n + 1, p : p + 1]
            expected[n] += float(getattr(base, method)(None, m[entry], v[entry], Y[entry])[0])
        with tf.GradientTape() as tape:
            tape.watch([m, v])
            found = getattr(site, method)(None, m, v, Y)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        parameters = list(base.trainable_variables)
        slopes = tape.gradient(found, [m, v, *parameters])
        assert all(np.isfinite(slope).all() for slope in slopes)
        assert not np.any(slopes[0].numpy()[np.isnan(Y)])
    mean, _ = site.predict_mean_and_var(None, m, v)
    np.testing.assert_array_equal(mean, base.predict_mean_and_var(None, m, v)[0])


def coregionalized(rng, num_latents):
    X = np.linspace(0.0, 4.0, 9)[:, None]
    W = rng.normal(size=(3, num_latents))
    Y = np.sin(X + np.arange(3)) @ np.diag([1.0, -0.5, 2.0]) + 0.1 * rng.normal(size=(9, 3))
    Y[rng.permutation(27).reshape(9, 3) < 9] = np.nan
    kernels = [gpflow.kernels.Matern12(1.3, 0.8) for _ in range(num_latents)]
    return X, Y, gpflow.kernels.LinearCoregionalization(kernels, W)


def stacked(X, Y, W):
    """GPflow's exact regression with Coregion on observed entries, and rows to predict."""
    entries = np.argwhere(~np.isnan(Y))
    rows = np.column_stack([X[entries[:, 0]], entries[:, 1]])
    coregion = gpflow.kernels.Coregion(len(W), W.shape[1], active_dims=[1])
    coregion.W.assign(W)
    coregion.kappa = gpflow.Parameter(np.zeros(len(W)))
    kernel = gpflow.kernels.Matern12(1.3, 0.8, active_dims=[0]) * coregion
    return gpflow.models.GPR((rows, Y[~np.isnan(Y)][:, None]), kernel, noise_variance=0.2)


def optimal(model, data, pairs):
    for _ in range(2):
        gpflow.optimizers.NaturalGradient(1.0).minimize(
            model.training_loss_closure(data, compile=False), pairs
        )


@pytest.mark.usefixtures("tiny_jitter")
def test_a_third_missing_in_one_latent_function_is_coregion_on_stacked_rows(rng):
    X, Y, kernel = coregionalized(rng, 1)
    model = gs.models.SOLVEGP(
        kernel,
        MissingOutputs(likelihoods.Gaussian(0.2)),
        gs.inducing_variables.OrthogonalInducingVariables(X),
    )
    optimal(model, (X, Y), [(model.q_mu[0], model.q_sqrt[0])])
    compare(model, stacked(X, Y, kernel.W.numpy()), (X, Y))


@pytest.mark.usefixtures("tiny_jitter")
def test_a_third_missing_in_three_latent_functions_is_coregion_on_stacked_rows(rng):
    """In GPflow's SVGP with a q of all latent functions jointly, which has no independent ones."""
    X, Y, kernel = coregionalized(rng, 3)
    Z = gpflow.inducing_variables.InducingPoints(X)
    q = {"q_mu": np.zeros((27, 1)), "q_sqrt": np.eye(27)[None]}
    likelihood = MissingOutputs(likelihoods.Gaussian(0.2))
    model = gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=3, **q)
    optimal(model, (X, Y), [(model.q_mu, model.q_sqrt)])
    compare(model, stacked(X, Y, kernel.W.numpy()), (X, Y))


def compare(model, exact, data):
    np.testing.assert_allclose(model.elbo(data), exact.log_marginal_likelihood(), rtol=1e-8)
    X = data[0] + 0.13
    mean, var = model.predict_f(X)
    for p in range(3):
        rows = np.column_stack([X, np.full(len(X), p)])
        expected = exact.predict_f(rows)
        np.testing.assert_allclose(mean[:, p : p + 1], expected[0], atol=1e-8)
        np.testing.assert_allclose(var[:, p : p + 1], expected[1], atol=1e-8)


def test_sites_of_known_variances_and_missing_outputs_are_exact_regression(rng):
    """SiteVGP, which holds its data: every output on its own rows, each with its own noise."""
    X, Y, _ = coregionalized(rng, 1)
    known = rng.uniform(0.01, 0.5, size=Y.shape)
    kernel, likelihood = gpflow.kernels.Matern32(), GaussianWithKnownVariance(0.1)
    model = gs.models.SiteVGP((X, np.hstack([Y, known])), kernel, MissingOutputs(likelihood))
    assert model.fit_sites()
    mean, var = model.predict_f(X)
    total = 0.0
    for p in range(3):
        seen = ~np.isnan(Y[:, p])
        K, k = (kernel(X[seen], rows).numpy() for rows in (X[seen], X))
        K += np.diag(known[seen, p] + 0.1)
        np.testing.assert_allclose(mean[:, p], k.T @ np.linalg.solve(K, Y[seen, p]), atol=1e-7)
        left = 1.0 - np.sum(k * np.linalg.solve(K, k), axis=0)
        np.testing.assert_allclose(var[:, p], left, atol=1e-7)
        y = Y[seen, p]
        quadratic = y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1]
        total -= 0.5 * (quadratic + len(y) * np.log(2.0 * np.pi))
    np.testing.assert_allclose(model.elbo(), total, rtol=1e-7)


def test_what_cannot_be_left_out_is_refused(rng):
    with pytest.raises(ValueError, match="base must be a likelihood with one latent function for"):
        MissingOutputs(OneVersusRest(3))
    site = MissingOutputs(likelihoods.Gaussian(np.array([0.1, 0.2])))
    two = np.ones((4, 2))
    with pytest.raises(
        ValueError, match="parameters that are the same for all outputs, got one of Gauss"
    ):
        site.variational_expectations(None, two, two, two)
    Z = gs.inducing_variables.OrthogonalInducingVariables(rng.normal(size=(3, 1)))
    model = gs.models.SOLVEGP(gpflow.kernels.Matern32(), site, Z, num_latent_gps=2)
    for value, message in ((np.inf, "Y must be finite"), (np.nan, None)):
        model.likelihood = MissingOutputs(likelihoods.Gaussian())
        two[0, 1] = value
        if message is None:
            assert np.isfinite(model.elbo((rng.normal(size=(4, 1)), two)))
            traced = tf.function(model.predict_log_density, autograph=False)
            assert np.isfinite(traced((tf.ones([4, 1], tf.float64), tf.constant(two)))).all()
        else:
            with pytest.raises(ValueError, match=message):
                model.elbo((rng.normal(size=(4, 1)), two))
    model.likelihood = MissingOutputs(likelihoods.Poisson())
    with pytest.raises(ValueError, match="Y must hold counts"):
        model.elbo((rng.normal(size=(4, 1)), two - 0.5))
