"""GPMixture against exact regression, brute-force quadrature and Monte Carlo."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import integrate, stats

import gpflow_sparse as gs
from gpflow_sparse.inference import laplace
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.inference.priors import ExchangeableNormal
from gpflow_sparse.kernels import MainEffects, table_kernel
from gpflow_sparse.kernels.tables import log_normal
from gpflow_sparse.models import GPMixture
from gpflow_sparse.models.mixture import YeoJohnson
from tests.oracles import mixture as oracle

N, D = 25, 2


def rows(num_rows=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, D))
    Y = np.exp(0.5 * np.sin(2.0 * X[:, :1]) + 0.3 * X[:, 1:] + 0.2 * rng.normal(size=(num_rows, 1)))
    return X, (Y - 1.0) / 0.6


NEW = rows(7, seed=1)


def tables(*ard, profile=gpflow.kernels.Matern32):
    return [table_kernel(profile, D, ard=each) for each in ard]


def scaled(variance=1.0, lengthscale=1.0, deviation=0.8):
    """A kernel of which only the lengthscale is trained."""
    kernel = gpflow.kernels.Matern32(variance)
    gpflow.set_trainable(kernel.variance, False)
    kernel.lengthscales = log_normal(lengthscale, deviation)
    return kernel


@pytest.fixture(scope="module")
def integrated():
    transforms = ["none", "yeo-johnson"]
    model = GPMixture(rows(), tables(False, True), transforms=transforms, num_draws=8)
    return model.integrate()


def test_a_table_kernel_is_the_sum_of_its_three_terms():
    X, Z = rows()[0], NEW[0]
    kernel = tables(True)[0]
    interaction, effects, trend = kernel.kernels
    interaction.lengthscales.assign([0.7, 2.0])
    values = 1.0, np.array([0.7, 2.0]), 0.3, 0.3 / D
    np.testing.assert_allclose(kernel(X, Z), oracle.table_kernel(X, Z, *values), rtol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.diag(kernel(X)), rtol=1e-12)
    assert effects.base.lengthscales.numpy() == 1.0
    assert trend.variance.numpy() == 0.3 / D
    far, near = effects(X + 1e8, Z + 1e8), effects((X + 1e8) - 1e8, (Z + 1e8) - 1e8)
    np.testing.assert_allclose(far, near, rtol=1e-12)


def test_priors_of_table_kernels_are_those_of_the_documentation():
    kernel = table_kernel(gpflow.kernels.Matern52, 3)
    rng = np.random.default_rng(0)
    logs = rng.normal(size=3)
    mean = np.full(3, np.log(1.5 * np.sqrt(3.0)))
    covariance = 1.0 + 0.49 * np.eye(3)
    prior = kernel.kernels[0].lengthscales.prior
    expected = stats.multivariate_normal(mean, covariance).logpdf(logs)
    np.testing.assert_allclose(prior.log_prob(logs), expected, rtol=1e-12)
    np.testing.assert_allclose(prior.covariance(), covariance, rtol=1e-12)
    draws = prior.sample(20_000, seed=1).numpy()
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.06)
    for parameter, (median, deviation) in {
        kernel.kernels[0].variance: (1.0, 1.0),
        kernel.kernels[1].base.variance: (0.3, 1.5),
        kernel.kernels[2].variance: (0.1, 1.5),
    }.items():
        assert parameter.numpy() == pytest.approx(median)
        density = stats.lognorm(deviation, scale=median).logpdf(0.4)
        parameter.assign(0.4)
        np.testing.assert_allclose(parameter.log_prior_density(), density, rtol=1e-12)


@pytest.mark.parametrize(
    ("prior", "on", "transform"),
    [
        (stats.gamma(2.0), "constrained", None),
        (stats.norm(0.1, 0.7), "unconstrained", None),
        (stats.norm(0.1, 0.7), "unconstrained", tfp.bijectors.Exp()),
    ],
)
def test_the_prior_of_logarithms_has_their_jacobian(prior, on, transform):
    """Against the density of the values, and differences."""
    parameter = gpflow.Parameter(0.8, transform=transform or gpflow.utilities.positive())
    gamma = isinstance(prior.dist, type(stats.gamma))
    parameter.prior = (
        tfp.distributions.Gamma(np.float64(2.0), np.float64(1.0))
        if gamma
        else tfp.distributions.Normal(np.float64(0.1), np.float64(0.7))
    )
    parameter.prior_on = on
    vector = LogParameters([parameter])
    at = np.array([0.3])
    parameter.assign(np.exp(0.3))
    value, slope = vector.log_prior(at)
    np.testing.assert_allclose(value, parameter.log_prior_density() + 0.3, rtol=1e-10)
    ends = [vector.log_prior(at + step)[0] for step in (1e-5, -1e-5)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-5)


def test_one_component_without_spread_is_exact_regression():
    kernel = gpflow.kernels.Matern52(1.3, [0.7, 1.5])
    mean_function = gpflow.functions.Linear(np.full((D, 1), 0.2), [0.4])
    X, Y = rows()
    repeated = np.concatenate([X, X[:5]]), np.concatenate([Y, Y[:5] + 0.1])
    model = GPMixture(repeated, [kernel], noise_variance=0.2, mean_function=mean_function)
    exact = gpflow.models.GPR(repeated, kernel, mean_function, 0.2)
    np.testing.assert_allclose(model.elbo(), exact.log_marginal_likelihood(), rtol=1e-12)
    for posterior in (model, model.posterior()):
        for full_cov in (False, True):
            pairs = zip(
                posterior.predict_f(NEW[0], full_cov),
                exact.predict_f(NEW[0], full_cov),
                strict=True,
            )
            for found, expected in pairs:
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(
        model.predict_log_density(NEW), exact.predict_log_density(NEW), rtol=1e-9
    )
    mean, variance = exact.predict_y(NEW[0])
    quantile = stats.norm(mean, np.sqrt(variance)).ppf(0.9)
    np.testing.assert_allclose(model.predict_quantiles(NEW[0], [0.9])[0], quantile, rtol=1e-9)


def log_joint(X, y, logs):
    """Of a lengthscale with the prior of :func:`scaled`, and a noise variance around 0.1."""
    length, noise = np.exp(logs)
    prior = stats.norm(0.0, 0.8).logpdf(logs[0]) + stats.norm(np.log(0.1), 1.5).logpdf(logs[1])
    return oracle.log_marginal(oracle.matern32(X, X, 1.0, length), y, noise) + prior


@pytest.mark.parametrize("num_free", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_evidence_and_predictions_are_those_of_quadrature(num_free):
    """Over a lengthscale, and a lengthscale and the noise variance, by SciPy's quadrature."""
    X, Y = rows(15)
    model = GPMixture((X, Y), [scaled()], num_draws=512)
    if num_free == 1:
        gpflow.set_trainable(model.components[0].noise_variance, False)
    model.integrate()
    fixed = np.log(0.1)
    no_noise_prior = stats.norm(np.log(0.1), 1.5).logpdf(fixed) if num_free == 1 else 0.0

    def joint(*logs):
        logs = np.array([logs[0], fixed if num_free == 1 else logs[1]])
        return np.exp(log_joint(X, Y[:, 0], logs) - no_noise_prior)

    def moment(*logs):
        noise = np.exp(fixed if num_free == 1 else logs[1])
        K, Kuf = (oracle.matern32(X, Z, 1.0, np.exp(logs[0])) for Z in (X, NEW[0][:1]))
        return joint(*logs) * oracle.predict(K, Kuf, 1.0, Y[:, 0], noise)[0][0]

    bounds = [(-3.5, 3.5), (-9.0, 2.5)][:num_free]
    evidence = integrate.nquad(joint, bounds, opts={"epsrel": 1e-5})[0]
    mean = integrate.nquad(moment, bounds, opts={"epsrel": 1e-5})[0] / evidence
    summary = model.describe()[0]
    np.testing.assert_allclose(summary.log_evidence, np.log(evidence), atol=0.03)
    np.testing.assert_allclose(summary.laplace_evidence, np.log(evidence), atol=0.2)
    # with two parameters three standard errors: the mean has a deviation of 0.26, 428 draws count
    atol = {1: 0.01, 2: 0.04}[num_free]
    np.testing.assert_allclose(model.predict_f(NEW[0])[0][0, 0], mean, atol=atol)
    assert 60 < summary.effective_number <= 512


def test_laplace_in_coordinates_of_the_prior():
    X, Y = rows(15)
    model = GPMixture((X, Y), [scaled()], num_draws=16).integrate()
    component = model.components[0]
    mode = np.array([np.log(p.numpy()) for p in component.parameters])
    covariance, evidence = oracle.laplace(
        lambda logs: log_joint(X, Y[:, 0], logs), mode, 0.3, np.array([0.8, 1.5])
    )
    np.testing.assert_allclose(component.laplace_evidence, evidence, atol=1e-3)
    Z = laplace.standard_draws(2, 16, 0)
    spread = component.draws - mode
    np.testing.assert_allclose(
        np.sum(spread * np.linalg.solve(covariance, spread.T).T, axis=1),
        np.sum(Z**2, axis=1)[: len(spread)],
        rtol=2e-3,
    )


def test_the_mode_is_that_of_the_logarithms():
    """Without data the mode is the median of the prior, and draws have its moments."""
    X = np.array([[0.0, 0.0]])
    model = GPMixture(
        (X, X[:, :1]), [scaled(lengthscale=2.0)], num_draws=256, num_kept=256
    ).integrate()
    component = model.components[0]
    lengthscale = component.kernel.lengthscales.numpy()
    np.testing.assert_allclose(lengthscale, 2.0, rtol=1e-6)  # not 2 exp(-0.64)
    weights = np.exp(component.log_weights)
    logs = component.draws[:, 0]
    np.testing.assert_allclose(weights @ logs, np.log(2.0), atol=0.02)
    np.testing.assert_allclose(weights @ (logs - np.log(2.0)) ** 2, 0.64, rtol=0.05)


@pytest.mark.parametrize(
    ("profile", "fixed", "seed"),
    [
        (gpflow.kernels.Matern32, 1.0, 0),
        (gpflow.kernels.Matern32, 3.0, 1),
        (gpflow.kernels.SquaredExponential, 3.0, 1),
        (gpflow.kernels.Matern12, 3.0, 1),
    ],
)
def test_kernels_of_one_structure_share_no_values(profile, fixed, seed):
    """
    At the mode the gradient of the log posterior density of the logarithms is zero, also where a
    kernel of the same structure, or of the same parameters, came before. GPflow's density is that
    of the values.
    """
    X, Y = rows(25, seed)
    (kernel,) = tables(True, profile=profile)
    kernel.kernels[1].base.lengthscales.assign(fixed)
    component = GPMixture((X, Y), [kernel], num_draws=1).integrate().components[0]
    model = gpflow.models.GPR((X, Y), component.kernel)
    model.likelihood.variance = component.noise_variance
    with tf.GradientTape() as tape:
        density = model.log_posterior_density()
    slopes = tape.gradient(density, model.trainable_variables)
    assert len(slopes) == 5
    assert max(np.max(np.abs(slope + 1.0)) for slope in slopes) < 0.02


def test_predictions_average_over_draws_and_components(integrated):
    """Against NumPy, draw by draw; densities and moments by a fine grid."""
    X, Y = rows()
    grid = np.linspace(-12.0, 25.0, 40_001)
    total, first, second = np.zeros_like(grid), 0.0, 0.0
    for component, share in zip(integrated.components, integrated.shares, strict=True):
        y, log_slope = Y[:, 0], np.zeros_like(grid)
        points = grid
        if (transform := component.transform) is not None:
            values = [float(v[0]) for v in (transform.power, transform.center, transform.scale)]
            y = oracle.yeo_johnson(y, *values)[0]
            points, log_slope = oracle.yeo_johnson(grid, *values)
        for draw, log_weight in zip(component.draws, component.log_weights, strict=True):
            values = LogParameters(component.parameters).values(draw)
            by_id = {
                id(p): np.asarray(v) for p, v in zip(component.parameters, values, strict=True)
            }
            interaction, effects, trend = component.kernel.kernels
            parts = interaction.variance, interaction.lengthscales, effects.base.variance
            a, lengths, b, c, noise = (
                by_id[id(p)] for p in (*parts, trend.variance, component.noise_variance)
            )
            K, Kuf, kss = (
                oracle.table_kernel(A, B, a, lengths, b, c)
                for A, B in ((X, X), (X, NEW[0][:1]), (NEW[0][:1], NEW[0][:1]))
            )
            mean, var = oracle.predict(K, Kuf, kss[0, 0], y, noise)
            density = stats.norm(mean[0], np.sqrt(var[0] + noise)).pdf(points)
            total += share * np.exp(log_weight + log_slope) * density
    first = integrate.trapezoid(total * grid, grid)
    second = integrate.trapezoid(total * (grid - first) ** 2, grid)
    np.testing.assert_allclose(integrate.trapezoid(total, grid), 1.0, atol=1e-6)
    mean, variance = (part[0, 0] for part in integrated.predict_y(NEW[0][:1]))
    np.testing.assert_allclose([mean, variance], [first, second], rtol=1e-5)
    at = np.array([[0.3]])
    found = integrated.predict_log_density((NEW[0][:1], at))[0]
    np.testing.assert_allclose(found, np.log(np.interp(0.3, grid, total)), atol=1e-5)
    levels = [0.05, 0.5, 0.9]
    quantiles = integrated.predict_quantiles(NEW[0][:1], levels)[:, 0, 0]
    cumulative = np.concatenate([[0.0], integrate.cumulative_trapezoid(total, grid)])
    np.testing.assert_allclose(np.interp(quantiles, grid, cumulative), levels, atol=1e-5)


def test_draws_have_the_moments_of_the_mixture(integrated):
    X = NEW[0][:4]
    tf.random.set_seed(0)
    draws = integrated.predict_f_samples(X, 20_000).numpy()[..., 0]
    mean, covariance = (part.numpy() for part in integrated.predict_f(X, full_cov=True))
    error = (draws.mean(axis=0) - mean[:, 0]) / np.sqrt(np.diag(covariance[0]) / 20_000)
    assert np.abs(error).max() < 4.0
    np.testing.assert_allclose(np.cov(draws.T), covariance[0], atol=0.05 * covariance.max())
    np.testing.assert_allclose(np.diag(covariance[0]), integrated.predict_f(X)[1][:, 0], rtol=1e-9)
    single = integrated.predict_f_samples(X, full_cov=False)
    assert single.shape == (4, 1)


def test_rows_in_batches_are_predicted_as_rows(integrated):
    X = rows(6, seed=2)[0]
    batches = X.reshape(2, 3, D)
    for one, other in zip(integrated.predict_y(batches), integrated.predict_y(X), strict=True):
        np.testing.assert_allclose(one, np.reshape(other, (2, 3, 1)), rtol=1e-12)
    found = integrated.predict_quantiles(batches, [0.2, 0.7])
    expected = np.reshape(integrated.predict_quantiles(X, [0.2, 0.7]), (2, 2, 3, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert integrated.predict_f_samples(batches, 5).shape == (2, 5, 3, 1)
    assert integrated.predict_f_samples(batches).shape == (2, 3, 1)


def test_a_frozen_mixture_and_a_frozen_posterior_predict_as_the_mixture(integrated):
    for model in (integrated, GPMixture(rows(), tables(True))):
        X, expected = NEW[0], model.predict_y(NEW[0])
        frozen, posterior = map(gpflow.utilities.freeze, (model, model.posterior()))
        draws, others = (m.posterior().sample_functions(2, seed=0)(X) for m in (model, frozen))
        np.testing.assert_array_equal(others, draws)
        predictions = [frozen.predict_y(X), posterior.predict_y(X, model.likelihood)]
        for found in predictions:
            np.testing.assert_allclose(found, expected, rtol=1e-9)
    model.likelihood.variance.assign(0.7)  # of the original alone
    assert np.all(model.predict_y(X)[1] > expected[1] + 0.1)
    np.testing.assert_allclose(frozen.predict_y(X), expected, rtol=1e-9)


def test_diagnostics_are_of_the_distribution_that_is_predicted(integrated):
    X, Y = rows(40, seed=3)
    below = integrated.predict_distribution((X, Y)).numpy()
    found = gs.diagnostics(integrated, (X, Y))["calibration"]
    np.testing.assert_allclose(found["pit_mean"], below.mean(), rtol=1e-9)
    for entry in found["coverage"]:
        covered = np.mean(np.abs(below - 0.5) <= 0.5 * entry["nominal"])
        assert entry["observed"] == pytest.approx(covered)


def test_few_effective_draws_have_advice(integrated):
    summary = integrated.describe()[0]
    assert summary._replace(effective_number=7.0).advice == ""
    assert "Take more draws" in summary._replace(effective_number=2.0).advice


def test_a_mixture_has_no_factors_to_calibrate(integrated):
    with pytest.raises(ValueError, match="one Gaussian for every row"):
        gs.calibrate(integrated, rows(120, seed=4))
    alone = GPMixture(rows(), [scaled()])
    assert gs.calibrate(alone, rows(120, seed=4)).num_rows == 120


def test_a_graph_gives_the_predictions_of_single_operations(rng):
    X = rng.normal(size=(12, 1))
    kernels = [gs.kernels.table_kernel(gpflow.kernels.Matern32, 1)]
    model = gs.models.GPMixture((X, np.sin(X)), kernels, num_draws=4).integrate()
    inputs = tf.constant(X[:5] + 0.1)
    traced = tf.function(model.predict_f, autograph=False)(inputs)
    for found, expected in zip(traced, model.predict_f(inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_transform_of_power_one_changes_nothing():
    identity = YeoJohnson(np.ones(1), np.zeros(1), np.ones(1))
    model = GPMixture(rows(), tables(True))
    expected = [model.elbo(), *model.predict_f(NEW[0], full_cov=True), *model.predict_y(NEW[0])]
    expected.append(model.predict_log_density(NEW))
    model.components[0].transform = identity
    found = [model.elbo(), *model.predict_f(NEW[0], full_cov=True), *model.predict_y(NEW[0])]
    found.append(model.predict_log_density(NEW))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_the_evidence_of_transformed_outputs_has_the_jacobian():
    X, Y = rows()
    model = GPMixture((X, Y), [scaled()], transforms=["yeo-johnson"], num_draws=4)
    transform = model.components[0].transform
    values = [float(v[0]) for v in (transform.power, transform.center, transform.scale)]
    z, log_slope = oracle.yeo_johnson(Y[:, 0], *values)
    assert abs(log_slope.sum()) > 1.0
    expected = oracle.log_marginal(oracle.matern32(X, X, 1.0, 1.0), z, 0.1) + log_slope.sum()
    np.testing.assert_allclose(model.elbo(), expected, rtol=1e-9)
    plain = GPMixture((X, z[:, None]), [scaled()], num_draws=4).integrate().describe()[0]
    found = model.integrate().describe()[0]
    for name in ("log_evidence", "laplace_evidence"):
        difference = getattr(found, name) - getattr(plain, name)
        np.testing.assert_allclose(difference, log_slope.sum(), rtol=1e-6)


@pytest.mark.parametrize("power", [0.0, 0.3])
def test_shares_are_prior_shares_times_a_power_of_the_evidence(power):
    kernels = [scaled(), scaled(2.0), scaled(0.5, 5.0)]
    options = {"shares": [1.0, 2.0, 3.0], "evidence_power": power, "num_draws": 2}
    model = GPMixture(rows(), kernels, **options).integrate()
    evidence = np.array([summary.log_evidence for summary in model.describe()])
    expected = np.array([1.0, 2.0, 3.0]) * np.exp(power * (evidence - evidence[0]))
    np.testing.assert_allclose(model.shares, expected / expected.sum(), rtol=1e-9)
    model.prior_shares, before = np.array([1.0, 2.0, 1e-9]), model.predict_f(NEW[0])[0]
    model.integrate()  # the third is now left out
    assert len(model.components) == 2
    assert np.abs(model.predict_f(NEW[0])[0] - before).max() > 1e-6


def test_a_saved_mixture_predicts_the_same(integrated, tmp_path):
    gs.save(integrated, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    for one, other in zip(loaded.predict_y(NEW[0]), integrated.predict_y(NEW[0]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.describe()[0][:7] == integrated.describe()[0][:7]
    np.testing.assert_allclose(loaded.integrate().log_evidence, integrated.log_evidence, atol=0.2)


def test_unusable_arguments_are_refused():
    kernel = scaled()
    for words, arguments in {
        "kernels must be a list": {"kernels": kernel},
        "must not share parameters": {"kernels": [kernel, kernel]},
        "transforms must be": {"kernels": [kernel], "transforms": ["log"]},
        "shares must be 1 positive": {"kernels": [kernel], "shares": [0.0]},
        "evidence_power must be": {"kernels": [kernel], "evidence_power": 2.0},
        "num_draws must be": {"kernels": [kernel], "num_draws": 0},
    }.items():
        with pytest.raises(ValueError, match=words):
            GPMixture(rows(), **arguments)
    with pytest.raises(ValueError, match="must have a prior"):
        GPMixture(rows(), [gpflow.kernels.Matern32()]).integrate()
    for predictor in (GPMixture(rows(), [kernel]), GPMixture(rows(), [kernel]).posterior()):
        with pytest.raises(ValueError, match="levels must be"):
            predictor.predict_quantiles(NEW[0], [0.0])
    with pytest.raises(ValueError, match="integrate must be called outside"):
        tf.function(GPMixture(rows(), [kernel]).integrate)()
    with pytest.raises(ValueError, match="base must be"):
        MainEffects(gpflow.kernels.Linear())
    with pytest.raises(ValueError, match="profile must be"):
        table_kernel(gpflow.kernels.Linear, 2)
    assert isinstance(tables(True)[0].kernels[0].lengthscales.prior, ExchangeableNormal)


def test_few_draws_predict_as_all_of_them():
    """At new rows: the loss is judged at training rows, each without its output."""
    transforms, data = ["none", "yeo-johnson"], rows(60)
    densities, counts = [], []
    for most in (64, 12):
        kernels = tables(False, True)
        model = GPMixture(data, kernels, transforms=transforms, num_kept=most).integrate()
        new = rows(400, seed=3)
        densities.append(np.mean(model.predict_log_density(new)))
        counts.append(sum(summary.num_draws for summary in model.describe()))
        np.testing.assert_allclose(model.shares.sum(), 1.0)
    assert counts[0] > 32 >= 12 >= counts[1]
    assert densities[1] > densities[0] - 0.002


@pytest.mark.parametrize("profile", ["Matern12", "Matern32", "SquaredExponential"])
def test_moments_in_numpy_are_those_of_tensorflow(profile, monkeypatch):
    """With a mean function, repeated rows, two outputs, several blocks, and a transform."""
    X, Y = rows(30)
    X, Y = np.concatenate([X, X[:6]]), np.concatenate([Y, Y[:6] + 0.1])
    kernels = tables(False, True, profile=getattr(gpflow.kernels, profile))
    mean_function = gpflow.functions.Linear(np.full((D, 1), 0.2), [0.4])
    options = {"transforms": ["none", "yeo-johnson"], "mean_function": mean_function}
    model = GPMixture((X, np.hstack([Y, 2.0 - Y])), kernels, num_draws=4, **options).integrate()
    posterior, new = model.posterior(), np.concatenate([NEW[0], X[:2]])
    assert posterior.has_numpy
    monkeypatch.setattr("gpflow_sparse.models.mixture.prediction._BLOCK_ENTRIES", 100)
    for with_noise, predict in ((False, model.predict_f), (True, model.predict_y)):
        found = posterior.moments_in_numpy(new, with_noise=with_noise)
        for one, other in zip(found, predict(new), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
