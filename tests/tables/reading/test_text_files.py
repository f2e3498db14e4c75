"""Encodings, separators, headers and saved row indices of text files are found, and said."""

import gzip
import importlib
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from gpflow_sparse.data import read_table
from gpflow_sparse.tables.reading.tables import notes_of, read_frame
from gpflow_sparse.tables.reading.text_files import encoding_of

FRAME = pd.DataFrame({"a": [1.5, 2.5, 4.5], "b": [3.0, 1.0, 2.0], "y": [0.1, 0.2, 0.4]})


def write(path, text, encoding="utf-8"):
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a.csv.gz"])
@pytest.mark.parametrize("index", [[0, 1, 2], ["u", "v", "w"]])
def test_an_index_that_pandas_wrote_is_no_input(tmp_path, name, index):
    text = FRAME.set_axis(index, axis=0).to_csv(sep="\t" if name != "a.csv" else ",")
    table = read_table(
        write(tmp_path / name, text), "y", columns=["a", "b", "y"] if index[0] else None
    )
    assert table.feature_names == ("a", "b")
    assert_array_equal(table.X, FRAME[["a", "b"]])
    assert_array_equal(table.Y, FRAME[["y"]])
    assert [note.split(":")[0] for note in table.notes] == ["the first column has no name"]


def test_numbered_columns_beside_an_index_are_a_header(tmp_path):
    values = np.random.default_rng(0).normal(size=(4, 3))
    path = write(tmp_path / "a.csv", pd.DataFrame(values).to_csv())
    table = read_table(path, "2")
    assert_array_equal(table.X, values[:, :2])
    assert table.feature_names == ("0", "1")
    with pytest.raises(ValueError, match="'c0': 1 missing cell, the first in row 1"):
        read_table(write(path, ",0,2\n1,2,3\n"))


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_an_index_in_an_arrow_file_is_no_input(tmp_path, name):
    pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    pa: Any = importlib.import_module("pyarrow")
    table = pa.Table.from_pandas(FRAME.iloc[[0, 2]])
    assert table.column_names[-1] == "__index_level_0__"
    if name == "a.parquet":
        pa.parquet.write_table(table, tmp_path / name)
    else:
        importlib.import_module("pyarrow.feather").write_feather(table, tmp_path / name)
    found = read_table(tmp_path / name, "y")
    assert found.feature_names == ("a", "b")
    assert found.notes == ("'__index_level_0__' is a row index that pandas saved and is not used.",)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize(
    ("encoding", "note"),
    [("utf-8", None), ("utf-8-sig", None), ("cp1252", "cp1252"), ("utf-16", "utf-16")],
)
def test_texts_of_spreadsheets_are_read_and_their_encoding_said(tmp_path, name, encoding, note):
    frame = read_frame(write(tmp_path / name, "Größe,Ort\n1,Köln\n2,Łódź"[:16] + "\n", encoding))
    assert list(frame.columns) == ["Größe", "Ort"]
    assert frame["Ort"].to_list() == ["Köln"]
    assert [n.split(",")[0] for n in notes_of(frame)] == [f"the text is read as {note}"] * bool(
        note
    )


def test_a_letter_in_a_later_piece_decides_the_encoding(tmp_path):
    start, path = b"a,b\n1,2\n", tmp_path / "a.csv"
    for letter, encoding in (("ä".encode(), "utf-8-sig"), (b"\xe4", "cp1252")):
        assert encoding_of(path, [start, start, letter + b"\n", start]) == encoding
    assert encoding_of(path, [start, b"\xc3", b"\x81\n"]) == "utf-8-sig"
    with pytest.raises(ValueError, match="row 5 is not UTF-8, and row 3 not cp1252"):
        encoding_of(path, [start, b"\xc3", b"\x81\n\n", b"\xe4\n"])
    with pytest.raises(ValueError, match="row 5 has a NUL character"):
        encoding_of(path, [start, start, b"\0\n"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a,b\n1,\xe4\n\n2,\x81\n", "row 2 is not UTF-8, and row 4 not cp1252; save it as UTF-8"),
        (b"a\x00b,c\n1,2\n", "row 1 has a NUL character"),
        (b"a,b\n1,2\n1\x002,3\n", "row 3 has a NUL character"),
        ("a,b\n1,2\n".encode("utf-16-le"), "row 1 has a NUL character"),
        ("a,b\n1,2\n".encode("utf-32"), "row 1 has a NUL character"),
        (b"\xff\xfea\x00\x00\xd8b\x00\n\x00", "not UTF-16 as its start says; save it as UTF-8"),
        (b'a,b\n1,2\n3,"4\n5,6\n', "the quote that opens in row 3 is never closed"),
        (b'a,b\n1,2\n3,"4\n' + b"5,6\n" * 50_000, "the quote that opens in row 3 is never closed"),
        (b'a,"b\n1,2\n', "the quote that opens in row 1 is never closed"),
        (b'a,b\n1,2\n\n"3"4,x\n', "row 4 has text after a closing quote"),
        (b"a,b\n1," + b"x" * 200_000 + b"\n", "row 2 has a cell of more than 131072 characters"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_text_that_cannot_be_read_names_its_row(tmp_path, data, message, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(data, 1) if name.endswith("gz") else data)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}") as caught:
        read_frame(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize(
    "text",
    [
        "a|b\n1.5|2\n3|4\n",
        "a | b\n1.5 | 2\n3 | 4\n",
        "a\tb\n1.5\t2\n3\t4\n",
        "a;b\n1.5;2\n3;4\n",
        "a,b\n1.5,2\n3,4\n",
    ],
)
def test_separators_are_found_whatever_the_name_of_the_file(tmp_path, suffix, text):
    table = read_table(write(tmp_path / f"a{suffix}", text), "b")
    assert_array_equal(table.X, [[1.5], [3]])
    assert_array_equal(table.Y, [[2], [4]])
    assert table.feature_names == ("a",)


@pytest.mark.parametrize("mark", ["\t", ";", "|"])
@pytest.mark.parametrize("header", ["", "price, EUR{}size, m{}label\n"])
def test_decimal_commas_are_no_separators(tmp_path, mark, header):
    text = "{}".join(["1,5", "2,5", "x\n"]) + "{}".join(["3,25", "4", '"a,b{}"\n'])
    path = write(tmp_path / "a.csv", (header + text).replace("{}", mark))
    frame = read_frame(path)
    assert frame.shape == (2, 3)
    assert frame.iloc[:, 0].to_list() == ["1,5", "3,25"]
    assert frame.iloc[1, 2] == f"a,b{mark}"


@pytest.mark.parametrize("line", ["1,5{0}2{0}3{0}4", "1,5{0}2"])
@pytest.mark.parametrize("mark", ["\t", ";", "|"])
def test_a_row_of_other_length_does_not_change_the_separator(tmp_path, mark, line):
    rows = ["1,5{0}2{0}3", "1,5{0}2{0}3", "1,5{0}2{0}3"]
    for i in range(len(rows) + 1):
        text = "\n".join([*rows[:i], line, *rows[i:]]).format(mark)
        with pytest.raises(ValueError, match=r"row . has . cells, expected .* as in row 1"):
            read_frame(write(tmp_path / "a.csv", text))


@pytest.mark.parametrize("first", ["2020,2021,2022", "1.5,2,3"])
def test_a_first_row_of_numbers_is_data_and_this_is_said(tmp_path, first):
    table = read_table(write(tmp_path / "a.csv", f"{first}\n4,5,6\n"))
    assert len(table.X) == 2
    cells = ", ".join(f"'{cell}'" for cell in first.split(","))
    assert table.notes == (
        f"the first row, {cells}, is taken as data and the columns are called c0, c1, and so on: "
        "if it holds names, put a letter into one.",
    )
    assert not read_table(write(tmp_path / "b.csv", "y2020,2021\n4,5\n")).notes


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("5,red,3", "6,blue,4"),
        ("2020-01-31,6,a", "2020-02-01,7,b"),
        ("$5,a,b", "$6,b,a"),
        ("7%,a,b", "8%,b,a"),
        ("12:30,a,b", "13:30,b,a"),
    ],
)
def test_names_that_may_be_cells_are_said(tmp_path, first, second):
    path = write(tmp_path / "a.csv", f"{first}\n{second}\n")
    frame, cells = read_frame(path), ", ".join(f"'{cell}'" for cell in first.split(","))
    note = (
        f"the first row, {cells}, is taken as names of the columns: if it is data, put a row of "
        "names above it."
    )
    assert list(frame.columns) == first.split(",")
    assert notes_of(frame) == (note,)
    with pytest.raises(ValueError, match=re.escape(f"no data rows after the header; {note}")):
        read_frame(write(tmp_path / "b.csv", f"{first}\n"))
    for names in ("x1,y_2,3rd", "id,2019,2020", "größe,b,c", "_1,b,c"):
        assert not notes_of(read_frame(write(tmp_path / "c.csv", f"{names}\n6,7,4\n")))
