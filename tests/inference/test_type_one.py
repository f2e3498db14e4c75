"""Type-I inference of `GRIEF`: priors, the quadrature and the sampler, against grids in NumPy."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import collapsed
from gpflow_sparse.models import GRIEF
from gpflow_sparse.models.grief import type_one
from tests.oracles import grief_type_one as oracle

pytestmark = pytest.mark.filterwarnings("ignore:.*prior variance")
WEIGHTS, NOISE = (1.0, 100.0), (0.2, 0.04)  # mode and variance


def build(p, P, rows, *, variance=1.3, outputs=None, reweighted="rotated"):
    """``outputs``: of the functions at the rows, on the data."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(rows, 1))
    Y = np.sin(2.0 * X) + 0.5 * rng.normal(size=(rows, P))
    options = {"num_eigenfunctions": p, "grid": [np.linspace(-2.0, 2.0, 6)], "noise_variance": 0.2}

    def made(Y):
        kernel = gpflow.kernels.SquaredExponential(variance, 0.8)
        return GRIEF((X, Y), kernel, reweighted=reweighted, objective="likelihood", **options)

    if outputs is not None:
        Y = outputs(made(Y).basis(X).numpy())
    return made(Y), X, Y


def lognormal(mu, sd):
    """Mode and variance."""
    mode, _, variance = oracle.lognormal_moments(mu, sd)
    return float(mode), float(variance)


def grid(model, X, Y, X_new, weights, noise, nodes):
    """Log evidence, mean and variance, of priors ``(mu, sd)``."""
    Phi, Phi_new = model.basis(X).numpy(), model.basis(X_new).numpy()
    V = np.linalg.svd(Phi)[2].T
    return oracle.brute_force(Phi @ V, Y, Phi_new @ V, weights, noise, *nodes)


def require_grid(mixture, X_new, expected, rtol=1e-7):
    np.testing.assert_allclose(mixture.log_evidence, expected[0], rtol=1e-8)
    mean, variance = mixture.predict_f(X_new)
    np.testing.assert_allclose(mean, expected[1], rtol=rtol, atol=1e-10)
    np.testing.assert_allclose(variance, expected[2], rtol=rtol)
    shares = np.exp(mixture.log_weights)
    np.testing.assert_allclose(shares.sum(), 1.0, rtol=1e-12)
    noisy = variance + shares @ mixture.noise_variance.numpy()
    np.testing.assert_allclose(mixture.predict_y(X_new)[1], noisy, rtol=1e-12)


def test_the_priors_of_the_paper():
    """Numbers found by bisection; {mode, variance} of Evans and Nair (2018), section 6."""
    mu, sd = type_one.lognormal_from_mode_variance(1.0, 100.0)
    np.testing.assert_allclose([mu, sd**2], 1.23700, atol=5e-6)
    for mode, expected in ((0.01, 1.557), (0.25, 0.258), (100.0, 4.0e-6)):
        got = type_one.lognormal_from_mode_variance(mode, 0.04)
        np.testing.assert_allclose(got.sd**2, expected, rtol=2e-3)


@pytest.mark.parametrize(("noise", "weight"), [(1e-200, 1e200), (0.1, np.nan), (np.inf, 1.0)])
def test_the_density_of_impossible_weights_is_zero(noise, weight):
    """Which a sampler may propose; a chain beside is not harmed."""
    rng = np.random.default_rng(0)
    A, Y = rng.normal(size=(20, 12)), rng.normal(size=(12, 2))
    sums = collapsed.row_sums(*(tf.constant(part) for part in (A, Y, np.sum(A**2, axis=0))))
    weights = np.stack([np.ones(20), np.full(20, weight)])
    unknowns = tf.constant([0.1, noise], tf.float64), tf.constant(weights)
    expected = oracle.dense_lml(A.T, Y, np.ones(20), 0.1)
    for got in (
        type_one.weighted_log_density(sums, *unknowns),
        type_one.row_log_density(sums, *type_one.row_space(sums), *unknowns),
    ):
        np.testing.assert_allclose(got[0], expected, rtol=1e-10)
        assert got[1] == -np.inf


@pytest.mark.parametrize(("rows", "rank"), [(12, 12), (30, 12)])  # repeated rows
def test_the_density_in_the_space_of_the_rows_is_that_of_the_functions(rows, rank):
    rng = np.random.default_rng(0)
    A, Y = rng.normal(size=(20, 12))[:, np.arange(rows) % 12], rng.normal(size=(rows, 2))
    sums = collapsed.row_sums(*(tf.constant(part) for part in (A, Y, np.sum(A**2, axis=0))))
    unknowns = tf.constant(rng.uniform(0.1, 1.0, 3)), tf.constant(rng.uniform(0.1, 9.0, (3, 20)))
    F, z = type_one.row_space(sums)
    assert F.shape == (20, rank)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(unknowns)
        values = [
            type_one.weighted_log_density(sums, *unknowns),
            type_one.row_log_density(sums, F, z, *unknowns),
        ]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-10)
    slopes, expected = (tape.gradient(value, unknowns) for value in reversed(values))
    for got, wanted in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8)


def test_more_rows_than_functions_have_no_smaller_space():
    A = np.random.default_rng(0).normal(size=(4, 9))
    sums = collapsed.row_sums(A, np.ones((9, 1)), np.sum(A**2, axis=0))
    assert type_one.row_space(sums) is None


@pytest.mark.nightly
def test_where_chains_start_and_how_far_they_go():
    """In logarithms: from the modes of the priors, with a scale for each unknown."""
    model, *_ = build(2, 3, 12)
    mixture = model.sample_posterior(
        3, weight_prior=(1.5, 1e-12), noise_prior=(0.3, 1e-12), num_burnin=5
    )
    np.testing.assert_allclose(mixture.weights, 1.5, rtol=1e-4)  # sharp priors have small scales
    np.testing.assert_allclose(mixture.noise_variance, 0.3, rtol=1e-4)
    assert np.abs(np.diff(mixture.weights, axis=0)).min() > 0.0
    assert np.mean(mixture.acceptance) > 0.3


@pytest.mark.parametrize(("p", "P", "rows"), [(1, 1, 4), (1, 3, 4), (2, 1, 4), (2, 2, 1)])
def test_the_quadrature_is_a_grid_over_all_unknowns(p, P, rows):
    """With 1 row and 2 functions, one of them is zero on the data."""
    model, X, Y = build(p, P, rows)
    X_new = np.array([[-1.3], [0.2], [0.9]])
    nodes = [np.linspace(-9.0, 9.0, 51)] * 2
    priors = [type_one.lognormal_from_mode_variance(*prior) for prior in (WEIGHTS, NOISE)]
    expected = grid(model, X, Y, X_new, *priors, nodes)
    mixture = model.sample_posterior(method="quadrature", weight_prior=WEIGHTS, noise_prior=NOISE)
    assert mixture.weights is None
    require_grid(mixture, X_new, expected)


def small(Phi):
    """Forty outputs that see nothing of a function that the prior expects to be large."""
    Y = np.random.default_rng(1).normal(size=(3, 40))
    Y[:, 1:] -= 0.8 * Phi @ (Phi.T @ Y[:, 1:]) / np.sum(Phi**2)
    return Y


CASES = {
    # ten thousand times what the prior expects, 38 of its standard deviations away
    "large": (
        1.0,
        4,
        lambda Phi: np.exp(-5.0) * 1e4 * Phi + np.array([[0.1], [0.2], [-0.1], [0.3]]),
        ((-10.0, 0.5), (0.0, 0.1)),
        (np.linspace(-2.0, 48.0, 251), np.linspace(-7.0, 9.0, 61)),
    ),
    "small": (
        1e8,
        3,
        small,
        ((3.0, 0.7), (0.0, 0.3)),
        (np.linspace(-24.0, 2.0, 251), np.linspace(-9.0, 9.0, 81)),
    ),
    # the posterior of a weight is narrower than the nodes of one output
    "many outputs": (
        1.0,
        4,
        lambda Phi: (
            np.random.default_rng(1).normal(size=(5, 4, 100))[0]
            + 10.0 * Phi @ np.random.default_rng(2).normal(size=(1, 100))
        ),
        ((4.0, 3.0), (0.0, 0.3)),
        (np.linspace(-1.0, 1.0, 251), np.linspace(-3.0, 3.0, 81)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_nodes_are_where_the_data_say(name):
    variance, rows, outputs, priors, nodes = CASES[name]
    model, X, Y = build(1, 1, rows, variance=variance, outputs=outputs)
    expected = grid(model, X, Y, X, *priors, nodes)
    mixture = model.sample_posterior(
        method="quadrature", weight_prior=lognormal(*priors[0]), noise_prior=lognormal(*priors[1])
    )
    require_grid(mixture, X, expected, rtol=1e-6)


def test_data_that_say_nothing_leave_the_prior():
    """All zero: the likelihood is ``(2 pi noise)^(-N / 2)``, which moves the log noise far down."""
    N, sd = 60, 0.4
    model, X, _ = build(2, 1, N, variance=1e-12, outputs=lambda Phi: np.zeros((N, 1)))
    mixture = model.sample_posterior(
        method="quadrature", weight_prior=WEIGHTS, noise_prior=lognormal(0.0, sd)
    )
    evidence = -0.5 * N * np.log(2.0 * np.pi) + N**2 * sd**2 / 8.0
    np.testing.assert_allclose(mixture.log_evidence, evidence, rtol=1e-6)
    shares, logs = np.exp(mixture.log_weights), np.log(mixture.noise_variance)
    np.testing.assert_allclose(shares @ logs, -0.5 * N * sd**2, rtol=1e-6)
    _, mean, _ = oracle.lognormal_moments(*type_one.lognormal_from_mode_variance(*WEIGHTS))
    prior = mean * np.sum(model.basis(X).numpy() ** 2, axis=1)
    np.testing.assert_allclose(mixture.predict_f(X)[1][:, 0], prior, rtol=1e-5)


@pytest.mark.parametrize(
    "reweighted", ["rotated", pytest.param("original", marks=pytest.mark.nightly)]
)
def test_the_sampler_agrees_with_the_quadrature(reweighted):
    """Of one function both forms are one; of three, the rotated form is compared."""
    p = 3 if reweighted == "rotated" else 1
    model, *_ = build(p, 1, 12, reweighted=reweighted)
    exact = build(p, 1, 12)[0].sample_posterior(method="quadrature", noise_prior=NOISE)
    sampled = model.sample_posterior(60, num_chains=40, noise_prior=NOISE)
    X_new = np.array([[-1.3], [0.2], [0.9]])
    for method in ("predict_f", "predict_y"):
        (mean, variance), expected = (getattr(m, method)(X_new) for m in (sampled, exact))
        np.testing.assert_allclose(mean, expected[0], atol=0.02)
        np.testing.assert_allclose(variance, expected[1], rtol=0.06)
    assert sampled.acceptance.shape == (40,)
    assert abs(np.mean(sampled.acceptance) - 0.8) < 0.15
