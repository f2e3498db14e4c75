"""A paper's table: what is run, kept, gone on with, and printed."""

import contextlib
import dataclasses
import itertools
import json

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse import initialization
from gpflow_sparse.bench.papers import PAPERS, runner, stepwise_runner
from gpflow_sparse.bench.papers.budget import DoesNotFitError, duration
from gpflow_sparse.bench.papers.solvegp_models import orthogonal_regression
from gpflow_sparse.bench.papers.spec import PaperRun, Row
from gpflow_sparse.bench.papers.stepwise import StepwiseSize
from gpflow_sparse.data import Dataset
from gpflow_sparse.numerics import linalg
from gpflow_sparse.training import FitState

OPTIONS = {
    "svgp-9": {"method": "svgp", "points": [9], "whiten": True},
    "solvegp-6+4": {"method": "solvegp", "points": [6, 4], "whiten": True},
    "odvgp-6+20": {"method": "odvgp", "points": [6, 20], "num_columns": 5, "whiten": False},
}


def make_dataset(name, num_rows=150):
    """Rows in which the first column is the row's number."""
    rng = np.random.default_rng(len(name))
    X = np.column_stack([np.arange(num_rows), rng.normal(size=num_rows)])
    Y = 40.0 + 7.0 * np.sin(X[:, :1] / 20.0) + rng.normal(size=(num_rows, 1))
    return Dataset(name, (X[:100], Y[:100]), (X[100:], Y[100:]), ("a", "b"), "y", None)


class Tiny:
    """A paper of three rows and two data sets, and the models that were built for it."""

    def __init__(self):
        self.models = {}
        self.before = {}  # what to do to a model at its start, by method
        rows = tuple(
            Row(key, key.upper(), options, "first" if options["whiten"] else "second")
            for key, options in OPTIONS.items()
        )
        self.paper = dataclasses.replace(
            PAPERS["solvegp"],
            datasets=("left", "right"),
            sizes={"small": StepwiseSize(rows, 12, 100), "full": StepwiseSize(rows, None, 3)},
            batch_size=32,
            build=self.build,
            published={"SVGP 1024": {"left": (0.123, -4.567)}},
        )

    def build(self, options, X, seed):
        model = orthogonal_regression(X, seed=seed, **options)
        if options["method"] in self.before:
            self.before[options["method"]](model)
        self.models[options["method"], len(self.models)] = model
        return model

    def run(self, folder, minutes=10.0, **changes):
        run = PaperRun(self.paper, changes.pop("size", "small"), folder, **changes)
        return runner.run_paper(run, minutes)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(stepwise_runner, "load", make_dataset)
    return Tiny()


def lines(folder, stem="solvegp"):
    path = folder / f"{stem}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    ("num_rows", "published"), [(40000, 25600), (45730, 29267), (48827, 31248), (16599, 10623)]
)
def test_the_split_has_as_many_rows_as_the_papers(num_rows, published):
    dataset = make_dataset("kin40k", num_rows)
    split = stepwise_runner.split_dataset(dataset, 0)
    train, test = (pair[0][:, 0] for pair in (split.train, split.test))
    assert len(train) == published
    assert len(test) == num_rows - 4 * num_rows // 5
    assert len(np.union1d(train, test)) == len(train) + len(test)
    numbers = np.concatenate([dataset.train[0][:, 0], dataset.test[0][:, 0]]).astype(int)
    outputs = np.concatenate([dataset.train[1], dataset.test[1]])[np.argsort(numbers)]
    np.testing.assert_array_equal(split.test[1], outputs[test.astype(int)])
    other = stepwise_runner.split_dataset(dataset, 1).test[0][:, 0]
    assert abs(np.isin(other, test).mean() - 0.2) < 0.02  # as drawn anew


def test_rows_are_scored_on_the_test_rows_in_standardized_units(tiny, tmp_path):
    records = tiny.run(tmp_path, datasets=("right",))
    assert records == lines(tmp_path)
    assert [(r["row"], r["status"]) for r in records] == [(key, "done") for key in OPTIONS]
    split = stepwise_runner.split_dataset(make_dataset("right"), 0).standardized()
    X, Y = split.test
    assert len(X) == 30
    np.testing.assert_allclose(split.train[1].std(), 1.0)
    for record, model in zip(records, tiny.models.values(), strict=True):
        mean, variance = (np.asarray(t) for t in model.predict_f(X))
        variance = variance + model.likelihood.variance.numpy()
        density = -0.5 * np.log(2 * np.pi * variance) - 0.5 * (Y - mean) ** 2 / variance
        np.testing.assert_allclose(record["rmse"], np.sqrt(np.mean((Y - mean) ** 2)), rtol=1e-9)
        np.testing.assert_allclose(record["log_likelihood"], density.mean(), rtol=1e-9)
        assert record["steps"] == 12
        np.testing.assert_allclose(record["epochs"], 12 * 32 / 96)
        assert record["training_seconds"] >= 0.012 * record["milliseconds_per_step"] / 2
        assert record["config"]["points"] == OPTIONS[record["row"]]["points"]


def test_the_objective_is_that_of_the_last_steps(tiny, tmp_path):
    (record,) = tiny.run(tmp_path, datasets=("left",), rows=("svgp-9",), steps=1)
    split = stepwise_runner.split_dataset(make_dataset("left"), 0).standardized()
    start = orthogonal_regression(split.train[0], seed=0, **OPTIONS["svgp-9"])
    # one step, whose objective is the start's, on 32 of 96 rows
    assert abs(record["elbo"] / float(start.elbo(split.train)) - 1.0) < 0.3


def test_groups_are_run_on_all_data_sets_in_turn(tiny, tmp_path):
    pairs = [
        (task.row.key, task.dataset) for task in PaperRun(tiny.paper, "small", tmp_path).tasks()
    ]
    first, second = ["svgp-9", "solvegp-6+4"], ["odvgp-6+20"]
    expected = [(k, name) for keys in (first, second) for name in ("left", "right") for k in keys]
    assert pairs == expected


def test_the_table_has_the_numbers_of_the_lines_and_the_published_ones(tiny, tmp_path):
    records = tiny.run(tmp_path, rows=("svgp-9",))
    text = (tmp_path / "solvegp.md").read_text()
    for metric in ("rmse", "log_likelihood"):
        cells = " | ".join(f"{record[metric]:.3f}" for record in records)
        assert f"| SVGP-9 | {cells} |" in text
    times = (f"{r['milliseconds_per_step']:.0f} ({r['training_seconds']:.0f})" for r in records)
    assert f"| SVGP-9 | {' | '.join(times)} |" in text
    objectives = (f"{r['elbo'] / 96:.3f}" for r in records)
    assert f"| SVGP-9 | {' | '.join(objectives)} |" in text
    assert "| *paper: SVGP 1024* | 0.123 |  |" in text
    assert "| *paper: SVGP 1024* | -4.567 |  |" in text
    assert "| SOLVEGP-6+4 | – | – |" in text
    assert "| SOLVEGP-6+4 | left, right | not measured |" in text
    assert "left: 96 training and 30 test rows, 12 steps (4 epochs)" in text
    assert "validation rows are not used" in text
    assert f"{records[0]['cores']} CPU cores" in text


def test_finished_rows_are_not_run_again(tiny, tmp_path):
    tiny.run(tmp_path, rows=("svgp-9",))
    before = lines(tmp_path)
    assert len(tiny.models) == 2
    records = tiny.run(tmp_path, datasets=("left",))
    assert len(tiny.models) == 4
    assert records[:2] == before
    assert [r["row"] for r in records[2:]] == ["solvegp-6+4", "odvgp-6+20"]
    assert not (tmp_path / "checkpoints").exists()


def test_an_interrupted_row_goes_on_from_its_checkpoint(tiny, tmp_path, monkeypatch):
    options = {"datasets": ("left",), "rows": ("solvegp-6+4",), "steps": 130}
    (straight,) = tiny.run(tmp_path / "straight", **options)
    call, seen = stepwise_runner.Watch.__call__, []

    def interrupt(self, state):
        seen.append(state.step)
        call(self, state)
        if len(seen) == 110:
            raise KeyboardInterrupt

    monkeypatch.setattr(stepwise_runner.Watch, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tiny.run(tmp_path / "broken", **options)
    assert lines(tmp_path / "broken") == []
    # what a step took elsewhere does not keep a row back that is nearly done
    slow = {**straight, "dataset": "right", "milliseconds_per_step": 1e6}
    (tmp_path / "broken" / "solvegp.jsonl").write_text(json.dumps(slow) + "\n")
    _, record = tiny.run(tmp_path / "broken", **options)
    assert seen == [*range(1, 111), *range(101, 131)]
    np.testing.assert_allclose(record["rmse"], straight["rmse"], rtol=1e-6)
    np.testing.assert_allclose(record["log_likelihood"], straight["log_likelihood"], rtol=1e-6)


def test_nothing_is_begun_when_the_time_is_over(tiny, tmp_path):
    assert tiny.run(tmp_path, minutes=1e-9) == []
    assert tiny.models == {}
    assert lines(tmp_path) == []
    assert "| SVGP-9 | left, right | not measured |" in (tmp_path / "solvegp.md").read_text()


def test_a_row_that_would_end_too_late_is_timed_and_left(tiny, tmp_path, capsys):
    assert tiny.run(tmp_path, minutes=2.0, steps=10**9, rows=("svgp-9",)) == []
    assert len(tiny.models) == 1  # the second data set has no need to be timed
    assert not (tmp_path / "checkpoints").exists()
    text = (tmp_path / "solvegp.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| SVGP-9 | left ")]
    step = int(row.split("|")[3].split()[0])
    for part, name in zip(row.split("|")[2].split(","), ("left", "right"), strict=True):
        assert part.split()[0] == name
        assert part.split()[2] == "h"
        assert abs(float(part.split()[1]) - step * 1e9 / 3.6e6) <= 0.5 * 1e9 / 3.6e6 + 0.05
    assert capsys.readouterr().err.count("no time left (") == 2


@pytest.mark.parametrize(("total", "fits"), [(1021, True), (1022, False)])
def test_only_the_steps_that_are_left_count(monkeypatch, total, fits):
    clock = itertools.count(100)  # every step takes a second
    monkeypatch.setattr(stepwise_runner.time, "perf_counter", lambda: float(next(clock)))
    watch = stepwise_runner.Watch(total, 121.0)
    states = [FitState(step, 0.0, None) for step in range(1001, 1011)]
    for state in states[:8]:
        watch(state)
    assert watch.first_step == 1001
    # asked after the ninth step, at 109: twelve seconds are left, and total - 1009 steps
    with contextlib.nullcontext() if fits else pytest.raises(DoesNotFitError, match="1000 ms"):
        watch(states[8])
        watch(states[9])


def test_a_row_is_not_begun_when_it_took_too_long_before(tiny, tmp_path):
    (record,) = tiny.run(tmp_path, rows=("svgp-9",), datasets=("left",))
    slow = {**record, "milliseconds_per_step": 1e6}
    (tmp_path / "solvegp.jsonl").write_text(json.dumps(slow) + "\n")
    assert tiny.run(tmp_path, minutes=10.0, rows=("svgp-9",)) == [slow]
    assert len(tiny.models) == 1


def test_rows_that_fail_are_recorded_and_the_others_go_on(tiny, tmp_path):
    def spoil(model):
        model.q_mu.unconstrained_variable.assign(np.full(model.q_mu.shape, np.nan))

    def refuse(model):
        raise linalg.FactorizationError("Kuu is not positive definite")

    def break_off(model):
        tf.debugging.check_numerics(np.nan, "Lvv has holes")

    tiny.before = {"svgp": spoil, "solvegp": refuse, "odvgp": break_off}
    records = tiny.run(tmp_path, datasets=("left",))
    assert [r["status"] for r in records] == ["failed", "failed", "failed"]
    assert records[2]["message"].startswith("Lvv has holes")
    del tiny.before["odvgp"]
    records += tiny.run(tmp_path, datasets=("right",), rows=("odvgp-6+20",))[3:]
    assert records[3]["status"] == "done"
    assert "q_mu is not finite" in records[0]["message"]
    assert records[1]["message"] == "Kuu is not positive definite"
    text = (tmp_path / "solvegp.md").read_text()
    assert "| SVGP-9 | failed | – |" in text
    assert "- SOLVEGP-6+4, left: Kuu is not positive definite" in text
    tiny.before = {}
    assert tiny.run(tmp_path, datasets=("left",)) == records


def test_scores_that_are_not_finite_are_a_failure(tiny, tmp_path, monkeypatch):
    scores = {"rmse_standardized": np.nan, "nlpd_standardized": 1.0}
    monkeypatch.setattr(stepwise_runner, "evaluate", lambda *_: (scores, {}))
    (record,) = tiny.run(tmp_path, datasets=("left",), rows=("svgp-9",))
    assert record["status"] == "failed"
    assert "not finite" in record["message"]


def test_the_full_size_counts_epochs_and_has_files_of_its_own(tiny, tmp_path):
    (record,) = tiny.run(tmp_path, size="full", datasets=("left",), rows=("svgp-9",))
    assert record["steps"] == 9  # 3 passes over 96 rows, 32 at a time
    assert record["epochs"] == 3.0
    assert lines(tmp_path) == []
    assert lines(tmp_path, "solvegp-full") == [record]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"datasets": ("lefty",)}, "datasets must be among left, right; got 'lefty'"),
        ({"rows": ("svgp",)}, "rows must be among svgp-9, .* got 'svgp'"),
        ({"size": "huge"}, "size must be among small, full"),
        ({"steps": 0}, "steps must be positive, got 0"),
        ({"minutes": 0.0}, "minutes must be positive, got 0.0"),
        ({"minutes": float("nan")}, "minutes must be positive, got nan"),
    ],
)
def test_wrong_choices_are_named(tiny, tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        tiny.run(tmp_path, **changes)


def test_results_of_another_run_or_damaged_ones_are_refused(tiny, tmp_path):
    tiny.run(tmp_path, datasets=("left",), rows=("svgp-9",))
    with pytest.raises(ValueError, match="holds rows of 12 steps on split 0: take the same"):
        tiny.run(tmp_path, steps=13)
    with pytest.raises(ValueError, match="on split 0"):
        tiny.run(tmp_path, splits=(1,))
    for text in ("{", "{}", "[1]", "3"):
        (tmp_path / "solvegp.jsonl").write_text(text + "\n")
        with pytest.raises(ValueError, match=r"line 1 of .* is damaged"):
            tiny.run(tmp_path)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("method", ["svgp", "solvegp", "odvgp"])
def test_models_start_at_the_prior_with_the_start_that_is_written_down(rng, method, whiten):
    X = rng.normal(size=(60, 3))
    points = (8,) if method == "svgp" else (8, 5)
    model = orthogonal_regression(X, method=method, points=points, whiten=whiten, seed=3)
    np.testing.assert_allclose(float(model.prior_kl()), 0.0, atol=1e-9)
    assert model.kernel.lengthscales.numpy() == 1.0
    assert model.kernel.variance.numpy() == 1.0
    np.testing.assert_allclose(model.likelihood.variance.numpy(), 0.1)
    assert isinstance(model.kernel, gpflow.kernels.Matern32)
    assert model.whiten is whiten
    assert model.num_data == 60
    mean, variance = model.predict_f(X)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(variance, 1.0, atol=1e-5)


def test_inducing_points_of_all_methods_come_from_the_same_choice(rng):
    X = rng.normal(size=(60, 3))

    def sets(method, *points):
        model = orthogonal_regression(X, method=method, points=points, whiten=True, seed=3)
        inducing = model.inducing_variable
        return [s.Z.numpy() for s in (inducing.sets if len(points) > 1 else [inducing])]

    ((union,), (Z, O)) = sets("svgp", 13), sets("solvegp", 8, 5)
    np.testing.assert_allclose(np.sort(np.concatenate([Z, O]), 0), np.sort(union, 0), rtol=1e-9)
    (base,), (Z, O) = sets("svgp", 8), sets("odvgp", 8, 5)
    np.testing.assert_allclose(Z, base, rtol=1e-9)
    np.testing.assert_array_equal(O, initialization.random_subset(X, 5, seed=3))


def test_every_paper_has_published_numbers_for_each_of_its_data_sets():
    own = {"softki_validation", "softki_arms", "swsgp_union"}
    assert {spec.name for spec in PAPERS.values() if not spec.published} == own
    for spec in PAPERS.values():
        for scores in spec.published.values():
            # rows of some are of regression or of classification
            assert set(scores) <= set(spec.datasets)
            assert set(scores) == set(spec.datasets) or spec.name in ("conv", "qsgp", "swsgp")
        named = {name for scores in spec.published.values() for name in scores}
        unpublished = {"swsgp": {"flights2013"}, "conv": {"digits", "mnist"}}.get(spec.name, set())
        assert named == (set() if spec.name in own else set(spec.datasets) - unpublished)
        for size in spec.sizes.values():
            keys = [row.key for row in size.rows]
            assert len(set(keys)) == len(keys)


def test_durations_are_in_minutes_and_then_in_hours():
    assert duration(600.0) == "10 min"
    assert duration(18000.0) == "5.0 h"
