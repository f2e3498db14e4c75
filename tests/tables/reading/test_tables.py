"""Tables are read as the file has them, or refused with a message that says what to do."""

import decimal
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import feather, parquet

from gpflow_sparse.data import read_table
from gpflow_sparse.estimators import TableEncoder
from gpflow_sparse.tables.reading.cells import ReadingOptions
from gpflow_sparse.tables.reading.tables import notes_of, read_frame
from gpflow_sparse.tables.reading.targets import split_target

FRAME = pd.DataFrame({"a": [1.5, 2.5, 4.5], "b": [3.0, 1.0, 2.0], "y": [0.1, 0.2, 0.4]})


def write(path, text, encoding="utf-8"):
    data = text if isinstance(text, bytes) else text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix.lower() == ".gz" else data)
    return path


def frame_of(tmp_path, text, **options):
    """The frame of a csv file, its cells as lists, and its notes."""
    frame = read_frame(write(tmp_path / "a.csv", text), ReadingOptions(**options))
    cells = frame.astype(object).where(frame.notna(), None)
    return list(frame.columns), cells.to_numpy().tolist(), notes_of(frame)


def test_a_csv_with_a_header_is_split_at_the_target(tmp_path):
    table = read_table(
        write(tmp_path / "a.csv", "age, height,price\n1,2.5,3e2\n4,5,-6\n"), "height"
    )
    assert_array_equal(table.X, [[1, 300], [4, -6]])
    assert_array_equal(table.Y, [[2.5], [5]])
    assert table.feature_names == ("age", "price")
    assert table.target_name == "height"


@pytest.mark.parametrize("target", ["c1", "1"])
def test_without_a_header_columns_are_numbered_from_zero(tmp_path, target):
    table = read_table(write(tmp_path / "a.csv", "1,2,3\n4,5,6"), target)
    assert_array_equal(table.X, [[1, 3], [4, 6]])
    assert_array_equal(table.Y, [[2], [5]])
    assert (*table.feature_names, table.target_name) == ("c0", "c2", "c1")


def test_numbers_are_read_to_the_last_digit_beside_text_and_without_it(tmp_path):
    values = np.random.default_rng(0).normal(size=(200, 3)) * 10.0 ** np.arange(-9, 9, 6)
    lines = [",".join(map(repr, row.tolist())) for row in values]
    path = write(tmp_path / "a.csv", "\n".join(["a,b,c", *lines]))
    assert_array_equal(read_table(path).X, values)
    path = write(tmp_path / "b.csv", "\n".join(["a,b,c,d", *(f"{line},red" for line in lines)]))
    inputs, target = split_target(read_frame(path), "c")
    assert_array_equal(TableEncoder().fit_transform(inputs[["a", "b"]]), values[:, :2])
    assert_array_equal(target.values, values[:, 2])


@pytest.mark.parametrize(
    ("first", "names", "words"),
    [
        ("a,b,c", "abc", ""),
        ("x1,y_2,3rd", ["x1", "y_2", "3rd"], ""),
        ("a,NA,12 kg", ["a", "NA", "12 kg"], ""),
        ("1,N/A,3", None, "is taken as data"),
        ("1.5,?,1e5", None, "is taken as data"),
        ("2020,2021,2022", None, "is taken as data"),
        ("$5,7%,2020-01-31", None, "is taken as data"),
        ("12:30,(5),-", None, "is taken as data"),
        ("name,2019,2020", ["name", "2019", "2020"], "is taken as names"),
        ("0.25,red,1", None, "is taken as data"),
        ("2020-01-31,red,a", None, "is taken as data"),
    ],
)
def test_a_first_row_of_numbers_is_data_and_of_texts_names(tmp_path, first, names, words):
    columns, cells, notes = frame_of(tmp_path, f"{first}\n4,5,6\n")
    assert columns == (["c0", "c1", "c2"] if names is None else list(names))
    assert len(cells) == 1 + (names is None)
    assert words in "".join(notes)
    assert bool(notes) == bool(words)
    for header in (True, False):
        columns, cells, notes = frame_of(tmp_path, f"{first}\n4,5,6\n", header=header)
        assert (columns, len(cells), notes) == (
            (first.split(","), 1, ()) if header else (["c0", "c1", "c2"], 2, ())
        )


def test_missing_words_in_quotes_are_texts(tmp_path):
    words = ["NA", "None", "null", "?", "#N/A", "nan", "n/a", "-", ""]
    rows = [f'{i},{word},"{word}", {word} ' for i, word in enumerate(words, 1)]
    _, cells, _ = frame_of(tmp_path, "\n".join(["a,b,c,d", *rows]))
    assert [row[1] for row in cells] == [None] * 9
    assert [row[2] for row in cells] == words
    assert [row[3] for row in cells] == [None] * 9
    table = pd.DataFrame(cells, columns=list("abcd"))
    assert TableEncoder().fit(table).columns_[2].levels[-2:] == ("null", "(missing)")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".csv.gz"])
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("rows", [["a{}b", "1.5{}2", "3{}4"], ['"a"{}"b"', '"1.5"{}"2"', "3{}4"]])
def test_separators_are_found_whatever_the_name_of_the_file(tmp_path, suffix, mark, rows):
    text = "\n".join(row.format(mark) for row in rows)
    table = read_table(write(tmp_path / f"a{suffix}", text), "b")
    assert_array_equal(table.X, [[1.5], [3]])
    assert_array_equal(table.Y, [[2], [4]])
    assert table.feature_names == ("a",)


@pytest.mark.parametrize("mark", ["\t", ";", "|"])
@pytest.mark.parametrize("header", ["", "price, EUR{}size, m{}label\n"])
def test_decimal_commas_are_not_separators(tmp_path, mark, header):
    text = "{}".join(["1,5", "2,5", "x\n"]) + "{}".join(["3,25", "4", '"a,b{}"\n'])
    _, cells, _ = frame_of(tmp_path, (header + text).replace("{}", mark), header=bool(header))
    assert cells == [["1,5", "2,5", "x"], ["3,25", "4", f"a,b{mark}"]]


def test_a_separator_is_obeyed_in_the_first_line_and_as_an_option(tmp_path):
    for first in ("sep=;", '"sep=;"', "SEP=;", "\nsep=;"):
        assert frame_of(tmp_path, f"{first}\na;b\n1;2,5\n")[:2] == (["a", "b"], [["1", "2,5"]])
    assert frame_of(tmp_path, "a:b\n1:2\n", separator=":")[:2] == (["a", "b"], [["1", "2"]])


def test_lines_above_the_names_need_an_option_and_are_named(tmp_path):
    text = "Sales of 2024\n\nshop,price\nBern,5\nRome,7\n"
    message = "row 2 has 2 cells, but the first row has 1: .* skipped by --skip-rows"
    with pytest.raises(ValueError, match=message):
        frame_of(tmp_path, text)
    columns, cells, notes = frame_of(tmp_path, text, skip_rows=2)
    assert (columns, cells) == (["shop", "price"], [["Bern", "5"], ["Rome", "7"]])
    assert notes == ("2 lines above the first row are left out: 'Sales of 2024', ''.",)


@pytest.mark.parametrize("word", ["Total", "total:", "Summe", "GRAND TOTAL"])
def test_a_row_of_totals_at_the_end_is_named(tmp_path, word):
    notes = frame_of(tmp_path, f"shop,price\nBern,5\nRome,7\n{word},12\n")[2]
    assert notes == (f"the last row has '{word}' in it: drop it if it sums up the others.",)
    assert not frame_of(tmp_path, f"shop,price\nBern,5\n{word},7\nRome,7\n")[2]


def test_cells_with_line_breaks_are_said(tmp_path):
    _, cells, notes = frame_of(tmp_path, 'a,b\n1,"x\n2"\n3,y\n')
    assert cells == [["1", "x\n2"], ["3", "y"]]
    assert notes == ("1 cells have line breaks: if rows are missing, close a quote.",)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_other_encodings_need_an_option(tmp_path, name):
    text = "Gr\u00f6\u00dfe,Ort\n1,K\u00f6ln\n"
    for encoding in ("utf-8", "utf-8-sig", "cp1252", "utf-16"):
        path = write(tmp_path / name, text, encoding)
        if encoding in ("cp1252", "utf-16"):
            with pytest.raises(ValueError, match=r"is not utf-8 text .* by --encoding"):
                read_frame(path)
        frame = read_frame(path, ReadingOptions(encoding=encoding))
        assert list(frame.columns) == ["Gr\u00f6\u00dfe", "Ort"]
        assert frame["Ort"].tolist() == ["K\u00f6ln"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the first row is empty"),
        (b"\n\n", "the first row is empty"),
        (b",,\na,b,c\n", "the first row is empty"),
        (b"a,b\n", "has no data: a table needs a row and a column"),
        (b"5,red\n", "has no data: .* the first row, '5', 'red', is taken as names"),
        (b"a,b\n1,2\n3\n", "row 3 has 1 cells, but the first row has 2"),
        (b"a,b\n1,2,3\n", "row 2 has 3 cells, but the first row has 2"),
        (b"a,b,a\n1,2,3\n", "every column needs a name of its own, but a repeat"),
        (
            "\u00e9,e\u0301\n1,2\n".encode(),
            "every column needs a name of its own, but \u00e9 repeat",
        ),
        (b",b,\n0,2,3\n", r"columns \[2\] have none"),
        (b"a,,b\n0,2,3\n", r"columns \[2\] have none"),
        (b"a,b\n1,2\n\xff,2\n" + b"3,4\n" * 300_000 + b"\xff,2\n", "is not utf-8 text"),
        (b"a,b\n" + b"3,4\n" * 300_000 + b"\xff,2\n", "is not utf-8 text .*invalid UTF8"),
        (b"a\x00b,c\n1,2\n", "is not utf-8 text .it has NUL characters"),
        (b'a,b\n1,2\n3,"4\n5,6\n', "the quote that opens before '4' is never closed; close it"),
        (b'a,"b\n1,2\n', "quote|has no data"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_text_that_cannot_be_read_is_refused_in_a_sentence(tmp_path, data, message, name):
    with pytest.raises(ValueError, match=f"{name}.*{message}") as caught:
        read_frame(write(tmp_path / name, data))
    assert "\n" not in str(caught.value)


def test_compressed_files_that_are_damaged_are_refused(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(b"a,b\n1,2\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 999)[:-12])
    for name in ("a.csv.gz", "b.csv.gz"):
        with pytest.raises(ValueError, match=f"{name} is not a readable table"):
            read_frame(tmp_path / name)


def test_an_unknown_encoding_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"is not utf-7000 text .unknown encoding"):
        frame_of(tmp_path, "a,b\n1,2\n", encoding="utf-7000")


def test_one_error_names_every_column_that_is_not_numbers(tmp_path):
    text = "city,age,ok,w\nOslo,1,1,1\nRome,NA,2,inf\n3,?,3,1\nBonn,,4,1_000\n"
    with pytest.raises(ValueError) as caught:
        read_table(write(tmp_path / "a.csv", text))
    assert str(caught.value).endswith(
        "a.csv: every cell must be a number, but 'city' has 3 cells that are not numbers, such as "
        "'Oslo', 'Rome', 'Bonn'; 'age' misses 3 of 4 values; 'w' has 2 cells that are not numbers, "
        "such as 'inf', '1_000'. Drop or fill these rows, or leave out the columns."
    )


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
    with pytest.raises(ValueError, match="path must be the path of a file, got 5"):
        read_frame(5)


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
            "'x1' misses 2 of 2 values; 'y' misses 1 of 2 values",
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


def test_a_parquet_file_of_numbers_is_read(tmp_path):
    columns = {
        "i": [1, 2],
        "f": pa.array([0.5, -1.5], pa.float32()),
        "d": [decimal.Decimal("1.25"), decimal.Decimal("2.50")],
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", "f")
    assert_array_equal(table.X, [[1, 1.25], [2, 2.5]])
    assert_array_equal(table.Y, [[0.5], [-1.5]])
    assert table.feature_names == ("i", "d")


def test_an_empty_or_damaged_parquet_file_is_refused(tmp_path):
    parquet.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet has no data: a table needs a row"):
        read_table(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet is not a readable table"):
        read_table(write(tmp_path / "b.parquet", "text"))
    names = pa.table([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    parquet.write_table(names, tmp_path / "c.parquet")
    with pytest.raises(ValueError, match=r"c.parquet.*duplicate field names"):
        read_table(tmp_path / "c.parquet")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a.csv.gz", "A.CSV.GZ"])
@pytest.mark.parametrize("index", [[0, 1, 2], ["u", "v", "w"]])
def test_an_index_that_pandas_wrote_is_not_an_input(tmp_path, name, index):
    text = FRAME.set_axis(index, axis=0).to_csv(sep="\t" if name != "a.csv" else ",")
    table = read_table(write(tmp_path / name, text), "y")
    assert table.feature_names == ("a", "b")
    assert_array_equal(table.X, FRAME[["a", "b"]])
    assert [note.split(":")[0] for note in table.notes] == ["the first column has no name"]


def test_numbered_columns_beside_an_index_are_a_header(tmp_path):
    values = np.random.default_rng(0).normal(size=(4, 3))
    table = read_table(write(tmp_path / "a.csv", pd.DataFrame(values).to_csv()), "2")
    assert_array_equal(table.X, values[:, :2])
    assert table.feature_names == ("0", "1")


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_an_index_in_an_arrow_file_is_not_an_input(tmp_path, name):
    table = pa.Table.from_pandas(FRAME.iloc[[0, 2]])
    assert table.column_names[-1] == "__index_level_0__"
    (parquet.write_table if name == "a.parquet" else feather.write_feather)(table, tmp_path / name)
    found = read_table(tmp_path / name, "y")
    assert found.feature_names == ("a", "b")
    assert found.notes == ("'__index_level_0__' is a row index that pandas saved and is not used.",)


def test_every_format_of_one_table_gives_the_same_encoding(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "n": rng.integers(9, size=40)})
    frame["city"] = rng.choice(["Bern", "Rome", None], 40)
    frame["flag"] = rng.choice([True, False], 40)
    frame["when"] = pd.date_range("2024-01-01", periods=40, freq="7h")
    frame["y"] = rng.normal(size=40)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_feather(tmp_path / "a.feather")
    expected = TableEncoder().fit_transform(frame.drop(columns="y"), frame["y"])
    for suffix in ("csv", "parquet", "feather"):
        inputs, target = split_target(read_frame(tmp_path / f"a.{suffix}"), "y")
        assert_array_equal(TableEncoder().fit_transform(inputs, target.values), expected)
        assert_array_equal(target.values, frame["y"])
