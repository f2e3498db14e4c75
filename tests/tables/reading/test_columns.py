"""Kinds of columns of a table, and their encoding."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.estimators import Column, TableEncoder
from gpflow_sparse.tables.reading import cells as cells_module
from gpflow_sparse.tables.reading.column_kinds import learn_column
from tests.tables.reading import messy


def encoded(**columns):
    """Encoder and encoded values of a table."""
    frame = pd.DataFrame(columns)
    encoder = TableEncoder().fit(frame)
    return encoder, encoder.transform(frame)


def test_missing_numbers_are_medians_beside_an_indicator():
    encoder, values = encoded(a=[1.0, np.nan, 3.0, 8.0])
    np.testing.assert_array_equal(values, [[1, 0], [3, 1], [3, 0], [8, 0]])
    assert encoder.notes_ == ("'a' misses 1 of 4 values, which are set to the median 3.",)


def test_an_unknown_category_is_all_zeros_and_a_missing_one_a_level():
    encoder, values = encoded(city=["Rome", "Bern", None, "Rome"])
    np.testing.assert_array_equal(values, [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]])
    new = encoder.transform(pd.DataFrame({"city": ["Paris", " Rome "]}))
    np.testing.assert_array_equal(new, [[0, 0, 0], [0, 1, 0]])


def test_dates_are_days_and_the_periods_that_they_cover():
    days = pd.date_range("1970-01-03", periods=30, freq="D").strftime("%Y-%m-%d")
    encoder, values = encoded(when=days)
    np.testing.assert_array_equal(values[:, 0], np.arange(2, 32))
    np.testing.assert_allclose(values[:, 1], np.sin(2 * np.pi * np.arange(2, 32) / 7), atol=1e-12)
    np.testing.assert_allclose(values[:, 2], np.cos(2 * np.pi * np.arange(2, 32) / 7), atol=1e-12)
    assert encoder.columns_[0].periods == ("week",)


@pytest.mark.parametrize(
    ("step", "periods", "num_values"),
    [
        ("h", ("week", "day"), [85, 85, 13, 13]),
        ("12h", ("week", "day"), [7, 8, 1, 2]),
        ("16h", ("year", "week", "day"), [1200, 1200, 21, 11, 3, 2]),
        ("7D", ("year",), [1200, 1200]),
    ],
)
def test_equal_times_of_a_period_are_equal_numbers(step, periods, num_values):
    encoder, values = encoded(when=pd.date_range("2015-01-01", periods=1200, freq=step))
    assert encoder.columns_[0].periods == periods
    assert [len(np.unique(column)) for column in values[:, 1:].T] == num_values


def test_decimal_commas_and_stray_text_are_read():
    _, values = encoded(a=["1.000,5", "-2,25", "3,0"], b=[1.0, 2.0, 4.0])
    np.testing.assert_array_equal(values[:, 0], [1000.5, -2.25, 3.0])
    cells = [str(i) for i in range(20)] + ["broken"]
    encoder, values = encoded(a=cells)
    np.testing.assert_array_equal(values[-1], [9.5, 1.0])
    assert "'broken'" in encoder.notes_[0]


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        ([1.0] * 30, "constant"),
        ([None] * 30, "empty"),
        ([f"id{i}" for i in range(30)], "name rows"),
        (list(range(30)), "repeats"),
    ],
)
def test_columns_that_tell_nothing_are_dropped(cells, word):
    encoder, values = encoded(a=list(range(30)), b=cells)
    assert values.shape == (30, 1)
    assert encoder.columns_[1].kind == "dropped"
    assert word in encoder.notes_[-1]


def test_integers_are_categories_if_asked():
    frame = pd.DataFrame({"a": [3, 1, 3], "b": [0.5, 0.6, 0.7]})
    values = TableEncoder(categories=["a"]).fit_transform(frame)
    np.testing.assert_array_equal(values[:, :2], [[0, 1], [1, 0], [0, 1]])
    with pytest.raises(ValueError, match="categories must be columns of X, got \\['z'\\]"):
        TableEncoder(categories=["z"]).fit(frame)


def test_columns_are_found_by_name_and_missing_ones_refused():
    frame = messy.table("shop")
    encoder = TableEncoder().fit(frame.drop(columns="y"))
    expected = encoder.transform(frame)
    np.testing.assert_array_equal(encoder.transform(frame[frame.columns[::-1]]), expected)
    np.testing.assert_array_equal(encoder.transform(frame.drop(columns="id")), expected)
    with pytest.raises(ValueError, match="lacks columns of the training data: a, city; it has b"):
        encoder.transform(frame.drop(columns=["a", "city"]))


def test_a_table_without_variation_is_refused():
    with pytest.raises(ValueError, match=r"X must have a column that varies; 'a' is constant"):
        encoded(a=[1.0, 1.0], b=[None, None])


@pytest.mark.parametrize("name", messy.NAMES)
def test_plain_values_make_the_same_encoder(name):
    frame = messy.table(name).drop(columns="y")
    encoder = TableEncoder().fit(frame)
    text = json.dumps([dataclasses.asdict(column) for column in encoder.columns_])
    columns = [
        Column(**{key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()})
        for fields in json.loads(text)
    ]
    again = TableEncoder.from_columns(columns)
    new = messy.table(name, seed=1, num_rows=40).drop(columns="y")
    values = encoder.transform(new)
    assert np.isfinite(values).all()
    assert values.shape[1] == len(encoder.get_feature_names_out())
    np.testing.assert_array_equal(again.transform(new), values)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,234", "999", "12,345"], [1234.0, 999.0, 12345.0]),
        (["1,234,567", "2,345"], [1234567.0, 2345.0]),
        (["1,234.5", "12.25"], [1234.5, 12.25]),
        (["1.234,56", "0,5", "12"], [1234.56, 0.5, 12.0]),
        (["1,25", "-0,125", "3"], [1.25, -0.125, 3.0]),
        (["1,234", "2,345"], [1.234, 2.345]),
        (["1.5e3", "-2E-1"], [1500.0, -0.2]),
    ],
)
def test_decimal_marks_and_separators_of_thousands(cells, expected):
    column = learn_column(pd.Series(cells, name="x"))
    np.testing.assert_allclose(cells_module.numbers(pd.Series(cells), column.reading), expected)


def test_another_decimal_mark_than_in_training_is_seen():
    values = np.random.default_rng(0).normal(size=20).round(4) + 1e-5
    point = pd.DataFrame({"x": [f"{v:.5f}" for v in values], "z": values})
    comma = point.assign(x=point["x"].str.replace(".", ","))
    for train, new in ((point, comma), (comma, point)):
        encoder = TableEncoder().fit(train)
        np.testing.assert_array_equal(encoder.transform(new)[:, 0], values.round(5))
        assert "20 of 20 cells of 'x' have another decimal mark" in encoder.gaps(new)[0]


def test_dates_of_one_column_have_one_order():
    dates = pd.date_range("2024-01-01", periods=40, freq="D")
    for form, note in (("%d.%m.%Y", "day first"), ("%d/%m/%Y", "day first"), ("%m/%d/%Y", "month")):
        frame = pd.DataFrame({"day": dates.strftime(form), "z": range(40)})
        encoder = TableEncoder().fit(frame)
        assert note in encoder.notes_[0]
        np.testing.assert_array_equal(encoder.transform(frame)[:, 0] - 19723.0, range(40))
        # a few rows alone do not tell the order, which is that of training
        np.testing.assert_array_equal(encoder.transform(frame[:5])[:, 0] - 19723.0, range(5))


@pytest.mark.parametrize(
    ("forms", "note"),
    [
        (
            ("%Y-%m-%d", "%d/%m/%Y %H:%M"),
            "in 2 formats, such as '2024-01-01' and '04/01/2024 00:00'",
        ),
        (("%Y-%m-%d", "%b %d %Y", "%d %B %Y"), "in 3 formats"),
        (("%a, %d %b %Y %H:%M", "%d-%b-%y"), "in 2 formats"),
        (("%d/%m/%Y", "%m/%d/%Y"), "first but for"),
    ],
)
def test_dates_in_several_formats_are_dates(forms, note):
    dates = pd.date_range("2024-01-01", periods=40, freq="3D")
    cells = [date.strftime(forms[i % len(forms)]) for i, date in enumerate(dates)]
    encoder, values = encoded(when=cells, z=range(40))
    assert note in encoder.notes_[0]
    # orders that contradict each other cannot all be right
    wrong = int(np.sum(values[:, 0] != 19723 + 3 * np.arange(40)))
    assert wrong == 0 or ("but for" in note and 0 < wrong < 15)


def test_an_undecidable_order_of_day_and_month_is_said():
    cells = [f"0{day}/0{month}/2024" for day in range(1, 9) for month in range(1, 6)]
    encoder, values = encoded(when=cells, z=range(40))
    assert "month first, although no cell shows the order" in encoder.notes_[0]
    assert values[1, 0] == 19723 + 1  # 01/02 is the second of January


def test_types_of_arrow_are_dates_and_durations():
    pa = pytest.importorskip("pyarrow", reason="Arrow types need pyarrow, which is optional")
    dates = pd.date_range("2024-01-01", periods=30, freq="D")
    frame = pd.DataFrame({"z": np.arange(30) % 7})
    frame["stamp"] = pd.Series(dates).astype(pd.ArrowDtype(pa.timestamp("ns", tz="UTC")))
    frame["day"] = pd.Series(dates.date).astype(pd.ArrowDtype(pa.date32()))
    frame["span"] = pd.Series(dates - dates[0]).astype(pd.ArrowDtype(pa.duration("s")))
    X = pd.DataFrame(
        TableEncoder().fit_transform(frame),
        columns=TableEncoder().fit(frame).get_feature_names_out(),
    )
    np.testing.assert_array_equal(X["stamp"] - 19723.0, range(30))
    if "day" in X:  # a repeated column is dropped
        np.testing.assert_array_equal(X["day"], X["stamp"])
    np.testing.assert_array_equal(X["span"], range(30))
    frame["list"] = pd.Series([[1]] * 30).astype(pd.ArrowDtype(pa.list_(pa.int64())))
    with pytest.raises(ValueError, match="column 'list' must hold single values"):
        TableEncoder().fit(frame)


def test_levels_do_not_depend_on_the_type_of_their_column():
    frame = pd.DataFrame({"k": [1, 2, 3] * 4, "flag": [True, False] * 6, "z": range(12)})
    encoder = TableEncoder(categories=["k"]).fit(frame)
    other = frame.assign(k=frame["k"].astype(float), flag=["TRUE", "false"] * 6)
    np.testing.assert_array_equal(encoder.transform(other), encoder.transform(frame))
    with pytest.raises(ValueError, match="different names, z repeat"):
        TableEncoder().fit(pd.concat([frame, frame["z"]], axis=1))


def test_a_column_without_a_readable_cell_is_refused():
    frame = pd.DataFrame({"a": [1.5, 2.5, 3.0], "z": range(3)})
    encoder = TableEncoder().fit(frame)
    with pytest.raises(ValueError, match="'a' must hold numbers as in training"):
        encoder.gaps(frame.assign(a=["x", "y", "w"]))
    encoder.gaps(frame.assign(a=[None, None, None]))  # a file of few rows may have gaps alone


@pytest.mark.parametrize("cell", ["#N/A", "inf", "unknown"])
def test_a_row_with_a_cell_as_unreadable_as_in_training_is_read_alone(cell):
    frame = pd.DataFrame({"a": ["1.5", cell, *map(str, range(18))], "z": range(20)})
    encoder = TableEncoder().fit(frame)
    alone = frame[1:2]
    np.testing.assert_array_equal(encoder.transform(alone), encoder.transform(frame)[1:2])
    assert encoder.gaps(alone) == (
        "1 of 1 cells of 'a' are missing or unreadable, and are set to the median of training, 8.",
    )


def test_texts_that_are_no_valid_unicode_are_levels():
    encoder, _ = encoded(a=["\ud800", "\ud801", "x"], z=[1, 2, 4])
    assert encoder.columns_[0].levels == ("x", "\ud800", "\ud801")


def test_levels_that_differ_by_leading_zeros_differ():
    cells = ["01", "1", "02", "2", "x", "1.0", "2.50", "2.5"]
    encoder, values = encoded(a=cells, z=range(8))
    assert encoder.columns_[0].levels == ("01", "02", "1", "2", "2.5", "x")
    np.testing.assert_array_equal(values[:, :6].argmax(axis=1), [0, 2, 1, 3, 5, 2, 4, 4])


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (
            {"a": [1.0, None, 3.0], "a missing": [0.5, 1.0, 0.1]},
            ["a", "a missing (2)", "a missing"],
        ),
        ({"a": ["x", "y", "x"], "a=x": [3, 1, 2]}, ["a=x (2)", "a=y", "a=x"]),
        ({"a": ["b=c", "d", "d"], "a=b": ["c", "c", "e"]}, ["a=b=c", "a=d", "a=b=c (2)", "a=b=e"]),
    ],
)
def test_names_of_encoded_columns_differ(columns, names):
    encoder, values = encoded(**columns)
    assert list(encoder.get_feature_names_out()) == names
    assert values.shape[1] == len(names)
    again = TableEncoder.from_columns(encoder.columns_)
    assert list(again.get_feature_names_out()) == names


def test_a_column_that_counts_the_rows_is_said():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": range(1, 41), "b": rng.normal(size=40), "c": rng.permutation(40)})
    note = "'id' counts the rows: drop it if it says nothing beyond their order."
    part = frame.iloc[np.sort(rng.permutation(40)[:35])]  # rows for training keep their numbers
    for table in (frame, frame.astype(str), part, frame.assign(id=frame["id"] - 1)):
        assert TableEncoder().fit(table).notes_ == (note,)
    assert TableEncoder().fit(frame.assign(id=frame["id"] * 2)).notes_ == ()


def test_levels_beyond_thirty_have_the_average_target():
    """Of other rows in training, moved to the average of all rows where a level has few."""
    rng = np.random.default_rng(0)
    city = rng.integers(40, size=4000)
    effect = rng.normal(size=41)
    y = effect[city] + 0.1 * rng.normal(size=4000)
    frame = pd.DataFrame({"city": [f"c{i:02}" for i in city], "size": rng.normal(size=4000)})
    encoder = TableEncoder()
    rows = encoder.fit_transform(frame, y)
    assert encoder.get_feature_names_out()[30] == "city: average"
    assert rows.shape == (4000, 32)
    np.testing.assert_allclose(rows[:, 30], effect[city], atol=0.1)
    one = city == 7
    assert len(set(rows[one, 30])) == 5  # one for each fold, without its rows
    new = frame.iloc[:2].assign(city=["c07", "new"])
    found = TableEncoder.from_columns(encoder.columns_).transform(new)
    np.testing.assert_allclose(found[0, 30], y[one].mean(), atol=1e-3)  # the prior is weak
    np.testing.assert_allclose(found[1, 30], y.mean(), rtol=1e-12)
    assert "1 of 2 cells of 'city' are other levels than in training" in encoder.gaps(new)[0]
    assert not encoder.empty(new).any()


def test_averages_of_noise_do_not_give_a_target_away():
    """Of levels with two rows each; averages with the row itself would be close to its target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"name": [f"n{i // 2}" for i in range(2000)], "x": rng.normal(size=2000)})
    y = rng.normal(size=2000)
    encoder = TableEncoder()
    out_of_fold = encoder.fit_transform(frame, y)[:, 30]
    assert abs(np.corrcoef(out_of_fold, y)[0, 1]) < 0.1
    assert np.corrcoef(encoder.transform(frame)[:, 30], y)[0, 1] > 0.5
    np.testing.assert_array_equal(encoder.transform_training(frame, y)[:, 30], out_of_fold)


@pytest.mark.parametrize(("num_classes", "count"), [(2, 1), (3, 3), (11, 0)])
def test_averages_of_labels_are_frequencies(num_classes, count):
    rng = np.random.default_rng(0)
    city = rng.integers(40, size=4000)
    labels = (city + (rng.uniform(size=4000) < 0.2)) % num_classes
    frame = pd.DataFrame({"city": [f"c{i:02}" for i in city], "x": rng.normal(size=4000)})
    encoder = TableEncoder().fit(frame, labels, num_classes)
    found = encoder.transform(frame)[:, 30:-1]
    assert found.shape == (4000, count)
    if count:
        frequencies = np.mean(labels[city == 3][:, None] == np.arange(num_classes), axis=0)
        np.testing.assert_allclose(found[city == 3][0], frequencies[-count:], atol=0.02)


def test_few_levels_and_no_targets_have_no_averages():
    frame = pd.DataFrame({"city": [f"c{i % 40}" for i in range(400)], "a": ["x", "y"] * 200})
    for y in (None, ["yes", "no"] * 200, np.zeros((400, 2))):
        assert TableEncoder().fit_transform(frame, y).shape == (400, 32)
    few = frame.assign(city=frame["a"].str.upper() + "1", n=np.arange(400.0) ** 2)
    assert not any(c.averaged for c in TableEncoder().fit(few, np.arange(400)).columns_)


def test_averages_of_another_number_of_levels_are_refused():
    with pytest.raises(ValueError, match="finite averages of each of 2 levels"):
        Column("city", "category", levels=("a",), averaged=("a", "b"), averages=(1.0, 2.0))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([0.5, 1.0, 2.0, -999.0, -999.0], "'a' has 2 values of -999, far from all others: empty"),
        ([*range(100), 1e6], "'a' has 1 value of 1e+06, far from all others: empty"),
        ([1, 2, 3, 99], "'a' has 1 value of 99, far from all others"),
        ([0, 1, 1, 1000], ""),  # too few others to know their range
        (np.exp(2.0 * np.random.default_rng(0).normal(size=500)), ""),
    ],
)
def test_a_value_far_from_all_others_is_named(cells, words):
    notes = TableEncoder().fit(pd.DataFrame({"a": np.asarray(cells, float)})).notes_
    assert [note[: len(words)] for note in notes] == ([words] if words else [])
