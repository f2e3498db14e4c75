"""A constant, a linear model and boosted trees as models with a likelihood."""

import gpflow
import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.fitting.race import Race
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.methods.simple import Simple


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    return X, 2.0 * X[:, :1] + 0.5 * rng.normal(size=(count, 1))


def model_of(mean, pair, num_classes=None, *, weights=None, likelihood=None):
    data = Dataset("made", pair, pair, ("a", "b"), "y", num_classes, weights=weights)
    return build_model(Simple(mean=mean), data, likelihood=likelihood)


def nlpd(model, pair):
    return -np.mean(model.predict_log_density(pair))


def test_a_constant_and_a_line_have_the_density_of_their_residuals():
    train, new = rows(4000), rows(4000, seed=1)
    constant = model_of("constant", train)
    density = stats.norm.logpdf(new[1], train[1].mean(), train[1].std())
    np.testing.assert_allclose(nlpd(constant, new), -density.mean(), rtol=1e-5)
    line = model_of("linear", train)
    mean, variance = line.predict_y(new[0])
    np.testing.assert_allclose(np.std(new[1] - mean), 0.5, rtol=0.03)
    np.testing.assert_allclose(variance, 0.25, rtol=0.05)


def test_the_noise_about_trees_is_that_of_rows_that_they_have_not_seen():
    model, (X, Y) = model_of("trees", rows(1000)), rows(2000, seed=1)
    mean, variance = model.predict_y(X)
    inside = np.abs(Y - mean) < 1.96 * np.sqrt(variance)
    assert 0.5 < np.std(Y - mean) < 0.7
    assert 0.92 < np.mean(inside) < 0.98


def coefficients(model):
    mean = model.mean_function
    return np.r_[mean.A.numpy()[:, 0], mean.b.numpy()]


def test_a_line_is_logistic_or_poisson_regression():
    X, Y = rows(500)
    labels = (Y > 0.3).astype(float)
    known = LogisticRegression(C=1.0, tol=1e-8).fit(X, labels[:, 0])
    expected = np.r_[known.coef_[0], known.intercept_]
    found = coefficients(model_of("linear", (X, labels), 2))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, :1] + 1.0)).astype(float)
    known = PoissonRegressor(alpha=1.0 / len(X), tol=1e-8).fit(X, counts[:, 0])
    found = coefficients(model_of("linear", (X, counts), likelihood="poisson"))
    np.testing.assert_allclose(found, [*known.coef_, known.intercept_], rtol=1e-3, atol=1e-3)


def test_coefficients_of_noise_are_nearly_zero():
    """Of 40 columns that do not matter least squares costs 0.02 nats."""
    rng = np.random.default_rng(0)
    train, new = (tuple(rng.normal(size=(n, d)) for d in (40, 1)) for n in (1000, 4000))
    constant, line = (model_of(mean, train) for mean in ("constant", "linear"))
    assert np.sum(coefficients(line)[:-1] ** 2) < 0.2 * 40 / 1000
    assert nlpd(line, new) - nlpd(constant, new) < 0.006


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_a_row_of_weight_two_counts_as_two_rows(mean):
    X, Y = rows(300)
    weights = np.random.default_rng(1).integers(1, 4, len(X))
    model = model_of(mean, (X, Y), weights=weights.astype(float))
    again = model_of(mean, (X.repeat(weights, 0), Y.repeat(weights, 0)))
    values = gpflow.utilities.read_values(model), gpflow.utilities.read_values(again)
    for name in (n for n in values[0] if n.startswith((".mean_function", ".likelihood"))):
        np.testing.assert_allclose(values[0][name], values[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_a_class_without_training_rows_has_a_probability(mean):
    X, Y = rows(200)
    labels = (Y > 0).astype(float)
    model = model_of(mean, (X, labels), 3)
    density = model.predict_log_density((X, np.full_like(Y, 2.0)))
    assert np.all(np.isfinite(density))
    assert np.mean(density) < -3.0


def test_trees_of_classes_have_calibrated_probabilities(tmp_path):
    """Labels are certain in one half of the plane and random in the other."""
    X = np.random.default_rng(0).normal(size=(3000, 2))
    p = np.where(X[:, :1] > 0, 0.95, 0.5)
    labels = (np.random.default_rng(1).uniform(size=p.shape) < p).astype(float)
    model = model_of("trees", (X, labels), 2)
    gs.save(model, tmp_path / "model.safetensors")
    loaded = gs.load(tmp_path / "model.safetensors")
    new = np.random.default_rng(2).normal(size=(2000, 2))
    expected = np.where(new[:, :1] > 0, 0.95, 0.5)
    found = loaded.predict_y(new)[0].numpy()
    for probability in (0.95, 0.5):
        np.testing.assert_allclose(found[expected == probability].mean(), probability, atol=0.04)
    excess = expected * np.log(expected / found)
    excess += (1 - expected) * np.log((1 - expected) / (1 - found))
    assert np.mean(excess) < 0.03  # nats
    np.testing.assert_allclose(found, model.predict_y(new)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("num_classes", "given", "expected"),
    [
        (None, {}, ["constant", "linear", "trees"]),
        (None, {"likelihood": "student_t"}, ["constant", "linear", "trees"]),
        (None, {"likelihood": "poisson"}, ["constant", "linear"]),
        (None, {"likelihood": "heteroskedastic"}, ["constant", "linear"]),
        (2, {}, ["constant", "linear", "trees"]),
        (2, {"likelihood": "bernoulli"}, []),
        (300, {}, ["constant", "linear"]),  # classes of four rows
    ],
)
def test_the_simple_models_of_a_kind_of_table(num_classes, given, expected):
    X, Y = rows(1200)
    Y = np.abs(Y).round() if num_classes is None else np.arange(len(X))[:, None] % num_classes
    data = Dataset("made", (X, Y.astype(float)), (X, Y), ("a", "b"), "y", num_classes)
    assert Race(Task(data, **given), None, str).simple_models == expected
