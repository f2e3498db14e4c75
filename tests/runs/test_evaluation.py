"""Scores of likelihoods and transforms without a formula, against distributions that are known."""

import gpflow
import numpy as np
import tensorflow as tf
from scipy import stats

from gpflow_sparse.data import Standardizer, metrics
from gpflow_sparse.runs.evaluation import central_interval, evaluate


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
    np.testing.assert_allclose(metrics.crps_of_points(Y, points), expected, rtol=1e-3)


def test_a_log_transform_is_scored_as_a_lognormal():
    rng = np.random.default_rng(0)
    Y = np.exp(1.0 + 0.5 * np.sqrt(1.25) * rng.normal(size=(4000, 1)))
    scaler = Standardizer([0.0], [1.0], [1.0], [0.5], "log")
    model = Known(gpflow.likelihoods.Gaussian(0.25))  # so that log y has variance 0.25 * 1.25
    scores, predictions = evaluate(model, scaler, np.zeros((4000, 1)), Y)
    true = stats.lognorm(0.5 * np.sqrt(1.25), scale=np.e)
    np.testing.assert_allclose(scores["nlpd"], -true.logpdf(Y).mean(), rtol=1e-9)
    np.testing.assert_allclose(predictions["mean"], true.mean(), rtol=1e-9)
    np.testing.assert_allclose(predictions["pit"], true.cdf(Y), rtol=1e-9)
    low, high = central_interval(model, scaler, np.zeros((1, 1)), 0.9)
    np.testing.assert_allclose([low.item(), high.item()], true.ppf([0.05, 0.95]), rtol=1e-9)
    draws = true.rvs(size=(2, 200_000), random_state=1)
    spread = 0.5 * np.abs(draws[0] - draws[1]).mean()
    expected = np.abs(Y[:, 0] - draws[0, :4000]).mean() - spread
    np.testing.assert_allclose(scores["crps"], expected, rtol=0.05)


def test_counts_are_scored_by_draws():
    rng = np.random.default_rng(0)
    Y = rng.poisson(np.exp(rng.normal(size=(3000, 1)))).astype(float)
    model, scaler = Known(gpflow.likelihoods.Poisson()), Standardizer([0.0], [1.0])
    scores, predictions = evaluate(model, scaler, np.zeros((3000, 1)), Y)
    np.testing.assert_allclose(predictions["pit"].mean(), 0.5, atol=0.03)
    zero = np.mean(rng.poisson(np.exp(rng.normal(size=100_000))) == 0)
    np.testing.assert_allclose(predictions["pit"][Y == 0], 0.5 * zero, atol=0.03)
    assert 0.93 < scores["coverage"] < 0.98
