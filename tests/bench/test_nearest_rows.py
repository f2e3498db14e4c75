"""Nearest-neighbor prediction, against one linear system for each row in NumPy."""

import gpflow
import numpy as np

from bench.papers import nearest_rows
from bench.papers.training import Budget
from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset

# ratios of lengthscales are rounded in the search for neighbors, which does not change this one
SCALES, VARIANCE, NOISE, H = 0.7 * np.exp([0.0, 0.6]), 1.4, 0.1, 6


def draw(num_rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(num_rows, 1))


def predictions(X, data, variance=VARIANCE, noise=NOISE):
    """Mean and variance of new observations at each row from its nearest rows of the data."""
    found = []
    kernel = gpflow.kernels.Matern52(variance, SCALES)
    for x in X:
        around = np.argsort(np.sum(np.square((data[0] - x) / SCALES), axis=1))[:H]
        places, values = data[0][around], data[1][around, 0]
        k, K = kernel(places, x[None]).numpy()[:, 0], kernel(places).numpy()
        weights = np.linalg.solve(K + noise * np.eye(H), k)
        found.append((weights @ values, variance - weights @ k + noise))
    return np.array(found).T[:, :, None]


def test_predictions_and_calibration_are_those_of_one_exact_gp_a_row():
    data, (X, Y) = draw(40, 0), draw(8, 1)
    kernel = gpflow.kernels.Matern52(VARIANCE, SCALES)
    model, found_scale = nearest_rows.rescaled_model(data, kernel, NOISE, H)
    held_out, rest = (data[0][:8], data[1][:8]), (data[0][8:], data[1][8:])
    mean, variance = predictions(held_out[0], rest)
    scale = np.mean((held_out[1] - mean) ** 2 / variance)
    np.testing.assert_allclose(found_scale, scale, rtol=1e-9)
    found = model.predict_y(X)
    expected = predictions(X, data, scale * VARIANCE, scale * NOISE)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    # the factor changes no mean, and no other factor gives the held-out rows a higher density
    np.testing.assert_allclose(found[0], predictions(X, data)[0], rtol=1e-9)
    densities = [
        -0.5 * np.mean(np.log(c * variance) + (held_out[1] - mean) ** 2 / (c * variance))
        for c in (scale, 1.01 * scale, 0.99 * scale)
    ]
    assert densities[0] == max(densities)
    error = (Y - expected[0]) ** 2 / expected[1]
    density = -0.5 * (np.log(2.0 * np.pi * expected[1]) + error)
    np.testing.assert_allclose(model.predict_log_density((X, Y)), density[:, 0], rtol=1e-8)


def test_a_row_of_the_table_has_fitted_hyperparameters_and_scores():
    data = Dataset("table", draw(300, 0), draw(50, 1), ("a", "b"), "y", None).standardized()
    budget = Budget(None, None, 0, None, np.inf)
    record = nearest_rows.fit_nearest({"kernel": "matern52", "num_neighbors": 40}, data, budget)
    kernel = gpflow.kernels.Matern52(lengthscales=initialization.median_lengthscales(data.train[0]))
    noise_variance = initialization.local_hyperparameters(*data.train, kernel)
    np.testing.assert_allclose(record["lengthscales"], kernel.lengthscales)
    np.testing.assert_allclose(record["noise_variance"], record["calibration"] * noise_variance)
    assert 0.28 < record["rmse"] < 0.45  # the noise has a deviation of 0.3
    assert 0.85 < record["coverage_95"] <= 1.0
