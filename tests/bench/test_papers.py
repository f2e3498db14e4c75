"""The harness of the papers' tables: what is run, kept, resumed and refused, with invented fits."""

import dataclasses
import json
import types

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from bench.papers import PAPER_NAMES, data_splits, harness, training
from bench.papers.spec import Paper, PaperRun, Row, load_paper
from gpflow_sparse.data import Dataset
from gpflow_sparse.numerics import linalg
from gpflow_sparse.training import FitState, TrainingError, adam

RMSE = {  # by row and data set, split by split
    ("plain", "left"): [1.0, 2.0, 3.0],
    ("plain", "right"): [0.25, 0.75],
    ("fancy", "left"): [0.5, 2.5],
}
LEFT, RIGHT = ("left",), ("right",)
ROWS = (
    Row("plain", "Plain GP", {"order": 0}, ("left", "right"), splits={"default": 3, "right": 2}),
    Row("fancy", "Fancy GP", {"order": 1}, LEFT, splits=2),
    Row("late", "Late GP", {"order": 2}, RIGHT, "b", splits=1),
)
PAPER = Paper(
    name="tiny",
    title="A tiny table",
    citation="Nobody (2018)",
    datasets=("left", "right"),
    rows={"small": ROWS},
    fit="tiny",
    read="tiny",
    protocol="As it was done.",
    columns={"RMSE": ["rmse", ".4g", "spread"], "NLPD": ["nlpd", ".3f"]},
    published={"Theirs": {"left": {"RMSE": "1.5 ± 0.5"}}},
)
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


def make_dataset(name, split):
    rng = np.random.default_rng(split)
    X, Y = rng.normal(size=(12, 4)), 30.0 + 5.0 * rng.normal(size=(12, 1))
    pairs = (X[:9], Y[:9]), (X[9:], Y[9:])
    return Dataset(name, *pairs, tuple("abcd"), "y", None).standardized()


class Tiny:
    """A paper whose rows return the scores above; the tasks and budgets they got are kept."""

    def __init__(self):
        self.calls, self.budgets, self.fails, self.paper = [], [], {}, PAPER

    def fit(self, options, dataset, budget):
        task = self.paper.rows["small"][options["order"]].key, dataset.name, budget.seed
        self.calls.append(task)
        self.budgets.append(budget)
        if task in self.fails:
            raise self.fails[task]
        rmse = RMSE.get(task[:2], [9.0] * 9)[budget.seed]
        steps = {} if budget.steps is None else {"steps": budget.steps}
        return {"rmse": rmse, "nlpd": 10.0 + budget.seed, "curve": [[1, 0.5]], **steps}

    def run(self, folder, minutes=10.0, **changes):
        return harness.run_paper(PaperRun(self.paper, "small", folder, **changes), minutes)

    def change(self, **changes):
        """Other budgets of all rows."""
        rows = [dataclasses.replace(row, **changes) for row in self.paper.rows["small"]]
        self.paper = dataclasses.replace(self.paper, rows={"small": rows})


@pytest.fixture
def tiny(monkeypatch):
    paper = Tiny()
    monkeypatch.setitem(harness.FITS, "tiny", paper.fit)
    monkeypatch.setitem(data_splits.READERS, "tiny", make_dataset)
    return paper


def lines(folder):
    return [json.loads(line) for line in (folder / "tiny.jsonl").read_text().splitlines()]


def write(folder, *records):
    (folder / "tiny.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def cells(folder, start):
    """The cells of the one line of the page that starts so."""
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
        assert record["config"] == {"order": [r.key for r in ROWS].index(record["row"])}
        assert (record["num_train"], record["num_test"]) == (9, 3)
        assert 0.0 < record["task_seconds"] < 1.0
    checksums = {(r["dataset"], r["split"]): r["checksum"] for r in records}
    assert len(set(checksums.values())) == 3  # of three splits
    page = (tmp_path / "tiny.md").read_text()
    assert page.startswith(
        "# A tiny table\n\nWritten by `python docs/benchmarks/run.py paper tiny --size "
    )
    assert "9 training and 3 test rows, splits 0, 1, 2." in page
    assert cells(tmp_path, "| Plain GP | 2 ± 0.8165")[1:] == ["2 ± 0.8165", "11.000"]
    assert cells(tmp_path, "| *paper: Theirs* |")[1:] == ["1.5 ± 0.5", ""]
    assert "Not run yet" not in page


def test_what_is_done_is_not_done_again(tiny, tmp_path):
    tiny.run(tmp_path, splits=(1,))
    assert tiny.calls == [task for task in ORDER if task[2] == 1]
    before = lines(tmp_path)
    tiny.run(tmp_path, datasets=LEFT, rows=("plain",))
    assert tiny.calls[3:] == [("plain", "left", 0), ("plain", "left", 2)]
    assert lines(tmp_path)[:3] == before
    tiny.run(tmp_path)
    assert sorted(tiny.calls) == sorted(ORDER)


def test_nothing_is_begun_when_the_time_is_over(tiny, tmp_path, capsys):
    assert tiny.run(tmp_path, minutes=1e-9) == tiny.calls == []
    assert capsys.readouterr().err.count("no time left (not measured)") == len(ORDER)
    page = (tmp_path / "tiny.md").read_text()
    assert "continues with Plain GP (left, 3 splits, right, 2 splits);" in page


def test_steps_and_epochs_are_budgets(tiny, tmp_path):
    tiny.change(epochs=5, splits=None, options={"order": 0, "batch_size": 4})
    first = tiny.run(tmp_path, datasets=LEFT, rows=("plain",))
    assert tiny.budgets[0].steps == first[0]["steps"] == 12  # 45 rows, 4 at a time
    np.testing.assert_allclose(first[0]["epochs"], 12 * 4 / 9)
    # rows that are not run now may have other steps
    both = tiny.run(tmp_path, steps=7, rows=("fancy",))
    assert [record["steps"] for record in both] == [12, 7]
    with pytest.raises(ValueError, match="row plain of 12 steps: take the same --steps"):
        tiny.run(tmp_path, steps=7)
    with pytest.raises(ValueError, match="split 0: take the same --splits"):
        tiny.run(tmp_path, splits=(1,))
    with pytest.raises(ValueError, match=r"splits must be at most one for tiny; got \(0, 1\)"):
        tiny.run(tmp_path, splits=(0, 1))


def test_tasks_that_fail_are_recorded_and_the_others_go_on(tiny, tmp_path, monkeypatch):
    tiny.fails = {
        ("plain", "left", 1): TrainingError("no optimum\nanywhere"),
        ("fancy", "left", 0): linalg.FactorizationError("Kuu is not positive definite"),
    }
    with pytest.raises(tf.errors.InvalidArgumentError) as holes:
        tf.debugging.check_numerics(np.nan, "Lvv has holes")
    tiny.fails["late", "right", 0] = holes.value
    monkeypatch.setitem(RMSE, ("plain", "right"), [0.25, np.nan])
    tiny.run(tmp_path)
    records = {(r["row"], r["dataset"], r["split"]): r for r in lines(tmp_path)}
    assert records["plain", "left", 1]["message"] == "no optimum"
    assert records["fancy", "left", 0]["message"] == "Kuu is not positive definite"
    assert records["late", "right", 0]["message"].startswith("Lvv has holes")
    assert "not finite" in records["plain", "right", 1]["message"]
    assert sum(r["status"] == "failed" for r in records.values()) == 4
    assert "- Plain GP, left, split 1: no optimum" in (tmp_path / "tiny.md").read_text()
    assert cells(tmp_path, "| Plain GP | 2 ± 1 |")
    tiny.run(tmp_path)
    assert len(tiny.calls) == len(ORDER)


def test_records_of_other_options_and_damaged_ones_are_refused(tiny, tmp_path):
    first, *others = tiny.run(tmp_path, splits=(0,))
    older = {**first, "config": {"order": 0, "datasets": ["left"], "steps": 9}}
    write(tmp_path, older, *others)  # older records say on what a row is run, too
    assert len(tiny.run(tmp_path, splits=(0,))) == 1 + len(others)
    write(tmp_path, {**first, "config": {"order": 9}}, *others)
    with pytest.raises(ValueError, match=r"holds a row plain of \{'order': 9\}: delete it, or cho"):
        tiny.run(tmp_path)
    for text in ("{", "{}", "[1]", "3", json.dumps({**first, "config": 3})):
        (tmp_path / "tiny.jsonl").write_text(text + "\n")
        with pytest.raises(ValueError, match=r"line 1 of .* is damaged"):
            tiny.run(tmp_path)


# Training within a budget.


@pytest.fixture
def svgp():
    X = np.random.default_rng(0).normal(size=(40, 2))
    kernel, likelihood = gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian()
    return gpflow.models.SVGP(kernel, likelihood, X[:5], num_data=40), (X, np.sin(X[:, :1]))


def budget_of(folder, steps=None, seconds=None, deadline=np.inf):
    return training.Budget(steps, seconds, 0, folder, deadline)


def train(model, data, budget, score=lambda model: {"nlpd": 0.0}):
    monitor = training.Monitor(budget, score)
    return training.train(model, data, monitor, adam(0.05), {"batch_size": 16})


def state(step, elbo=0.0):
    return FitState(step, elbo, None)


def test_a_row_that_would_end_too_late_is_given_up_without_checkpoints(svgp, tmp_path, monkeypatch):
    deadline = training.time.perf_counter() + 60.0
    with pytest.raises(training.DoesNotFitError, match=r"no time left \(.* h expected\)"):
        train(*svgp, budget_of(tmp_path / "tiny" / "row", 10**9, deadline=deadline))
    assert not (tmp_path / "tiny").exists()


def test_scores_on_the_way_are_not_training(tmp_path, monkeypatch):
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(training.time, "perf_counter", lambda: clock.now)

    def slow(model):
        clock.now += 30.0
        return {"nlpd": 1.5}

    monitor = training.Monitor(budget_of(tmp_path, 10, 60.0), slow)
    for step in (1, 2):
        clock.now += 1.0
        assert not monitor(state(step))
    assert [point["step"] for point in monitor.curve] == [1, 2]
    assert monitor.seconds == 2.0
    np.testing.assert_allclose(monitor.fraction, 0.2, rtol=1e-6)
    # a long step fills the points that it missed
    clock.now += 28.0
    assert not monitor(state(3, -7.0))
    assert [point["step"] for point in monitor.curve] == [1, 2, 3, 3, 3]
    assert monitor.curve[-1]["elbo"] == -7.0
    again = training.Monitor(budget_of(tmp_path, 10, 60.0), slow)
    again.set_state(json.loads(json.dumps(monitor.get_state())))
    np.testing.assert_allclose(again.fraction, 0.5)
    clock.now += 40.0
    assert again(state(4))
    assert [point["step"] for point in again.curve] == [1, 2, 3, 3, 3] + [4] * 5
    # a step that is taken again is in the curve once
    monitor(state(3))
    assert [point["step"] for point in monitor.curve][:2] == [1, 2]


def test_every_paper_can_be_read():
    for name in PAPER_NAMES:
        paper = load_paper(name)
        assert paper.fit in harness.FITS
        assert paper.read in data_splits.READERS
        for rows in paper.rows.values():
            assert len({row.key for row in rows}) == len(rows)
            for row in rows:
                assert set(row.datasets) <= set(paper.datasets)
                assert json.loads(json.dumps(row.options)) == row.options
                assert not row.compared or row.compared in paper.published
