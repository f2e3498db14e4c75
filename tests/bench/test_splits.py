"""A paper's table over several splits: what is run, kept, gone on with, and printed."""

import json
from pathlib import Path

import numpy as np
import pytest

from gpflow_sparse import data
from gpflow_sparse.bench.papers import PAPERS, runner
from gpflow_sparse.bench.papers.spec import PaperRun, Row
from gpflow_sparse.bench.papers.splits import SplitsPaper, SplitsSize
from gpflow_sparse.bench.papers.splits_table import Published
from gpflow_sparse.data import Dataset
from gpflow_sparse.training import TrainingError

RMSE = {  # by row and data set, split by split
    ("plain", "left"): [1.0, 2.0, 3.0],
    ("plain", "right"): [0.25, 0.75],
    ("fancy", "left"): [0.5, 2.5],
}
ROWS = (
    Row("plain", "Plain GP", {"order": 1}, "a"),
    Row("fancy", "Fancy GP", {"order": 2}, "a"),
    Row("late", "Late GP", {"order": 3}, "b"),
)


def make_dataset(name, split):
    rng = np.random.default_rng(split)
    X, Y = rng.normal(size=(12, 4)), 30.0 + 5.0 * rng.normal(size=(12, 1))
    return Dataset(name, (X[:9], Y[:9]), (X[9:], Y[9:]), tuple("abcd"), "y", None)


class Tiny:
    """A paper whose rows return the numbers above; what they were given is kept."""

    def __init__(self):
        self.calls = []
        self.fails = {}
        counts = {"plain": {"left": 3, "right": 2}, "fancy": {"left": 2}, "late": {"right": 1}}
        self.paper = SplitsPaper(
            name="tiny",
            title="A tiny table",
            citation="Nobody (2018)",
            datasets=("left", "right"),
            sizes={"small": SplitsSize(ROWS, counts)},
            published={
                "Theirs": {"left": Published("1.5 ± 0.5", "0.01"), "right": Published("0.4 ± 0.0")},
                "Others": {"left": Published("3 ± 1"), "right": Published("0.50 ± 0.01")},
            },
            notes=("As it was done.",),
            fit=self.fit,
            compared={"plain": "Theirs", "fancy": "Others", "late": "Theirs"},
            details={"size": ("num_basis", ".0f")},
        )

    def fit(self, options, dataset, split):
        row = {1: "plain", 2: "fancy", 3: "late"}[options["order"]]
        self.calls.append((row, dataset.name, split))
        np.testing.assert_allclose(dataset.train[1].std(), 1.0)  # standardized
        if (row, dataset.name, split) in self.fails:
            raise self.fails[row, dataset.name, split]
        rmse = RMSE.get((row, dataset.name), [9.0])[split]
        return {
            "rmse": rmse,
            "nlpd": 10.0 + split,
            "coverage_95": 0.9,
            "seconds": 2.0,
            "num_basis": 7 + split,
            "num_columns": 4,
        }

    def run(self, folder, minutes=10.0, **changes):
        return runner.run_paper(PaperRun(self.paper, "small", Path(folder), **changes), minutes)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(data, "load", make_dataset)
    return Tiny()


ORDER = [
    ("plain", "left", 0),
    ("fancy", "left", 0),
    ("plain", "left", 1),
    ("fancy", "left", 1),
    ("plain", "left", 2),
    ("plain", "right", 0),
    ("plain", "right", 1),
    ("late", "right", 0),
]


def lines(folder):
    return [json.loads(line) for line in (folder / "tiny.jsonl").read_text().splitlines()]


def cells(folder, start):
    """The cells of the one line of the table that starts so."""
    text = (folder / "tiny.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_all_rows_of_a_split_come_before_its_next_split(tiny, tmp_path):
    records = tiny.run(tmp_path)
    assert tiny.calls == ORDER
    assert [(r["row"], r["dataset"], r["split"]) for r in records] == ORDER
    assert records == lines(tmp_path)
    for record in records:
        assert record["status"] == "done"
        assert record["config"] == {"order": 1 + [r.key for r in ROWS].index(record["row"])}
        assert (record["num_train"], record["num_test"]) == (9, 3)
        assert 0.0 < record["task_seconds"] < 1.0
    checksums = {(r["dataset"], r["split"]): r["checksum"] for r in records}
    assert len(set(checksums.values())) == 3  # of three splits


def test_what_is_done_is_not_done_again(tiny, tmp_path):
    tiny.run(tmp_path, splits=(1,))
    assert tiny.calls == [task for task in ORDER if task[2] == 1]
    before = lines(tmp_path)
    tiny.run(tmp_path, datasets=("left",), rows=("plain",))
    assert tiny.calls[3:] == [("plain", "left", 0), ("plain", "left", 2)]
    assert lines(tmp_path)[:3] == before
    tiny.run(tmp_path)
    assert sorted(tiny.calls) == sorted(ORDER)


def test_the_table_has_means_and_deviations_beside_the_published_ones(tiny, tmp_path):
    tiny.run(tmp_path)
    text = (tmp_path / "tiny.md").read_text()
    assert text.startswith("# A tiny table\n\nWritten by `gpflow-sparse bench paper tiny --size ")
    assert "As it was done." in text
    overview = "| left | 12 | 4 |"
    ours = ["2 ± 0.82 (3)", "1.5 ± 1 (2)", "–"]
    assert cells(tmp_path, overview)[3:] == [*ours, "1.5 ± 0.5", "3 ± 1"]
    assert cells(tmp_path, "| right | 12 | 4 |")[3:6] == ["0.5 ± 0.25 (2)", "–", "9 (1)"]
    numbers = ["11.000", "0.900", "2.0"]
    # the deviation of three splits, the mean within one of the paper's: 2 <= 1.5 + 0.5
    assert cells(tmp_path, "| left | 2 ± 0.82 (3) | 1.5")[2:] == (
        ["1.5 ± 0.5", "yes", *numbers, "36", "8"]
    )
    # beside the first row on the two splits that this one was run on
    assert cells(tmp_path, "| left | 1.5 ± 1 (2) |")[2:5] == ["1.5 ± 0.5 (2)", "3 ± 1", "yes"]
    # 0.5 is above 0.4 in the paper's digits, and no time was published
    assert cells(tmp_path, "| right | 0.5 ± 0.25 (2) |")[2:] == (
        ["0.4 ± 0.0", "no", "10.500", "0.900", "2.0", "", "8"]
    )
    assert "Theirs, or better, on 1 of 2 data sets." in text
    assert "Others, or better, on 1 of 1 data sets." in text
    assert "Not run yet" not in text


@pytest.mark.parametrize(
    ("published", "rmse", "reached"),
    [
        ("0.005 ± 0.000", 0.00549, True),
        ("0.005 ± 0.000", 0.00551, False),
        ("0.20 ± 0.00", 0.2049, True),
        ("1.386 ± 0.14", 1.526, True),
        ("1.386 ± 0.14", 1.5266, False),
        ("35 ± 4", 39.4, True),
        ("0.1 ± 0.2", 0.3, True),
    ],
)
def test_published_digits_decide(published, rmse, reached):
    assert Published(published).reached_by(rmse) is reached


def test_nothing_is_begun_when_the_time_is_over(tiny, tmp_path, capsys):
    assert tiny.run(tmp_path, minutes=1e-9) == []
    assert tiny.calls == []
    assert capsys.readouterr().err.count("no time left (not measured)") == len(ORDER)
    left = cells(tmp_path, "| Plain GP | left |")
    assert left[2:] == ["3", "not measured"]
    assert cells(tmp_path, "| left | – |") == ["left", *["–"] * 5, "1.5 ± 0.5", "3 ± 1"]


def test_a_split_is_not_begun_when_another_took_too_long(tiny, tmp_path, capsys):
    record, *_ = tiny.run(tmp_path, splits=(0,), rows=("plain",), datasets=("left",))
    slow = {**record, "task_seconds": 3000.0}
    (tmp_path / "tiny.jsonl").write_text(json.dumps(slow) + "\n")
    tiny.run(tmp_path)
    assert [task for task in tiny.calls if task[:2] == ("plain", "left")] == [("plain", "left", 0)]
    assert len(lines(tmp_path)) == len(ORDER) - 2
    assert "no time left (50 min for a split)" in capsys.readouterr().err
    assert cells(tmp_path, "| Plain GP | left |")[2:] == ["2", "100 min"]


def test_a_split_that_fails_is_recorded_and_the_others_go_on(tiny, tmp_path, monkeypatch):
    tiny.fails["plain", "left", 1] = TrainingError("no optimum\nanywhere")
    monkeypatch.setitem(RMSE, ("plain", "right"), [0.25, np.nan])
    tiny.run(tmp_path)
    records = {(r["row"], r["dataset"], r["split"]): r for r in lines(tmp_path)}
    assert records["plain", "left", 1]["message"] == "no optimum"
    assert "not finite" in records["plain", "right", 1]["message"]
    assert sum(r["status"] == "failed" for r in records.values()) == 2
    text = (tmp_path / "tiny.md").read_text()
    assert "- Plain GP, left, split 1: no optimum" in text
    assert cells(tmp_path, "| left | 2 ± 1 (2) |")
    tiny.run(tmp_path)
    assert len(tiny.calls) == len(ORDER)


def test_records_of_other_options_are_refused(tiny, tmp_path):
    tiny.run(tmp_path, splits=(0,))
    first, *others = lines(tmp_path)
    changed = {**first, "config": {"order": 9}}
    text = "".join(json.dumps(record) + "\n" for record in (changed, *others))
    (tmp_path / "tiny.jsonl").write_text(text)
    with pytest.raises(
        ValueError, match=r"holds rows plain of \{'order': 9\}: delete them, or choose"
    ):
        tiny.run(tmp_path)
    (tmp_path / "tiny.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match=r"line 1 of .* is damaged"):
        tiny.run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 3}, "steps mean nothing to tiny"),
        ({"splits": (0, 3)}, "splits must be among 0 to 2; got 3"),
        ({"datasets": ("middle",)}, "datasets must be among left, right; got 'middle'"),
    ],
)
def test_wrong_choices_are_named(tiny, tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        tiny.run(tmp_path, **changes)


def test_the_other_kind_of_paper_takes_one_split(tmp_path):
    with pytest.raises(ValueError, match=r"splits must be at most one for solvegp.* got \(0, 1\)"):
        PaperRun(PAPERS["solvegp"], "small", tmp_path, splits=(0, 1))
