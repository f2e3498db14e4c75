"""Boosted trees as the mean of a GP: their residuals, their weight, and who tries them."""

import dataclasses
import json
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset
from gpflow_sparse.mean_functions import BoostedTrees
from gpflow_sparse.tables.fitting import race, tree_mean
from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.fitting.task import Task, candidates
from gpflow_sparse.tables.methods.gpnn import GPnn
from tests.tables.cli.command_line import ALONE, read_csv, run

__all__ = ["run"]  # a fixture

N = 1200
QUICK: dict[str, Any] = {
    "kernel": "matern32",
    "num_subset": 300,
    "metric": "columns",
    "num_neighbors": 16,
}
ROUNDS = 60


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(tree_mean, "_MAX_ROUNDS", ROUNDS)
    monkeypatch.setattr(tree_mean, "_NUM_FOLDS", 3)


def table(function, noise=0.3, outputs=1, num_rows=N):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 4))
    Y = function(X)[:, None] + noise * rng.normal(size=(num_rows, outputs))
    return Dataset("table", (X, Y), (X[:0], Y[:0]), tuple("abcd"), "y", None)


def steps(X):
    """Thresholds in every column."""
    return np.sign(X[:, 0]) + np.sign(X[:, 1] - 0.5) * np.sign(X[:, 2]) + (X[:, 3] > 1.0)


def smooth(X):
    return np.sin(X[:, 0]) + X[:, 1]


def option(name):
    return f"--{name.replace('_', '-')}"


def residuals(data, mean):
    return mean.residual_data(data).train[1]


def test_residuals_are_those_of_rows_that_the_trees_have_not_seen():
    """Of noise alone nothing can be predicted; the trees themselves fit some of it."""
    data = table(lambda X: 0.0 * X[:, 0], noise=1.0)
    mean = tree_mean.fit_tree_mean(data)
    X, Y = data.train
    assert np.mean(residuals(data, mean) ** 2) > 0.99 * np.mean(Y**2)
    own = HistGradientBoostingRegressor().fit(X, Y[:, 0])
    assert np.mean((Y[:, 0] - own.predict(X)) ** 2) < 0.8 * np.mean(Y**2)


@pytest.mark.parametrize("num_copies", [0, 40])
def test_the_model_is_a_gp_of_the_residuals_about_the_trees(num_copies):
    """Also where some rows are copies, of which the model keeps one."""
    data = table(steps).take(np.r_[:N, :num_copies])
    new = np.random.default_rng(1).normal(size=(20, 4))
    mean = tree_mean.fit_tree_mean(data)
    model = build_model(GPnn(mean="trees", **QUICK), data, mean=mean)
    kernel, noise = model.kernel, model.likelihood.variance
    rest = gs.models.NearestNeighborGP(
        mean.residual_data(data).train, kernel, num_neighbors=16, noise_variance=noise.numpy()
    )
    f, variance = rest.predict_f(new)
    found = model.predict_f(new)
    np.testing.assert_allclose(found[0], f + mean.function(new), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[1], variance, rtol=1e-9)
    np.testing.assert_allclose(model.training_loss(), rest.training_loss(), rtol=1e-9)


def test_the_weight_is_one_where_trees_predict_better_than_nearest_rows():
    kernel = gpflow.kernels.Matern52(lengthscales=2.0)
    for data, known in ((table(steps), 1.0), (table(smooth, noise=0.1), 0.5)):
        mean = tree_mean.fit_tree_mean(data)
        weight = tree_mean.weight_beside(data, mean, kernel, 0.1)
        assert weight == known
        again = mean.weighted(weight)
        np.testing.assert_allclose(again.function.value, weight * mean.function.value, rtol=1e-12)
        np.testing.assert_allclose(
            residuals(data, again), data.train[1] - weight * mean.out_of_fold
        )


@pytest.mark.nightly
def test_the_model_of_all_rows_has_the_weight_of_its_start():
    """Its hyperparameters are those of residuals with that weight."""
    data, recipe = table(steps), GPnn(mean="trees", **QUICK)
    mean = tree_mean.fit_tree_mean(data, weight=0.5)
    start = build_model(recipe, data, mean=mean)
    model = build_model(recipe, data, start=start)
    np.testing.assert_allclose(model.mean_function.value, mean.function.value, rtol=1e-12)
    np.testing.assert_array_equal(model.kernel.variance, start.kernel.variance)
    assert model.mean_function.weight == 0.5


def test_rows_beside_those_of_the_trees_have_the_mean_of_all_trees(monkeypatch):
    monkeypatch.setattr(tree_mean, "_MAX_VALUES", 2 * 4 * 1000)  # of two of three folds
    data = table(steps, num_rows=3000)
    mean = tree_mean.fit_tree_mean(data, seed=2)
    order = np.random.default_rng(2).permutation(3000)
    X, Y = data.train
    expected = Y - mean.function(X).numpy()
    others = np.isclose(residuals(data, mean), expected, rtol=0, atol=1e-9)[:, 0]
    assert others[order[1000:]].all()
    assert others[order[:1000]].mean() < 0.1


def test_the_first_trees_of_a_long_table_are_those_of_one_fold(monkeypatch):
    data = table(steps)
    with monkeypatch.context() as patch:
        patch.setattr(tree_mean, "_NUM_FOLDS", 3)  # as many as there are
        mean, rows = tree_mean.fit_first_trees(data)
        assert (len(mean.models), len(rows)) == (3, N)
    monkeypatch.setattr(tree_mean, "_TWO_FOLDS", N - 1)
    mean, rows = tree_mean.fit_first_trees(data)
    left_out, (X, Y) = data.take(rows), data.take(rows).train
    np.testing.assert_allclose(
        residuals(left_out, mean)[:, 0], Y[:, 0] - mean.models[0].predict(X), rtol=1e-12
    )
    found = tree_mean.fit_tree_mean(data, known=mean.models)
    assert (len(found.models), found.models[0]) == (2, mean.models[0])
    np.testing.assert_array_equal(found.out_of_fold, tree_mean.fit_tree_mean(data).out_of_fold)
    np.testing.assert_allclose(found.out_of_fold[rows], mean.out_of_fold)


def test_a_long_table_has_two_folds_and_the_average_of_their_trees(monkeypatch):
    """Every row is left out by one of the two; the values of the function are known already."""
    monkeypatch.setattr(tree_mean, "_TWO_FOLDS", N - 1)
    monkeypatch.setattr(tree_mean, "_MANY_ROWS", N - 1)
    data = table(steps)
    mean = tree_mean.fit_tree_mean(data, weight=1.0)
    X, Y = data.train
    folds = KFold(2, shuffle=True, random_state=0)
    order = np.random.default_rng(0).permutation(N)
    average = np.zeros([N, 1])
    for fitted_rows, left_out in folds.split(order):
        own = HistGradientBoostingRegressor(
            max_iter=ROUNDS,
            max_depth=10,
            max_leaf_nodes=63,
            early_stopping=True,
            random_state=0,
        ).fit(X[order[fitted_rows]], Y[order[fitted_rows], 0])
        out = order[left_out]
        np.testing.assert_allclose(residuals(data, mean)[out, 0], Y[out, 0] - own.predict(X[out]))
        average += own.predict(X)[:, None] / 2
    np.testing.assert_allclose(mean.average, average, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mean.function(X), average, rtol=1e-9, atol=1e-9)


def test_known_values_of_trees_are_those_of_the_rows_of_the_model(monkeypatch):
    data = table(steps)
    mean = tree_mean.fit_tree_mean(data)
    monkeypatch.setattr(BoostedTrees, "_evaluate", None)  # is not called for the training rows
    model = build_model(GPnn(mean="trees", **QUICK), data, mean=mean)
    np.testing.assert_array_equal(model.mean_function(model.data[0]), mean.average)


def test_the_choice_takes_trees_where_they_predict_held_out_rows_better():
    assert candidates(Task(table(steps))) == ["gpnn", "gpnn with trees"]
    for other in (Task(table(steps, outputs=2)), Task(table(steps), options={"mean": "zero"})):
        assert "gpnn with trees" not in candidates(other)
    races = [race.Race(Task(table(f), options=QUICK), None, print) for f in (steps, smooth)]
    for each in races:
        each.run(["gpnn", "gpnn with trees"])
    attempts = races[0].attempts
    assert races[0].best_gp.name == "gpnn with trees"
    assert attempts["gpnn with trees"].nlpd < attempts["gpnn"].nlpd - 0.3
    assert races[1].best.name == "gpnn"
    assert races[0].best_gp.build_seconds > races[0].best_gp.mean.seconds


def test_a_short_budget_has_no_time_for_trees(monkeypatch):
    monkeypatch.setattr(tree_mean, "_SECONDS", 1.0)
    short = race.Race(Task(table(smooth), options=QUICK), 60.0, lambda line: None)
    short.run(["gpnn", "gpnn with trees"])
    assert not {"trees", "gpnn with trees"} & set(short.attempts)


@pytest.mark.parametrize("change", [{"num_classes": 2}, {"outputs": 2}])
def test_classes_and_several_outputs_have_no_trees(change):
    data = table(steps, outputs=change.pop("outputs", 1))
    with pytest.raises(ValueError, match="mean must be zero"):
        tree_mean.fit_tree_mean(dataclasses.replace(data, **change))


@pytest.mark.nightly
def test_a_run_about_trees_predicts_from_its_file(run, tmp_path):
    X, Y = table(steps).train
    pd.DataFrame(np.hstack([X, Y]), columns=[*"abcdy"]).to_csv(tmp_path / "my.csv", index=False)
    code, out, err = run(
        "fit",
        "gpnn",
        "--mean",
        "trees",
        *(word for name, value in QUICK.items() for word in (option(name), str(value))),
        "--data",
        "my.csv",
        "--output",
        "run",
        *ALONE,
    )
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["title"] == "GPnn about trees"
    model = gs.load(tmp_path / "run" / "model.safetensors").model_
    assert isinstance(model.mean_function, gs.mean_functions.BoostedTrees)
    code, out, err = run("predict", "--model", "run", "--data", "my.csv")
    assert code == 0, err
    mean = np.array(read_csv(out)["mean"])
    assert np.mean((mean - steps(X)) ** 2) < 0.3 * np.var(steps(X))
