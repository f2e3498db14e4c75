"""Baselines beside the candidates of a choice, and numbers of steps within a budget of time."""

import numpy as np
import pytest
from scipy import stats

from gpflow_sparse.runs.baselines import score_baseline


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    return X, 2.0 * X[:, :1] + 0.5 * rng.normal(size=(count, 1))


def test_a_constant_and_a_line_have_the_density_of_their_residuals():
    train, new = rows(4000), rows(4000, seed=1)
    constant = score_baseline("constant", train, new)
    density = stats.norm.logpdf(new[1], train[1].mean(), train[1].std())
    np.testing.assert_allclose(constant["nlpd"], -density.mean(), rtol=1e-12)
    line = score_baseline("linear", train, new)
    np.testing.assert_allclose(line["rmse"], 0.5, rtol=0.03)
    np.testing.assert_allclose(line["nlpd"], 0.5 * np.log(2 * np.pi * np.e * 0.25), rtol=0.03)
    np.testing.assert_allclose(line["coverage"], 0.95, atol=0.02)


def test_trees_take_their_variance_from_rows_kept_back():
    """The residuals of the training rows are smaller than those of others."""
    scores = score_baseline("trees", rows(1000), rows(2000, seed=1))
    assert 0.5 < scores["rmse"] < 0.7
    assert 0.92 < scores["coverage"] < 0.98


@pytest.mark.parametrize("name", ["constant", "linear", "trees"])
def test_classes_without_training_rows_have_a_probability(name):
    X, Y = rows(200)
    labels = (Y > 0).astype(float)
    scores = score_baseline(name, (X, labels), (X, np.where(labels == 0, 2.0, 1.0)), 3)
    assert np.isfinite(scores["nlpd"])
    assert scores["error_rate"] >= np.mean(labels == 0)
