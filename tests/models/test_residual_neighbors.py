"""Neighbors on the residual of a base process, against dense algebra, SOLVE-GP, SWSGP and SVGP."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP, SWSGP, ResidualNeighborGP
from tests.models.test_swsgp import EPS, LENGTHSCALES, NOISE, L, rows, some_q
from tests.oracles import residual_neighbors as oracle
from tests.oracles import swsgp as local
from tests.oracles.solvegp import matern52

M, M2, H, N = 5, 12, 4, 12  # as many rows as points: all terms of a chain are there
# inputs in lengthscales, so that the oracle's distances are the model's
k = local.with_lengthscales(matern52, 1.0, 1.0)
Z = np.random.default_rng(4).normal(size=(M, 2)) / LENGTHSCALES
O = np.random.default_rng(2).normal(size=(M2, 2)) / LENGTHSCALES
X, Y = rows(N=N)
X = X / LENGTHSCALES
NEW = np.random.default_rng(9).normal(size=(6, 2))
every_weighting = pytest.mark.parametrize("weighting", ["counts", "paper", "chain"])


def base_q(seed=5, M=M, L=L):
    """Mean [M, L] and factor [L, M, M]."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(M, L)), np.tril(0.3 * rng.normal(size=(L, M, M))) + 0.7 * np.eye(M)


def build(covariance="diag", weighting="counts", count=H, Z=Z, O=O, start=False, **options):
    q = {}
    if not start:
        q = dict(zip(("base_q_mu", "base_q_sqrt"), base_q(M=len(Z)), strict=True))
        q |= dict(zip(("q_mu", "q_sqrt"), some_q(covariance, M=len(O)), strict=True))
    model = ResidualNeighborGP(
        options.pop("kernel", None) or gpflow.kernels.Matern52(),
        options.pop("likelihood", None) or gpflow.likelihoods.Gaussian(NOISE),
        OrthogonalInducingVariables(Z, NeighborInducingPoints(O, count)),
        covariance=covariance,
        kl_weighting=weighting,
        **{"num_data": N, "num_latent_gps": L, **q, **options},
    )
    model.count_neighbors(X)
    return model


def parts(model, p):
    """q of the base and of r at O, for one output: means and, of the first, a factor."""
    q_sqrt = model.q_sqrt
    if model.covariance == "diag":
        S = np.diag(q_sqrt[:, p].numpy() ** 2)
    else:
        S = q_sqrt[p].numpy() @ q_sqrt[p].numpy().T
    base = model.base_q_mu.numpy()[:, p], model.base_q_sqrt.numpy()[p]
    return base, (model.q_mu.numpy()[:, p], S)


def dense_objective(model, weighting, X=X, Y=Y, eps=EPS):
    H, sets = model.points.num_neighbors, local.nearest(X, O, model.points.num_neighbors)
    total = 0.0
    for p in range(L):
        q, rest = parts(model, p), (eps, NOISE)
        if weighting == "chain":
            total += oracle.chain_objective(k, X, Y[:, p], Z, O, sets, H, *q, *rest)
        else:
            w = local.kl_weights(weighting, sets, M2)
            total += oracle.objective(k, X, Y[:, p], Z, O, sets, w, *q, *rest)
    return total


@every_weighting
@pytest.mark.parametrize("covariance", ["diag", "dense"])
def test_the_objective_is_that_of_dense_algebra(covariance, weighting):
    model = build(covariance, weighting, num_data=None)
    np.testing.assert_allclose(model.elbo((X, Y)), dense_objective(model, weighting), rtol=1e-8)


@pytest.mark.parametrize("covariance", ["diag", "dense"])
def test_predictions_are_those_of_dense_algebra(covariance):
    model, sets = build(covariance), local.nearest(NEW, O, H)
    mean, var = model.predict_f(NEW)
    active = np.unique(np.concatenate(sets))
    _, cov = model.predict_f(NEW, full_cov=True)
    c = oracle.residual_kernel(k, Z, EPS)
    for p in range(L):
        base, own = parts(model, p)
        expected = oracle.predict(k, NEW, Z, O, sets, base, own, EPS)
        np.testing.assert_allclose(mean[:, p], expected[0], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(var[:, p], expected[1], rtol=1e-8, atol=1e-9)
        shared = oracle.base_moments(k, NEW, Z, *base, EPS)[1]
        expected = shared + local.joint(c, NEW, O, active, *own, EPS)[1]
        np.testing.assert_allclose(cov[p], expected, rtol=1e-8, atol=1e-9)
    for full_cov in (False, True):
        cached = model.posterior().predict_f(NEW, full_cov=full_cov)
        for a, b in zip(cached, model.predict_f(NEW, full_cov=full_cov), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)


@every_weighting
def test_with_all_points_for_neighbors_it_is_solvegp(weighting):
    """q(v) of SOLVE-GP is whitened: its mean and factor times Lvv are ours."""
    kernel, noise = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(NOISE)
    sets = OrthogonalInducingVariables(Z, O)
    q_mu, q_sqrt = zip(base_q(), base_q(6, M2), strict=True)
    options = {"num_latent_gps": L, "num_data": N, "q_mu": q_mu, "q_sqrt": q_sqrt}
    theirs = SOLVEGP(kernel, noise, sets, **options)
    Lvv = theirs.posterior(None).prior_factors()[1].numpy()
    ours = build(
        "dense", weighting, M2, q_mu=Lvv @ q_mu[1], q_sqrt=Lvv @ q_sqrt[1],
        base_q_mu=q_mu[0], base_q_sqrt=q_sqrt[0],
    )  # fmt: skip
    np.testing.assert_allclose(ours.elbo((X, Y)), theirs.elbo((X, Y)), rtol=1e-8)
    for full_cov in (False, True):
        for a, b in zip(
            ours.predict_f(NEW, full_cov), theirs.predict_f(NEW, full_cov), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_a_union_is_one_neighborhood_of_all_rows():
    """Its KL counts once."""
    size = 7
    model = build(union=size, num_data=None)
    active = model.points.ranked(tf.constant(X), model.kernel, size).numpy()
    sets, w = np.tile(active, (N, 1)), np.full(N, 1.0 / N)
    expected = 0.0
    for p in range(L):
        q = parts(model, p)
        expected += oracle.objective(k, X, Y[:, p], Z, O, sets, w, *q, EPS, NOISE)
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-8)


def test_the_logarithmic_bound_has_another_term_of_the_residual():
    """log(1 + residual / noise) in place of residual / noise."""
    standard, logarithmic = build(), build(bound="log")
    sets = local.nearest(X, O, H)
    fixed = (np.zeros(M), np.zeros((M, M))), (np.zeros(M2), np.zeros((M2, M2)))
    _, residual = oracle.predict(k, X, Z, O, sets, *fixed, EPS)
    gain = 0.5 * L * np.sum(residual / NOISE - np.log1p(residual / NOISE))
    assert gain > 0.1
    difference = logarithmic.elbo((X, Y)) - standard.elbo((X, Y))
    np.testing.assert_allclose(difference, gain, rtol=1e-8)


@every_weighting
def test_a_base_without_information_leaves_swsgp(weighting):
    far = 1e6 + Z
    prior = {"base_q_mu": np.zeros((M, L)), "base_q_sqrt": np.tile(np.eye(M), (L, 1, 1))}
    ours = build(weighting=weighting, Z=far, **prior)
    q_mu, q_sqrt = some_q("diag")
    theirs = SWSGP(
        ours.kernel, ours.likelihood, ours.points, num_data=N, num_latent_gps=L,
        kl_weighting=weighting, q_mu=q_mu, q_sqrt=q_sqrt,
    )  # fmt: skip
    theirs.count_neighbors(X)
    np.testing.assert_allclose(ours.elbo((X, Y)), theirs.elbo((X, Y)), rtol=1e-10)
    for a, b in zip(ours.predict_f(NEW), theirs.predict_f(NEW), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@every_weighting
def test_with_the_prior_of_the_residual_it_is_svgp_on_the_base(weighting):
    mean, factor = base_q()
    c = oracle.residual_kernel(k, Z, EPS)
    prior = np.linalg.cholesky(c(O, O) + EPS * np.eye(M2))
    ours = build(
        "dense", weighting, q_mu=np.zeros((M2, L)), q_sqrt=np.tile(prior, (L, 1, 1)), num_data=50
    )
    # by SOLVEGP of one set, whose jitter is the same as ours
    theirs = SOLVEGP(
        ours.kernel, ours.likelihood, OrthogonalInducingVariables(Z), num_latent_gps=L,
        q_mu=[mean], q_sqrt=[factor], num_data=50,
    )  # fmt: skip
    if weighting != "chain":  # which has another prior of v
        np.testing.assert_allclose(ours.elbo((X, Y)), theirs.elbo((X, Y)), rtol=1e-8)
    for a, b in zip(ours.predict_f(NEW), theirs.predict_f(NEW), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.nightly
def test_the_chain_is_a_bound_and_above_that_of_the_base_alone():
    """At the best q, by closed forms in turn, of one output."""
    y, sets = Y[:, :1], local.nearest(X, O, H)
    model = build(weighting="chain", start=True, num_latent_gps=1)
    model.start_from_sites((X, y))
    for _ in range(6):
        model.update_base((X, y))
        model.update_posterior((X, y))
    bound = model.elbo((X, y))
    evidence = oracle.chain_evidence(k, X, y[:, 0], Z, O, sets, H, EPS, NOISE)
    alone = gpflow.models.SGPR((X, y), model.kernel, Z, noise_variance=NOISE).elbo()
    assert alone < bound < evidence


@pytest.mark.nightly
def test_closed_forms_in_turn_only_raise_the_objective():
    """And end where its gradient by q of the base is zero."""
    model = build(start=True)
    model.start_from_sites((X, Y))
    values = [model.elbo((X, Y))]
    for _ in range(3):
        model.update_base((X, Y))
        values.append(model.elbo((X, Y)))
        model.update_posterior((X, Y))
        values.append(model.elbo((X, Y)))
    assert np.all(np.diff(values) > -1e-7)
    model.update_base((X, Y))
    variables = [model.base_q_mu.unconstrained_variable, model.base_q_sqrt.unconstrained_variable]
    with tf.GradientTape() as tape:
        value = model.elbo((X, Y))
    for gradient in tape.gradient(value, variables):
        np.testing.assert_allclose(gradient, 0.0, atol=1e-7)
    # one more natural step changes nothing for Gaussian noise
    before = model.base_q_mu.numpy()
    model.update_base((X, Y))
    np.testing.assert_allclose(model.base_q_mu, before, atol=1e-9)


def test_the_base_starts_with_the_residual_as_noise():
    model = build(start=True)
    model.start_from_sites((X, Y))
    A = np.linalg.inv(np.linalg.cholesky(k(Z, Z) + EPS * np.eye(M))) @ k(Z, X)
    noise = NOISE + np.diag(oracle.residual_kernel(k, Z, EPS)(X, X))
    S = np.linalg.inv(np.eye(M) + (A / noise) @ A.T)
    np.testing.assert_allclose(model.base_q_mu, S @ (A / noise) @ Y, rtol=1e-8, atol=1e-10)
    for R in model.base_q_sqrt.numpy():
        np.testing.assert_allclose(R @ R.T, S, rtol=1e-8, atol=1e-10)
