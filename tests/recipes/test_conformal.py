"""Conformal intervals of tables that are too short for calibration otherwise."""

import dataclasses

import numpy as np
import pytest

from gpflow_sparse.data import Dataset
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.recipes import calibration
from gpflow_sparse.recipes.registry import recipe_of

CONFORMAL = {"conformal": True}


def heavy_tailed(num_rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (num_rows, 1))
    return X, np.sin(2.0 * X[:, 0]) + 0.2 * rng.standard_t(2.0, num_rows)


def test_intervals_of_a_short_table_are_those_of_held_out_residuals():
    X, y = heavy_tailed(400, 0)
    model = SparseGPRegressor(method_options=CONFORMAL, random_state=0).fit(X, y)
    assert model.method_ == "exact"
    found = model.model_.calibration
    assert (found.num_rows, len(found.scores)) == (100, 100)
    new, values = heavy_tailed(2000, 1)
    mean, deviation = model.predict(new, return_std=True)
    low, high = model.predict_interval(new, coverage=0.8).T
    # the 81st of 100 distances: (100 + 1) 0.8 rounded up
    np.testing.assert_allclose(high, mean + np.sort(found.scores[:, 0])[80] * deviation, rtol=1e-6)
    assert abs(np.mean((low <= values) & (values <= high)) - 0.8) < 0.1
    gaussian = np.mean(np.abs(values - mean) <= 1.2816 * deviation)
    assert gaussian > 0.85  # outliers make the standard deviation too large for the middle


@pytest.mark.parametrize(
    ("method", "num_rows", "message"),
    [
        (
            "exact",
            299,
            "False for fewer than 300 training rows, of which 100 are held out; got 299",
        ),
        ("mixture", 400, "conformal must be False for method mixture; take exact or auto"),
    ],
)
def test_tables_and_methods_without_conformal_intervals_are_refused(method, num_rows, message):
    model = SparseGPRegressor(method, method_options=CONFORMAL)
    with pytest.raises(ValueError, match=message):
        model.fit(*heavy_tailed(num_rows, 0))


def test_counts_are_refused_before_training():
    X, y = heavy_tailed(400, 0)
    options = CONFORMAL | {"likelihood": "poisson"}
    with pytest.raises(ValueError, match="not on the whole line, as with likelihood=poisson"):
        SparseGPRegressor("solvegp", method_options=options).fit(X, np.round(np.exp(y).clip(0, 9)))


def test_classes_and_weighted_rows_have_no_conformal_intervals():
    X, y = heavy_tailed(400, 0)
    with pytest.raises(ValueError, match="False for classes, which have no intervals"):
        SparseGPClassifier("solvegp", method_options=CONFORMAL).fit(X, y > 0.0)
    with pytest.raises(ValueError, match="False for rows of weights: residuals count equally"):
        SparseGPRegressor("exact", method_options=CONFORMAL).fit(
            X, y, sample_weight=1.0 + X[:, 0] ** 2
        )


def test_nothing_is_held_out_of_a_short_table_otherwise():
    X, y = heavy_tailed(400, 0)
    dataset = Dataset("rows", (X, y[:, None]), (X[:2], y[:2, None]), ("a",), "y", None)
    recipe = recipe_of("exact")
    assert calibration.split_rows(recipe, dataset) == (dataset, None)
    rest, held_out = calibration.split_rows(dataclasses.replace(recipe, conformal=True), dataset)
    assert (rest.num_train, held_out.num_train) == (300, 100)
