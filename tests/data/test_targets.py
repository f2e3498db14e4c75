"""The target of a table."""

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.data.targets import split_target
from tests.data import messy


def split(cells, **options):
    frame = pd.DataFrame({"a": range(len(cells)), "y": cells})
    return split_target(frame, **options)


def test_the_last_column_is_the_default_and_is_said():
    inputs, target = split([1.0, 2.5, 4.0])
    assert list(inputs.columns) == ["a"]
    assert target.column.name == "y"
    np.testing.assert_array_equal(target.values, [1.0, 2.5, 4.0])
    assert target.column.note == "the last column, 'y', is predicted; name another one as target."


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


def test_decimal_commas():
    _, target = split(["1,5", "2,5", "-3,0"], name="y")
    np.testing.assert_array_equal(target.values, [1.5, 2.5, -3.0])


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
        ([1.0, 1.0], {"name": "y"}, "two different values"),
        (["a", "b"], {"name": "y", "task": "regression"}, "must hold numbers for regression"),
    ],
)
def test_refusals(cells, options, message):
    with pytest.raises(ValueError, match=message):
        split(cells, **options)
