"""Which rows are held out: whole groups, the last in time, and when that is chosen by itself."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.data import Dataset
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.fitting.calibration import split_for_calibration
from gpflow_sparse.tables.fitting.copies import identifiers_of
from gpflow_sparse.tables.fitting.evaluation import standard_errors
from gpflow_sparse.tables.fitting.splits import groups_of, held_out_rows, hold_out
from gpflow_sparse.tables.methods.registry import recipe_of
from gpflow_sparse.tables.methods.rows import shuffled


def dated(kind, seed, count=600):
    """A table with a date, and outputs that depend on it in some way."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count)
    noise, f = rng.normal(size=count), np.sin(2.0 * x)
    day = pd.Timestamp("2021-03-01") + pd.to_timedelta(np.arange(count), "D")
    if kind == "random days":
        day = day[np.sort(rng.integers(0, count, count))]
    weekly = np.sin(2.0 * np.pi * np.arange(count) / 7.0)
    outputs = {
        "walk": np.cumsum(noise),
        "walk and input": 0.3 * np.cumsum(noise) + f,
        "rows": f + 0.3 * noise,
        "random days": f + 0.3 * noise,
        "weekly": f + weekly + 0.3 * noise,
        "noise": noise,
    }
    return pd.DataFrame({"day": day.astype(str), "x": x}), outputs[kind]


@pytest.mark.parametrize("kind", ["walk", "walk and input"])
@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_like_their_neighbors_in_time_are_held_out_in_time(kind, seed):
    X, y = dated(kind, seed)
    found = groups_of(X, y)
    assert found.in_time
    assert found.kind == "the last rows in time, by 'day'"
    assert "'random' overrules this" in found.note
    np.testing.assert_array_equal(found.of_row, np.arange(600))
    assert not groups_of(X, y, "random").in_time


@pytest.mark.parametrize("kind", ["rows", "random days", "weekly", "noise"])
@pytest.mark.parametrize("seed", range(3))
def test_independent_rows_with_a_date_are_held_out_at_random(kind, seed):
    X, y = dated(kind, seed)
    assert groups_of(X, y).of_row is None
    assert groups_of(X, y, "time").in_time


def test_the_last_rows_in_time_are_held_out_whatever_their_order():
    X, y = dated("walk", 0, 200)
    order = np.random.default_rng(1).permutation(200)
    found = groups_of(X.iloc[order], y[order], "time")
    held, rest = held_out_rows(200, 20, 0, found.of_row, in_time=True)
    np.testing.assert_array_equal(np.sort(order[held]), np.arange(180, 200))
    assert np.array_equal(np.sort(np.r_[held, rest]), np.arange(200))
    assert np.abs(np.corrcoef(order[rest], np.arange(180))[0, 1]) < 0.3  # in random order
    missing = X.assign(day=X["day"].where(X.index != 199))
    assert groups_of(missing, y, "time").of_row[199] == 0
    days = pd.to_datetime(X["day"]).dt.strftime("%Y%m%d")
    codes = X[["x"]].assign(date=days.astype(int))
    np.testing.assert_array_equal(groups_of(codes.iloc[order], y, "time").of_row, order)
    assert groups_of(X[["x"]], y, "time").kind == "the last rows of the table"


def test_rows_of_one_time_and_of_one_group_stay_together():
    groups = np.repeat(np.arange(50), 20)[np.random.default_rng(0).permutation(1000)]
    for in_time in (True, False):
        held, rest = held_out_rows(1000, 105, 3, groups, in_time=in_time)
        assert len(held) == 120
        assert not set(groups[held]) & set(groups[rest])
        assert (set(groups[held]) == set(range(44, 50))) == in_time
    large = np.r_[np.zeros(90, int), np.arange(1, 11)]
    assert len(held_out_rows(100, 5, 0, large)[0]) <= 50
    with pytest.raises(ValueError, match="groups must be two or more, so that some are held out"):
        held_out_rows(10, 1, 0, np.zeros(10, int))


def test_without_groups_held_out_rows_are_the_first_of_the_shuffled_ones():
    held, rest = held_out_rows(100, 10, 7)
    np.testing.assert_array_equal(np.r_[held, rest], shuffled(100, 7))


def test_choice_calibration_and_test_rows_are_three_stretches_of_time():
    rows = np.arange(9000.0)[:, None]
    data = Dataset("x", (rows, rows), (rows[:0], rows[:0]), ("x",), "y", None)
    data = dataclasses.replace(data, groups=np.arange(9000) // 3, in_time=True)
    rest, calibrating = split_for_calibration(recipe_of("gpnn"), data)
    assert calibrating.train[0].min() > rest.train[0].max()
    held, others = hold_out(rest, 900, 0)
    assert rest.train[0][held].min() > rest.train[0][others].max()
    assert not set(rest.groups[held]) & set(rest.groups[others])


def test_copies_of_labeled_rows_are_held_out_together_unless_most_rows_repeat():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    y = rng.choice(["u", "v"], 60)
    doubled = pd.concat([X, X[:20]], ignore_index=True).assign(row_id=range(80))
    found = groups_of(doubled, np.r_[y, y[:20]], is_class=True)
    np.testing.assert_array_equal(found.of_row[:20], found.of_row[60:])
    assert found.note == "20 rows repeat others: copies are held out together."
    few = pd.DataFrame(rng.integers(2, size=(80, 2)), columns=["a", "b"])
    assert groups_of(few, (few["a"] > 0).to_numpy(), is_class=True).of_row is None


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("id", True), ("PassengerId", True), ("row_id", True), ("Nr.", True), ("covid", False),
     ("year", False), ("t", False)],
)  # fmt: skip
def test_columns_that_number_the_rows_are_known_by_name_and_order(name, is_one):
    frame = pd.DataFrame({name: range(1, 31), "x": np.random.default_rng(0).normal(size=30)})
    assert identifiers_of(frame) == ([name] if is_one else [])
    assert identifiers_of(frame[::-1]) == []
    assert identifiers_of(frame[[name]]) == []  # no other input would be left


def test_an_identifier_is_not_an_input_of_an_estimator():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.arange(40), "x": rng.normal(size=40)})
    model = SparseGPRegressor("exact", random_state=0).fit(frame, frame["x"] + frame["id"] / 40)
    assert "'id' numbers the rows and is not used." in model.encoder_.notes_
    other = model.predict(frame.assign(id=frame["id"] + 1000))
    np.testing.assert_array_equal(other, model.predict(frame))


def test_estimators_warn_of_a_split_in_time_that_nobody_asked_for():
    """Where rows are held out at all, as for conformal intervals."""
    X, y = dated("walk", 0, 400)
    options = {"num_subset": 0, "conformal": True}
    with pytest.warns(UserWarning, match="the last rows by 'day' are held out"):
        SparseGPRegressor("exact", method_options=options).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SparseGPRegressor("exact", split="time", method_options=options).fit(X, y)
        SparseGPRegressor("exact", method_options={"num_subset": 0}).fit(X, y)


@pytest.mark.parametrize(
    ("given", "fitted", "message"),
    [
        ({"split": "last"}, {}, "split must be 'auto', 'random' or 'time', got 'last'"),
        ({"split": "time"}, {"groups": [0, 1] * 20}, "split must be 'auto' or 'random' for groups"),
        ({}, {"groups": [0, 1]}, r"groups must be 40 labels, one for each row, got shape \(2,\)"),
    ],
)
def test_splits_and_groups_that_do_not_fit_are_named(given, fitted, message):
    X = np.random.default_rng(0).normal(size=(40, 2))
    for kind, y in ((SparseGPRegressor, X[:, 0]), (SparseGPClassifier, X[:, 0] > 0.0)):
        with pytest.raises(ValueError, match=message):
            kind(**given).fit(X, y, **fitted)


def test_standard_errors_count_clusters():
    """Of 50 clusters of 20 equal losses, the error is that of 50 rows, not of 1,000."""
    rng = np.random.default_rng(0)
    effect = np.repeat(rng.normal(size=50), 20)
    Y = effect[:, None]
    found = {"point": 0.0 * Y, "central": np.full_like(Y, 0.5), "density": effect, "crps": effect}
    scores = {"rmse": 1.0, "mae": 1.0, "nlpd": 0.0, "coverage": 1.0, "rmse_standardized": 1.0}
    alone = standard_errors(scores, Y, found)
    together = standard_errors(scores, Y, found, None, np.repeat(np.arange(50), 20))
    np.testing.assert_allclose(alone["nlpd"], effect.std(ddof=1) / 1000**0.5)
    np.testing.assert_allclose(together["nlpd"], effect[::20].std(ddof=1) / 50**0.5)
    assert alone["coverage"] == 0.0
    assert set(alone) == {"rmse", "mae", "nlpd", "coverage"}
    weights = np.repeat([1.0, 0.0], 500) + 1e-12
    half = standard_errors(scores, Y, found, weights)["nlpd"]
    np.testing.assert_allclose(half, effect[:500].std() / 500**0.5, rtol=2e-3)
    errors = standard_errors({**scores, "r2": 0.0}, Y, found, weights)
    np.testing.assert_allclose(errors["r2"], 2.0 * errors["rmse"] / effect[:500].var(), rtol=1e-6)
