"""Tables are read to the last digit, or refused with a message that says what to do."""

import builtins
import decimal
import gzip
import importlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from gpflow_sparse.data import read_table
from gpflow_sparse.tables.reading.tables import read_frame


@pytest.fixture
def pa():
    """pyarrow with its parquet module; skips where this optional package is absent."""
    pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    return importlib.import_module("pyarrow")


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_with_a_header_is_split_at_the_target(tmp_path):
    path = write(tmp_path / "a.csv", "age, height,price\n1,2.5,3e2\n4,5,-6\n")
    table = read_table(path, target="height")
    assert_array_equal(table.X, [[1, 300], [4, -6]])
    assert_array_equal(table.Y, [[2.5], [5]])
    assert table.feature_names == ("age", "price")
    assert table.target_name == "height"


@pytest.mark.parametrize("target", ["c1", "1"])
def test_without_a_header_columns_are_numbered_from_zero(tmp_path, target):
    table = read_table(write(tmp_path / "a.csv", "1,2,3\n4,5,6"), target)
    assert_array_equal(table.X, [[1, 3], [4, 6]])
    assert_array_equal(table.Y, [[2], [5]])
    assert table.feature_names == ("c0", "c2")
    assert table.target_name == "c1"


def test_numbers_are_read_to_the_last_digit_beside_text_and_without_it(tmp_path):
    values = np.random.default_rng(0).normal(size=(200, 3)) * 10.0 ** np.arange(-9, 9, 6)
    lines = [",".join(map(repr, row.tolist())) for row in values]
    path = write(tmp_path / "a.csv", "\n".join(["a,b,c", *lines]))
    assert_array_equal(read_table(path).X, values)
    path = write(tmp_path / "b.csv", "\n".join(["a,b,c,d", *(f"{line},red" for line in lines)]))
    table = read_table(path, target="c", columns=["a", "b", "c"])
    assert_array_equal(table.X[:, :2], values[:, :2])
    assert np.isnan(table.X[:, 2]).all()
    assert_array_equal(table.Y[:, 0], values[:, 2])


def test_blank_lines_count_above_the_header_and_between_rows(tmp_path):
    with pytest.raises(ValueError, match="row 6 has 1 cells, expected 2 as in row 3"):
        read_table(write(tmp_path / "a.csv", "\n\na,b\n1,2\n\n3\n"))
    assert_array_equal(read_table(write(tmp_path / "a.csv", "\n\na,b\n1,2\n\n3,4\n")).X[1], [3, 4])
    with pytest.raises(ValueError, match="'b': 1 text cell, the first in row 5"):
        read_table(write(tmp_path / "a.csv", "\na,b\n1,2\n\n3,True\n"))


def test_one_error_names_every_bad_column_with_its_first_row(tmp_path):
    text = "city,age,ok,w\nOslo,1,1,1\n\nRome,NA,2,inf\n3,?,3,1\nBonn,,4,1_000\n"
    with pytest.raises(ValueError) as caught:
        read_table(write(tmp_path / "a.csv", text))
    lines = str(caught.value).splitlines()[1:]
    assert lines == [
        "  column 'city': 3 text cells, the first in row 2 ('Oslo'); "
        "drop the column or encode it as numbers",
        "  column 'age': 3 missing cells, the first in row 4 ('NA'); drop or fill the rows",
        "  column 'w': 1 infinite cell, the first in row 4 ('inf'); drop or fix the rows",
        "  column 'w': 1 text cell, the first in row 6 ('1_000'); "
        "drop the column or encode it as numbers",
    ]


@pytest.mark.parametrize("cell", ["", "NA", "NaN", "nan", "null", "NULL", "?", " "])
def test_every_spelling_of_a_missing_value_is_refused(tmp_path, cell):
    path = write(tmp_path / "a.csv", f"1,2\n3,{cell}\n")
    with pytest.raises(ValueError, match="column 'c1': 1 missing cell, the first in row 2"):
        read_table(path)


def test_a_missing_value_in_the_first_row_does_not_make_it_a_header(tmp_path):
    with pytest.raises(ValueError, match="'c1': 1 missing cell, the first in row 1"):
        read_table(write(tmp_path / "a.csv", "1,NA\n3,4\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("a,b\n", "no data rows after the header"),
        ("a,b\n1,2\n3\n", "row 3 has 1 cells, expected 2"),
        ("a,b\n1,2,3\n", "row 2 has 3 cells, expected 2"),
        ("a,b,a\n1,2,3\n", r"\['a'\] repeated"),
        (",b,\n0,2,3\n", r"column \[3\] \(from 1\) has none"),
        ("a,,b\n0,2,3\n", r"column \[2\] \(from 1\) has none"),
    ],
)
def test_malformed_text_is_refused_with_its_place(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path / "a.csv", text))


def test_files_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"not a readable text table: .*; copy it again"):
        read_table(tmp_path / "a.csv.gz")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 999)[:-12])
    with pytest.raises(ValueError, match="not a readable text table"):
        read_table(tmp_path / "b.csv.gz")


def test_an_unknown_target_lists_the_columns_and_the_closest_one(tmp_path):
    path = write(tmp_path / "a.csv", "age,price\n1,2\n")
    with pytest.raises(ValueError, match=r"'prise'; did you mean 'price'\? Columns: age, price"):
        read_table(path, "prise")
    with pytest.raises(ValueError, match="Columns: age, price"):
        read_table(path, "1")
    with pytest.raises(ValueError, match="Columns: c0, c1"):
        read_table(write(tmp_path / "b.csv", "1,2\n"), "2")


def test_a_missing_file_and_an_unknown_ending_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=r"must end in one of \.csv.*got 'a\.xlsx'"):
        read_table(write(tmp_path / "a.xlsx", ""))


@pytest.mark.parametrize("keys", [("x", "y"), ("X", "Y")])
def test_an_npz_file_holds_inputs_and_target(tmp_path, keys):
    X, Y = np.array([[1, 2], [3, 4]], dtype=np.float32), np.array([[5], [6]])
    np.savez(tmp_path / "a.npz", **dict(zip(keys, (X, Y), strict=True)))
    table = read_table(tmp_path / "a.npz")
    assert_array_equal(table.X, X)
    assert_array_equal(table.Y, Y)
    assert table.X.dtype == table.Y.dtype == np.float64
    assert table.feature_names == (f"{keys[0]}0", f"{keys[0]}1")
    assert table.target_name == keys[1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros(2), "y": np.zeros(2)}, r"got \['a', 'y'\]"),
        ({"x": np.zeros((2, 1)), "y": np.zeros((2, 2))}, r"got \(2, 1\) and \(2, 2\)"),
        ({"x": np.zeros((2, 1)), "y": np.zeros((3, 1))}, r"got \(2, 1\) and \(3, 1\)"),
        ({"x": np.array([["a"]]), "y": np.zeros((1, 1))}, "must be numbers"),
        ({"x": np.array([[{}]]), "y": np.zeros((1, 1))}, "not a readable .npz file"),
        (
            {"x": np.array([[1.0, np.nan], [2.0, np.nan]]), "y": np.array([[1.0], [np.inf]])},
            r"(?s)'x1': 2 missing cells, the first in row 1.*'y': 1 infinite cell.* row 2",
        ),
    ],
)
def test_an_npz_file_of_another_kind_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "a.npz")


def test_a_damaged_npz_file_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((99, 1)), y=np.zeros((99, 1)))
    whole = (tmp_path / "a.npz").read_bytes()
    for content in (whole[:500], whole[:300] + b"!" + whole[301:], b"", b"text"):
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"b\.npz"):
            read_table(tmp_path / "b.npz")
    np.save(tmp_path / "single.npy", np.zeros(2))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    with pytest.raises(ValueError, match=r"single\.npz"):
        read_table(tmp_path / "single.npz")


def test_a_parquet_file_of_numbers_is_read(tmp_path, pa):
    columns = {
        "i": [1, 2],
        "f": pa.array([0.5, -1.5], pa.float32()),
        "b": [True, False],
        "d": [decimal.Decimal("1.25"), decimal.Decimal("2.50")],
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", "f")
    assert_array_equal(table.X, [[1, 1, 1.25], [2, 0, 2.5]])
    assert_array_equal(table.Y, [[0.5], [-1.5]])
    assert table.feature_names == ("i", "b", "d")


def test_one_error_names_every_bad_parquet_column(tmp_path, pa):
    columns = {"city": ["Oslo", None], "age": [1, None], "w": [1.0, np.inf], "v": [np.nan, 1.0]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ValueError) as caught:
        read_table(tmp_path / "a.parquet")
    starts = [line.split(";")[0].strip() for line in str(caught.value).splitlines()[1:]]
    assert starts == [
        "column 'city': 1 missing cell, the first in row 2 ('null')",
        "column 'city': 1 text cell, the first in row 1 ('Oslo')",
        "column 'age': 1 missing cell, the first in row 2 ('null')",
        "column 'w': 1 infinite cell, the first in row 2 ('inf')",
        "column 'v': 1 missing cell, the first in row 1 ('nan')",
    ]


def test_an_empty_or_damaged_parquet_file_is_refused(tmp_path, pa):
    pa.parquet.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="at least one row"):
        read_table(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"not a readable \.parquet file"):
        read_table(write(tmp_path / "b.parquet", "text"))


def test_without_pyarrow_the_message_says_what_to_install(tmp_path, monkeypatch):
    real_import = builtins.__import__

    def no_pyarrow(name, *args):
        if name.startswith("pyarrow"):
            raise ImportError("not installed")
        return real_import(name, *args)

    monkeypatch.setattr(builtins, "__import__", no_pyarrow)
    with pytest.raises(ValueError, match=r"\(not installed\): python -m pip install pyarrow"):
        read_table(write(tmp_path / "a.parquet", ""))


@pytest.mark.parametrize(
    ("text", "names", "first"),
    [
        ("0,5;1;1,5\n2,5;2;3,5\n", ["c0", "c1", "c2"], ["0,5", "1", "1,5"]),
        ("0.25,red,1\n0.5,blue,2\n", ["c0", "c1", "c2"], ["0.25", "red", "1"]),
        ("name,2019,2020\nred,1,2\n", ["name", "2019", "2020"], ["red", "1", "2"]),
        ('"size, in m";"price, in EUR"\n1,5;2\n', ["size, in m", "price, in EUR"], ["1,5", "2"]),
    ],
)
def test_headers_and_separators_of_frames(tmp_path, text, names, first):
    (tmp_path / "my.csv").write_text(text)
    frame = read_frame(tmp_path / "my.csv")
    assert list(frame.columns) == names
    assert [str(cell) for cell in frame.iloc[0]] == first
