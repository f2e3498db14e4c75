"""The benchmark of memory on tables that are read from files."""

import pandas as pd

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
