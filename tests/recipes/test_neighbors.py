"""Models with neighbors from the options of the command line."""

import dataclasses
import time
from unittest import mock

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.data import Dataset
from gpflow_sparse.models import SOLVEGP, SWSGP, NearestNeighborGP, ResidualNeighborGP
from gpflow_sparse.recipes.building import build_model
from gpflow_sparse.recipes.methods import gpnn
from gpflow_sparse.recipes.registry import recipe_of
from gpflow_sparse.recipes.rows import validation_rows


@pytest.mark.parametrize(
    ("method", "options", "kind"),
    [
        ("solvegp", {"num_neighbors": 3, "num_orthogonal": 20}, ResidualNeighborGP),
        ("residual_neighbors", {"num_neighbors": 3, "num_orthogonal": 20}, ResidualNeighborGP),
        ("solvegp", {"num_orthogonal": 20}, SOLVEGP),
        ("swsgp", {"num_neighbors": 3}, SWSGP),
    ],
)
def test_a_number_of_neighbors_puts_them_on_the_residual(method, options, kind):
    X = np.random.default_rng(0).normal(size=(40, 2))
    rows = X, np.sin(X[:, :1])
    dataset = Dataset("small", rows, rows, ("a", "b"), "y", None).standardized()
    options = {"num_inducing": 6, "num_subset": 0, **options}
    config = recipe_of(method, **options)
    model = build_model(config, dataset)
    assert type(model) is kind
    if kind is not SOLVEGP:
        assert model.points.num_neighbors == 3
        assert config.batch_size == 128
    if kind is ResidualNeighborGP:
        assert model.inducing_variable.sizes == (6, 20)
        whole = recipe_of(method, num_neighbors=3, num_inducing=6, num_subset=0)
        assert build_model(whole, dataset).inducing_variable.sizes == (6, 40)


def test_whiten_is_not_for_neighbors():
    with pytest.raises(ValueError, match="whiten"):
        recipe_of("solvegp", num_neighbors=3, whiten=False)


def _small_run(**options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(600, 1))
    dataset = Dataset("small", (X, Y), (X[:2], Y[:2]), ("a", "b"), "y", None).standardized()
    options |= {"num_neighbors": 4, "num_inducing": 6, "num_orthogonal": 100, "num_subset": 0}
    options |= {"kernel": "matern52", "num_steps": 20, "batch_size": 32, "schedule": "constant"}
    return dataset, recipe_of("solvegp", **options)


@pytest.mark.parametrize("rate", [2.0, pytest.param(0.05, marks=pytest.mark.nightly)])
def test_training_ends_no_worse_than_it_starts(rate, monkeypatch):
    """A rate that is far too large leaves the hyperparameters of the start, and q of all rows."""
    if rate < 1.0:  # densities as calibrated
        monkeypatch.setattr("gpflow_sparse.recipes.calibration.MIN_ROWS", 500)
    dataset, config = _small_run(learning_rate=rate)
    model, start = build_model(config, dataset), build_model(config, dataset)
    start.prepare_data(dataset.train)
    start.start_from_sites(dataset.train)
    config.train(model, dataset.train, progress=False)
    assert model.num_data == 600
    assert model.points.num_neighbors in (4, 16)
    assert float(tf.reduce_sum(model.usage)) == 600 * model.points.num_neighbors
    means = [start.q_mu.numpy()]
    start.update_posterior(dataset.train)
    means.append(start.q_mu.numpy())
    assert any(np.array_equal(model.q_mu, q_mu) for q_mu in means) == (rate > 1.0)
    pairs = zip(start.kernel.parameters, model.kernel.parameters, strict=True)
    assert all(np.array_equal(a, b) == (rate > 1.0) for a, b in pairs)


def test_rows_of_comparisons_are_no_points():
    dataset, config = _small_run()
    model = build_model(dataclasses.replace(config, num_orthogonal=600), dataset)
    points = {tuple(row) for row in model.points.Z.numpy()}
    watched, rest = (dataset.train[0][part] for part in validation_rows(600))
    assert len(watched) == 60
    assert points == {tuple(row) for row in rest}
    assert not points & {tuple(row) for row in watched}


@pytest.mark.nightly
def test_closed_forms_take_the_place_of_steps():
    """20 steps are planned for 200 s, but closed forms and evaluations are said to take 125."""
    dataset, config = _small_run()
    model = build_model(config, dataset)
    now = time.perf_counter()
    with mock.patch("gpflow_sparse.recipes.steps.seconds_of", lambda work: work() or 5.0):
        history = config.train(model, dataset.train, until=now + 200.0, progress=False)
    # 75 s after the steps, and ten evaluations of 5 s
    assert history.num_steps in (6, 7)
    assert config.train(model, dataset.train, until=now, progress=False).num_steps == 1


@pytest.mark.parametrize("lengthscale", [2.0, 0.01])
def test_gpnn_takes_more_neighbors_where_left_out_rows_gain(lengthscale, monkeypatch):
    """A smooth function of some columns is known better from more rows, a rough one is not."""
    monkeypatch.setattr(gpnn, "_FEW", 32)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(200, 4))
    Y = np.sin(X.sum(axis=1, keepdims=True) / lengthscale) + 0.01 * rng.normal(size=(200, 1))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
    recipe, likelihood = recipe_of("gpnn"), gpflow.likelihoods.Gaussian(1e-4)
    few, more = (
        recipe.build((X, Y), kernel, likelihood, num_neighbors=count) for count in (32, 64)
    )
    gain = float(more.leave_one_out_log_density() - few.leave_one_out_log_density()) / 200
    assert (gain > 0.02) == (lengthscale == 2.0)
    assert recipe.finish(few).neighbors.num_neighbors == (64 if gain > 0.02 else 32)
    assert few.num_objective_rows == 1000  # as before
    assert recipe.settled(few).num_neighbors == few.neighbors.num_neighbors
    fixed = dataclasses.replace(recipe, num_neighbors=25)
    assert fixed.finish(fixed.build((X, Y), kernel, likelihood)).neighbors.num_neighbors == 25


@pytest.mark.parametrize(("seconds", "rows"), [(0.9, []), (2.0, [1000]), (np.inf, [8000])])
def test_variances_come_from_as_many_left_out_rows_as_the_time_allows(seconds, rows, monkeypatch):
    """Half of the time, at a millisecond a row; at least 500 rows."""
    fitted = []
    monkeypatch.setattr(gpnn, "_row_seconds", lambda model: 1e-3)
    monkeypatch.setattr(
        NearestNeighborGP, "fit_local_variance", lambda self, num_rows: fitted.append(num_rows)
    )
    X, Y = np.random.default_rng(0).normal(size=(2, 60, 1))
    recipe = recipe_of("gpnn")
    recipe.finish(
        recipe.build((X, Y), gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian()), seconds
    )
    assert fitted == rows
