"""Priors and log posteriors of type-I inference, and the quadrature, against dense NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import collapsed, rotation
from gpflow_sparse.models.grief import quadrature, sampling, type_one
from tests.inference.test_rotation import problem, rotated, sums_of, tensors, weights_of
from tests.oracles import grief_type_one as oracle

PRIOR = type_one.Prior(
    weights=type_one.lognormal_from_mode_variance(1.0, 100.0),
    noise=type_one.lognormal_from_mode_variance(0.2, 0.04),
)


@pytest.mark.parametrize("mode", [1e-3, 0.1, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("variance", [1e-6, 0.04, 1.0, 100.0, 1e8])
def test_mode_and_variance_of_the_lognormal(mode, variance):
    mu, sd = type_one.lognormal_from_mode_variance(mode, variance)
    got_mode, _, got_variance = oracle.lognormal_moments(mu, sd)
    np.testing.assert_allclose(got_mode, mode, rtol=1e-12)
    np.testing.assert_allclose(got_variance, variance, rtol=1e-10)


def test_the_priors_of_the_paper():
    """Numbers found by bisection; {mode, variance} of Evans and Nair (2018), section 6."""
    mu, sd = type_one.lognormal_from_mode_variance(1.0, 100.0)
    np.testing.assert_allclose([mu, sd**2], 1.23700, atol=5e-6)
    for mode, expected in ((0.01, 1.557), (0.25, 0.258), (100.0, 4.0e-6)):
        got = type_one.lognormal_from_mode_variance(mode, 0.04)
        np.testing.assert_allclose(got.sd**2, expected, rtol=2e-3)
        np.testing.assert_allclose(got.log_mode, np.log(mode), atol=1e-12)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_modes_and_variances_must_be_positive(bad):
    with pytest.raises(ValueError, match="mode must be a positive number"):
        type_one.lognormal_from_mode_variance(bad, 1.0)
    with pytest.raises(ValueError, match="variance must be a positive number"):
        type_one.lognormal_from_mode_variance(1.0, bad)


def log_prior(x):
    weights = sum(oracle.log_normal(value, *PRIOR.weights) for value in x[:-1])
    return weights + oracle.log_normal(x[-1], *PRIOR.noise)


@pytest.mark.parametrize("form", ["rotated", "features"])
@pytest.mark.parametrize("p", [5, 20])
def test_the_log_posterior_and_its_gradient(form, p):
    Phi, Y = problem(p)
    sums = sums_of(Phi, Y)
    if form == "rotated":
        found = rotation.rotate(sums)
        target = type_one.log_posterior(found, PRIOR)
        Phi = Phi @ found.V.numpy()
    else:
        target = type_one.log_posterior(sums, PRIOR)

    def expected(x):
        return oracle.dense_lml(Phi, Y, np.exp(x[:-1]), np.exp(x[-1])) + log_prior(x)

    rng = np.random.default_rng(3)
    chains = rng.normal(size=(3, p + 1))
    x = tf.constant(chains)
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = target(x)
    slopes = tape.gradient(values, x)
    np.testing.assert_allclose(values, [expected(row) for row in chains], rtol=1e-11)
    for row, slope in zip(chains, slopes, strict=True):
        np.testing.assert_allclose(slope, oracle.differences(expected, row), rtol=1e-6, atol=1e-7)


def test_weights_on_features_are_scaled_features():
    Phi, Y = problem()
    sums, w = sums_of(Phi, Y), weights_of(5)
    noise, weights = tensors(0.3, w)
    scaled = sums_of(Phi * np.sqrt(w), Y)
    got = type_one.weighted_log_density(sums, noise, weights)
    np.testing.assert_allclose(got, collapsed.log_density(scaled, noise), rtol=1e-13)
    np.testing.assert_allclose(got, oracle.dense_lml(Phi, Y, w, 0.3), rtol=1e-12)


@pytest.mark.parametrize("x", [800.0, -800.0, np.nan])
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("form", ["rotated", "features"])
def test_impossible_values_have_no_density_and_raise_nothing(form, x, which):
    sums = sums_of(*problem(20))
    data = sums if form == "features" else rotation.rotate(sums)
    values = np.zeros((2, 21))
    values[0, which] = x
    got = tf.function(type_one.log_posterior(data, PRIOR), autograph=False)(
        tf.constant(values)
    ).numpy()
    possible = which == 0 and x == -800.0  # a weight that is zero, of 20
    assert np.isfinite(got[0]) == possible or got[0] < -1e5
    assert np.isfinite(got[1])


@pytest.mark.parametrize(("noise", "weight"), [(1e-200, 1e200), (0.1, np.nan), (np.inf, 1.0)])
def test_the_density_of_impossible_weights_is_zero(noise, weight):
    sums = sums_of(*problem(20))
    weights = np.stack([np.ones(20), np.full(20, weight)])
    got = type_one.weighted_log_density(sums, *tensors([0.1, noise], weights)).numpy()
    assert np.isfinite(got[0])
    assert got[1] == -np.inf


def test_where_chains_start_and_how_far_they_go():
    sums = sums_of(*problem(P=3))
    for data in (sums, rotation.rotate(sums)):
        start, scales = type_one.start_and_scales(PRIOR, data, 4)
        expected = np.tile(np.log([1.0] * 5 + [0.2]), (4, 1))
        np.testing.assert_allclose(start, expected, atol=1e-12)
        noise = (1.0 / PRIOR.noise.sd**2 + 12 * 3 / 2) ** -0.5
        np.testing.assert_allclose(scales, [PRIOR.weights.sd] * 5 + [noise], rtol=1e-12)


def moments_at(Phi_new, found, result):
    """Of the mixture over noise variances."""
    R = Phi_new @ found.V.numpy()
    shares = np.exp(result.log_weights.numpy())
    means, variances = R @ result.means.numpy(), R**2 @ result.variances.numpy()
    mean = np.einsum("j,jmq->mq", shares, means)
    return mean, np.einsum("j,jmq->mq", shares, variances + (means - mean) ** 2)


@pytest.mark.parametrize(("p", "P", "rows"), [(1, 1, 4), (1, 3, 4), (2, 1, 4), (2, 2, 1)])
def test_the_quadrature_is_a_grid_over_all_unknowns(p, P, rows):
    """With 1 row and 2 functions, one of them is zero on the data."""
    Phi, Y = problem(p, P, seed=5, rows=rows)
    Phi_new = np.random.default_rng(7).normal(size=(3, p))
    found = rotated(Phi, Y)
    result = quadrature.quadrature(found, PRIOR)
    V = found.V.numpy()
    nodes = np.linspace(-9.0, 9.0, 51)
    expected = oracle.brute_force(Phi @ V, Y, Phi_new @ V, PRIOR.weights, PRIOR.noise, nodes, nodes)
    np.testing.assert_allclose(result.log_evidence, expected[0], rtol=1e-8)
    mean, variance = moments_at(Phi_new, found, result)
    np.testing.assert_allclose(mean, expected[1], rtol=1e-7)
    np.testing.assert_allclose(variance, expected[2], rtol=1e-7)
    np.testing.assert_allclose(np.exp(result.log_weights).sum(), 1.0, rtol=1e-12)


def test_more_nodes_change_nothing(monkeypatch):
    found = rotated(*problem(10, seed=2))
    first = quadrature.quadrature(found, PRIOR)
    Phi_new = np.random.default_rng(7).normal(size=(3, 10))
    before = moments_at(Phi_new, found, first)
    for name, value in (("_SPACING", 0.03), ("_REACH", 10.0), ("_NOISE_NODES", 151)):
        monkeypatch.setattr(quadrature, name, value)
    second = quadrature.quadrature(found, PRIOR)
    np.testing.assert_allclose(first.log_evidence, second.log_evidence, rtol=1e-10)
    for one, other in zip(before, moments_at(Phi_new, found, second), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def against_a_grid(Phi, Y, prior, *nodes):
    found = rotated(Phi, Y)
    result = quadrature.quadrature(found, prior)
    V = found.V.numpy()
    expected = oracle.brute_force(Phi @ V, Y, Phi @ V, prior.weights, prior.noise, *nodes)
    np.testing.assert_allclose(result.log_evidence, expected[0], rtol=1e-8)
    mean, variance = moments_at(Phi, found, result)
    np.testing.assert_allclose(mean, expected[1], rtol=1e-6)
    np.testing.assert_allclose(variance, expected[2], rtol=1e-6)


def test_data_that_need_large_weights_move_the_nodes():
    """Functions ten thousand times what the prior expects, 38 of its standard deviations away."""
    Phi = np.array([[1.0], [-0.5], [0.8], [0.3]])
    Y = np.exp(-5.0) * 1e4 * Phi + np.array([[0.1], [0.2], [-0.1], [0.3]])
    prior = type_one.Prior(type_one.LogNormal(-10.0, 0.5), type_one.LogNormal(0.0, 0.1))
    against_a_grid(Phi, Y, prior, np.linspace(-2.0, 48.0, 251), np.linspace(-7.0, 9.0, 61))


def test_data_that_need_small_weights_move_the_nodes():
    """Forty outputs see nothing of a function that the prior expects to be large."""
    Phi = 1e4 * np.array([[1.0], [0.7], [-0.5]])
    Y = np.linalg.svd(Phi)[0] @ np.random.default_rng(1).normal(size=(3, 40))
    Y[:, 1:] -= 0.8 * Phi @ (Phi.T @ Y[:, 1:]) / np.sum(Phi**2)
    prior = type_one.Prior(type_one.LogNormal(3.0, 0.7), type_one.LogNormal(0.0, 0.3))
    against_a_grid(Phi, Y, prior, np.linspace(-24.0, 2.0, 251), np.linspace(-9.0, 9.0, 81))


def test_many_outputs_narrow_the_nodes(monkeypatch):
    """With 400 outputs the posterior of a weight is narrower than the nodes of one output."""
    rng = np.random.default_rng(1)
    Phi = rng.normal(size=(4, 1))
    Y = rng.normal(size=(4, 400)) + 10.0 * Phi @ rng.normal(size=(1, 400))
    prior = type_one.Prior(type_one.LogNormal(4.0, 3.0), type_one.LogNormal(0.0, 0.3))
    first = quadrature.quadrature(rotated(Phi, Y), prior)
    monkeypatch.setattr(quadrature, "_SPACING", 0.004)
    second = quadrature.quadrature(rotated(Phi, Y), prior)
    np.testing.assert_allclose(first.log_evidence, second.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(first.variances, second.variances, rtol=1e-7)


@pytest.mark.parametrize(("noise", "sd"), [(0.01, 3.0), (1e-8, 0.5), (1e8, 0.5)])
def test_a_million_rows_leave_a_sharp_noise(noise, sd):
    """Sums of made-up rows, so that N is large: the posterior of the noise has sd sqrt(2 / N)."""
    N, p = 1_000_000, 3
    squares = tensors(np.array([3.0, 2.0, 1.0]) * N)[0]
    truth = np.sqrt(noise) * np.array([[1.0], [0.5], [-0.2]])
    projections = squares[:, None] * tensors(truth)[0]
    energies = projections[:, 0] ** 2 / squares
    found = rotation.Rotation(
        tf.eye(p, dtype=tf.float64), squares, projections, energies, *tensors(noise * N, N)
    )
    prior = type_one.Prior(type_one.LogNormal(np.log(noise), 1.0), type_one.LogNormal(0.0, sd))
    result = quadrature.quadrature(found, prior)
    shares, logs = np.exp(result.log_weights), np.log(result.noise)
    mean = shares @ logs
    # the prior pulls the mean by its slope times the variance
    expected = np.log(noise) - np.log(noise) / sd**2 * 2.0 / N
    np.testing.assert_allclose(mean, expected, atol=2e-5)
    np.testing.assert_allclose(shares @ (logs - mean) ** 2, 2.0 / N, rtol=1e-3)
    np.testing.assert_allclose(shares @ result.means.numpy()[..., 0], truth[:, 0], rtol=1e-5)


def test_data_that_say_nothing_leave_the_prior():
    """All zero: the likelihood is ``(2 pi noise)^(-N / 2)``, which moves the log noise far down."""
    N, (mu, sd) = 60, PRIOR.noise
    result = quadrature.quadrature(rotated(np.zeros((N, 2)), np.zeros((N, 1))), PRIOR)
    _, mean, _ = oracle.lognormal_moments(*PRIOR.weights)
    np.testing.assert_allclose(result.variances, np.full((61, 2, 1), mean), rtol=1e-10)
    np.testing.assert_array_equal(result.means, np.zeros((61, 2, 1)))
    evidence = -0.5 * N * (np.log(2.0 * np.pi) + mu) + N**2 * sd**2 / 8.0
    np.testing.assert_allclose(result.log_evidence, evidence, rtol=1e-11)
    shares, logs = np.exp(result.log_weights), np.log(result.noise)
    np.testing.assert_allclose(shares @ logs, mu - 0.5 * N * sd**2, rtol=1e-10)


@pytest.mark.nightly
def test_the_sampler_agrees_with_the_quadrature():
    Phi, Y = problem(3, 1, seed=4)
    found = rotated(Phi, Y)
    Phi_new = np.random.default_rng(7).normal(size=(4, 3))
    mean, variance = moments_at(Phi_new, found, quadrature.quadrature(found, PRIOR))
    start, scales = type_one.start_and_scales(PRIOR, found, 50)
    target = type_one.log_posterior(found, PRIOR)
    values, _ = sampling.sample(target, start, scales, num_samples=100)
    weights, noise = type_one.weights_and_noise(values)
    means, variances = rotation.coefficient_moments(found, noise, weights)
    R = Phi_new @ found.V.numpy()
    f = R @ means.numpy()
    spread = f.var(axis=0) + (variances.numpy() @ R.T**2).mean(axis=0)[:, None]
    np.testing.assert_allclose(f.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(spread, variance, rtol=0.06)
