"""What programs ask of the estimators: other data frames, quantiles, warnings, global seeds."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.estimators import SparseGPRegressor
from gpflow_sparse.tables.reading.encoder import TableWarning

EXACT = {"method": "exact", "method_options": {"num_subset": 0}, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    day = pd.date_range("2020-01-01", periods=40, freq="D")
    frame = pd.DataFrame({"a": rng.normal(size=40), "town": ["Ulm", "Bonn"] * 20, "day": day})
    return frame, np.sin(frame["a"].to_numpy()) + 0.1 * rng.normal(size=40)


@pytest.fixture(scope="module")
def model(table):
    return SparseGPRegressor(**EXACT).fit(*table)


@pytest.mark.parametrize("kind", [pl.from_pandas, pa.Table.from_pandas])
def test_data_frames_of_other_libraries_are_those_of_pandas(table, model, kind):
    frame, y = table
    found = SparseGPRegressor(**EXACT).fit(kind(frame), pl.Series(y))
    np.testing.assert_array_equal(found.predict(kind(frame)), model.predict(frame))


def test_quantiles_are_the_ends_of_intervals(table, model):
    frame = table[0]
    found = model.predict_quantiles(frame, [0.025, 0.5, 0.975])
    np.testing.assert_allclose(found[:, [0, 2]], model.predict_interval(frame), rtol=1e-12)
    np.testing.assert_allclose(found[:, 1], model.predict(frame), rtol=1e-12)
    for levels in (0.5, [], [0.0, 0.5], [np.nan]):
        with pytest.raises(ValueError, match="levels must be a list of probabilities"):
            model.predict_quantiles(frame, levels)


def test_what_is_lost_is_a_warning_and_what_is_benign_is_none(table):
    frame, y = table
    lossy = frame.assign(
        a=frame["a"].astype(str).where(frame.index > 1, "x"), id=[f"n{value}" for value in y]
    )
    with pytest.warns(TableWarning) as found:
        SparseGPRegressor(**EXACT).fit(lossy, y)
    texts = [str(each.message) for each in found if each.category is TableWarning]
    assert texts[0].startswith("'id' has 40 texts in 40 rows")
    assert texts[1] == "'a' has 2 cells that are not numbers, such as 'x', set to the median."
    with warnings.catch_warnings():
        warnings.simplefilter("error", TableWarning)
        benign = frame.assign(one=1.0, copy=frame["a"], a=frame["a"].mask(frame.index < 3))
        SparseGPRegressor(**EXACT).fit(benign, y)


def test_samples_leave_the_seed_of_tensorflow_alone(table, model):
    tf.random.set_seed(3)
    expected = [tf.random.uniform([2]).numpy() for _ in range(2)]
    tf.random.set_seed(3)
    found = [tf.random.uniform([2]).numpy()]
    model.sample_y(table[0][:5], 3)
    np.testing.assert_array_equal([*found, tf.random.uniform([2]).numpy()], expected)


GPNN = {"method": "gpnn", "method_options": {"num_subset": 60}, "random_state": 0}


@pytest.mark.parametrize(
    ("parameters", "num_rows", "value"), [(EXACT, 60, 7.5), (EXACT, 60, 0.0), (GPNN, 300, 7.5)]
)
def test_a_constant_target_predicts_itself(parameters, num_rows, value):
    X = np.random.default_rng(0).normal(size=(num_rows, 2))
    model = SparseGPRegressor(**parameters).fit(X, np.full(num_rows, value))
    mean, deviation = model.predict(X, True)
    np.testing.assert_allclose(mean, value, atol=1e-6)
    assert deviation.max() < 1e-4


def test_outliers_do_not_set_the_scale_of_students_t():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    f = np.sin(2.0 * X[:, 0])
    y = f + 0.1 * rng.normal(size=200)
    y[:4] = [1e6, -1e6, 2e6, 3e6]
    options = {"num_steps": 200, "num_inducing": 20, "num_subset": 100}
    model = SparseGPRegressor("svgp", likelihood="student_t", method_options=options)
    model.set_params(random_state=0).fit(X, y)
    assert model.model_.standardizer.y_scale.numpy().item() < 2.0
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.1


def test_a_logit_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = 1.0 / (1.0 + np.exp(-3.0 * X[:, 0] - rng.normal(size=60)))
    options = {"num_subset": 0, "transform": "logit"}
    model = SparseGPRegressor("exact", method_options=options, random_state=0).fit(X, y)
    ends = model.predict_interval(X)
    assert ends.min() > 0.0
    assert ends.max() < 1.0
    gs.save(model, tmp_path / "model")
    np.testing.assert_array_equal(gs.load(tmp_path / "model").predict_interval(X), ends)
