"""Files of more rows than fit into memory are converted once, into matrices on disk."""

import gpflow
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import gpflow_sparse as gs
from gpflow_sparse.tables.reading import folders
from gpflow_sparse.tables.reading.tables import read_frame
from gpflow_sparse.tables.reading.targets import split_target

NUM_ROWS = 100


def made_frame(num_rows=NUM_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.normal(5.0, 2.0, num_rows), "n": rng.integers(50, size=num_rows)}
    )
    frame["city"] = rng.choice(["Bern", "Rome", "Oslo"], num_rows)
    frame["day"] = pd.date_range("2024-01-01", periods=num_rows, freq="D")
    return frame.assign(y=frame["a"] - frame["n"] + 1000.0)


def write(folder, frame, kind="csv", parts=3):
    """The rows in some files."""
    folder.mkdir(exist_ok=True)
    for i, part in enumerate(np.array_split(np.arange(len(frame)), parts)):
        rows, path = frame.iloc[part].reset_index(drop=True), folder / f"part-{i}.{kind}"
        if kind == "csv":
            rows.to_csv(path, index=False)
        elif kind == "parquet":
            rows.to_parquet(path)
        else:
            rows.to_feather(path)
    return folder


def original(shards):
    """Inputs and outputs in original units, in the order of the outputs."""
    units = shards.standardizer
    X = shards.X * units.x_scale.numpy() + units.x_mean.numpy()
    Y = shards.Y * units.y_scale.numpy() + units.y_mean.numpy()
    order = np.argsort(Y[:, 0])
    return X[order], Y[order]


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of seven rows, and columns that are learned from the first 90."""
    monkeypatch.setattr(folders, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(folders, "_FIRST_ROWS", 90)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_the_rows_of_a_folder_are_those_of_one_table(tmp_path, small_blocks, kind):
    frame = made_frame()
    shards = gs.data.open_shards(write(tmp_path / "rows", frame, kind))
    assert isinstance(shards.X, np.memmap)
    assert (shards.X.dtype, shards.Y.shape) == (np.float32, (NUM_ROWS, 1))
    X, Y = original(shards)
    order = np.argsort(frame["y"].to_numpy())
    assert_allclose(Y[:, 0], frame["y"].to_numpy()[order], rtol=1e-6)
    assert_allclose(X, shards.encoder.transform(frame)[order], rtol=1e-5, atol=1e-5)
    assert_allclose(shards.X.mean(axis=0), 0.0, atol=1e-6)
    assert_allclose(shards.X.std(axis=0), 1.0, atol=1e-6)
    names = list(shards.encoder.get_feature_names_out())
    assert names[:6] == ["a", "n", "city=Bern", "city=Oslo", "city=Rome", "day"]
    assert any("'city' is a category of 3 levels" in note for note in shards.notes)


def test_the_last_rows_are_random_ones(tmp_path, small_blocks):
    write(tmp_path / "rows", pd.DataFrame({"a": np.arange(1000.0), "y": np.arange(1000.0)}))
    shards = gs.data.open_shards(tmp_path / "rows")
    assert repr(shards) == "Shards(num_rows=1000, num_columns=1)"
    order = np.argsort(np.argsort(shards.X[:, 0]))
    assert_array_equal(order[:500], np.sort(order[:500]))
    assert abs(order[500:].mean() - 500.0) < 40.0
    assert abs(np.corrcoef(order[500:], np.arange(500))[0, 1]) < 0.2
    rest, (X, Y) = shards.hold_out(300)
    last, (X2, _) = rest.hold_out(150)
    assert (rest.num_rows, last.num_rows, X.dtype) == (700, 550, np.float64)
    assert_array_equal(X, Y)  # equal columns
    rows = np.concatenate([last.X, X2, X])[:, 0]
    assert_array_equal(np.sort(rows), np.sort(shards.X[:, 0]))
    other = gs.data.open_shards(tmp_path / "rows", seed=1).hold_out(300)[1][0]
    assert len(np.intersect1d(X, other)) < 200
    with pytest.raises(ValueError, match="num_rows must be from 1 to 500, got 501"):
        shards.hold_out(501)


def test_a_folder_is_converted_once_until_a_file_changes(tmp_path, monkeypatch):
    folder = write(tmp_path / "rows", made_frame())
    first = gs.data.open_shards(folder, "y")
    monkeypatch.setattr(folders, "_convert", None)
    for again in (folder, str(folder / "part-*.csv"), sorted(folder.glob("*.csv"))):
        assert_array_equal(gs.data.open_shards(again, "y").X, first.X)
    monkeypatch.undo()
    made_frame(40, seed=1).to_csv(folder / "part-1.csv", index=False)
    assert gs.data.open_shards(folder, "y").num_rows == NUM_ROWS - 33 + 40
    assert len(list((folder / ".gpflow_sparse").iterdir())) == 2
    named = gs.data.open_shards(folder, "y", cache=tmp_path / "cache")
    assert [path.is_dir() for path in (tmp_path / "cache").iterdir()] == [True]
    assert named.num_rows == NUM_ROWS + 7


@pytest.mark.parametrize("at", ["raw", "x.npy", "record.json"])
def test_an_interrupted_conversion_is_never_taken_for_a_whole_one(tmp_path, monkeypatch, at):
    folder, convert = write(tmp_path / "rows", made_frame()), folders._convert

    def interrupted(files, place, *asked):
        convert(files, place, *asked)
        (place / at).unlink(missing_ok=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gs.data.open_shards(folder)
    assert list((folder / ".gpflow_sparse").iterdir()) == []
    (folder / ".gpflow_sparse" / "unfinished-of-a-killed-process").mkdir()
    monkeypatch.undo()
    assert gs.data.open_shards(folder).num_rows == NUM_ROWS


def test_inputs_are_chosen_by_name(tmp_path):
    folder = write(tmp_path / "rows", made_frame())
    shards = gs.data.open_shards(folder, "n", columns=["y", "a"])
    assert list(shards.encoder.get_feature_names_out()) == ["y", "a"]
    assert shards.target.name == "n"
    with pytest.raises(ValueError, match=r"columns must be a column of .*part-0.csv, got 'z'"):
        gs.data.open_shards(folder, "n", columns=["z"])
    with pytest.raises(ValueError, match="columns must be inputs beside the target 'n'"):
        gs.data.open_shards(folder, "n", columns=["n", "a"])


def test_labels_and_outputs_in_their_own_units(tmp_path):
    frame = made_frame()
    folder = write(tmp_path / "rows", frame)
    labels = gs.data.open_shards(folder, "city")
    assert labels.target.levels == ("Bern", "Oslo", "Rome")
    assert sorted(set(labels.Y[:, 0])) == [0.0, 1.0, 2.0]
    assert labels.standardizer.y_mean is None
    counts = gs.data.open_shards(folder, "n", standardize_outputs=False)
    assert_array_equal(np.sort(counts.Y[:, 0]), np.sort(frame["n"]))


def test_classes_that_the_first_rows_lack_are_an_error_or_left_out(tmp_path, small_blocks):
    frame = made_frame().assign(y=lambda rows: np.where(np.arange(len(rows)) < 95, "p", "q"))
    frame.loc[:50, "y"] = "r"
    folder = write(tmp_path / "rows", frame, parts=1)
    with pytest.raises(ValueError, match="target 'y' has classes that its first rows lack, such"):
        gs.data.open_shards(folder)
    shards = gs.data.open_shards(folder, drop_bad=True)
    assert len(shards.X) == 95
    assert "5 rows of all files without 'y' are not used." in shards.notes


def test_cells_that_cannot_be_read_are_counted_over_all_files(tmp_path, small_blocks):
    frame = made_frame().astype({"a": object, "y": object})
    frame.loc[95:98, "a"] = ["x", "12 kg", None, "x"]
    frame.loc[99, "y"] = None
    shards = gs.data.open_shards(write(tmp_path / "rows", frame, parts=1))
    assert shards.num_rows == NUM_ROWS - 1
    assert "1 rows of all files without 'y' are not used." in shards.notes
    assert shards.notes[-1] == (
        "4 cells of 'a' in all files are set to the median of the first rows; it has 3 cells that "
        "are not numbers, such as 'x', '12 kg'."
    )
    frame.loc[98, "y"] = "none of it"
    folder = write(tmp_path / "more", frame, parts=1)
    with pytest.raises(ValueError, match=r"part-0.csv: target 'y' has 1 cell that is not a number"):
        gs.data.open_shards(folder)
    assert gs.data.open_shards(folder, drop_bad=True).num_rows == NUM_ROWS - 2


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a,y\n1,2\n3,4\n", "a,z\n1,2\n"], r"part-1.csv must have the columns of .* lacks y, z"),
        (["a,y\n1,2\n3,4\n", "a,y\n1,2,3\n"], "part-1.csv: row 2 has 3 cells"),
        (["a,y\n1,2\n3,4\n", "a,y\n1,\xff\n"], "part-1.csv is not utf-8 text"),
        (["a,y\n1,2\n3,4\n" * 9, 'a,y\n1,"2\n3,4\n'], "part-1.csv: the quote .* is never closed"),
        (["a,y\n1,2\n3,4\n", ""], "part-1.csv: the first row is empty"),
        (["a,y\n1e300,2\n3,4\n"], "part-0.csv: 1e.300 is too large to be squared, in column 'a'"),
        (["a,y\n1,2\n1,4\n"], "X must have a column that varies"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, texts, message):
    for i, text in enumerate(texts):
        (tmp_path / f"part-{i}.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        gs.data.open_shards(tmp_path)
    assert list((tmp_path / ".gpflow_sparse").iterdir()) == []


def test_other_paths_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"paths must be \.csv, \.parquet, \.feather files"):
        gs.data.open_shards(tmp_path)
    write(tmp_path, made_frame(), "csv", 1)
    write(tmp_path, made_frame(), "parquet", 1)
    with pytest.raises(ValueError, match=r"files of one kind, .* got \.csv, \.parquet"):
        gs.data.open_shards(tmp_path)
    with pytest.raises(ValueError, match="cache must be a folder that can be written"):
        gs.data.open_shards(tmp_path / "part-0.csv", cache=tmp_path / "part-0.parquet")


def test_models_train_on_the_rows_and_stream_them(tmp_path):
    shards = gs.data.open_shards(write(tmp_path / "rows", made_frame()), "y", columns=["a", "n"])
    found = []
    for data in (shards.data, tuple(np.array(part, np.float64) for part in shards.data)):
        Z = np.array(shards.X[:8], np.float64)
        kernel = gpflow.kernels.Matern52()
        model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), Z, num_data=NUM_ROWS)
        gs.training.fit(model, data, batch_size=30, num_steps=6, progress=False)
        softki = gs.models.SoftKI(gpflow.kernels.Matern52(), Z)
        softki.fit_posterior(data)
        grief = gs.models.GRIEF(data, gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]))
        found.append(
            (model.q_mu.numpy()[0, 0], softki.predict_f(Z)[0].numpy(), grief.elbo().numpy())
        )
    for first, second in zip(*found, strict=True):
        assert_allclose(first, second, rtol=1e-6)


def test_a_folder_and_a_file_have_one_reading(tmp_path):
    frame = made_frame()
    folder = write(tmp_path / "rows", frame, parts=1)
    inputs, target = split_target(read_frame(folder / "part-0.csv"), "y")
    shards = gs.data.open_shards(folder, "y")
    expected = gs.estimators.TableEncoder().fit(inputs)
    assert shards.encoder.columns_ == expected.columns_
    assert_allclose(original(shards)[1][:, 0], np.sort(target.values), rtol=1e-6)
