"""Kinds of columns of a table, and their encoding."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.estimators import Column, TableEncoder
from gpflow_sparse.tables.reading.cells import ReadingOptions
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
    assert encoder.columns_[0].periods == ("week", "half week", "weekday")
    angle = 4 * np.pi * np.arange(2, 32) / 7
    np.testing.assert_allclose(values[:, 3:5].T, [np.sin(angle), np.cos(angle)], atol=1e-9)
    np.testing.assert_array_equal(values[:, 5], np.arange(5, 35) % 7)  # a Saturday


WEEK, DAY = ("week", "half week", "weekday"), ("day", "half day")


@pytest.mark.parametrize(
    ("step", "periods", "num_values"),
    [
        ("h", (*WEEK, *DAY), [85, 85, 43, 43, 7, 13, 13, 7, 7]),
        ("12h", (*WEEK, "day"), [7, 8, 7, 4, 7, 1, 2]),
        ("16h", ("year", *WEEK, *DAY), [1200, 1200, 21, 11, 21, 11, 7, 3, 2, 3, 2]),
        ("7D", ("year",), [1200, 1200]),
    ],
)
def test_equal_times_of_a_period_are_equal_numbers(step, periods, num_values):
    encoder, values = encoded(when=pd.date_range("2015-01-01", periods=1200, freq=step))
    assert encoder.columns_[0].periods == periods
    assert [len(np.unique(column)) for column in values[:, 1:].T] == num_values


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


def test_dates_of_one_column_have_one_order():
    dates = pd.date_range("2024-01-01", periods=40, freq="D")
    for form, note in (("%d.%m.%Y", "day first"), ("%d/%m/%Y", "day first"), ("%m/%d/%Y", "month")):
        frame = pd.DataFrame({"day": dates.strftime(form), "z": range(40)})
        encoder = TableEncoder().fit(frame)
        assert note in encoder.notes_[0]
        np.testing.assert_array_equal(encoder.transform(frame)[:, 0] - 19723.0, range(40))
        # a few rows alone do not tell the order, which is that of training
        np.testing.assert_array_equal(encoder.transform(frame[:5])[:, 0] - 19723.0, range(5))


def test_levels_do_not_depend_on_the_type_of_their_column():
    frame = pd.DataFrame({"k": [1, 2, 3] * 4, "flag": [True, False] * 6, "z": range(12)})
    encoder = TableEncoder(categories=["k"]).fit(frame)
    other = frame.assign(k=frame["k"].astype(float), flag=["TRUE", "false"] * 6)
    np.testing.assert_array_equal(encoder.transform(other), encoder.transform(frame))
    with pytest.raises(ValueError, match="different names, z repeat"):
        TableEncoder().fit(pd.concat([frame, frame["z"]], axis=1))


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
    with pytest.raises(ValueError, match=r"column 'city' cannot have the averages \(1.0, 2.0\)"):
        Column("city", "category", levels=("a",), averaged=("a", "b"), averages=(1.0, 2.0))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([0.5, 1.0, 2.0, -999.0, -999.0], "'a' has 2 values of -999, far from all others: if"),
        ([*range(100), 1e6], "'a' has 1 value of 1e+06, far from all others: if"),
        ([1, 2, 3, 99], "'a' has 1 value of 99, far from all others"),
        ([0, 1, 1, 1000], ""),  # too few others to know their range
        (np.exp(2.0 * np.random.default_rng(0).normal(size=500)), ""),
    ],
)
def test_a_value_far_from_all_others_is_named(cells, words):
    notes = TableEncoder().fit(pd.DataFrame({"a": np.asarray(cells, float)})).notes_
    assert [note[: len(words)] for note in notes] == ([words] if words else [])


def number_notes(**columns):
    """Values of the first column, and the notes."""
    encoder, values = encoded(**columns)
    return values[:, 0].tolist(), [note for note in encoder.notes_ if "constant" not in note]


@pytest.mark.parametrize(
    ("cells", "beside", "expected", "words"),
    [
        # what the cells of the column show
        (["1,234", "987", "1,5"], [], [1.234, 987.0, 1.5], "decimal commas"),
        (["1,234", "987", "1,234,567"], [], [1234.0, 987.0, 1234567.0], "separators of thousands"),
        (["1,250", "980", "7.5"], [], [1250.0, 980.0, 7.5], "separators of thousands"),
        (["1", "2", "1.125", "3.625", "0.5"], [], [1.0, 2.0, 1.125, 3.625, 0.5], ""),
        # what other columns show
        (["1.250", "2.500", "980"], ["12,50", "3,75", "8"], [1250.0, 2500.0, 980.0], "thousands"),
        (["1.250", "2.500", "980"], ["12.50", "3.75", "8"], [1.25, 2.5, 980.0], ""),
        (["1,250", "2,500", "980"], ["12.50", "3.75", "8"], [1250.0, 2500.0, 980.0], "thousands"),
        (["1,250", "2,500", "980"], ["12,50", "3,75", "8"], [1.25, 2.5, 980.0], "commas"),
        (["1,250", "2,500", "980"], [12.5, 3.75, 8.0], [1250.0, 2500.0, 980.0], "thousands"),
        # what nothing shows
        (["1,250", "980"], [], [1250.0, 980.0], "'1,250', read as 1250 although no cell shows"),
        (["1.250", "980"], [], [1.25, 980.0], "'1.250', read as 1.25 although no cell shows"),
    ],
)
def test_the_decimal_mark_is_what_the_column_or_the_table_shows(cells, beside, expected, words):
    columns = {"a": cells, "b": range(len(cells))} | ({"c": beside} if beside else {})
    values, notes = number_notes(**columns)
    assert values == expected
    assert words in "".join(note for note in notes if note.startswith("'a'"))
    assert ("no cell shows" in "".join(notes)) == ("no cell shows" in words)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"decimal": ","}, 1250.0), ({"thousands": "."}, 1250.0), ({"decimal": "."}, 1.25)],
)
def test_an_option_decides_where_no_cell_does(options, expected):
    frame = pd.DataFrame({"a": ["1.250", "980", "3"], "b": ["0.5", "1.5", "2.5"]})
    encoder = TableEncoder(options=ReadingOptions(**options)).fit(frame)
    assert encoder.transform(frame)[0].tolist() == [expected, 0.5]  # b shows points
    assert not any("no cell shows" in note for note in encoder.notes_)


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        (["(50.00)", "7.5", "3"], "'a' has numbers in parentheses, which are read as negative."),
        (["$1,234.50", "$3.00", "$7"], "'a' is read with separators of thousands, and is in $."),
        (["5%", "7.5 %", "9%"], "'a' is in percent."),
        (["12 kg", "13 kg", "9 kg"], "'a' is in kg."),
        (["1.5", "2.5", None], "'a' misses 1 of 3 values, which are set to the median 2."),
    ],
)  # fmt: skip
def test_how_numbers_are_read_is_said(cells, note):
    assert number_notes(a=cells, b=range(3))[1] == [note]


def test_cells_that_are_not_numbers_are_counted_with_three_examples():
    cells = [*map(str, range(60)), "x", "12 kg", "x", "10:30", "y"]
    values, notes = number_notes(a=cells, b=range(65))
    assert notes == [
        "'a' has 5 cells that are not numbers, such as 'x', '12 kg', '10:30', and misses 5 of 65 "
        "values, which are set to the median 29.5."
    ]
    assert values[60:] == [29.5] * 5


@pytest.mark.parametrize("word", ["NA", "None", "?"])
def test_a_missing_word_is_a_level_in_a_data_frame_and_missing_among_numbers(word):
    encoder, values = encoded(a=[word, "x", "x"], b=["1.5", word, "4"])
    assert list(encoder.get_feature_names_out()) == [f"a={word}", "a=x", "b", "b missing"]
    np.testing.assert_array_equal(values, [[1, 0, 1.5, 0], [0, 1, 2.75, 1], [0, 1, 4, 0]])
    assert not any("not a number" in note for note in encoder.notes_)


@pytest.mark.parametrize(
    ("cells", "kind", "words"),
    [
        (["1/5/2020", "2/5/2020", "3/13/2020"], "date", "month first:"),
        (["1/5/2020", "2/5/2020", "13/3/2020"], "date", "day first:"),
        (["1/5/2020", "2/5/2020", "3/5/2020"], "date", "month first, although no cell shows"),
        (["1.5.2020", "2.5.2020", "3.5.2020"], "date", "day first:"),
        (["10:30", "11:45", "10:30"], "date", "time of the day: its fraction of the day and"),
        (["10:30", "25:45", "10:30"], "category", "2 levels"),
        (["2024-W05", "2024-W06", "2024-W53"], "date", "is a date: days since 1970."),
        (["Jan-08", "Feb-08", "Jan-08"], "category", "such as 'Jan-08' look like dates: write"),
        (["1.2.3", "1.10.2", "1.2.3"], "category", "2 levels"),
        (["x", *["2020-02-07", "2020-02-08"] * 10], "date", "1 cell that is not a date, such as"),
    ],
)  # fmt: skip
def test_dates_and_times_and_what_only_looks_like_them(cells, kind, words):
    encoder, _ = encoded(a=cells, b=range(len(cells)))
    assert encoder.columns_[0].kind == kind
    assert words in encoder.notes_[0]


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    ("name", "factor", "form"),
    [("created_at", 86_400, "s"), ("Timestamp", 86_400_000, "ms"), ("a", None, "yyyymmdd")],
)
def test_integers_that_are_dates_are_days(name, factor, form, as_text):
    """Of any table later, whatever else it holds; cells that are not dates are missing."""
    stamps = pd.date_range("2021-02-27", periods=300, freq="6h" if factor else "D")
    expected = (stamps - pd.Timestamp(0)) / pd.Timedelta(days=1)
    codes = pd.Series(expected * factor if factor else stamps.strftime("%Y%m%d")).astype(int)
    frame = pd.DataFrame({name: codes.astype(str) if as_text else codes})
    encoder = TableEncoder().fit(frame)
    assert encoder.columns_[0].form == form
    assert encoder.columns_[0].periods == (*WEEK, *(DAY if factor else ()))
    np.testing.assert_allclose(encoder.transform(frame)[:, 0], expected, atol=1e-9)
    np.testing.assert_allclose(encoder.transform(frame[:1])[0, 0], expected[0], atol=1e-9)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("time", np.arange(300) * 1000),  # seconds of a race
        ("id", 1_700_000_000 + np.arange(300)),  # its name does not say so
        ("date", 20_240_100 + np.arange(300)),  # no day 0, no month 2 of 30 days
        ("time", np.r_[5, 1_700_000_000 + np.arange(300)]),
        ("runtime", np.linspace(0.1, 3.0, 300)),
    ],
)
def test_plain_integers_stay_numbers(name, values):
    encoder, found = encoded(**{name: values})
    assert encoder.columns_[0].kind == "number"
    np.testing.assert_array_equal(found[:, 0], values)


def test_times_of_the_day_are_fractions_and_two_harmonics():
    encoder, values = encoded(at=["06:00", "12:00:00", "6:00 pm", None] * 5)
    np.testing.assert_allclose(values[:4, 0], [0.25, 0.5, 0.75, 0.5])
    names = ["at", "at missing", "at sine of day", "at cosine of day"]
    names += ["at sine of half day", "at cosine of half day"]
    assert list(encoder.get_feature_names_out()) == names
    np.testing.assert_allclose(values[0, 2:], [1.0, 0.0, 0.0, -1.0], atol=1e-9)


def test_an_option_decides_the_order_of_dates_that_show_none():
    frame = pd.DataFrame({"a": ["1/5/2020", "2/5/2020"], "b": [1, 2]})
    encoder = TableEncoder(options=ReadingOptions(day_first=True)).fit(frame)
    assert np.diff(encoder.transform(frame)[:, 0]) == [1.0]
    assert encoder.notes_ == ("'a' is a date, day first: days since 1970.",)
    for lonlat in (("a",), ("a", "a"), "ab", 3):
        with pytest.raises(ValueError, match="lonlat must be the names of two columns"):
            ReadingOptions(lonlat=lonlat)


def test_years_of_two_digits_are_refused():
    cells = ["31/12/76", "5/1/77", "7/2/78"] * 10
    with pytest.raises(
        ValueError, match="four digits in every year, got 30 dates such as '31/12/7"
    ):
        encoded(a=cells, b=range(30))


def test_a_time_zone_keeps_local_hours_and_weekdays():
    """A cycle of a day in Berlin is the same cycle in winter and in summer."""
    local = pd.date_range("2024-01-01", periods=24 * 300, freq="h")
    stamps = local.tz_localize(
        "Europe/Berlin", nonexistent="shift_forward", ambiguous="NaT"
    ).dropna()
    _, values = encoded(when=stamps)
    names = list(encoded(when=stamps)[0].get_feature_names_out())
    hours = 2 * np.pi * stamps.hour.to_numpy() / 24
    np.testing.assert_allclose(values[:, names.index("when sine of day")], np.sin(hours), atol=1e-9)


def test_later_cells_that_cannot_be_read_are_a_warning_and_a_column_of_them_an_error():
    frame = pd.DataFrame({"a": ["1.5", "2.5", "7"], "b": [0.5, 1.5, 1.0]})
    encoder = TableEncoder().fit(frame)
    words = "'a' has 2 cells that are not numbers, such as '0,25', 'x', set to the median"
    with pytest.warns(UserWarning, match=words):
        values = encoder.transform(frame.assign(a=["0,25", "x", "3"]))
    np.testing.assert_array_equal(values[:, 0], [2.5, 2.5, 3.0])
    with pytest.raises(ValueError, match="'a' must hold numbers as in training, has 3 cells"):
        encoder.transform(frame.assign(a=["0,25", "1,5", "7,5"]))
    assert encoder.gaps(frame.assign(a=["1,234", "2.5", None])) == (
        "1 of 3 cells of 'a' are missing, and are set to the median of training, 2.5.",
        "1 of 3 cells of 'a' have separators of thousands, unlike cells of training, such as "
        "'1,234', which is read as 1234.",
    )


def test_names_of_columns_are_composed_and_without_characters_that_are_not_seen():
    frame = pd.DataFrame({"Ho\u0308he": [1.0, 2.0, 4.0], "b\u200b ": [3.0, 1.0, 2.0]})
    encoder = TableEncoder().fit(frame)
    assert list(encoder.feature_names_in_) == ["H\u00f6he", "b"]
    other = frame.set_axis(["H\u00f6he", "b"], axis=1)
    np.testing.assert_array_equal(encoder.transform(other), encoder.transform(frame))
    with pytest.raises(ValueError, match="different names, b repeat"):
        TableEncoder().fit(frame.assign(b=[1.0, 2.0, 3.0]))


def test_further_missing_values_are_stored_with_the_columns():
    frame = pd.DataFrame(
        {"a": [1.0, 5.0, -99.9], "b": ["1", "-99.9", "2"], "c": ["x", "none", "y"]}
    )
    encoder = TableEncoder(options=ReadingOptions(na_values=("-99.9", "none"))).fit(frame)
    again = TableEncoder.from_columns(encoder.columns_)
    names, row = list(again.get_feature_names_out()), again.transform(frame[1:])[1].tolist()
    assert dict(zip(names, row, strict=True)) == {
        "a": 3.0, "a missing": 1.0, "b": 2.0, "b missing": 0.0,
        "c=(missing)": 0.0, "c=x": 0.0, "c=y": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("value", [-99.9, -999.0, 99999.0])
def test_a_value_of_nines_is_named_nearer_to_the_others(value):
    cells = [*np.linspace(0.0, 80.0, 30), value, value]
    note = TableEncoder().fit(pd.DataFrame({"a": cells})).notes_[0]
    assert f"has 2 values of {value:g}, far from all others" in note
    assert f"--na-values {value:g}" in note
    assert not TableEncoder().fit(pd.DataFrame({"a": [*range(100), 99.9]})).notes_
