"""The benchmark of memory on tables that are read from files."""

import pandas as pd
import pytest

from bench import large_tables


def test_files_that_are_complete_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(large_tables, "_FILE_ROWS", 40)
    large_tables.make_folder(tmp_path, 100, 3)
    shards = large_tables.open_folder(tmp_path)
    assert (shards.X.shape, len(list(tmp_path.glob("*.parquet")))) == ((100, 3), 3)
    kept = pd.read_parquet(tmp_path / "part-00000.parquet") + 1.0
    kept.to_parquet(tmp_path / "part-00000.parquet")
    (tmp_path / "part-00002.parquet").unlink()
    large_tables.make_folder(tmp_path, 100, 3)
    assert large_tables.open_folder(tmp_path).num_rows == 100
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "part-00000.parquet"), kept)


@pytest.mark.nightly
def test_each_method_is_measured_and_files_are_removed(tmp_path):
    rows = large_tables.large([2000, 4000], 8, 512, 3, tmp_path / "made")["rows"]
    assert [row["title"] for row in rows[:4]] == ["conversion", "SOLVE-GP", "SoftKI", "GRIEF"]
    assert [row["num_rows"] for row in rows] == [2000] * 4 + [4000] * 4
    assert all(row["ratio"] == 1.0 for row in rows[:4])
    assert all(row["peak"] > 0.0 for row in rows)
    assert list((tmp_path / "made").iterdir()) == []
