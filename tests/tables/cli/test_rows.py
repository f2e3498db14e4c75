"""Rows of files for runs: what was inferred is said, and tables of too few rows are refused."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from gpflow_sparse.tables.cli.config import RunConfig
from gpflow_sparse.tables.cli.rows import load_data
from gpflow_sparse.tables.cli.terminal import print_results

INDEX = "the first column has no name: it is taken as a saved row index and not used."


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "y"])


def test_notes_of_the_file_and_of_the_table_are_both_kept(frame, tmp_path):
    frame.assign(c="x").to_csv(tmp_path / "a.csv")
    dataset = load_data(RunConfig.of_method("auto", data=str(tmp_path / "a.csv"), target="y"))
    assert dataset.feature_names == ("a", "b")
    assert dataset.notes == (INDEX,)
    assert dataset.table.notes == ("'c' is constant and not used.",)


def test_images_with_a_saved_index_are_read(frame, tmp_path):
    frame.assign(y=np.arange(40) % 2).to_csv(tmp_path / "a.csv")
    options = {"data": str(tmp_path / "a.csv"), "target": "y", "task": "classification"}
    dataset = load_data(RunConfig.of_method("conv-svgp", image_shape="1,2", **options))
    assert dataset.feature_names == ("a", "b")
    assert dataset.notes == (INDEX,)


def test_notes_of_a_folder_are_kept(frame, tmp_path):
    for i in range(2):
        frame[20 * i : 20 * i + 20].to_csv(tmp_path / f"{i}.csv")
    dataset = load_data(RunConfig.of_method("svgp", data=str(tmp_path), target="y"))
    assert dataset.feature_names == ("a", "b")
    assert dataset.notes == (INDEX,)
    scaler = dataset.standardizer
    rows = dataset.test[0] * scaler.x_scale.numpy() + scaler.x_mean.numpy()
    assert_allclose(min(abs(frame[["a", "b"]].to_numpy() - rows[0]).sum(axis=1)), 0, atol=1e-12)


@pytest.mark.parametrize("rows", ["1,2\n", "1,2\n3,4\n", "1,2\n3,4\n5,\n6,\n"])
def test_a_table_of_too_few_rows_is_refused_as_such(tmp_path, rows):
    (tmp_path / "a.csv").write_text(f"a,y\n{rows}")
    with pytest.raises(ValueError, match=r"a\.csv has too few rows: . with .* at least 3"):
        load_data(RunConfig.of_method("auto", data=str(tmp_path / "a.csv"), target="y"))


def test_an_archive_of_too_few_rows_is_refused_as_such(tmp_path):
    np.savez(tmp_path / "a.npz", x=[[1.0], [2.0]], y=[1.0, 2.0])
    for method in ("auto", "conv-svgp"):
        with pytest.raises(ValueError, match=r"a\.npz has too few rows: 2 with a target"):
            load_data(RunConfig.of_method(method, data=str(tmp_path / "a.npz")))


@pytest.mark.parametrize(
    ("num_rows", "words"), [(1, "1 row mean little"), (29, "29 rows mean little"), (30, "")]
)
def test_scores_of_few_rows_are_said_to_mean_little(capsys, num_rows, words):
    print_results([{"title": "SVGP", "rmse": 1.0}], num_rows)
    out, err = capsys.readouterr()
    assert "RMSE" in out
    assert words in err
    assert bool(err) == bool(words)
