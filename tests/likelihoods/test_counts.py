"""Counts against SciPy's densities and fine quadrature."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import gpflow_sparse as gs
from gpflow_sparse.likelihoods import NegativeBinomial, ZeroInflatedPoisson
from tests.oracles import counts as oracle

SITES = [
    pytest.param(NegativeBinomial(0.4), lambda f, y: oracle.negative_binomial(f, y, 0.4), id="nb"),
    pytest.param(
        ZeroInflatedPoisson(0.2), lambda f, y: oracle.zero_inflated_poisson(f, y, 0.2), id="zip"
    ),
]


def column(*values):
    return np.array(values, np.float64)[:, None]


@pytest.mark.parametrize(("site", "log_prob"), SITES)
def test_densities_are_those_of_scipy_and_sum_to_one(site, log_prob):
    F, Y = column(-2.0, 0.5, 4.0, 9.0), column(0, 3, 40, 9000)
    each = [log_prob(f, int(y)) for f, y in zip(F[:, 0], Y[:, 0], strict=True)]
    np.testing.assert_allclose(site.log_prob(None, F, Y), each, rtol=1e-12, atol=1e-13)
    y = np.arange(20_000.0)[:, None]
    for f in (-3.0, 1.0, 4.0):
        p = np.exp(site.log_prob(None, np.full_like(y, f), y))
        np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-12)
        mean = p @ y[:, 0]
        np.testing.assert_allclose(site.conditional_mean(None, column(f)), [[mean]], rtol=1e-10)
        variance = p @ (y[:, 0] - mean) ** 2
        np.testing.assert_allclose(
            site.conditional_variance(None, column(f)), [[variance]], rtol=1e-9
        )


@pytest.mark.parametrize(("site", "log_prob"), SITES)
@pytest.mark.parametrize(
    ("y", "mean", "variance"),
    [(0, -1.0, 0.3), (0, 3.0, 2.0), (4, 0.5, 6.0), (150, 4.0, 0.8), (30_000, 9.5, 1.5)],
)
def test_averages_are_those_of_fine_quadrature(site, log_prob, y, mean, variance):
    """The last: p(y | f) is narrower than the nodes of any rule over q would be apart."""
    m, v, Y = column(mean), column(variance), column(y)
    expected = oracle.average(lambda f: log_prob(f, y), mean, variance)
    np.testing.assert_allclose(site.variational_expectations(None, m, v, Y), expected, rtol=1e-9)
    density = np.log(oracle.average(lambda f: np.exp(log_prob(f, y)), mean, variance))
    np.testing.assert_allclose(site.predict_log_density(None, m, v, Y), density, rtol=1e-8)


@pytest.mark.parametrize(("site", "log_prob"), SITES)
def test_predicted_moments_and_densities_belong_together(site, log_prob):
    y, m, v = np.arange(40_000.0)[:, None], 1.0, 0.3
    p = np.exp(site.predict_log_density(None, np.full_like(y, m), np.full_like(y, v), y))
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-9)
    mean, variance = (float(part) for part in site.predict_mean_and_var(None, column(m), column(v)))
    np.testing.assert_allclose(mean, p @ y[:, 0], rtol=1e-9)
    np.testing.assert_allclose(variance, p @ (y[:, 0] - mean) ** 2, rtol=1e-7)


@pytest.mark.parametrize(("site", "log_prob"), SITES)
def test_gradients_are_those_of_central_differences(site, log_prob):
    Y, start = column(0, 7, 2000), (column(0.3, 1.0, 7.0), column(0.5, 0.01, 0.2))
    for method in (site.variational_expectations, site.predict_log_density):
        m, v = map(tf.constant, start)
        with tf.GradientTape() as tape:
            tape.watch([m, v])
            total = tf.reduce_sum(method(None, m, v, Y))
        for found, number in zip(tape.gradient(total, [m, v]), (0, 1), strict=True):
            for row in range(3):
                at = [[part.copy() for part in start] for _ in range(2)]
                for parts, sign in zip(at, (1.0, -1.0), strict=True):
                    parts[number][row] += sign * 1e-5
                high, low = (float(tf.reduce_sum(method(None, *p, Y))) for p in at)
                np.testing.assert_allclose(found[row], (high - low) / 2e-5, rtol=1e-5, atol=1e-6)


def test_without_dispersion_it_is_poisson():
    site, poisson = NegativeBinomial(1e-8), gpflow.likelihoods.Poisson()
    F, Y, v = column(-1.0, 2.0, 6.0), column(0, 5, 400), column(0.1, 0.2, 0.3)
    np.testing.assert_allclose(site.log_prob(None, F, Y), poisson.log_prob(None, F, Y), rtol=3e-5)
    np.testing.assert_allclose(
        site.variational_expectations(None, F, v, Y),
        poisson.variational_expectations(None, F, v, Y),
        rtol=1e-4,
    )
    zero = np.zeros((1, 1))
    value = NegativeBinomial().predict_log_density(None, zero, zero, zero)
    np.testing.assert_allclose(value, np.log(0.5), rtol=1e-12)


def test_quantiles_are_those_of_draws():
    rng = np.random.default_rng(0)
    m, v, levels = column(-3.0, 1.0, 6.0), column(0.2, 0.5, 0.3), (0.025, 0.5, 0.975)
    mu = np.exp(m + np.sqrt(v) * rng.normal(size=(3, 200_000)))
    draws = [
        (NegativeBinomial(0.4), rng.poisson(mu * rng.gamma(1 / 0.4, 0.4, size=mu.shape))),
        (ZeroInflatedPoisson(0.2), rng.poisson(mu) * (rng.random(mu.shape) > 0.2)),
    ]
    for site, Y in draws:
        found = site.predict_quantiles(m, v, levels).numpy()[:, :, 0]
        for level, row in zip(levels, found, strict=True):
            below = (row[:, None] > Y).mean(axis=1)
            reached = (row[:, None] >= Y).mean(axis=1)
            assert (below <= level + 0.004).all(), (site.name, level, below)
            assert (reached >= level - 0.004).all(), (site.name, level, reached)
        with pytest.raises(ValueError, match="levels must be a list of numbers between 0 and 1"):
            site.predict_quantiles(m, v, [0.0])


def test_an_offset_is_the_logarithm_of_the_exposure():
    """Poisson's closed form: counts of exposures E tell as much as those of E equal rows."""
    rng = np.random.default_rng(1)
    x, exposure = rng.uniform(size=(30, 1)), rng.integers(1, 9, size=30)
    X = np.column_stack([x, np.log(exposure)])
    Y = rng.poisson(exposure[:, None] * np.exp(x)).astype(float)
    kernel = gpflow.kernels.SquaredExponential(active_dims=[0])
    Z = np.column_stack([np.linspace(0, 1, 6), np.zeros(6)])
    model = gs.models.SOLVEGP(
        kernel,
        gpflow.likelihoods.Poisson(),
        gs.inducing_variables.OrthogonalInducingVariables(Z),
        mean_function=gs.mean_functions.Offset(1),
    )
    f, _ = model.predict_f(X)
    np.testing.assert_allclose(f, np.log(exposure)[:, None], atol=1e-12)
    _, var = model.predict_f(X)
    expected = stats.poisson.logpmf(Y, exposure[:, None] * np.exp(0.0))
    by_hand = expected + exposure[:, None] * (1.0 - np.exp(0.5 * var))
    np.testing.assert_allclose(model.elbo((X, Y)), by_hand.sum(), rtol=1e-10)
    with pytest.raises(ValueError, match=r"column of Offset is 2, but X has 2 column"):
        gs.mean_functions.Offset(2)(X)
    with pytest.raises(ValueError, match="column must be the number of a column"):
        gs.mean_functions.Offset(-1)


def test_other_arguments_and_other_counts_are_refused():
    with pytest.raises(ValueError, match="dispersion must be one positive number; got 0"):
        NegativeBinomial(0)
    with pytest.raises(ValueError, match=r"zero_probability must be below 1, got 1\.0"):
        ZeroInflatedPoisson(1.0)
    Z = gs.inducing_variables.OrthogonalInducingVariables(np.zeros((1, 1)))
    model = gs.models.SOLVEGP(gpflow.kernels.SquaredExponential(), NegativeBinomial(), Z)
    with pytest.raises(ValueError, match=r"Y must hold counts 0, 1, 2, \.\.\. for NegativeBin"):
        model.elbo((np.zeros((2, 1)), column(1, 1.5)))
