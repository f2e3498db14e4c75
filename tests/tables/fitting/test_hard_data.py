"""The automatic choice, and starts, where they once went wrong: nearly no noise, a series of
one column, a trend, repeated rows."""

import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.initialization import median_lengthscales, subset_hyperparameters
from gpflow_sparse.tables.fitting.starts import KERNELS


def standardized(X, f, noise, num_test, rng):
    """Training rows, and test rows with their f, of standardized columns and outputs."""
    Y = f + noise * rng.standard_normal(f.shape)
    X = (X - X.mean(0)) / X.std(0)
    Y, f = ((part - Y.mean()) / Y.std() for part in (Y, f))
    return (X[num_test:], Y[num_test:, None]), (X[:num_test], f[:num_test, None])


def smooth(num_rows, rng):
    """A smooth function of six of eight columns, whose noise has a thousandth of its deviation."""
    X = rng.normal(size=(num_rows, 8))
    f = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + np.cos(X[:, 3] + X[:, 4]) + 0.3 * X[:, 5] ** 2
    return X, f


def series(num_rows, rng):
    """A random walk with a wave and a trend, at random times."""
    t = np.sort(rng.uniform(0.0, 10.0, num_rows))
    walk = np.cumsum(rng.normal(size=4000)) / np.sqrt(4000)
    f = 3.0 * np.interp(t, np.linspace(0.0, 10.0, 4000), walk) + 0.5 * np.sin(6.0 * np.pi * t)
    order = rng.permutation(num_rows)
    return t[order, None], f[order] + 0.3 * t[order]


def scores(model, new):
    """RMSE of f, and the standard deviation of predicted observations."""
    mean, variance = (np.asarray(part) for part in model.predict_y(new[0]))
    return np.sqrt(np.mean((mean - new[1]) ** 2)), np.sqrt(np.mean(variance))


@pytest.mark.nightly
def test_noise_starts_where_the_data_have_little():
    """Models with inducing points once started at a variance of 0.01, and stayed there."""
    rng = np.random.default_rng(0)
    rows, new = standardized(*smooth(600, rng), 1e-3, 100, rng)
    kernel = KERNELS["matern52"](lengthscales=median_lengthscales(rows[0]))
    assert subset_hyperparameters(*rows, kernel, num_rows=300) < 1e-4
    model = gs.recipes.solvegp(*rows, num_steps=100, num_inducing=100, num_orthogonal=100)
    error, deviation = scores(model, new)
    assert float(model.likelihood.variance.numpy()) < 5e-3
    assert deviation < 3.0 * error


@pytest.mark.nightly
def test_a_smooth_function_of_few_rows_is_found():
    rng = np.random.default_rng(0)
    rows, new = standardized(*smooth(300, rng), 1e-3, 100, rng)
    mixture = gs.recipes.auto(*rows, num_components=4, num_draws=8)
    gpnn = gs.recipes.gpnn(*rows, num_neighbors=128)
    assert scores(mixture, new)[0] < 0.1
    assert scores(gpnn, new)[0] < 0.12


@pytest.mark.nightly
def test_a_smooth_function_without_noise_is_found_from_sixty_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (160, 2))
    rows, new = standardized(X, np.sin(3.0 * X[:, 0]) * X[:, 1], 0.0, 100, rng)
    assert scores(gs.recipes.auto(*rows), new)[0] < 0.003  # 0.02 by Matern kernels only


@pytest.mark.nightly
@pytest.mark.parametrize(("seconds", "most"), [(30.0, 0.03)])
def test_a_series_has_a_rough_kernel(seconds, most):
    rng = np.random.default_rng(0)
    rows, new = standardized(*series(1500, rng), 0.02, 300, rng)
    assert scores(gs.recipes.auto(*rows, seconds=seconds), new)[0] < most
