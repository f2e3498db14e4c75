"""The target of a table."""

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.tables.reading.columns import TableEncoder
from gpflow_sparse.tables.reading.table_format import TableFormat
from gpflow_sparse.tables.reading.targets import split_target
from tests.tables.reading import messy


def split(cells, **options):
    frame = pd.DataFrame({"a": range(len(cells)), "y": cells})
    return split_target(frame, **options)


def test_the_last_column_is_the_default_and_is_said():
    inputs, target = split([1.0, 2.5, 4.0])
    assert list(inputs.columns) == ["a"]
    assert target.column.name == "y"
    np.testing.assert_array_equal(target.values, [1.0, 2.5, 4.0])
    assert (
        target.column.note
        == "the last column, 'y', is predicted; use --target to choose another column."
    )


def test_rows_without_a_target_are_left_out():
    inputs, target = split([1.5, None, 4.0, np.inf], name="y")
    np.testing.assert_array_equal(inputs["a"], [0, 2])
    np.testing.assert_array_equal(target.values, [1.5, 4.0])
    assert target.column.note == "2 rows without 'y' are not used."


@pytest.mark.parametrize(
    ("cells", "task", "labels"),
    [
        (["yes", "no", "yes "], None, ["yes", "no", "yes"]),
        ([True, False, True], None, ["True", "False", "True"]),
        ([1, 2, 1], "classification", ["1", "2", "1"]),
        (["1.0", "2.0", "1"], "classification", ["1", "2", "1"]),
        ([0.5, 1.5, 0.5], "classification", ["0.5", "1.5", "0.5"]),
    ],
)
def test_labels_of_any_kind(cells, task, labels):
    _, target = split(cells, name="y", task=task)
    assert [target.column.levels[int(place)] for place in target.values] == labels
    assert list(target.column.levels) == sorted(set(labels))


def test_advice_on_few_integers_and_outliers():
    _, target = split([1, 2, 1, 2], name="y")
    assert "if they are labels" in target.column.note
    _, target = split_target(messy.table("outlier"), "y")
    assert "student_t" in target.column.note
    _, target = split(np.exp(3.0 * np.random.default_rng(0).normal(size=200)), name="y")
    assert "the transform log makes it more like a Gaussian" in target.column.note
    _, target = split_target(messy.table("category"), "y")
    assert target.column.note == ""


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ([1.0, 2.0], {"name": "z"}, "target must be a column of the table, got 'z'"),
        ([None, None], {"name": "y"}, "target 'y' is empty"),
        ([1.0, 1.0], {"name": "y"}, r"two different values or more\."),
        (["01", "1"], {"name": "y"}, "if '01' and '1' are labels, take classification"),
        (["a", "b"], {"name": "y", "task": "regression"}, "must hold numbers for regression"),
    ],
)
def test_refusals(cells, options, message):
    with pytest.raises(ValueError, match=message):
        split(cells, **options)


def test_money_and_percentages_are_numbers():
    _, target = split([f"${i + 0.5:,.2f}" for i in range(995, 1055)], name="y")
    assert target.num_classes is None
    np.testing.assert_array_equal(target.values, np.arange(995, 1055) + 0.5)
    assert target.column.note == "'y' is read with separators of thousands, and is an amount of $."
    _, target = split(["5%", "7.5%", "-2 %"], name="y")
    np.testing.assert_array_equal(target.values, [5.0, 7.5, -2.0])


def dates(count):
    return [str(np.datetime64("2020-01-01") + i) for i in range(count)]


@pytest.mark.parametrize(
    ("cells", "task", "message"),
    [
        (dates(60), None, "target 'y' must hold numbers or labels, got dates such as '2020-01-01'"),
        (pd.to_datetime(dates(60)), "regression", "must hold numbers or labels, got dates"),
        (dates(60), "classification", "60 rows have 60 different ones, such as '2020-01-01'"),
        ([f"id{i % 40}" for i in range(60)], None, "60 rows have 40 different .*predict another"),
        (np.arange(60) / 7, "classification", "60 rows have 60 different ones.*take regression"),
        (
            [f"{'$€'[i % 3 == 0]}{i}" for i in range(60)],
            None,
            "for regression, drop the 20 rows without number such as '€0'",
        ),
    ],
)
def test_labels_that_nearly_all_differ_are_refused(cells, task, message):
    with pytest.raises(ValueError, match=message):
        split(cells, name="y", task=task)


@pytest.mark.parametrize("cells", [[1, "b"] * 15, [True, "b", 2.0] * 10])
def test_labels_of_several_types_are_texts(cells):
    _, target = split(cells, name="y", task="classification")
    assert target.column.levels == tuple(sorted({str(c).removesuffix(".0") for c in cells}))


def test_a_later_target_is_read_as_that_of_training():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": ["1,234", "987", "2,500"]})
    _, target = split_target(frame, "y")
    known = TableFormat(TableEncoder().fit(frame[["a"]]).columns_, target.column)
    later = frame.assign(y=["1,234", "2,500", "1,000"])
    np.testing.assert_array_equal(known.outputs(later)[:, 0], [1234.0, 2500.0, 1000.0])
    assert known.gaps(later, "y") == ()
    old = TableFormat.from_json(known.to_json().replace('"thousands": true, ', ""), "file")
    np.testing.assert_array_equal(old.outputs(later)[:, 0], [1234.0, 2500.0, 1000.0])
    assert "3 of 3 cells of 'y' have separators of thousands" in old.gaps(later, "y")[0]
    with pytest.raises(ValueError, match="'y' must be written as in training"):
        old.outputs(frame.assign(y=["0,25", "1,234", "3"]))
