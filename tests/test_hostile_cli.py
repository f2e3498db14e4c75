"""Hostile files at the doors of the command line; see ``hostile_cli``."""

from tests.hostile_cli import FILES, matrix


def test_files_are_refused_in_one_line_or_give_finite_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = list(matrix())
    assert len(FILES) > 25
    assert [entry for entry in found if entry[2] not in ("e", "ok")] == []
    assert sum(verdict == "ok" for *_, verdict, _ in found) > 15
