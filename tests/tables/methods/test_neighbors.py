"""Models with neighbors from the options of the command line."""

import dataclasses

import gpflow
import numpy as np
import pytest

from gpflow_sparse.models import NearestNeighborGP
from gpflow_sparse.tables.methods import gpnn
from gpflow_sparse.tables.methods.registry import recipe_of


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
