"""The benchmark of memory on tables that are read from files."""

import numpy as np
import pytest

from bench import large_tables


def test_files_that_are_complete_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(large_tables, "_FILE_ROWS", 40)
    large_tables.make_folder(tmp_path, 100, 3)
    shards = large_tables.open_folder(tmp_path)
    assert (shards.num_rows, shards.num_columns, len(shards.files)) == (100, 3, 3)
    np.save(tmp_path / "part-00000.npy", np.ones((40, 4)))
    (tmp_path / "part-00002.npy").unlink()
    large_tables.make_folder(tmp_path, 100, 3)
    assert large_tables.open_folder(tmp_path).num_rows == 100
    assert np.load(tmp_path / "part-00000.npy").max() == 1.0


@pytest.mark.nightly
def test_each_method_is_measured_and_files_are_removed(tmp_path):
    rows = large_tables.large([2000, 4000], 8, 512, 3, tmp_path / "made")["rows"]
    assert [row["title"] for row in rows[:4]] == ["standardization", "SOLVE-GP", "SoftKI", "GRIEF"]
    assert [row["num_rows"] for row in rows] == [2000] * 4 + [4000] * 4
    assert all(row["ratio"] == 1.0 for row in rows[:4])
    assert all(row["peak"] > 0.0 for row in rows)
    assert list((tmp_path / "made").iterdir()) == []
