"""Rows of runs: how they are split, what was inferred, and what is refused."""

import dataclasses

import click
import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.tables.cli.options import chosen_reading, reading_options
from gpflow_sparse.tables.cli.rows import Source, read_pairs, split_rows
from gpflow_sparse.tables.reading.cells import ReadingOptions


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "y"])


def test_a_tenth_of_the_rows_is_for_testing_and_all_are_in_one_part(frame, tmp_path):
    frame.to_csv(tmp_path / "a.csv", index=False)
    source = Source(str(tmp_path / "a.csv"), "y", split=3)
    found = split_rows(source)
    assert found.kind == "random rows of a.csv, a tenth of it"
    assert (len(found.train.y), len(found.test.y)) == (36, 4)
    order = np.random.default_rng(3).permutation(40)
    np.testing.assert_allclose(found.test.y, frame["y"][np.sort(order[-4:])])
    np.testing.assert_allclose(
        np.sort(np.r_[found.train.y, found.test.y]), np.sort(frame["y"]), rtol=1e-12
    )
    assert split_rows(source).checksum == found.checksum
    assert split_rows(Source(source.data, "y")).checksum != found.checksum
    np.testing.assert_array_equal(found.test.X.index, np.sort(order[-4:]) + 1)  # rows of the file
    frame.assign(a=frame["a"].where(frame.index != 7, 0.5)).to_csv(tmp_path / "a.csv", index=False)
    assert split_rows(source).checksum != found.checksum


def test_copies_of_rows_are_left_out_before_the_split_and_counted(frame, tmp_path):
    doubled = pd.concat([frame, frame.iloc[:20]])
    doubled.to_csv(tmp_path / "a.csv", index=False)
    found = split_rows(Source(str(tmp_path / "a.csv"), "y"))
    assert len(found.train.y) + len(found.test.y) == 40
    assert "20 rows left out: copies of other rows" in found.notes[-1]
    weights = np.sort(np.r_[found.train.weights, found.test.weights])
    np.testing.assert_allclose(weights / weights[0], [1.0] * 20 + [2.0] * 20)


def test_rows_of_another_table_are_read_as_in_training(tmp_path):
    cells = ["1,234", "987", "2,500", "450,5"] * 5
    table = pd.DataFrame({"a": np.arange(20) % 7, "y": cells})
    table.to_csv(tmp_path / "a.csv", index=False, sep=";")
    found = split_rows(Source(str(tmp_path / "a.csv"), "y"))
    assert set(found.train.y) | set(found.test.y) == {1.234, 987.0, 2.5, 450.5}
    pd.DataFrame({"a": [1, 2], "y": ["1,234", "2,500"]}).to_csv(tmp_path / "b.csv", index=False)
    again = read_pairs(str(tmp_path / "b.csv"), Source(""), found.target)
    np.testing.assert_allclose(again.y, [1.234, 2.5])


def test_options_of_reading_and_bad_targets(tmp_path):
    text = "\n".join(["a;y", *(f"{i};{i % 7},5" for i in range(20)), "9;-99,9", "8;unknown"])
    (tmp_path / "a.csv").write_text(text)
    source = Source(str(tmp_path / "a.csv"), reading=ReadingOptions(na_values=("-99,9",)))
    with pytest.raises(ValueError, match="'unknown': correct them, or leave out these rows by --d"):
        split_rows(source)
    found = split_rows(dataclasses.replace(source, drop_bad_targets=True))
    assert len(found.train.y) + len(found.test.y) == 20
    assert found.target.decimal == ","
    assert "has 1 cell that is not a number, such as 'unknown'" in found.target.note


@pytest.mark.parametrize("given", [[], ["--separator", r"\t", "--no-header", "--na-values", "x"]])
def test_options_of_reading_are_those_of_training_unless_they_are_given(given):
    known = ReadingOptions(skip_rows=2, decimal=",")
    found = []

    @click.command()
    @reading_options
    def command(**_):
        found.append((chosen_reading(), chosen_reading(known)))

    command.main(given, standalone_mode=False)
    asked = {"separator": "\t", "header": False, "na_values": ("x",)} if given else {}
    assert found == [(ReadingOptions(**asked), dataclasses.replace(known, **asked))]


@pytest.mark.parametrize("rows", ["1,2\n", "1,2\n3,4\n", "1,2\n3,4\n5,\n6,\n"])
def test_a_table_of_too_few_rows_is_refused_as_such(tmp_path, rows):
    (tmp_path / "a.csv").write_text(f"a,y\n{rows}")
    with pytest.raises(ValueError, match=r"a\.csv has too few rows: . with .* at least 3"):
        split_rows(Source(str(tmp_path / "a.csv"), "y"))


def test_a_named_set_has_its_own_parts():
    found = split_rows(Source("digits"))
    assert found.image_shape == (8, 8, 1)
    assert found.kind == "the test part of digits"
    assert set(found.test.y) == set("0123456789")
    with pytest.raises(ValueError, match="row_weights must be a column of a file"):
        split_rows(Source("digits", row_weights="w"))


def test_a_test_row_of_a_class_that_no_training_row_has_is_left_out(tmp_path):
    labels = np.where(np.arange(40) % 2, "p", "q").astype(object)
    order = np.random.default_rng(0).permutation(40)
    labels[order[-1]] = "rare"
    path = tmp_path / "a.csv"
    pd.DataFrame({"a": np.arange(40) % 7, "y": labels}).to_csv(path, index=False)
    found = split_rows(Source(str(path), "y"))
    assert "rare" not in {*found.test.y, *found.train.y}
    assert (len(found.train.y), len(found.test.y)) == (36, 3)
    assert "1 test row(s) have a class that no training row has, such as 'rare'" in found.notes[-1]
    labels[order[-4:]] = "rare"
    pd.DataFrame({"a": np.arange(40) % 7, "y": labels}).to_csv(path, index=False)
    with pytest.raises(ValueError, match="choose other rows by --split"):
        split_rows(Source(str(path), "y"))


def test_weights_of_rows_are_read_with_the_decimal_mark_of_the_table(tmp_path):
    weights = 1.0 + np.arange(40) % 5 / 8.0
    table = pd.DataFrame({"a": np.arange(40) % 7 / 4.0, "w": weights, "y": np.arange(40) / 16.0})
    found = []
    for mark in ".,":
        table.to_csv(tmp_path / "a.csv", index=False, sep=";", decimal=mark)
        split = split_rows(Source(str(tmp_path / "a.csv"), "y", row_weights="w"))
        found.append(split.train.weights)
    np.testing.assert_array_equal(*found)
