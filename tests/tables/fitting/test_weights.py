"""Weights of training rows in the recipes: minibatches, baselines, held-out rows, calibration."""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset, Standardizer, metrics
from gpflow_sparse.inference.shrinkage import best_temperature
from gpflow_sparse.tables.fitting.choice import choose
from gpflow_sparse.tables.fitting.evaluation import held_out_scores
from gpflow_sparse.tables.fitting.task import Task, candidates
from gpflow_sparse.tables.fitting.training import Candidate
from gpflow_sparse.tables.fitting.tree_mean import fit_tree_mean
from gpflow_sparse.tables.fitting.weights import weighted_rows
from gpflow_sparse.tables.methods.registry import RECIPES, recipe_of
from gpflow_sparse.training.calibration import predict_held_out

N = 150
FEW = {"num_inducing": 12, "num_orthogonal": 6, "num_steps": 12}


def rows(num_rows=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.2 * rng.normal(size=(num_rows, 1))
    return X, Y, rng.integers(1, 4, num_rows)


def data_of(X, Y, weights=None, num_classes=None):
    return Dataset("made", (X, Y), (X[:0], Y[:0]), ("a", "b"), "y", num_classes, weights=weights)


@pytest.mark.parametrize(
    ("method", "likelihood"),
    [
        *(("svgp", name) for name in ("gaussian", "student_t", "bernoulli", "multiclass")),
        *(("solvegp", "multiclass"), ("odvgp", "student_t"), ("swsgp", "bernoulli")),
    ],
)
def test_the_objective_of_weights_is_that_of_repeated_rows(method, likelihood):
    X, Y, weights = rows()
    num_classes = {"bernoulli": 2, "multiclass": 3}.get(likelihood)
    if num_classes:
        Y = np.digitize(Y, [0.0, 0.6][: num_classes - 1]).astype(float)
    recipe = recipe_of(method, **{n: v for n, v in FEW.items() if hasattr(RECIPES[method], n)})
    if method == "odvgp":
        recipe = recipe_of(method, **FEW, num_penalty_samples=0)
    task = Task(data_of(X, Y, weights, num_classes), likelihood=likelihood)
    start = gpflow.kernels.Matern52(lengthscales=[0.7, 1.5]), 0.1
    model = Candidate(task, recipe, hyperparameters=start).model
    X2, Y2 = X.repeat(weights, 0), Y.repeat(weights, 0)
    model.num_data = len(X2)
    if method == "swsgp":
        model.count_neighbors(X2)
    expected = model.elbo((X2, Y2))
    kind, model.num_data = type(model.likelihood), N
    with weighted_rows(model, (X, Y), weights) as given:
        model.num_data = N
        found = model.elbo(given)
    assert type(model.likelihood) is kind
    if method != "swsgp":  # of which the penalty counts rows
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    else:
        assert np.isfinite(found)


def test_steps_with_weights_move_towards_the_rows_of_weight():
    X = np.zeros((40, 1)) + np.linspace(-0.01, 0.01, 40)[:, None]
    Y = np.where(np.arange(40) < 20, 1.0, -1.0)[:, None]
    weights = np.where(np.arange(40) < 20, 3.0, 1.0)
    dataset = Dataset("made", (X, Y), (X, Y), ("a",), "y", None, weights=weights)
    options = {"num_inducing": 2, "num_steps": 300, "learning_rate": 0.05}
    kernel = gpflow.kernels.Matern52(lengthscales=1.0)
    recipe = recipe_of("svgp", **options)
    model = Candidate(Task(dataset), recipe, hyperparameters=(kernel, 0.1))
    model.train(300)
    mean = model.model.predict_y(np.zeros((1, 1)))[0]
    np.testing.assert_allclose(mean, 0.5, atol=0.05)  # (3 - 1) / (3 + 1)


def test_another_bound_is_refused_with_weights():
    X, Y, weights = rows()
    task = Task(data_of(X, Y, weights))
    start = gpflow.kernels.Matern52(), 0.1
    candidate = Candidate(task, recipe_of("solvegp", **FEW, bound="log"), hyperparameters=start)
    with pytest.raises(ValueError, match="bound must be 'standard' for rows of weights"):
        candidate.train(3)


@pytest.mark.parametrize(
    ("num_rows", "options", "expected"),
    [
        (8000, {}, "log"),
        (7999, {}, "standard"),
        (8000, {"calibrate": False}, "standard"),
        (8000, {"likelihood": "student_t"}, "standard"),
        (8000, {"weights": np.ones(8000)}, "standard"),
        (8000, {"bound": "standard"}, "standard"),
        (150, {"bound": "log"}, "log"),
    ],
)
def test_log_is_the_default_bound_where_a_model_will_be_calibrated(num_rows, options, expected):
    X, Y, _ = rows(num_rows)
    data = data_of(X, Y, options.pop("weights", None))
    start = gpflow.kernels.Matern52(), 0.1
    recipe = recipe_of("solvegp", **FEW, initialization="random", **options)
    assert Candidate(Task(data), recipe, hyperparameters=start).model.bound == expected


def test_scores_and_units_of_weights_are_those_of_repeated_rows():
    X, Y, weights = rows()
    X2, Y2 = X.repeat(weights, 0), Y.repeat(weights, 0)
    found = Standardizer.fit(X, np.exp(Y), transform="yeo-johnson", row_weights=weights)
    expected = Standardizer.fit(X2, np.exp(Y2), transform="yeo-johnson")
    for name in ("x_mean", "x_scale", "y_mean", "y_scale", "y_power"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-6)
    model = gpflow.models.GPR((X[:20], Y[:20]), gpflow.kernels.Matern52(), noise_variance=0.2)
    np.testing.assert_allclose(
        held_out_scores(model, (X, Y), None, weights), held_out_scores(model, (X2, Y2), None)
    )
    P = np.stack([1.0 / (1.0 + np.exp(Y[:, 0])), 1.0 / (1.0 + np.exp(-Y[:, 0]))], axis=1)
    labels = (X[:, 0] > 0.0).astype(int)
    found, expected = (
        metrics.error_rate(labels, P, weights),
        metrics.error_rate(labels.repeat(weights), P.repeat(weights, 0)),
    )
    np.testing.assert_allclose(found, expected)


@pytest.mark.nightly
def test_a_calibration_of_weights_is_that_of_repeated_rows_but_for_its_folds():
    X, Y, _ = rows(2000)
    # large errors count more, so that the factor without weights is another one
    weights = np.where(np.abs(Y - np.sin(2.0 * X[:, :1]))[:, 0] > 0.2, 3, 1)
    data = X[:100], Y[:100]
    options = {"noise_variance": 0.5, "num_neighbors": 8}
    model = gs.models.NearestNeighborGP(data, gpflow.kernels.Matern52(), **options)
    found = gs.calibrate(model, (X, Y), row_weights=weights)
    expected = gs.calibrate(model, (X.repeat(weights, 0), Y.repeat(weights, 0)))
    np.testing.assert_allclose(found.noise, expected.noise, rtol=0.02)
    gs.uncalibrate(model)
    gains = (
        predict_held_out(model, (X, Y), weights).gain,
        predict_held_out(model, (X.repeat(weights, 0), Y.repeat(weights, 0))).gain,
    )
    np.testing.assert_allclose(*gains, rtol=0.02)
    with pytest.raises(ValueError, match="conformal must be False for rows of weights"):
        gs.calibrate(model, (X, Y), conformal=True, row_weights=weights)


def test_a_temperature_of_weights_is_that_of_repeated_rows():
    rng = np.random.default_rng(0)
    log_P, labels = np.log(rng.dirichlet(np.ones(3), size=60)), rng.integers(0, 3, 60)
    likely = rng.random(60) < 0.5
    labels[likely] = log_P.argmax(axis=1)[likely]
    found = best_temperature(log_P, labels, np.full(60, 2.0))
    # both copies of a row are in one fold
    expected = best_temperature(np.tile(log_P, (2, 1)), np.tile(labels, 2))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert expected[1] > 0.01


def test_trees_of_a_mean_are_fitted_with_weights():
    X, Y, _ = rows(400)
    Y = np.where(np.arange(400)[:, None] % 2, Y, Y + 2.0)
    weights = np.where(np.arange(400) % 2, 1.0, 1e-3)
    dataset = data_of(X, Y, weights)
    found = fit_tree_mean(dataset).function(X).numpy()
    np.testing.assert_allclose(
        np.mean(found - Y, where=np.arange(400)[:, None] % 2 == 1), 0, atol=0.1
    )


def test_the_automatic_choice_tries_methods_that_take_weights(monkeypatch):
    monkeypatch.setattr(Task, "few_rows", 100)
    X, Y, weights = rows()
    for given in ((X, Y), (X, Y, weights), (X, np.round(np.abs(Y)), weights, 3)):
        for name in candidates(Task(data_of(*given))):
            assert RECIPES[name.split(" ")[0]].takes_weights


@pytest.mark.nightly
def test_the_choice_of_a_method_scores_with_weights(monkeypatch):
    monkeypatch.setattr(Task, "few_rows", 100)
    found = choose(Task(data_of(*rows())))
    assert found.recipe.takes_weights
    assert {"constant", "linear"} < {attempt.method for attempt in found.attempts}


def test_other_methods_refuse_weights():
    X, Y, weights = rows(20)
    task = Task(data_of(X, Y, weights))
    for method in (name for name, kind in RECIPES.items() if not kind.takes_weights):
        with pytest.raises(ValueError, match=f"weights of rows must be 1 for method {method}"):
            choose(task, method)
