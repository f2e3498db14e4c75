"""Boosted trees of log odds as the mean of a GP of classes: their rows, and who tries them."""

import dataclasses

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.ensemble import HistGradientBoostingClassifier

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset
from gpflow_sparse.estimators import SparseGPClassifier
from gpflow_sparse.tables.fitting import choice, tree_mean
from gpflow_sparse.tables.fitting.task import Task, candidates
from gpflow_sparse.tables.fitting.training import Candidate, train
from gpflow_sparse.tables.methods.rows import shuffled
from gpflow_sparse.tables.methods.solvegp import SolveGP

QUICK = {"num_inducing": 8, "num_orthogonal": 8, "num_steps": 10, "batch_size": 128}


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(tree_mean, "_MAX_ROUNDS", 20)


def table(num_classes, num_rows=2400, noise=0.2):
    """Classes by thresholds in two columns of six."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 6))
    y = (X[:, 0] > 0.3).astype(int) + (num_classes - 2) * (X[:, 1] > 0.0)
    other = rng.uniform(size=num_rows) < noise
    y[other] = rng.integers(0, num_classes, size=other.sum())
    return Dataset("table", (X, y[:, None].astype(float)), (X[:0], y[:0]), tuple("abcdef"), "y", 2)


def classes(num_classes, **options):
    return dataclasses.replace(table(num_classes, **options), num_classes=num_classes)


def log_loss(logits, y):
    if logits.shape[1] == 1:
        logits = np.hstack([np.zeros_like(logits), logits])
    return np.mean(logsumexp(logits, axis=1) - logits[np.arange(len(y)), y.astype(int)])


@pytest.mark.parametrize("num_classes", [2, 3])
def test_log_odds_of_training_rows_are_of_trees_that_have_not_seen_their_labels(num_classes):
    """Labels that nothing predicts: trees that were fitted to a row know its label."""
    data = classes(num_classes, noise=1.0)
    (X, Y), mean = data.train, tree_mean.fit_tree_mean(data, None, None)
    own = HistGradientBoostingClassifier(max_iter=20).fit(X, Y[:, 0])
    seen = own.decision_function(X).reshape(len(X), -1)
    assert log_loss(seen, Y[:, 0]) < 0.9 * np.log(num_classes)
    assert log_loss(mean.function(X).numpy(), Y[:, 0]) > np.log(num_classes)
    assert mean.model_rows(data) is data.train
    assert mean.residual_data(data) is data


def test_the_choice_tries_trees_of_classes_that_are_not_rare():
    data = classes(3)
    assert "solvegp with trees" in candidates(Task(data))
    assert "solvegp with trees" not in candidates(Task(data, options={"mean": "zero"}))
    assert "solvegp with trees" not in candidates(Task(data, likelihood="multiclass"))
    data.train[1][:9] = 3.0
    rare = dataclasses.replace(data, num_classes=4)
    assert "solvegp with trees" not in candidates(Task(rare))
    with pytest.raises(ValueError, match="mean must be zero where a class has fewer than 10"):
        gs.recipes.solvegp(*rare.train, num_classes=4, mean="trees", **QUICK)


def test_trees_of_long_tables_are_not_fitted_to_rows_that_lack_a_class(monkeypatch):
    data = classes(2)
    monkeypatch.setattr(tree_mean, "_MAX_VALUES", 1)  # trees are fitted to 1,000 rows
    data.train[1][shuffled(2400, 0)[-20:]] = 2.0
    expected = "mean must be zero where a class has fewer than 10 of the 1000 rows to which trees"
    with pytest.raises(ValueError, match=expected):
        tree_mean.fit_tree_mean(dataclasses.replace(data, num_classes=3), None, None)


def test_classes_that_are_rare_only_without_held_out_rows_leave_trees_out(monkeypatch):
    """Of ten rows of a class two are held out."""
    data = classes(2, num_rows=1200)
    order = shuffled(1200, 0)
    data.train[1][[*order[:2], *order[-8:]]] = 2.0
    task = Task(dataclasses.replace(data, num_classes=3), options=QUICK)
    names = [name for name in candidates(task) if name.startswith("solvegp")]
    assert names == ["solvegp with trees"]
    monkeypatch.setattr(choice, "candidates", lambda task: [*names, "solvegp"])
    monkeypatch.setattr(Candidate, "train", lambda *_: None)
    monkeypatch.setattr(SolveGP, "variants", lambda task: {"trees": {"mean": "trees"}, "": {}})
    found = choice.choose(task)
    assert {attempt.method for attempt in found.attempts} == {"constant", "linear", "solvegp"}
    assert "solvegp with trees was left out: mean must be zero where a class has" in found.reason


@pytest.mark.nightly
def test_the_choice_takes_trees_of_classes_with_thresholds_and_trains_on(monkeypatch):
    """The chosen model starts from trees of all rows, and from the scale of the trial."""
    task = Task(classes(2), options=QUICK)
    names = ["solvegp with trees", "svgp"]
    monkeypatch.setattr(choice, "candidates", lambda task: names)
    chosen = choice.choose(task, seconds=None)
    assert chosen.recipe.mean == "trees"
    _, model = train(task, chosen)
    assert isinstance(model.mean_function, gs.mean_functions.TreeLogits)
    assert len(model.mean_function.keys) == len(task.dataset.train[0])
    assert float(model.mean_function.scale.numpy()) != 1.0


def test_regression_in_minibatches_has_no_trees():
    """Its rows would have the residuals of trees that were fitted to them."""
    with pytest.raises(ValueError, match="mean must be zero for regression with solvegp"):
        gs.recipes.solvegp(*table(2).train, mean="trees", **QUICK)


@pytest.mark.nightly
def test_the_estimator_keeps_trees_of_classes_in_its_file(tmp_path):
    (X, Y), labels = classes(3).train, np.array(["low", "middle", "high"])
    options = {"mean": "trees", **QUICK}
    model = SparseGPClassifier("solvegp", likelihood="softmax", method_options=options)
    model.fit(X, labels[Y[:, 0].astype(int)])
    P = model.predict_proba(X[:50])
    gs.save(model.model_, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    rows = model.model_.standardizer.transform_inputs(X[:50])
    np.testing.assert_allclose(loaded.predict_y(rows)[0], P, rtol=1e-9)
