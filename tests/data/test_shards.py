"""Tables in many files: statistics, the order of rows, exact resumption, and errors."""

import builtins
import gzip
import itertools
import os

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

import gpflow_sparse as gs
from gpflow_sparse.data import shard_files, shards

NAMES = ["a", "b", "y"]


def made_rows(count, seed=0):
    """Rows whose first column is their number; the second has a large mean."""
    rng = np.random.default_rng(seed)
    return np.stack(
        [np.arange(count, dtype=float), 1e6 + rng.normal(size=count), rng.normal(size=count)], 1
    )


def write(folder, values, kind, num_files=3):
    """The rows in files of one kind, of unequal lengths; returns the name of the output."""
    folder.mkdir(exist_ok=True)
    cuts = np.linspace(0, len(values), num_files + 1).astype(int) + np.arange(num_files + 1)
    for i, (start, stop) in enumerate(itertools.pairwise(cuts)):
        write_part(folder / f"part-{i}.{kind}", values[start:stop])
    return {"npy": "c2", "npz": "y"}.get(kind, "y")


def write_part(path, rows, names=NAMES):
    """Rows in a file; its output is the last column."""
    frame, kind = pd.DataFrame(rows, columns=names), path.suffix[1:]
    if kind == "npy":
        np.save(path, rows)
    elif kind == "npz":
        np.savez(path, x=rows[:, :-1], y=rows[:, -1:])
    elif kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path, row_group_size=7)
    else:
        frame.to_feather(path, chunksize=7)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 7 rows and buffers of about 21."""
    monkeypatch.setattr(shard_files, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(shards, "_BUFFER_ENTRIES", 21 * 3)


@pytest.fixture
def table(tmp_path, small_blocks):
    values = made_rows(100)
    write(tmp_path / "rows", values, "npy")
    return gs.data.open_shards(tmp_path / "rows", "c2"), values


def rows_of(batches):
    return np.concatenate([np.concatenate(batch, axis=1) for batch in batches])


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet", "feather"])
def test_rows_and_statistics_are_those_of_the_whole_table(tmp_path, small_blocks, kind):
    if kind in ("parquet", "feather"):
        pytest.importorskip("pyarrow")
    values = made_rows(100)
    opened = gs.data.open_shards(tmp_path / "rows", write(tmp_path / "rows", values, kind))
    assert (opened.num_rows, opened.num_columns) == (100, 2)
    assert_array_equal(rows_of(opened.batches(13).as_numpy_iterator()), values)
    moments = opened.moments()
    mean, scale = moments.mean_and_scale()
    assert moments.num_rows == 100
    assert_allclose(mean, values.mean(axis=0), rtol=1e-12)
    assert_allclose(scale, values.std(axis=0), rtol=1e-12)
    standard = opened.standardized()
    expected = gs.data.Standardizer.fit(values[:, :-1], values[:, -1:])
    X, Y = expected.transform(values[:, :-1], values[:, -1:])
    found = rows_of(standard.batches(64).as_numpy_iterator())
    assert_allclose(found, np.hstack([X, Y]), atol=1e-8)  # the mean is 1e6
    assert_allclose(standard.standardizer.y_scale.numpy(), expected.y_scale.numpy(), rtol=1e-12)


def test_moments_of_parts_merge_to_those_of_all_rows(table):
    opened, values = table
    parts = [opened.part(i, 4).moments() for i in range(4)]
    merged = parts[2].merge(parts[0]).merge(parts[3].merge(parts[1]))
    assert_allclose(merged.mean, values.mean(axis=0), rtol=1e-12)
    assert_allclose(merged.squares / 100, values.var(axis=0), rtol=1e-12)
    assert_array_equal(merged.high, values.max(axis=0))
    first, second = opened.standardized(merged), opened.standardized()
    for found, expected in zip(first.shuffled(9)(2), second.shuffled(9)(2), strict=True):
        assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("batch_size", [1, 9, 50, 64])
def test_every_row_comes_once_in_an_epoch(table, batch_size):
    opened, values = table
    batch = opened.shuffled(batch_size, seed=3)
    steps = range(-(-300 // batch_size))
    found = rows_of(batch(step) for step in steps)[:300]
    for epoch in range(3):
        rows = found[100 * epoch : 100 * (epoch + 1)]
        assert_array_equal(rows[np.argsort(rows[:, 0])], values)
    assert not np.array_equal(found[:100], found[100:200])
    other = rows_of(opened.shuffled(batch_size, seed=4)(step) for step in steps)[:100]
    assert not np.array_equal(found[:100], other)


def test_a_step_does_not_depend_on_the_steps_before(table):
    batch = table[0].shuffled(9, seed=3)
    sequence = [batch(step) for step in range(40)]
    for step in (39, 12, 0, 11, 25):
        for found, expected in zip(table[0].shuffled(9, seed=3)(step), sequence[step], strict=True):
            assert_array_equal(found, expected)


def test_a_buffer_holds_rows_of_several_distant_blocks(table):
    batch = table[0].shuffled(10, seed=0)
    first = rows_of([batch(0), batch(1)])[:15, 0]
    assert len(set(first // 7)) >= 3
    assert (np.abs(np.diff(first)) > 1.0).mean() > 0.8
    epochs = [frozenset(batch(10 * epoch)[0][:, 0] // 7) for epoch in range(4)]
    assert len(set(epochs)) == 4


def test_parts_are_disjoint_and_cover_the_rows(table):
    opened, values = table
    found = np.concatenate(
        [rows_of(opened.part(i, 3).batches().as_numpy_iterator()) for i in range(3)]
    )
    assert_array_equal(found[np.argsort(found[:, 0])], values)
    with pytest.raises(ValueError, match="count must be at most 15"):
        opened.part(0, 16)
    with pytest.raises(ValueError, match="index must be from 0 to 2, got 3"):
        opened.part(3, 3)


def test_rows_that_are_held_out_are_no_longer_read(table):
    opened, values = table
    rest, (X, Y) = opened.hold_out(30, seed=1)
    last, (X2, _) = rest.hold_out(20, seed=2)
    assert (rest.num_rows, last.num_rows) == (70, 50)
    found = rows_of(last.batches(8).as_numpy_iterator())
    numbers = np.concatenate([found[:, 0], X[:, 0], X2[:, 0]])
    assert_array_equal(np.sort(numbers), np.arange(100))
    assert_array_equal(np.hstack([X, Y]), values[X[:, 0].astype(int)])
    seen = rows_of(last.shuffled(10, seed=0)(step) for step in range(5))
    assert_array_equal(np.sort(seen[:, 0]), found[:, 0])
    assert rest.fingerprint != opened.fingerprint != opened.standardized().fingerprint


def test_inputs_are_chosen_by_name(tmp_path, small_blocks):
    values = made_rows(30)
    write(tmp_path / "rows", values, "csv")
    opened = gs.data.open_shards(str(tmp_path / "rows" / "*.csv"), "b", columns=["y"])
    assert opened.column_names == ("y",)
    assert_array_equal(rows_of(opened.batches().as_numpy_iterator()), values[:, [2, 1]])
    assert "num_rows=30, num_columns=1, target='b'" in repr(opened)
    assert opened.fingerprint == gs.data.open_shards(opened_paths(opened), "b", ["y"]).fingerprint


def opened_paths(opened):
    return [file.path for file in opened.files]


def write_csv(folder, *texts):
    folder.mkdir()
    for i, text in enumerate(texts):
        (folder / f"part-{i}.csv").write_text(text, newline="")
    return folder


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a,y\n1,2\n", "a,y\n1,red\n"], r"part-1.csv: column 'y' must hold numbers, .* 'red'"),
        (["a,y\n1,2\n", "a,z\n1,2\n"], r"part-1.csv: all files must have the same .* 'y' of"),
        (["a,y\n1,2\n", "a,y,z\n1,2,3\n"], r"part-0.csv: all files .* 'z' of .*part-1.csv is"),
        (["1,2\n3,4\n"], "part-0.csv: the first line must be a header"),
        (['"a\nb",y\n3,4\n'], "part-0.csv: the first line must be a header"),
        (["a,y\r1,2\n3,4\n"], "part-0.csv: the first line must be a header .* without line breaks"),
        (["a,y\r1,2\r3,4\r"], "part-0.csv: the first line must be a header .* without line breaks"),
        (["a,y\n1,2,3\n"], "part-0.csv: row 2 has 3 cells, expected 2 as in row 1"),
        (
            ["a,y\n1,2\n", "\na,y\n1,2\n3\n"],
            "part-1.csv: row 4 has 1 cells, expected 2 as in row 2",
        ),
        (["a,y\n1,2\n\n3,4\n"], "part-0.csv: row 3 has 1 cells, expected 2"),
        (['a,y\n1,"2\n'], "part-0.csv: row 2 has a quote that is not closed"),
        (["a,y\n1,2\n1\x002,2\n"], "part-0.csv: row 3 has a NUL character"),
        (["a,a,y\n1,2,3\n"], r"part-0.csv: column names must differ, \['a'\] repeated"),
        (["a,z\n1,2\n"], "target must be a column of"),
        (["a,y\n"], "paths must hold at least one row"),
    ],
)
def test_files_that_do_not_fit_are_refused_when_opened(tmp_path, texts, message):
    with pytest.raises(ValueError, match=message):
        gs.data.open_shards(write_csv(tmp_path / "rows", *texts), "y")


def test_types_must_agree(tmp_path):
    np.save(tmp_path / "0.npy", np.ones((3, 2)))
    np.save(tmp_path / "1.npy", np.ones((3, 2), np.int32))
    with pytest.raises(ValueError, match=r"1.npy: column 'c0' is int32, but float64 in .*0.npy"):
        gs.data.open_shards(tmp_path, "c1")
    (tmp_path / "2.csv").write_text("a,y\n1,2\n")
    with pytest.raises(ValueError, match=r"files of one kind, got \.csv, \.npy"):
        gs.data.open_shards(tmp_path, "c1")
    with pytest.raises(FileNotFoundError, match="found none at"):
        gs.data.open_shards(tmp_path / "nothing", "c1")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a,y\n1,2\n".encode("utf-16"), "part.csv: UTF-16 is not read in parts; save .* as UTF-8"),
        (b"a,y\n1,2\n3,\x81\n", "part.csv: row 3 is not UTF-8, and row 3 not cp1252"),
        (b"a,y\n1,2\n3,\xe4\n", "part.csv: column 'y' must hold numbers, but holds"),
        (b"", "part.csv: the file is empty"),
    ],
)
def test_bytes_that_are_no_table_are_refused_with_the_file(tmp_path, data, message):
    (tmp_path / "part.csv").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        gs.data.open_shards(tmp_path, "y")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2,3,4", "row 32 has 4 cells, expected 3 as in row 1"),
        ("1,2", "row 32 has 2 cells, expected 3 as in row 1"),
        ("", "row 32 has 1 cells, expected 3 as in row 1"),
        ('1,"2,3', "row 32 has a quote that is not closed"),
        ("1,2\r,3", "row 32 has a quote .* or a carriage return"),
        ("1,2,3\x00", "row 32 has a NUL character"),
    ],
)
def test_a_row_with_other_cells_is_refused_when_it_is_read(
    tmp_path, small_blocks, monkeypatch, line, message
):
    monkeypatch.setattr(shard_files, "_FIRST_LINES", 5)
    monkeypatch.setattr(shard_files, "_PIECE", 50)
    lines = ["a,b,y", *(["1,2,3"] * 30), line, *(["1,2,3"] * 9)]
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "part.csv").write_bytes("\n".join(lines).encode())
    opened = gs.data.open_shards(folder, "y")
    assert opened.num_rows == 40
    for read in (opened.moments, lambda: opened.hold_out(39)):
        with pytest.raises(ValueError, match=f"part.csv: {message}"):
            read()


@pytest.mark.parametrize("mark", [",", "|"])
def test_quotes_of_columns_that_are_left_out_are_no_cells(tmp_path, small_blocks, mark):
    cells = [f'"x{mark}""{mark}y"', '5" or 6', '""', '"a"']
    rows = [mark.join([repr(float(i)), cells[i % 4], "2.5"]) for i in range(20)]
    write_csv(tmp_path / "rows", "\r\n".join([mark.join(["a", "text", "y"]), *rows]))
    opened = gs.data.open_shards(tmp_path / "rows", "y", columns=["a"])
    found = rows_of(opened.batches().as_numpy_iterator())
    assert_array_equal(found, np.stack([np.arange(20.0), np.full(20, 2.5)], 1))


def test_a_saved_index_and_the_encoding_of_the_files_are_said(tmp_path, small_blocks):
    values = made_rows(30)
    frame = pd.DataFrame(values, columns=["größe", "b", "y"])
    (tmp_path / "0.csv").write_bytes(frame[:10].to_csv().encode("cp1252"))
    (tmp_path / "1.csv").write_text(frame[10:].to_csv(sep="|"), encoding="utf-8")
    opened = gs.data.open_shards(tmp_path, "y")
    assert opened.column_names == ("größe", "b")
    assert_array_equal(rows_of(opened.batches().as_numpy_iterator()), values)
    starts = [note.split(",")[0].split(":")[0] for note in opened.notes]
    assert starts == ["the text is read as cp1252", "the first column has no name"]


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_an_index_in_arrow_files_is_no_input(tmp_path, kind):
    pa = pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = made_rows(30)
    table = pa.Table.from_pandas(pd.DataFrame(values, columns=NAMES)[::-1])
    table = table.append_column("__index_level_1__", pa.array(range(30)))
    {"parquet": parquet.write_table, "feather": feather.write_feather}[kind](
        table, tmp_path / f"a.{kind}"
    )
    opened = gs.data.open_shards(tmp_path, "y")
    assert opened.column_names == ("a", "b")
    assert_array_equal(rows_of(opened.batches().as_numpy_iterator()), values[::-1])
    assert "'__index_level_1__' is a row index" in opened.notes[-1]


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet", "feather"])
@pytest.mark.parametrize("change", ["columns", "order", "rows", "empty", "gone"])
def test_a_file_that_was_replaced_is_no_longer_read(tmp_path, small_blocks, kind, change):
    if kind in ("parquet", "feather"):
        pytest.importorskip("pyarrow")
    values, folder = made_rows(60), tmp_path / "rows"
    opened = gs.data.open_shards(folder, write(folder, values, kind)).standardized()
    path = opened_paths(opened)[1]
    if change == "gone":
        path.unlink()
    elif change == "empty":
        path.write_bytes(b"")
    else:
        other = {
            "columns": np.hstack([values, values])[:, :4],
            "order": values[:, ::-1],
            "rows": values[:-2],
        }[change]
        write_part(path, other[20:41], list("abcdy")[: other.shape[1]])
        os.utime(path, ns=(0, 10**18))  # the clock of a file system may be coarse
    for read in (opened.moments, lambda: list(opened.batches().as_numpy_iterator())):
        with pytest.raises(
            (ValueError, tf.errors.InvalidArgumentError), match=f"{path}.* has changed since"
        ):
            read()


def test_a_number_too_large_to_be_squared_is_named(tmp_path, small_blocks):
    values = made_rows(60)
    values[30, 0] = 1e300
    for kind in ("npy", "csv"):
        opened = gs.data.open_shards(tmp_path / kind, write(tmp_path / kind, values, kind))
        name = opened.column_names[0]
        for read in (opened.standardized, lambda opened=opened: opened.hold_out(59)):
            with pytest.raises(ValueError, match=rf"part-1.*below 1e\+151 .* 1 in column '{name}'"):
                read()


def test_missing_cells_are_counted_by_file_and_column(tmp_path, small_blocks):
    values = made_rows(60)
    values[[3, 25, 29, 31], [1, 0, 0, 2]] = np.nan
    values[26, 1] = np.inf
    write(tmp_path / "rows", values, "npy")
    opened = gs.data.open_shards(tmp_path / "rows", "c2")
    with pytest.raises(ValueError) as error:
        opened.standardized()
    first, second = str(error.value).splitlines()
    assert "part-0.npy" in first
    assert "1 in column 'c1'" in first
    assert "part-1.npy" in second
    assert "2 in column 'c0', 1 in column 'c1', 1 in column 'c2'" in second
    with pytest.raises(ValueError, match=r"part-.\.npy: every cell must be a finite number"):
        rows_of(opened.shuffled(60)(step) for step in range(1))


def test_a_missing_pyarrow_is_explained(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    found = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("pyarrow"):
            raise ImportError("no pyarrow")
        return found(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"needs pyarrow .*pip install pyarrow"):
        gs.data.open_shards(tmp_path, "y")


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.npy", "a.npz"])
def test_a_damaged_file_is_named(tmp_path, name):
    if name[2:] in ("parquet", "feather"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(gzip.compress(b"nothing"))
    with pytest.raises(ValueError, match=rf"{name}: not a readable|{name}: the .npz file"):
        gs.data.open_shards(tmp_path, "y")


def svgp(num_data):
    kernel = gpflow.kernels.SquaredExponential()
    Z = np.random.default_rng(5).normal(size=(4, 2))
    return gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), Z, num_data=num_data)


def test_fit_takes_the_steps_of_a_data_set_of_these_batches(table):
    opened = table[0].standardized()
    batch, first, second = opened.shuffled(20, seed=7), svgp(100), svgp(100)
    gs.training.fit(first, opened, batch_size=20, num_steps=4, seed=7)
    batches = tf.data.Dataset.from_generator(
        lambda: map(batch, range(4)), output_signature=opened.batches().element_spec
    )
    gs.training.fit(second, batches, num_steps=4)
    assert_allclose(first.q_mu.numpy(), second.q_mu.numpy(), rtol=1e-12)
    assert first.q_mu.numpy().any()
    with pytest.raises(ValueError, match="num_data=100"):
        gs.training.fit(svgp(99), opened, batch_size=20, num_steps=1)


@pytest.mark.nightly
def test_a_resumed_run_ends_with_the_same_bits(table, tmp_path):
    opened = table[0].standardized()
    options = {"batch_size": 9, "seed": 2, "deterministic": True, "natural_gradients": True}
    whole, halves = svgp(100), svgp(100)
    gs.training.fit(whole, opened, num_steps=20, **options)
    options |= {"checkpoint_dir": tmp_path / "run", "checkpoint_every": 5}
    gs.training.fit(halves, opened, num_steps=13, **options)
    halves = svgp(100)
    gs.training.fit(halves, opened, num_steps=20, resume=True, **options)
    for first, second in zip(whole.variables, halves.variables, strict=True):
        assert_array_equal(first.numpy(), second.numpy())
    other = opened.part(0, 2)
    with pytest.raises(ValueError):
        gs.training.fit(svgp(other.num_rows), other, num_steps=20, resume=True, **options)


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["True", "False"], "True"),
        (["FALSE", ""], "False"),
        (["1", "true"], "true"),
        (["1_000", "2"], "1_000"),
        (["\uff11", "2"], "\uff11"),
    ],
)
@pytest.mark.parametrize("place", ["first", "later"])
def test_cells_that_a_table_takes_for_labels_are_refused(
    tmp_path, small_blocks, cells, found, place
):
    lines = ["a,y", *(["1,2"] * (0 if place == "first" else 140))]
    lines += [f"{cells[i % 2]},{i}" for i in range(14)]
    match = f"part-0.csv: column 'a' must hold numbers, but holds {found!r}"
    folder = write_csv(tmp_path / "rows", "\n".join(lines))
    with pytest.raises(ValueError, match=match):
        gs.data.open_shards(folder, "y").moments()


def test_numbers_are_those_of_the_table_of_one_file(tmp_path):
    cells = ["01", "12345678901234567890123", "5\u00a0", '" 7"', "1E-5", ".5", "+2.", "1e400"]
    for i, cell in enumerate(cells):
        folder = write_csv(tmp_path / str(i), f"a,y\n{cell},1\n3,2\n")
        table = gs.data.read_table(folder / "part-0.csv") if cell != "1e400" else None
        expected = np.array([[np.inf], [3.0]]) if table is None else table.X[:, :1]
        opened = gs.data.open_shards(folder, "y")
        assert_array_equal(opened.files[0].read(0, ["a"]), expected)
