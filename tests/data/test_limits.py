"""Compressed files that are damaged, forged, or huge in memory are refused in one sentence."""

import gzip
import importlib
import io
import os
import struct
import zipfile

import numpy as np
import pytest

from gpflow_sparse.data import load, read_table


@pytest.fixture
def pa():
    """pyarrow with its parquet module; skips where this optional package is absent."""
    pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    return importlib.import_module("pyarrow")


def member(values, header=None):
    """Content of an .npy file, with another header if one is given."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    if header is None:
        return buffer.getvalue()
    text = header.encode().ljust(116) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + values.tobytes()


def archive(path, x, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("x.npy", x)
        file.writestr("y.npy", member(np.ones((4, 1))))
    return path


def header(shape, descr="'<f8'"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


X = np.arange(8.0).reshape(4, 2)
MEMBERS = {
    "plain bytes": (b"1,2\n3,4\n", "magic string"),
    "empty": (b"", "not a readable .npz file"),
    "huge shape": (
        member(X, header("(1000000000000, 2)")),
        "needs 16000000000000 bytes, and there",
    ),
    "overflowing shape": (member(X, header("(4294967296, 4294967296)")), "bytes, and there are 64"),
    "negative shape": (member(X, header("(-4, -2)")), r"shape \(-4, -2\) of float64, not numbers"),
    "no bytes per entry": (member(X[:0], header("(10000000000, 2)", "'<U0'")), "not numbers"),
    "short": (member(X)[:-8], "needs 64 bytes, and there are 56"),
    "long": (member(X) + bytes(8), "needs 64 bytes, and there are 72"),
    "objects": (member(X, header("(4, 2)", "'|O'")), "of object, not numbers"),
    "nested header": (member(X, "-" * 9000 + "1"), "not a readable .npz file"),
    "nested list header": (member(X, "[" * 5000 + "]" * 5000), "not a readable .npz file"),
    "long header": (member(X, header("(4, 2)") + " " * 50_000), "not a readable .npz file"),
    "other version": (b"\x93NUMPY\x03\x00" + member(X)[8:], r"has format version \(3, 0\)"),
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_members_that_are_no_arrays_of_numbers_are_refused(tmp_path, kind):
    content, message = MEMBERS[kind]
    path = archive(tmp_path / "a.npz", content)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}") as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def patch(content, offset, value):
    """Change two bytes of the first local header, and their copy in the first central header."""
    for start, where in ((0, 6 + offset), (content.index(b"PK\x01\x02"), 8 + offset)):
        content[start + where : start + where + 2] = struct.pack("<H", value)


@pytest.mark.parametrize("method", [1, 9, 12, 14, 93, 99])
def test_other_compression_methods_are_refused(tmp_path, method):
    content = bytearray(archive(tmp_path / "a.npz", member(X)).read_bytes())
    patch(content, 2, method)
    (tmp_path / "a.npz").write_bytes(content)
    message = f"compression method {method}, expected 0 or 8; save it with np.savez_compressed"
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "a.npz")


@pytest.mark.parametrize("flag", [0x1, 0x20, 0x40, 0x41])
def test_encrypted_and_patched_members_are_refused(tmp_path, flag):
    content = bytearray(archive(tmp_path / "a.npz", member(X)).read_bytes())
    patch(content, 0, flag)
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"its array 'x' is encrypted or patched"):
        read_table(tmp_path / "a.npz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(archive(tmp_path / "a.npz", member(X)), "a") as file:
        file.writestr("x.npy", member(X + 1.0))
    with pytest.raises(ValueError, match=r"it has two arrays of the name 'x'"):
        read_table(tmp_path / "a.npz")


def test_an_archive_that_grows_too_much_is_refused_before_it_is_read(tmp_path):
    values = np.zeros((2_000_000, 2))
    np.savez_compressed(tmp_path / "bomb.npz", x=values, y=values[:, 0])
    size = os.path.getsize(tmp_path / "bomb.npz")
    message = f"its {size} compressed bytes hold 48000... or more, and at most {2**24} are read"
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "bomb.npz")
    np.savez(tmp_path / "plain.npz", x=values, y=values[:, 0])
    assert read_table(tmp_path / "plain.npz").X.shape == (2_000_000, 2)


def test_a_text_that_grows_too_much_is_refused_before_it_is_parsed(tmp_path):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n" * 2**20) * 60)
    message = r"compressed bytes hold \d+ or more, and at most \d+ are read; .* decompress it first"
    with pytest.raises(ValueError, match=message):
        read_table(path)


def test_a_parquet_file_that_grows_too_much_is_refused(tmp_path, pa):
    pa.parquet.write_table(pa.table({"a": np.zeros(4_000_000)}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"hold 32000000 or more, .*make it a \.csv file"):
        read_table(tmp_path / "a.parquet")


def test_many_bad_columns_give_five_names_and_a_count(tmp_path):
    names = ",".join(f"c{i}" for i in range(1000))
    path = tmp_path / "a.csv"
    path.write_text(f"{names}\n{','.join(['x'] * 1000)}\n{','.join(['nan'] * 1000)}\n")
    with pytest.raises(ValueError) as caught:
        read_table(path)
    assert "'c0' has 1 cell that is not a number, such as 'x'; 'c1' has" in str(caught.value)
    assert str(caught.value).count("such as") == 5
    assert "; and 995 columns more." in str(caught.value)


def test_long_cells_and_names_are_cut_short_in_errors(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"{'n' * 9000},b\n{'x' * 9000},2\n")
    with pytest.raises(ValueError) as caught:
        read_table(path)
    assert len(str(caught.value)) < 300 + len(str(path))
    assert f"'{'n' * 37}...' has 1 cell that is not a number" in str(caught.value)
    path.write_text(f"{'n' * 9000},b\n1,2\n")
    with pytest.raises(ValueError) as caught:
        read_table(path, target="y")
    assert len(str(caught.value)) < 200 + len(str(path))


@pytest.mark.parametrize("names", ["a,a,b", "c,c,c"])
def test_columns_of_one_name_are_refused_in_every_format(tmp_path, pa, names):
    (tmp_path / "a.csv").write_text(f"{names}\n1,2,3\n4,5,6\n")
    columns = names.split(",")
    table = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names=columns)
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(ValueError, match=f"{names[0]} repeat|duplicate field names"):
            read_table(tmp_path / name, target="b")
    np.savez(tmp_path / "mine.npz", x=np.ones((4, 3)), y=np.ones((4, 1)), columns=columns)
    with pytest.raises(ValueError, match="columns must hold 3 names, all different, got 3: "):
        load("mine", root=tmp_path)


@pytest.mark.parametrize("name", ["circle.csv", "circle.npz", "x" * 300 + ".csv"])
def test_a_circle_of_links_or_a_long_name_is_no_file(tmp_path, name):
    if name.startswith("circle"):
        (tmp_path / name).symlink_to(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="path must be a file, found none at"):
        read_table(tmp_path / name)
    with pytest.raises(ValueError, match="name must be a known data set"):
        load(name.rsplit(".", 1)[0], root=tmp_path)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="a file of Linux")
def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "a.csv").symlink_to("/proc/self/mem")
    with pytest.raises(ValueError, match=r"a\.csv is not a readable table: .*error"):
        read_table(tmp_path / "a.csv")
