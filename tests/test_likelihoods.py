"""Sites that GPflow lacks, against sums over many nodes; the rule for wide Gaussians."""

import re
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from gpflow.quadrature import NDiagGHQuadrature
from scipy import special, stats

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.likelihoods import (
    BernoulliLogit,
    HeteroskedasticGaussian,
    Laplace,
    OneVersusRest,
    Ordinal,
    Softmax,
    StudentT,
    TrapezoidQuadrature,
)
from gpflow_sparse.models import SOLVEGP
from tests.oracles import likelihoods as oracle
from tests.oracles import site_vgp

N, P = 6, 2


def moments(rng, scale=1.5):
    return rng.normal(size=(N, P)), scale * rng.uniform(0.1, 1.0, size=(N, P))


def labels(rng):
    return rng.integers(0, 2, size=(N, P)).astype(float)


def each(function, *arrays):
    """Of scalars, entry by entry, added over the outputs."""
    return np.vectorize(function)(*arrays).sum(axis=-1)


@pytest.mark.parametrize("b", [0.3, 2.0])
def test_laplace_is_its_definition(rng, b):
    site, F, Y = Laplace(b), rng.normal(size=(N, P)), rng.normal(size=(N, P))
    expected = oracle.laplace_log_prob(F, Y, b).sum(axis=-1)
    np.testing.assert_allclose(site.log_prob(None, F, Y), expected, rtol=1e-13)
    np.testing.assert_array_equal(site.conditional_mean(None, F), F)
    np.testing.assert_allclose(site.conditional_variance(None, F), 2 * b**2, rtol=1e-13)


@pytest.mark.parametrize("b", [0.3, 2.0])
def test_laplace_integrates_in_closed_form(rng, b):
    """Expectation of the logarithm, logarithm of the expectation, and moments."""
    site, (m, v), Y = Laplace(b), moments(rng), rng.normal(size=(N, P))

    def expected_log(m, v, y):
        return oracle.expectation(lambda f: oracle.laplace_log_prob(f, y, b), m, v, y)

    def log_expected(m, v, y):
        density = oracle.expectation(lambda f: np.exp(oracle.laplace_log_prob(f, y, b)), m, v, y)
        return np.log(density)

    value = site.variational_expectations(None, m, v, Y)
    np.testing.assert_allclose(value, each(expected_log, m, v, Y), rtol=1e-12)
    value = site.predict_log_density(None, m, v, Y)
    np.testing.assert_allclose(value, each(log_expected, m, v, Y), rtol=1e-11)
    mean, variance = site.predict_mean_and_var(None, m, v)
    np.testing.assert_array_equal(mean, m)
    np.testing.assert_allclose(variance, v + 2 * b**2, rtol=1e-13)


def gradients(function, *values):
    values = [tf.constant(value, tf.float64) for value in values]
    with tf.GradientTape() as tape:
        tape.watch(values)
        result = function(*values)
    return float(result), [float(g) for g in tape.gradient(result, values)]


def test_laplace_at_variance_zero_is_the_site_itself():
    """Values and derivatives: the mean's is that of the site, the variance's is finite."""
    site = Laplace(0.5)
    for d in (1.3, -0.2):
        for method in (site.variational_expectations, site.predict_log_density):
            value, (by_mean, by_variance) = gradients(
                lambda m, v, method=method, d=d: method(None, m[None], v[None], np.array([d])),
                0.0,
                0.0,
            )
            np.testing.assert_allclose(value, -abs(d) / 0.5, rtol=1e-14)  # log 2 b = 0
            np.testing.assert_allclose(by_mean, np.sign(d) / 0.5, rtol=1e-14)
            assert by_variance == 0.0


def test_logit_is_its_definition(rng):
    site, F, Y = BernoulliLogit(), 5.0 * rng.normal(size=(N, P)), labels(rng)
    expected = oracle.logit_log_prob(F, Y).sum(axis=-1)
    np.testing.assert_allclose(site.log_prob(None, F, Y), expected, rtol=1e-13)
    np.testing.assert_allclose(site.conditional_mean(None, F), 1 / (1 + np.exp(-F)), rtol=1e-13)
    variance = np.exp(F) / (1 + np.exp(F)) ** 2
    np.testing.assert_allclose(site.conditional_variance(None, F), variance, rtol=1e-12)


def test_logit_is_exact_where_a_probability_would_round():
    site, stock = BernoulliLogit(), likelihoods.Bernoulli(invlink=tf.sigmoid)
    F, Y = np.array([[40.0]]), np.array([[0.0]])
    assert np.isneginf(stock.log_prob(None, F, Y)).all()
    np.testing.assert_allclose(site.log_prob(None, F, Y), [-40.0], rtol=1e-15)
    np.testing.assert_allclose(site.log_prob(None, -1e5 * F, 1.0 - Y), [-4e6], rtol=1e-15)
    np.testing.assert_allclose(
        site.predict_log_density(None, F, np.full_like(F, 1e-12), Y), [-40.0], rtol=1e-12
    )
    mean, variance = site.predict_mean_and_var(None, F, np.zeros_like(F))
    np.testing.assert_allclose(mean, 1.0, rtol=1e-15)
    np.testing.assert_allclose(variance, np.exp(-40.0), rtol=1e-12)


def test_logit_integrates_by_trapezoids(rng):
    site, (m, v), Y = BernoulliLogit(), moments(rng), labels(rng)

    def probability(m, v, y=1.0):
        return oracle.expectation(lambda f: np.exp(oracle.logit_log_prob(f, y)), m, v)

    value = site.variational_expectations(None, m, v, Y)
    expected = each(lambda m, v, y: oracle.logit_expectation(m, np.sqrt(v), y), m, v, Y)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    p = np.vectorize(probability)(m, v)
    mean, variance = site.predict_mean_and_var(None, m, v)
    np.testing.assert_allclose(mean, p, rtol=1e-12)
    np.testing.assert_allclose(variance, p * (1 - p), rtol=1e-12)
    value = site.predict_log_density(None, m, v, Y)
    expected = each(lambda m, v, y: np.log(probability(m, v, y)), m, v, Y)
    np.testing.assert_allclose(value, expected, rtol=1e-12)


SCALES, VARIANCES, DISTANCES = (1e-3, 0.1, 2.0), (1e-4, 1.0, 25.0), (0.0, 0.5, 3.0, 30.0)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("df", [0.5, 2.1, 4.0, 30.0, 1000.0])
def test_student_t_is_adaptive_quadrature(df):
    """GPflow's misses by .04 at scale .3, df 4, mean .5, variance 1 and y = 0: -1.0573."""
    grid = [
        (0.5, v, 0.5 + d, s)
        for v in VARIANCES
        for d in DISTANCES
        for s in SCALES
        if d**2 < 30.0**2 * v
    ]
    if df == 4.0:
        grid.append((0.5, 1.0, 0.0, 0.3))
    for m, v, y, s in grid:
        expected = oracle.student_t_averages(m, v, y, s, df)
        arguments = (np.array([[m]]), np.array([[v]]), np.array([[y]]))
        site = StudentT(s, df)
        got = [
            float(method(None, *arguments)[0])
            for method in (site.variational_expectations, site.predict_log_density)
        ]
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8, err_msg=f"{(m, v, y, s)}")
    if df == 4.0:
        np.testing.assert_allclose(got[1], -1.0999918565737, rtol=1e-12)
        stock = likelihoods.StudentT(s, df).predict_log_density(None, *arguments)
        np.testing.assert_allclose(stock, [-1.0573], atol=1e-4)


@pytest.mark.parametrize(
    ("d", "variance"), [*((0.3, v) for v in (0.0, 1e-8, 1.0, 1e4)), (0.0, 1.0), (-1e3, 1e-8)]
)
def test_student_t_has_the_derivatives_of_its_values(d, variance):
    """Also at variance 0, where that in the variance is half the second derivative in f."""
    for name in ("variational_expectations", "predict_log_density"):

        def value(m, v, s, name=name):
            site = StudentT()
            site.scale = s
            return getattr(site, name)(None, m[None], v[None], np.array([d]))

        at = [0.2, variance, 0.4]
        _, slopes = gradients(value, *at)
        assert np.isfinite(slopes).all()
        for i, slope in enumerate(slopes):
            step = 1e-5 * max(1.0, abs(at[i])) if i != 1 or variance > 1e-6 else 1e-7
            ends = [[x + sign * step * (i == j) for j, x in enumerate(at)] for sign in (1, -1)]
            if ends[1][1] < 0.0:
                ends[1] = at
            high, low = (gradients(value, *end)[0] for end in ends)
            change = (high - low) / (ends[0][i] - ends[1][i])
            np.testing.assert_allclose(slope, change, rtol=2e-5, atol=2e-6)
    site = StudentT(0.4)
    for method in (site.variational_expectations, site.predict_log_density):
        exact = method(None, np.full((1, 1), 0.2), np.zeros((1, 1)), np.array([[d]]))
        expected = oracle.student_t_log_prob(0.2, d, 0.4, 3.0)
        np.testing.assert_allclose(exact, [expected], rtol=1e-9, atol=1e-9)


def test_student_t_with_few_degrees_of_freedom_has_infinite_variance(rng):
    m, v = moments(rng)
    assert np.isposinf(StudentT(df=2.0).predict_mean_and_var(None, m, v)[1]).all()
    assert np.isposinf(StudentT(df=1.0).conditional_variance(None, m)).all()
    for df in (0.0, -1.0, np.inf, "3", True):
        with pytest.raises(ValueError, match="df must "):
            StudentT(df=df)


EDGES = np.array([-0.5, 0.3, 1.0])


def ordinal_probabilities(f, sigma=1.0):
    """GPflow's: the normal distribution function, kept between .001 and .999."""
    ends = np.concatenate([[-np.inf], EDGES, [np.inf]])
    below = 1e-3 + 0.998 * special.ndtr((ends - np.asarray(f)[..., None]) / sigma)
    return np.diff(below, axis=-1)


def test_ordinal_is_its_definition_in_double_precision(rng):
    """GPflow's is NaN at both end levels: erf(inf) is NaN in float64 of some TensorFlows."""
    site, F = Ordinal(EDGES), 2.0 * rng.normal(size=(N, P))
    site.sigma.assign(0.7)
    Y, p = rng.integers(0, 4, size=(N, P)), ordinal_probabilities(F, 0.7)
    chosen = np.take_along_axis(p, Y[..., None], axis=-1)[..., 0]
    expected = np.log(chosen + 1e-6).sum(axis=-1)
    np.testing.assert_allclose(site.log_prob(None, F, Y.astype(float)), expected, rtol=1e-12)
    mean = p @ np.arange(4)
    np.testing.assert_allclose(site.conditional_mean(None, F), mean, rtol=1e-12)
    variance = p @ np.arange(4) ** 2 - mean**2
    np.testing.assert_allclose(site.conditional_variance(None, F), variance, rtol=1e-10)
    m, v = moments(rng, 0.3)

    def expected_log(m, v, y):
        log = lambda f: np.log(ordinal_probabilities(f, 0.7)[..., int(y)] + 1e-6)  # noqa: E731
        return oracle.expectation(log, m, v)

    value = site.variational_expectations(None, m, v, Y.astype(float))
    np.testing.assert_allclose(value, each(expected_log, m, v, Y), rtol=1e-8)


@pytest.mark.nightly
def test_ordinal_models_train_in_double_precision_and_gpflows_is_refused(rng):
    X = rng.uniform(-2.0, 2.0, size=(40, 1))
    Y = np.digitize(np.sin(2.0 * X), EDGES).astype(float)
    assert set(np.unique(Y)) == {0.0, 1.0, 2.0}
    built = model(Ordinal(EDGES), X)
    history = gs.training.fit(
        built, (X, Y), num_steps=60, optimizer=gs.training.adam(0.05), progress=False
    )
    assert history.elbo[-1] > history.elbo[0] + 3.0
    with pytest.raises(ValueError, match="Y must hold integer levels from 0 to 3"):
        built.elbo((X, Y + 2.5))
    if np.isnan(tf.math.erf(tf.constant(np.inf, tf.float64))):
        with pytest.raises(ValueError, match=r"Use gs\.likelihoods\.Ordinal\(bin_edges\)"):
            model(likelihoods.Ordinal(EDGES), X)


OTHER_EDGES = [[], [1.0, 0.0], [[0.0, 1.0]], [0.0, np.nan], 3.0, [0.0, 0.0]]


def test_edges_that_do_not_increase_are_refused():
    for edges in OTHER_EDGES:
        with pytest.raises(ValueError, match="bin_edges must be a list of increasing numbers"):
            Ordinal(edges)


MEANS = np.linspace(-30.0, 30.0, 121)[:, None]
RULES = {
    "GH20": lambda: NDiagGHQuadrature(1, 20),
    "GH51": lambda: NDiagGHQuadrature(1, 51),
    "GH101": lambda: NDiagGHQuadrature(1, 101),
    "trapezoid": TrapezoidQuadrature,
}
# largest errors of log sigmoid: the table of the maths sheet, section 1.6
ERRORS = {
    2.0: {"GH20": 1.4e-6, "GH51": 2.1e-10, "GH101": 5e-11, "trapezoid": 5e-11},
    5.0: {"GH20": 2.5e-3, "GH51": 5.4e-5, "GH101": 1.0e-6, "trapezoid": 5e-11},
    10.0: {"GH20": 3.5e-2, "GH51": 4.2e-3, "GH101": 4.7e-4, "trapezoid": 5.9e-7},
    20.0: {"GH20": 0.16, "GH51": 0.040, "GH101": 0.011, "trapezoid": 2.7e-4},
}


X_ = ERRORS.keys()


def test_the_trapezoid_rule_wins_for_wide_gaussians():
    for deviation in X_:
        expected = np.vectorize(oracle.logit_expectation)(MEANS, deviation, 1.0)
        variance = np.full_like(MEANS, deviation**2)
        for name, largest in ERRORS[deviation].items():
            site = BernoulliLogit(quadrature=RULES[name]())
            value = site.variational_expectations(None, MEANS, variance, np.ones_like(MEANS))
            error = np.abs(value - expected[:, 0]).max()
            assert error < 1.05 * largest
            if largest > 1e-10:
                assert error > 0.9 * largest


OTHER_RULES = [
    ({"num_nodes": 1}, r"num_nodes must be at least 2, got 1"),
    ({"num_nodes": 10.0}, r"num_nodes must be a positive integer, got 10\.0"),
    ({"half_width": 0.0}, r"half_width must be one positive number; got 0\.0"),
    ({"half_width": np.inf}, r"half_width must be finite"),
]


def test_a_rule_that_cannot_be_is_refused():
    for options, message in OTHER_RULES:
        with pytest.raises(ValueError, match=message):
            TrapezoidQuadrature(**options)


def data(rng, likelihood):
    X = rng.uniform(-2.0, 2.0, size=(40, 1))
    f = 2.0 * np.sin(3.0 * X)
    if isinstance(likelihood, likelihoods.Bernoulli):
        return X, (rng.uniform(size=X.shape) < 1 / (1 + np.exp(-f))).astype(float)
    return X, f + rng.laplace(scale=0.1, size=X.shape)


def model(likelihood, X):
    features = OrthogonalInducingVariables(X[:6], X[6:10])
    return SOLVEGP(gpflow.kernels.Matern52(), likelihood, features, num_data=len(X))


def test_noise_that_depends_on_inputs_is_gpflows_in_closed_form(rng):
    mean, var, Y = rng.normal(size=(N, 2)), rng.uniform(0.01, 0.3, (N, 2)), rng.normal(size=(N, 1))
    X, s = np.zeros((N, 1)), 0.7
    ours, theirs = HeteroskedasticGaussian(s), likelihoods.HeteroskedasticTFPConditional()
    theirs.quadrature = NDiagGHQuadrature(2, 60)
    shifted = mean + np.array([0.0, np.log(s)])  # their scale is exp(g)
    for name in ("variational_expectations", "predict_log_density"):
        expected = getattr(theirs, name)(X, shifted, var, Y)
        np.testing.assert_allclose(getattr(ours, name)(X, mean, var, Y), expected, atol=1e-5)
    pairs = zip(
        ours.predict_mean_and_var(X, mean, var),
        theirs.predict_mean_and_var(X, shifted, var),
        strict=True,
    )
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(ours.log_prob(X, mean, Y), theirs.log_prob(X, shifted, Y))
    np.testing.assert_allclose(
        ours.conditional_variance(X, mean), s**2 * np.exp(2.0 * mean[:, 1:]), rtol=1e-12
    )
    with pytest.raises(ValueError, match="scale"):
        HeteroskedasticGaussian(0.0)


def test_softmax_averages_like_many_draws_and_equally_in_every_call(rng):
    site, C = Softmax(3), 3
    m, v = rng.normal(size=(N, C)), rng.uniform(0.01, 1.0, size=(N, C))
    Y = rng.integers(C, size=(N, 1)).astype(float)
    F = m + np.sqrt(v) * rng.normal(size=(200_000, N, C))
    P = special.softmax(F, axis=-1)
    chosen = np.take_along_axis(P, Y.astype(int)[None], axis=-1)[..., 0]  # [S, N]
    value = site.variational_expectations(None, m, v, Y)
    np.testing.assert_allclose(value, np.log(chosen).mean(0), atol=0.01)
    np.testing.assert_array_equal(value, site.variational_expectations(None, m, v, Y))
    mean, variance = site.predict_mean_and_var(None, m, v)
    np.testing.assert_allclose(mean, P.mean(0), atol=0.005)
    np.testing.assert_allclose(variance, P.mean(0) * (1 - P.mean(0)), atol=0.005)
    density = site.predict_log_density(None, m, v, Y)
    np.testing.assert_allclose(density, np.log(chosen.mean(0)), atol=0.02)
    log_prob = site.log_prob(np.zeros((N, 0)), m, Y)
    expected = special.log_softmax(m, axis=-1)[np.arange(N), Y[:, 0].astype(int)]
    np.testing.assert_allclose(log_prob, expected, rtol=1e-12)


def test_one_class_against_the_rest_is_a_sum_of_binary_likelihoods(rng):
    C, N = 4, 6
    mean, var = 2.0 * rng.normal(size=(N, C)), rng.uniform(0.1, 3.0, size=(N, C))
    Y, X = rng.integers(0, C, size=(N, 1)).astype(float), np.zeros((N, 1))
    likelihood = OneVersusRest(C)
    signs = 2.0 * np.eye(C)[Y[:, 0].astype(int)] - 1.0
    log_prob = -np.logaddexp(0.0, -signs * mean).sum(axis=1)
    np.testing.assert_allclose(likelihood.log_prob(X, mean, Y), log_prob, rtol=1e-12)
    F = mean[..., None] + np.sqrt(var)[..., None] * site_vgp.NODES
    expected = -(np.logaddexp(0.0, -signs[..., None] * F) @ site_vgp.WEIGHTS).sum(axis=1)
    found = likelihood.variational_expectations(X, mean, var, Y)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    P = np.array([site_vgp.one_versus_rest(m, v) for m, v in zip(mean, var, strict=True)])
    np.testing.assert_allclose(likelihood.predict_mean_and_var(X, mean, var)[0], P, rtol=1e-7)
    density = likelihood.predict_log_density(X, mean, var, Y)
    np.testing.assert_allclose(density, np.log(P[np.arange(N), Y[:, 0].astype(int)]), rtol=1e-7)


def test_the_worked_example_of_a_likelihood_is_the_logistic_density(rng):
    page = (Path(__file__).parents[1] / "docs" / "contributing.md").read_text()
    code = re.search(r"```python\n(import gpflow\n.*?)```", page, re.DOTALL)[1]
    names = {}
    exec(code, names)
    site, (m, v), Y = names["Logistic"](0.4), moments(rng), rng.normal(size=(N, P))

    def log_prob(y, f):
        return stats.logistic.logpdf(y, f, 0.4)

    np.testing.assert_allclose(site.log_prob(None, m, Y), log_prob(Y, m).sum(axis=-1), rtol=1e-12)
    np.testing.assert_allclose(site.conditional_mean(None, m), m)
    np.testing.assert_allclose(site.conditional_variance(None, m), stats.logistic.var(scale=0.4))
    expected = each(
        lambda *args: oracle.expectation(lambda f: log_prob(args[2], f), *args), m, v, Y
    )
    value = site.variational_expectations(None, m, v, Y)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
