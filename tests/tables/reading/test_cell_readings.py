"""Numbers, dates, labels and missing cells, each from its own text."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gpflow_sparse.tables.reading.cells import (
    MISSING_LEVEL,
    ReadingOptions,
    cells_of,
    days,
    labels_of,
    numbers,
    parse_number,
)

NAN = np.nan


def cells(*values, na_values=()):
    return cells_of(pd.Series(values, dtype=object), na_values)


@pytest.mark.parametrize(
    ("text", "point", "comma", "unit"),
    [
        ("1.5", 1.5, NAN, ""),
        ("1,5", NAN, 1.5, ""),
        ("1.250", 1.25, 1250.0, ""),
        ("1,250", 1250.0, 1.25, ""),
        ("0.125", 0.125, NAN, ""),
        ("1,234.5", 1234.5, NAN, ""),
        ("1.234,5", NAN, 1234.5, ""),
        ("1 234,50", NAN, 1234.5, ""),
        ("1\u00a0234,50", NAN, 1234.5, ""),
        ("1'234.50", 1234.5, NAN, ""),
        ("1,234,567", 1234567.0, NAN, ""),
        ("12,34,567", NAN, NAN, ""),
        ("1.5e-3", 0.0015, NAN, ""),
        (".5", 0.5, NAN, ""),
        ("5.", 5.0, NAN, ""),
        ("+7", 7.0, 7.0, ""),
        ("\u22127", -7.0, -7.0, ""),
        ("(50.00)", -50.0, NAN, ""),
        ("50.00-", -50.0, NAN, ""),
        ("($1,234.50)", -1234.5, NAN, "$"),
        ("-$5", -5.0, -5.0, "$"),
        ("$-5", -5.0, -5.0, "$"),
        ("USD 12", 12.0, 12.0, "USD"),
        ("1.000 €", 1.0, 1000.0, "€"),
        ("7.5 %", 7.5, NAN, "%"),
        ("12 kg", 12.0, 12.0, "kg"),
        ("3.5km/h", 3.5, NAN, "km/h"),
        ("-4 °C", -4.0, -4.0, "°C"),
    ],
)
def test_a_number_has_a_value_for_each_decimal_mark_that_it_allows(text, point, comma, unit):
    found = cells(text)
    for mark, value in ((".", point), (",", comma)):
        np.testing.assert_array_equal(numbers(found, mark, unit), [value])
    if not (np.isnan(point) and np.isnan(comma)):
        assert parse_number(found[0]).unit == unit


@pytest.mark.parametrize(
    "text",
    ["", "x", "10:30", "2020-01-05", "1.2.3", "1_000", "inf", "nan", "$5 €", "-5-", "(5", "--5",
     "A12", "5 to 10", "1/2", "12 34", "1e999", "+-5", "\uff11"],
)  # fmt: skip
def test_other_texts_are_not_numbers(text):
    found = np.array([text], object)
    assert np.isnan(numbers(found)).all()
    assert np.isnan(numbers(found, ",")).all()


def test_a_column_of_a_unit_takes_numbers_without_it_but_for_percent():
    found = cells("12", "12 kg", "12 g")
    np.testing.assert_array_equal(numbers(found, unit="kg"), [12.0, 12.0, NAN])
    np.testing.assert_array_equal(numbers(found), [12.0, NAN, NAN])
    np.testing.assert_array_equal(numbers(cells("5", "5%"), unit="%"), [NAN, 5.0])
    np.testing.assert_array_equal(numbers(np.array([5.0]), unit="%"), [NAN])


NEW_YEAR = 18262.0  # days from 1970 to 2020


@pytest.mark.parametrize(
    ("text", "day", "day_first"),
    [
        ("2020-01-05", 4.0, None),
        ("2020/1/5", 4.0, None),
        ("2020.01.05", 4.0, None),
        ("2020-02", 31.0, None),
        ("5.1.2020", 4.0, True),
        ("1/5/2020", 4.0, False),
        ("1/5/2020", 121.0, True),
        ("05-Jan-2020", 4.0, None),
        ("5 January 2020", 4.0, None),
        ("Jan 5, 2020", 4.0, None),
        ("January 5th 2020", 4.0, None),
        ("Sun, 05 Jan 2020 18:00", 4.75, None),
        ("2020-01-05T06:00:00", 4.25, None),
        ("2020-01-05 06:00:00.000", 4.25, None),
        ("2020-01-05 6:00 pm", 4.75, None),
        ("2020-01-05 12:00 AM", 4.0, None),
        ("2020-01-05T06:00:00Z", 4.25, None),
        ("2020-01-05T06:00:00+02:00", 4.25, None),
        ("2020-01-05 06:00:00-0800", 4.25, None),
    ],
)
def test_dates_are_days_in_local_time(text, day, day_first):
    for order in (True, False) if day_first is None else (day_first,):
        assert days(cells(text), order)[0] - NEW_YEAR == day


@pytest.mark.parametrize(
    "text",
    ["10:30", "5", "2020", "20200105", "1.5", "now", "noon", "31/12/76", "5-Jan-76", "2020-13-01",
     "2020-02-31", "2020-01-05 25:00", "1.2.3", "555-1234", "May", "9999-12-31", "2020-01/05"],
)  # fmt: skip
def test_other_texts_are_not_dates(text):
    assert np.isnan(days(cells(text))).all()


def test_a_day_is_the_same_in_every_type_of_column():
    stamps = pd.date_range("2024-03-30 22:30", periods=30, freq="97min", tz="Europe/Berlin")
    series = pd.Series(stamps)
    expected = days(cells_of(series))
    assert expected[0] == (stamps[0].tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta(days=1)
    for other in (
        series.dt.tz_localize(None),
        series.astype(str),
        series.astype(object),
        series.astype(pd.ArrowDtype(pa.timestamp("ns", tz="Europe/Berlin"))),
        series.dt.tz_localize(None).astype(pd.ArrowDtype(pa.timestamp("us"))),
        series.astype("category"),
    ):
        np.testing.assert_array_equal(days(cells_of(other)), expected)
    dates = [datetime.date(2020, 1, 5)]
    for other in (pd.Series(dates), pd.Series(dates).astype(pd.ArrowDtype(pa.date32()))):
        np.testing.assert_array_equal(days(cells_of(other)), [NEW_YEAR + 4])
    years = np.array(["2020-01-05", "9999-12-31", "0001-01-01", "NaT"], "datetime64[us]")
    for other in (pd.Series(years), pd.Series(years).astype(pd.ArrowDtype(pa.timestamp("s")))):
        np.testing.assert_array_equal(days(cells_of(other)), [NEW_YEAR + 4, *[NAN] * 3])
    period = pd.Series(pd.period_range("2020-01", periods=1, freq="M"))
    np.testing.assert_array_equal(days(cells_of(period)), [NEW_YEAR])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([1, 2]), [1.0, 2.0]),
        (pd.Series([1.5, np.inf]), [1.5, NAN]),
        (pd.Series([1, None], dtype="Int64"), [1.0, NAN]),
        (pd.Series([1, None], dtype=pd.ArrowDtype(pa.int32())), [1.0, NAN]),
        (pd.Series([1.5, None], dtype=pd.ArrowDtype(pa.float64())), [1.5, NAN]),
        (pd.Series([1.0, NAN]).astype(pd.SparseDtype(float)), [1.0, NAN]),
        (pd.Series(pd.to_timedelta(["36h", None])), [1.5, NAN]),
        (pd.Series(pd.to_timedelta(["36h"])).astype(pd.ArrowDtype(pa.duration("s"))), [1.5]),
        (pd.Series([decimal.Decimal("1.25"), None]), [1.25, NAN]),
        (pd.Series(["1.25"]).astype(pd.ArrowDtype(pa.string())), [1.25]),
        (pd.Series([decimal.Decimal("2.50")]).astype(pd.ArrowDtype(pa.decimal128(5, 2))), [2.5]),
        (pd.Series(["7", None], dtype="string"), [7.0, NAN]),
        (pd.Series(["7", "8"], dtype="category"), [7.0, 8.0]),
        (pd.Series([7, 8], dtype="category"), [7.0, 8.0]),
        (pd.Series([True, False]), [NAN, NAN]),
    ],
)
def test_numbers_of_every_type_of_column(column, expected):
    np.testing.assert_array_equal(numbers(cells_of(column)), expected)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([1, 2]), ["1", "2"]),
        (pd.Series([1.0, NAN, 2.5]), ["1", MISSING_LEVEL, "2.5"]),
        (pd.Series([True, False]), ["True", "False"]),
        (pd.Series([True, None], dtype="boolean"), ["True", MISSING_LEVEL]),
        (pd.Series(["TRUE", "false", " x ", "1.0", "01", "1e2"]),
         ["True", "False", "x", "1", "01", "100"]),
        (pd.Series(["NA", "None", "?", None, " "]), ["NA", "None", "?", *[MISSING_LEVEL] * 2]),
        (pd.Series([1, True, "b"], dtype=object), ["1", "True", "b"]),
        (pd.Series(pd.to_datetime(["2020-01-05"])), ["2020-01-05"]),
        (pd.Series([3, None], dtype="category"), ["3", MISSING_LEVEL]),
    ],
)  # fmt: skip
def test_labels_of_every_type_of_column(column, expected):
    assert labels_of(cells_of(column)).tolist() == expected


def test_texts_are_composed_and_without_characters_that_are_not_seen():
    found = labels_of(cells("Malmo\u0308", "Malm\u00f6", "x\u200b", "\ufeffx", "\u200b"))
    assert found.tolist() == ["Malm\u00f6", "Malm\u00f6", "x", "x", MISSING_LEVEL]


def test_texts_that_are_not_valid_unicode_stay_apart():
    assert labels_of(cells("\ud800", "\ud801", "x")).tolist() == ["\ud800", "\ud801", "x"]


def test_further_missing_values_are_texts_and_numbers():
    found = cells("-99.90", "-99", "n.d.", "x", na_values=("-99.9", "n.d."))
    assert found.tolist() == [None, "-99", None, "x"]
    found = cells_of(pd.Series([-99.9, 1.0]), ("-99.9", "n.d."))
    np.testing.assert_array_equal(found, [NAN, 1.0])


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1j]),
        pd.Series(["b", [1, 2]]),
        pd.Series([[1]]).astype(pd.ArrowDtype(pa.list_(pa.int64()))),
        pd.Series([{"a": 1}]).astype(pd.ArrowDtype(pa.struct([("a", pa.int64())]))),
    ],
)
def test_columns_of_other_values_are_refused(column):
    with pytest.raises(ValueError, match="column 'a' must hold single real numbers"):
        cells_of(column.rename("a"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decimal": ";"}, "decimal must be '.' or ',', got ';'"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands must differ"),
        ({"separator": "ab"}, "separator must be one character, got 'ab'"),
    ],
)
def test_options_that_contradict_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ReadingOptions(**options)
