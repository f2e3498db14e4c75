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


def both_from(least):
    """Both covariances, with few and with many points at each row."""
    pairs = [("diag", least), ("diag", M), ("dense", H), ("dense", M)]
    return pytest.mark.parametrize(("covariance", "count"), pairs)


def dense_objective(model, X, Y, count=H, eps=EPS):
    X = X / LENGTHSCALES
    sets = oracle.nearest(X, SCALED, count)
    return sum(
        oracle.chain_objective(k, X, Y[:, p], SCALED, sets, count, m, spread(model, p), eps, NOISE)
        for p, m in enumerate(model.q_mu.numpy().T)
    )


@both_from(1)
def test_the_objective_of_many_rows_is_exact(covariance, count):
    X, Y = rows(N=M)
    model = build(covariance, "chain", count, num_data=None)
    np.testing.assert_allclose(model.elbo((X, Y)), dense_objective(model, X, Y, count), rtol=1e-8)
    compiled = tf.function(lambda: model.elbo((X, Y)), autograph=False)
    np.testing.assert_allclose(compiled(), model.elbo((X, Y)), rtol=1e-12)


@both_from(1)
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
    """Fewer rows than points: each call draws as many terms again. Within 5 standard errors."""
    X, Y = rows()
    model = build("diag", "chain")
    tf.random.set_seed(1)
    elbo = base.compiled_elbo(model)
    values = np.array([elbo(X, Y).numpy() for _ in range(100)])
    assert len(set(np.round(values[:20], 9))) > 15
    error = values.mean() - dense_objective(model, X, Y)
    assert abs(error) < 5.0 * values.std() / np.sqrt(100)
    assert values.std() < 0.5 * abs(values.mean())


@both_from(2)
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
        factor = best_factor(X / LENGTHSCALES, SCALED, S, NOISE)[0]
        model.q_factor.assign(np.stack([factor] * L, axis=1))
    with tf.GradientTape() as tape:
        elbo = model.elbo((X, Y))
    assert elbo < evidence
    for gradient in tape.gradient(elbo, model.row_variables):
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), 0.0, atol=1e-5)


def stock(covariance, inducing, kernel=None, **options):
    """GPflow's own model, with the q of :func:`build`."""
    q_mu, q_sqrt = base.some_q(covariance)
    return gpflow.models.SVGP(
        kernel or gpflow.kernels.Matern52(lengthscales=LENGTHSCALES),
        gpflow.likelihoods.Gaussian(NOISE),
        inducing,
        num_latent_gps=L,
        q_diag=covariance == "diag",
        whiten=False,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        **options,
    )


@both_from(1)
def test_stock_svgp_has_the_bound_and_the_gradients(covariance, count):
    """Of as many rows as points, for which SWSGP has all terms; at H = M SVGP's."""
    X, Y = rows(N=M)
    ours = build(covariance, "chain", count, num_data=3 * M)
    theirs = stock(covariance, base.points(count), num_data=3 * M)
    np.testing.assert_allclose(theirs.elbo((X, Y)), ours.elbo((X, Y)), rtol=1e-10)
    if count == M:
        whole = stock(covariance, base.points().Z.numpy(), num_data=3 * M)
        np.testing.assert_allclose(theirs.elbo((X, Y)), whole.elbo((X, Y)), rtol=1e-8)
    gradients = []
    for each in (ours, theirs):
        of = [
            *each.kernel.trainable_variables,
            *each.likelihood.trainable_variables,
            *q_means(each),
        ]
        with tf.GradientTape() as tape:
            loss = each.training_loss((X, Y))
        gradients.append(tape.gradient(loss, of))
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(b), tf.convert_to_tensor(a), rtol=1e-8)


def q_means(model):
    return [model.q_mu] if isinstance(model, SWSGP) else [model.q_mu.unconstrained_variable]


@every_covariance
def test_stock_svgp_is_below_the_evidence_of_its_own_prior(covariance):
    """20 problems; the evidence is of the chain of the points and of rows given their neighbors."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        count, noise = int(rng.integers(1, M + 1)), rng.uniform(0.05, 0.5)
        X, Z = rng.normal(size=(20, 2)), rng.normal(size=(M, 2))
        y = np.sin(3.0 * X[:, 0]) + np.sqrt(noise) * rng.normal(size=20)
        sets = oracle.nearest(X, Z, count)
        evidence = oracle.chain_evidence(k, X, y, Z, sets, count, EPS, noise)
        m, s = oracle.optimal_chain_q(k, X, y, Z, sets, count, EPS, noise)
        model = gpflow.models.SVGP(
            gpflow.kernels.Matern52(),
            gpflow.likelihoods.Gaussian(noise),
            NeighborInducingPoints(Z, count),
            q_diag=covariance == "diag",
            whiten=False,
            q_mu=m[:, None],
            q_sqrt=np.sqrt(s)[:, None] if covariance == "diag" else best_factor(X, Z, sets, noise),
        )
        elbo, data = model.elbo((X, y[:, None])), (k, X, y, Z, sets, count)
        S = np.diag(s) if covariance == "diag" else model.q_sqrt[0] @ tf.transpose(model.q_sqrt[0])
        expected = oracle.chain_objective(*data, m, np.asarray(S), EPS, noise)
        np.testing.assert_allclose(elbo, expected, rtol=1e-7)
        assert elbo < evidence


def best_factor(X, Z, sets, noise):
    """Factor of the best covariance ``[1, M, M]``."""
    A, _ = oracle.dense_projection(k, X, Z, sets, EPS)
    precision = A.T @ A / noise + oracle.chain_precision(k, Z, sets.shape[1], EPS)
    return np.linalg.cholesky(np.linalg.inv(precision))[None]


@pytest.mark.parametrize(
    "wrap", [lambda Z: Z, gpflow.inducing_variables.SharedIndependentInducingVariables]
)
def test_stock_svgp_sums_the_kl_of_several_kernels(wrap):
    """Each kernel has neighbors of its own, whether the points are wrapped or not."""
    X, Y = rows(N=M)
    first, second = gpflow.kernels.Matern52(lengthscales=LENGTHSCALES), gpflow.kernels.Matern32()
    kernels = {
        "separate": gpflow.kernels.SeparateIndependent([first, second]),
        "shared": gpflow.kernels.SharedIndependent(first, L),
    }
    for kernel in kernels.values():
        model = stock("diag", wrap(base.points()), kernel)
        q_mu, q_sqrt = base.some_q("diag")
        ours = SWSGP(
            kernel,
            gpflow.likelihoods.Gaussian(NOISE),
            base.points(),
            kl_weighting="chain",
            q_mu=q_mu,
            q_sqrt=q_sqrt,
        )
        np.testing.assert_allclose(model.elbo((X, Y)), ours.elbo((X, Y)), rtol=1e-10)
