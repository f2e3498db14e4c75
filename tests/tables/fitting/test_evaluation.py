"""Scores of likelihoods and transforms without a formula, against distributions that are known."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import gpflow_sparse as gs
from gpflow_sparse.data import Standardizer, metrics
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.tables.fitting import evaluation, observations
from gpflow_sparse.tables.fitting.evaluation import Observations, evaluate
from gpflow_sparse.tables.fitting.observations import make_likelihood
from gpflow_sparse.tables.methods.cached_model import CachedModel


class Known:
    """A predictor whose f is standard normal in every row."""

    def __init__(self, likelihood):
        self.likelihood = likelihood

    def predict_f(self, X):
        return tf.zeros_like(X), tf.ones_like(X)

    def predict_y(self, X):
        return self.likelihood.predict_mean_and_var(X, *self.predict_f(X))

    def predict_log_density(self, data):
        X, Y = data
        return self.likelihood.predict_log_density(X, *self.predict_f(X), Y)


def test_crps_of_many_points_is_that_of_their_distribution():
    Y = np.array([[0.3], [-1.0], [2.0]])
    levels = (np.arange(4000) + 0.5) / 4000
    points = 0.5 + 2.0 * np.tile(stats.norm.ppf(levels)[:, None, None], (1, 3, 1))
    expected = metrics.crps(Y, np.full((3, 1), 0.5), np.full((3, 1), 4.0))
    np.testing.assert_allclose(metrics.crps_of_points(Y, points).mean(), expected, rtol=1e-3)


def test_a_log_transform_is_scored_as_a_lognormal():
    rng = np.random.default_rng(0)
    Y = np.exp(1.0 + 0.5 * np.sqrt(1.25) * rng.normal(size=(4000, 1)))
    scaler = Standardizer([0.0], [1.0], [1.0], [0.5], "log")
    model = Known(gpflow.likelihoods.Gaussian(0.25))  # so that log y has variance 0.25 * 1.25
    scores, predictions = evaluate(model, scaler, np.zeros((4000, 1)), Y)
    true = stats.lognorm(0.5 * np.sqrt(1.25), scale=np.e)
    np.testing.assert_allclose(scores["nlpd"], -true.logpdf(Y).mean(), rtol=1e-9)
    np.testing.assert_allclose(predictions["point"], true.median(), rtol=1e-9)
    np.testing.assert_allclose(predictions["variance"], true.var(), rtol=1e-6)
    expected = np.sqrt(np.mean((Y - true.median()) ** 2))
    np.testing.assert_allclose(scores["rmse"], expected, rtol=1e-9)
    np.testing.assert_allclose(predictions["pit"], true.cdf(Y), rtol=1e-9)
    low, high = Observations(model, scaler, np.zeros((1, 1))).interval(0.9)
    np.testing.assert_allclose([low.item(), high.item()], true.ppf([0.05, 0.95]), rtol=1e-9)
    draws = true.rvs(size=(2, 200_000), random_state=1)
    spread = 0.5 * np.abs(draws[0] - draws[1]).mean()
    expected = np.abs(Y[:, 0] - draws[0, :4000]).mean() - spread
    np.testing.assert_allclose(scores["crps"], expected, rtol=0.05)


def test_students_noise_has_no_mean_under_a_logarithm():
    scaler = Standardizer([0.0], [1.0], [1.0], [0.5], "log")
    model = Known(gpflow.likelihoods.StudentT())
    found = Observations(model, scaler, np.zeros((2, 1))).original
    np.testing.assert_allclose(found.point, np.e, rtol=0.1)  # from draws
    assert np.all(np.isinf(found.mean))
    assert np.all(np.isinf(found.variance))


def test_counts_are_scored_by_draws():
    rng = np.random.default_rng(0)
    Y = rng.poisson(np.exp(rng.normal(size=(3000, 1)))).astype(float)
    model, scaler = Known(gpflow.likelihoods.Poisson()), Standardizer([0.0], [1.0])
    scores, predictions = evaluate(model, scaler, np.zeros((3000, 1)), Y)
    np.testing.assert_allclose(predictions["pit"].mean(), 0.5, atol=0.03)
    zero = np.mean(rng.poisson(np.exp(rng.normal(size=100_000))) == 0)
    np.testing.assert_allclose(predictions["pit"][Y == 0], 0.5 * zero, atol=0.03)
    assert 0.93 < scores["coverage"] < 0.99


class KnownRate(Known):
    """A predictor that knows f, the logarithm of the rate 3.5, in every row."""

    def predict_f(self, X):
        return tf.fill(X.shape, tf.math.log(tf.constant(3.5, X.dtype))), tf.zeros_like(X)


def test_coverage_of_counts_is_that_of_the_intervals():
    """The 95 % intervals of counts hold more than 95 %; 95 % of the transforms are central."""
    Y = np.random.default_rng(0).poisson(3.5, size=(2000, 1)).astype(float)
    X, scaler = np.zeros((2000, 1)), Standardizer([0.0], [1.0])
    model = KnownRate(gpflow.likelihoods.Poisson())
    scores, predictions = evaluate(model, scaler, X, Y)
    for level in (0.5, 0.8, 0.95):
        low, high = Observations(model, scaler, X).interval(level)
        inside = np.mean((low <= Y) & (high >= Y))
        assert np.mean(predictions["central"] < level) == inside
    assert scores["coverage"] == inside
    assert np.mean(np.abs(predictions["pit"] - 0.5) <= 0.475) < 0.96 < 0.97 < inside


@pytest.mark.parametrize("noise", ["gaussian", "student_t", "log"])
def test_rows_of_weight_three_are_scored_as_three_rows(noise):
    rng = np.random.default_rng(0)
    Y = np.exp(rng.normal(size=(40, 1)))
    weights = np.where(Y[:, 0] > 1.0, 3.0, 1.0)
    transform = ([0.0], [1.0], "log") if noise == "log" else ([0.0], [1.0])
    scaler = Standardizer([0.0], [1.0], *transform)
    model = Known(make_likelihood(None if noise == "log" else noise, None, 0.1))
    repeated = np.repeat(Y, weights.astype(int), axis=0)
    expected, _ = evaluate(model, scaler, np.zeros_like(repeated), repeated)
    found, _ = evaluate(model, scaler, np.zeros((40, 1)), Y, row_weights=weights)
    # draws of observations differ from row to row
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=0.05 if noise[0] == "s" else 1e-9)
    alike, _ = evaluate(model, scaler, np.zeros((40, 1)), Y)
    assert all(abs(found[name] / alike[name] - 1.0) > 0.005 for name in found)


def test_classes_of_weight_three_are_scored_as_three_rows():
    rng = np.random.default_rng(0)
    Y, weights = rng.integers(2, size=(40, 1)), 1.0 + 2.0 * (np.arange(40) % 2)
    X = rng.normal(size=(40, 1))

    class Logistic(Known):
        def predict_f(self, X):
            return X, 0.1 * tf.ones_like(X)

    model, scaler = Logistic(gpflow.likelihoods.Bernoulli()), Standardizer([0.0], [1.0])
    rows = [np.repeat(part, weights.astype(int), axis=0) for part in (X, Y)]
    expected, _ = evaluate(model, scaler, *rows, 2)
    found, _ = evaluate(model, scaler, X, Y, 2, row_weights=weights)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("noise", ["gaussian", "student_t"])
def test_many_rows_are_predicted_in_parts_and_compiled_as_few_are(rng, noise, monkeypatch):
    """Chunk by chunk, the last one shorter; draws of observations are those of all rows at once."""
    X = rng.normal(size=(31, 2))
    model = gs.models.SOLVEGP(
        gpflow.kernels.Matern32(),
        make_likelihood(noise, None, 0.1),
        OrthogonalInducingVariables(X[:3], X[3:6]),
    )
    scaler = Standardizer.fit(X, X[:, :1])
    monkeypatch.setattr(observations, "BLOCK", 4)

    def observed(X, chunk_size=4096):
        return Observations(CachedModel(model), scaler, scaler.transform_inputs(X), chunk_size)

    found = observed(X, 31)
    (mean, _, variance), (low, high) = found.original, found.interval()
    for one, other in zip(observed(X).interval(), (low, high), strict=True):
        np.testing.assert_array_equal(one, other)
    expected = np.hstack([mean, np.sqrt(variance), low, high])
    monkeypatch.setattr(evaluation, "_COMPILED", 1)
    parts = []
    for rows in (X[:12], X[12:24], X[24:]):
        found = observed(rows, 6)
        (mean, _, variance), ends = found.original, found.interval()
        parts.append(np.hstack([mean, np.sqrt(variance), *ends]))
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=1e-10)


def test_methods_are_compiled_once_and_not_those_of_deep_models(rng):
    X = rng.normal(size=(6, 2))
    likelihood = gpflow.likelihoods.Gaussian()
    sets = OrthogonalInducingVariables(X[:3])
    model = CachedModel(gs.models.SOLVEGP(gpflow.kernels.Matern32(), likelihood, sets))
    compiled = model.compiled("predict_y")
    assert model.compiled("predict_y") is compiled
    np.testing.assert_allclose(compiled(X), model.predict_y(tf.constant(X)), rtol=1e-12)
    layers = [gs.models.GPLayer(gpflow.kernels.Matern32(), sets, num_latent_gps=1)]
    deep = CachedModel(gs.models.DeepGP(layers, likelihood, num_data=6))
    assert deep.compiled("predict_y") == deep.predict_y


def test_negative_variances_are_refused_in_words_of_a_user():
    class Lost:
        def predict_y(self, X):
            return X, tf.constant([[1.0], [-0.5], [0.0]], X.dtype)

    with pytest.raises(ValueError, match=r"1 of 3 predicted variances are negative, down to -0\.5"):
        Observations(Lost(), None, np.zeros((3, 1)), 10).moments  # noqa: B018


def test_negative_variances_that_are_rounding_are_zero():
    """Of caches of GPflow's SVGP; those of counts of millions were NaN before."""

    class Rounded:
        def predict_f(self, X):
            return X, tf.constant([[1.0], [-1e-5], [-1e-3]], X.dtype)

    poisson = gpflow.likelihoods.Poisson()
    model = gpflow.models.SVGP(gpflow.kernels.Matern32(variance=100.0), poisson, np.zeros((1, 1)))
    X = tf.zeros([3, 1], tf.float64)
    _, variance = CachedModel(model, Rounded()).predict_f(X)
    np.testing.assert_array_equal(variance[:, 0], [1.0, 0.0, -1e-3])
    assert np.isfinite(CachedModel(model, Rounded()).predict_y(X)[1][:2]).all()
