"""Kinds of columns of a table, and their encoding."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.estimators import Column, TableEncoder
from tests.data import messy


def encoded(**columns):
    """Encoder and encoded values of a table."""
    frame = pd.DataFrame(columns)
    encoder = TableEncoder().fit(frame)
    return encoder, encoder.transform(frame)


def test_numbers_stay_as_they_are():
    encoder, values = encoded(a=[1.5, -2.0, 3.0], b=[True, False, True], c=[7, 8, 9])
    np.testing.assert_array_equal(values[:, 0], [1.5, -2.0, 3.0])
    np.testing.assert_array_equal(values[:, 1:3], [[0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(values[:, 3], [7, 8, 9])
    assert list(encoder.get_feature_names_out()) == ["a", "b=False", "b=True", "c"]


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
    assert word in encoder.notes_[0]


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
    with pytest.raises(ValueError, match="'a', 'city' are missing"):
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
