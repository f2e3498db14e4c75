"""Runs of the command line on a folder of files."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_sparse.data import shard_files
from gpflow_sparse.tables.cli.config import RunConfig
from gpflow_sparse.tables.cli.folders import load_folder
from gpflow_sparse.tables.cli.rows import checksum, load_data
from tests.tables.cli.command_line import ALONE, last_json, read_by, run  # noqa: F401


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three files of 400 rows, whose first column is the number of the row."""
    monkeypatch.setattr(shard_files, "_BLOCK_ROWS", 100)
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, size=1200)
    y = 50.0 + 10.0 * np.sin(x) + rng.normal(size=1200)
    rows = np.stack([np.arange(1200.0), x, y], 1)
    (tmp_path / "rows").mkdir()
    for i in range(3):
        np.save(tmp_path / "rows" / f"part-{i}.npy", rows[400 * i : 400 * (i + 1)])
    return tmp_path / "rows", rows


def test_every_row_is_in_one_part_and_statistics_are_those_of_training(folder):
    path, rows = folder
    dataset = load_folder(RunConfig.of_method("svgp", data=str(path)))
    training = np.concatenate(
        [np.hstack(batch) for batch in dataset.shards.batches().as_numpy_iterator()]
    )
    scaler = dataset.standardizer
    parts = [training[:, :-1], dataset.test[0], dataset.held_out[0]]
    numbers = [X[:, 0] * scaler.x_scale.numpy()[0] + scaler.x_mean.numpy()[0] for X in parts]
    assert [len(part) for part in numbers] == [1020, 120, 60]
    assert_allclose(np.sort(np.concatenate(numbers)), np.arange(1200), atol=1e-9)
    kept = rows[np.round(numbers[0]).astype(int)]
    assert_allclose(scaler.x_mean.numpy(), kept[:, :2].mean(axis=0), rtol=1e-12)
    assert_allclose(scaler.y_scale.numpy(), kept[:, 2].std(), rtol=1e-12)
    assert_allclose(training[:, -1], (kept[:, 2] - kept[:, 2].mean()) / kept[:, 2].std())
    known = {tuple(row) for row in training[:, :-1]}
    assert len(dataset.train[0]) == 1019
    assert {tuple(row) for row in dataset.train[0]} <= known


def test_units_of_noise_with_heavy_tails_are_not_set_by_outliers(folder):
    path, rows = folder
    rows[5::100, 2] = 1e6
    np.save(path / "part-0.npy", rows[:400])
    recipe = {"data": str(path), "likelihood": "student_t"}
    dataset = load_folder(RunConfig.of_method("svgp", **recipe))
    assert dataset.shards.standardizer is dataset.standardizer
    assert 5.0 < dataset.standardizer.y_scale.numpy()[0] < 15.0  # of y without outliers 7
    assert np.abs(np.median(dataset.train[1])) < 0.1


def test_a_folder_is_read_in_the_same_way_again(folder):
    config = RunConfig.of_method("svgp", data=str(folder[0]))
    first, second = load_data(config), load_data(config)
    assert checksum(first) == checksum(second)
    assert_array_equal(first.test[0], second.test[0])
    other = load_data(RunConfig.of_method("svgp", data=str(folder[0]), split=1))
    assert checksum(other) != checksum(first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "grief"}, "method must be one of softki, .* for a folder, got grief"),
        ({"method": "auto"}, "method must be one of"),
        ({"task": "classification"}, "task must be regression for a folder"),
        ({"transform": "log"}, "transform must be none for a folder"),
    ],
)
def test_what_needs_all_rows_in_memory_is_refused(folder, options, message):
    config = RunConfig.of_method(**{"data": str(folder[0]), "method": "svgp"} | options)
    with pytest.raises(ValueError, match=message):
        load_folder(config)


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["solvegp", "softki", "swsgp"])
def test_methods_are_trained_on_a_folder(folder, run, method):  # noqa: F811
    sizes = ["--num-inducing", "20", "--num-orthogonal", "10", "--num-steps", "60"]
    sizes = read_by(method, sizes)
    arguments = ["fit", "--data", "rows", "--method", method, *sizes, *ALONE, "--output", "out"]
    code, out, err = run(*arguments)
    assert code == 0, err
    record = last_json(out)
    counts = [record["dataset"][name] for name in ("num_train", "num_test", "target_name")]
    assert counts == [1020, 120, "c2"]
    assert "1020 training and 120 test rows" in err
    assert record["results"][0]["rmse"] < 4.0  # 7.1 with the mean alone, 1 with the function
    code, out, err = run("evaluate", "--model", "out", "--report", "page")
    assert code == 0, err
    assert_allclose(last_json(out)["rmse"], record["results"][0]["rmse"], rtol=1e-8)
    page = (folder[0].parent / "page" / "index.html").read_text()
    assert "Measured on 120 test rows, which were not trained on." in page


def test_booleans_are_no_target_of_a_folder(tmp_path):
    (tmp_path / "rows").mkdir()
    np.save(tmp_path / "rows" / "part.npy", np.eye(30) > 0.5)
    config = RunConfig.of_method("svgp", data=str(tmp_path / "rows"))
    with pytest.raises(ValueError, match=r"'c29' must hold numbers in a folder, got booleans: wri"):
        load_folder(config)
