"""SWSGP's chain: one KL against a product of conditionals given nearest predecessors."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import SWSGP
from tests.models import test_swsgp as base
from tests.models.test_swsgp import EPS, LENGTHSCALES, NOISE, H, L, M, build, rows, spread
from tests.oracles import swsgp as oracle

SCALED = base.points().Z.numpy() / LENGTHSCALES
k = oracle.with_lengthscales(base.matern52, 1.0, 1.0)  # of inputs in lengthscales
every_covariance = pytest.mark.parametrize("covariance", ["diag", "dense"])


def dense_objective(model, X, Y, count=H, eps=EPS):
    X = X / LENGTHSCALES
    sets = oracle.nearest(X, SCALED, count)
    return sum(
        oracle.chain_objective(k, X, Y[:, p], SCALED, sets, count, m, spread(model, p), eps, NOISE)
        for p, m in enumerate(model.q_mu.numpy().T)
    )


@pytest.mark.parametrize("count", [1, H, M])
@every_covariance
def test_the_objective_of_many_rows_is_exact(covariance, count):
    X, Y = rows(N=M)
    model = build(covariance, "chain", count, num_data=None)
    np.testing.assert_allclose(model.elbo((X, Y)), dense_objective(model, X, Y, count), rtol=1e-8)
    compiled = tf.function(lambda: model.elbo((X, Y)), autograph=False)
    np.testing.assert_allclose(compiled(), model.elbo((X, Y)), rtol=1e-12)


@pytest.mark.parametrize("count", [1, H, M])
@every_covariance
def test_the_whole_kl_needs_no_rows(covariance, count):
    model = build(covariance, "chain", count)
    expected = sum(
        oracle.chain_kl(k, SCALED, count, m, spread(model, p), EPS)
        for p, m in enumerate(model.q_mu.numpy().T)
    )
    np.testing.assert_allclose(model.prior_kl(), expected, rtol=1e-8)


@pytest.mark.nightly
def test_the_whole_kl_of_many_points_is_summed_in_blocks():
    """700 points of 40 neighbors."""
    rng = np.random.default_rng(0)
    Z, m, s = rng.normal(size=(700, 2)), rng.normal(size=700), rng.uniform(0.1, 0.5, size=700)
    model = SWSGP(
        gpflow.kernels.Matern52(lengthscales=0.1),
        gpflow.likelihoods.Gaussian(),
        NeighborInducingPoints(Z, 40),
        kl_weighting="chain",
        q_mu=m[:, None],
        q_sqrt=s[:, None],
    )
    expected = oracle.chain_kl(k, Z / 0.1, 40, m, np.diag(s**2), EPS)
    np.testing.assert_allclose(model.prior_kl(), expected, rtol=1e-7)


def test_the_mean_over_draws_of_terms_is_the_objective():
    """Fewer rows than points: each call draws as many terms anew. Within 5 standard errors."""
    X, Y = rows()
    model = build("diag", "chain")
    tf.random.set_seed(1)
    elbo = base.compiled_elbo(model)
    values = np.array([elbo(X, Y).numpy() for _ in range(100)])
    assert len(set(np.round(values[:20], 9))) > 15
    error = values.mean() - dense_objective(model, X, Y)
    assert abs(error) < 5.0 * values.std() / np.sqrt(100)
    assert values.std() < 0.5 * abs(values.mean())


@pytest.mark.parametrize("count", [2, H, M])
@every_covariance
def test_it_is_below_the_evidence_of_its_own_model(covariance, count):
    """At the best q as well, where the gradient by q is zero."""
    X, Y = rows(N=30)
    model = build(covariance, "chain", count, num_data=None)
    S = oracle.nearest(X / LENGTHSCALES, SCALED, count)
    arguments = [(k, X / LENGTHSCALES, y, SCALED, S) for y in Y.T]
    evidence = sum(oracle.chain_evidence(*part, count, EPS, NOISE) for part in arguments)
    assert model.elbo((X, Y)) < evidence
    best = [oracle.optimal_chain_q(*part, count, EPS, NOISE) for part in arguments]
    model.q_mu.assign(np.stack([m for m, _ in best], axis=1))
    if covariance == "diag":
        model.q_log_scale.assign(0.5 * np.log([s for _, s in best]).T)
    else:
        A, _ = oracle.dense_projection(k, X / LENGTHSCALES, SCALED, S, EPS)
        precision = A.T @ A / NOISE + oracle.chain_precision(k, SCALED, count, EPS)
        factor = np.linalg.cholesky(np.linalg.inv(precision))
        model.q_factor.assign(np.stack([factor] * L, axis=1))
    with tf.GradientTape() as tape:
        elbo = model.elbo((X, Y))
    assert elbo < evidence
    for gradient in tape.gradient(elbo, model.row_variables):
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), 0.0, atol=1e-5)
