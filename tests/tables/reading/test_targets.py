"""The target of a table."""

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.tables.fitting.transforms import advice_on
from gpflow_sparse.tables.reading.cells import ReadingOptions
from gpflow_sparse.tables.reading.targets import read_target, split_target
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
    skewed = np.exp(3.0 * np.random.default_rng(0).normal(size=200))
    for values, words in (
        (np.array([1.0, 2.0, 1.0, 2.0]), "if they are labels"),
        (split_target(messy.table("outlier"), "y")[1].values, "student_t"),
        (skewed, "the transform log makes it more like a Gaussian"),
    ):
        assert words in advice_on("y", values, None, None)[0]
    values = split_target(messy.table("category"), "y")[1].values
    assert advice_on("y", values, None, None) == ()


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
    assert target.column.note == "'y' is read with separators of thousands, and is in $."
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
            "for regression, correct 20 cells that are not numbers, such as '€0', '€3', '€6'",
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
    column = split_target(frame, "y")[1].column
    later = np.array(["1,234", "2,500", "0,25", None], object)
    np.testing.assert_array_equal(read_target(later, column), [1234.0, 2500.0, np.nan, np.nan])
    column = split_target(frame, "y", "classification")[1].column
    np.testing.assert_array_equal(read_target(later, column), [1.0, 2.0, np.nan, np.nan])


def test_cells_that_are_not_numbers_are_an_error_that_says_how_to_go_on():
    cells = [*map(str, range(60)), "x", "10:30", "y", "x"]
    message = (
        "target 'y' has 4 cells that are not numbers, such as 'x', '10:30', 'y': correct them, or "
        "leave out these rows by --drop-bad-targets"
    )
    with pytest.raises(ValueError, match=message):
        split(cells, name="y")
    inputs, target = split(cells, name="y", drop_bad=True)
    np.testing.assert_array_equal(target.values, range(60))
    assert len(inputs) == 60
    assert target.column.note.startswith("'y' has 4 cells that are not numbers, such as 'x'")
    half = [*map(str, range(40)), *(f"x{i}" for i in range(30))]
    with pytest.raises(ValueError, match="for regression, correct 30 cells that are not numbers"):
        split(half, name="y")
    assert split(half, name="y", drop_bad=True)[1].num_classes is None


def test_a_value_that_may_stand_for_missing_is_named():
    cells = [*np.linspace(0.0, 30.0, 40), -99.9]
    _, target = split(cells, name="y")
    assert "'y' has 1 value of -99.9, far from all others: if this stands for" in target.column.note
    _, target = split(cells, name="y", options=ReadingOptions(na_values=("-99.9",)))
    assert len(target.values) == 40
    assert target.column.note == "1 rows without 'y' are not used."
