"""Conformal intervals of tables that are too short for calibration otherwise."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from gpflow_sparse.data import Dataset
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.tables.fitting import calibration, race, transforms
from gpflow_sparse.tables.fitting.evaluation import evaluate
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.methods.registry import recipe_of

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
    inside = np.mean((values >= low) & (values <= high))
    assert abs(inside - 0.8) < 0.1
    scaler = model.model_.standardizer
    _, predictions = evaluate(model._posterior, scaler, new, values[:, None])
    assert np.mean(predictions["central"] < 0.8) == inside
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
    assert calibration.split_for_calibration(recipe, dataset) == (dataset, None)
    rest, held_out = calibration.split_for_calibration(
        dataclasses.replace(recipe, conformal=True), dataset
    )
    assert (rest.num_train, held_out.num_train) == (300, 100)


def row_sets(num_rows, **options):
    """Numbers of the rows that candidates are trained on, compared on, and calibrated on."""
    numbers = np.arange(num_rows)[:, None] * 1.0
    dataset = Dataset("rows", (numbers, numbers), (numbers, numbers), ("number",), "y", None)
    task = Task(dataset, options=options)
    compared = race.Race(task, None, print)
    _, calibrated = calibration.split_for_calibration(task.recipe("exact"), dataset)
    datasets = compared.rest.dataset, compared.held_out, calibrated
    return [[] if part is None else part.train[0][:, 0].astype(int) for part in datasets]


@pytest.mark.parametrize(
    ("num_rows", "options", "sizes"),
    [
        (1000, CONFORMAL, (800, 100, 100)),
        (9000, {}, (7695, 855, 450)),
        (9000, CONFORMAL, (7695, 855, 450)),
        (9000, {"calibrate": False}, (8100, 900, 0)),
    ],
)
def test_rows_that_calibrate_choose_no_method(num_rows, options, sizes):
    sets = row_sets(num_rows, **options)
    assert tuple(map(len, sets)) == sizes
    assert len(set(np.concatenate(sets))) == sum(sizes)  # no row is in two sets


def test_conformal_intervals_of_the_best_of_ten_methods_cover_as_often_as_they_say():
    """Residuals of ten equally good methods, in 2,000 tables; their intervals hold 96 / 101."""
    _, compared, calibrated = row_sets(400, **CONFORMAL)
    errors = np.random.default_rng(0).normal(size=(2000, 10, 400)).astype(np.float32)
    best = np.argmin(np.mean(errors[:, :, compared] ** 2, axis=2), axis=1)
    chosen = errors[np.arange(2000), best][:, calibrated]
    scores = np.sort(np.abs(chosen), axis=1)[..., None]
    radius = [Calibration(scores=table).radius(0.95)[0] for table in scores]
    coverage = 2.0 * stats.norm.cdf(radius) - 1.0
    # the standard error is 0.0005
    np.testing.assert_allclose(coverage.mean(), 96 / 101, atol=0.002)


def test_rows_that_calibrate_choose_no_transform(monkeypatch):
    X = np.arange(1200)[:, None] * 1.0
    Y = np.exp(np.random.default_rng(0).normal(size=(1200, 1)))
    seen = []

    def densities(transform, X, Y, given, held_out, seed):
        seen.extend([*given, *held_out])
        return np.zeros(len(held_out))

    monkeypatch.setattr(transforms, "_densities", densities)
    assert transforms.resolve("auto", X, Y) == "none"
    dataset = Dataset("rows", (X, Y), (X, Y), ("number",), "y", None)
    _, calibrated = calibration.split_for_calibration(recipe_of("exact", conformal=True), dataset)
    numbers = set(calibrated.train[0][:, 0].astype(int))
    assert (len(set(seen)), len(numbers & set(seen))) == (1100, 0)
