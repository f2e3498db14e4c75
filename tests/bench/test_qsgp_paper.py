"""The tables of QSGP: what is run of them, and one row of each kind on a tiny data set."""

import dataclasses
import json

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.bench.papers import PAPERS, binary, curves_runner, runner
from gpflow_sparse.bench.papers.spec import PaperRun, Size
from gpflow_sparse.data import Dataset
from gpflow_sparse.training import FitState

PAPER = PAPERS["qsgp"]
TINY = {
    "steps": 20,
    "batch_size": 16,
    "num_basis": 40,
    "num_leading": 6,
    "basis_batch_size": 10,
    "num_support": 8,
    "num_dense_columns": 3,
    "num_inducing": 6,
    "num_test": 20,
}


@pytest.fixture
def models():
    from gpflow_sparse.bench.papers import qsgp_models

    qsgp_models.start_hyperparameters.cache_clear()
    return qsgp_models


def make_dataset(name, split=0):
    """60 training rows of a wave around 40; or of two classes."""
    rng = np.random.default_rng(split)
    X = rng.normal(size=(80, 2))
    wave = np.sin(2.0 * X[:, :1]) + 0.5 * np.cos(X[:, 1:]) + 0.2 * rng.normal(size=(80, 1))
    Y = (wave > 0.0) * 1.0 if name == "mnist_parity" else 40.0 + 7.0 * wave
    classes = 2 if name == "mnist_parity" else None
    names = ("a", "b")
    return Dataset(name, (X[:60], Y[:60]), (X[60:], Y[60:]), names, "y", classes).standardized()


def shrunk(row):
    options = {key: TINY.get(key, value) for key, value in row.options.items()}
    return dataclasses.replace(row, options=options)


@pytest.fixture
def tiny(models):
    rows = tuple(map(shrunk, PAPER.sizes["small"].rows))
    return dataclasses.replace(PAPER, sizes={"small": Size(rows)}, read=make_dataset)


def run(paper, folder, minutes=10.0, **changes):
    return runner.run_paper(PaperRun(paper, "small", folder, **changes), minutes)


def lines(folder):
    return [json.loads(line) for line in (folder / "qsgp.jsonl").read_text().splitlines()]


def test_what_is_run(tmp_path):
    tasks = [(t.row.key, t.dataset) for t in PaperRun(PAPER, "small", tmp_path).tasks()]
    sets = ["kin40k", "protein", "keggdirected"]
    rows = ["rff0", "rff0-learned", "hybrid", "hybrid-learned", "rff100", "svgp"]
    expected = {(row, name) for row in rows for name in sets} | {("dictionary", "kin40k")}
    expected |= {("parity-1e6", "mnist_parity"), ("parity-1e7", "mnist_parity")}
    assert len(tasks) == len(set(tasks))
    assert set(tasks) == expected
    sizes = {row.key: row.options.get("num_basis") for row in PAPER.sizes["small"].rows}
    assert sizes["rff0"] == sizes["hybrid"] == sizes["rff100"] == 100_000
    assert (sizes["parity-1e6"], sizes["parity-1e7"]) == (10**6, 10**7)


@pytest.mark.parametrize("key", [row.key for row in PAPER.sizes["small"].rows])
def test_every_row_runs(tiny, tmp_path, key):
    name = "mnist_parity" if key.startswith("parity") else "kin40k"
    (record,) = run(tiny, tmp_path, rows=(key,), datasets=(name,))
    assert record["status"] == "done", record
    assert [step for step, _ in record["curve"]] == list(range(2, 21, 2))
    assert (record["steps"], record["num_train"], record["num_test"]) == (20, 60, 20)
    assert lines(tmp_path) == [record]
    assert not (tmp_path / "checkpoints").exists()
    assert gpflow.default_float() is np.float64
    page = (tmp_path / "qsgp.md").read_text()
    assert f"## {name}" in page
    assert f"| {record['title']} | 20 |" in page
    if name == "mnist_parity":
        assert record["error_rate"] == record["curve"][-1][1] != 0.5  # of the same rows
        return
    scale = make_dataset(name).standardizer.y_scale.numpy()[0]
    np.testing.assert_allclose(record["rmse"], scale * record["rmse_standardized"])
    np.testing.assert_allclose(record["nlpd"], record["nlpd_standardized"] + np.log(scale))
    closed = key in ("rff0", "rff0-learned", "hybrid", "hybrid-learned", "dictionary")
    assert ("nlpd_as_trained" in record) == closed
    assert "*paper: QSGP-0, random Fourier, learned* |  | 0.174 | 0.135 |" in page


def test_fixed_rows_keep_the_start_and_learned_ones_leave_it(tiny, tmp_path, models):
    records = run(tiny, tmp_path, rows=("rff0", "rff0-learned"), datasets=("protein",), steps=40)
    variance, lengthscales, noise = models.start_hyperparameters(make_dataset("protein"), 0)
    fixed, learned = records
    np.testing.assert_allclose(fixed["noise_variance"], noise, rtol=1e-5)
    np.testing.assert_allclose(fixed["kernel_variance"], variance, rtol=1e-5)
    np.testing.assert_allclose(fixed["lengthscales"], lengthscales, rtol=1e-5)
    assert abs(learned["kernel_variance"] / variance - 1.0) > 1e-4


def test_the_closed_form_is_applied_at_the_end(tiny, tmp_path, monkeypatch, models):
    seen = []
    update = models.QSGP.update_covariance
    monkeypatch.setattr(
        models.QSGP, "update_covariance", lambda self, X: seen.append(len(X)) or update(self, X)
    )
    (record,) = run(tiny, tmp_path, rows=("rff0",), datasets=("kin40k",))
    assert seen == [60]
    assert record["nlpd_as_trained"] != record["nlpd_standardized"]


def test_the_start_is_that_of_an_exact_gp(models, monkeypatch):
    monkeypatch.setattr(models, "_SUBSET", 25)
    dataset = make_dataset("kin40k")
    variance, lengthscales, noise = models.start_hyperparameters(dataset, 5)
    rows = np.random.default_rng(5).permutation(60)[:25]
    X, Y = (part[rows] for part in dataset.train)
    kernel = gpflow.kernels.SquaredExponential(variance, lengthscales)
    gp = gpflow.models.GPR((X, Y), kernel, noise_variance=noise)
    best = float(gp.log_marginal_likelihood())
    for parameter in gp.trainable_parameters:
        value = parameter.numpy()
        parameter.assign(1.2 * value)
        assert float(gp.log_marginal_likelihood()) < best
        parameter.assign(value)


def test_some_test_rows_are_random_and_not_repeated(models):
    dataset = make_dataset("kin40k")
    X, Y = models._subset(dataset, 7, 3)
    rows = np.random.default_rng(3).permutation(20)[:7]
    np.testing.assert_array_equal(X, dataset.test[0][rows])
    np.testing.assert_array_equal(Y, dataset.test[1][rows])
    np.testing.assert_array_equal(models._subset(dataset, 20, 3)[0], dataset.test[0])


def test_the_rate_of_the_hyperparameters(models):
    rate = models.FrozenFirst(0.4, 110, 10)
    found = [float(rate(tf.constant(step))) for step in (0, 9, 10, 60, 110)]
    np.testing.assert_allclose(found, [0.0, 0.0, 0.4, 0.2, 0.0], atol=1e-7)
    assert models.FrozenFirst(**rate.get_config()).get_config() == rate.get_config()


def test_an_interrupted_row_goes_on_with_its_curve(tiny, tmp_path, monkeypatch):
    whole = run(tiny, tmp_path / "whole", rows=("rff0",), datasets=("kin40k",))[0]
    monkeypatch.setattr(curves_runner, "_CHECKPOINT_EVERY", 5)
    call = curves_runner.Watch.__call__

    def interrupt(self, state):
        call(self, state)
        if state.step == 13:
            raise KeyboardInterrupt

    monkeypatch.setattr(curves_runner.Watch, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tiny, tmp_path, rows=("rff0",), datasets=("kin40k",))
    assert (tmp_path / "checkpoints").exists()
    assert not (tmp_path / "qsgp.jsonl").exists()
    monkeypatch.setattr(curves_runner.Watch, "__call__", call)
    again = run(tiny, tmp_path, rows=("rff0",), datasets=("kin40k",))[0]
    assert [step for step, _ in again["curve"]] == [step for step, _ in whole["curve"]]
    np.testing.assert_allclose(again["curve"][4][1], whole["curve"][4][1], rtol=0.5)


def test_a_step_taken_again_is_in_the_curve_once():
    curve = curves_runner.Curve(lambda model: model, 2)
    for step in (1, 2, 3, 4, 3, 4, 5, 6):
        curve(FitState(step, 0.0, 10.0 * step))
    assert curve.points == [[2, 20.0], [4, 40.0], [6, 60.0]]
    other = curves_runner.Curve(lambda model: model, 2)
    other.set_state(curve.get_state())
    assert other.points == curve.points


def test_a_row_that_would_end_too_late_is_not_begun(tiny, tmp_path, capsys):
    first = run(tiny, tmp_path, rows=("rff0",), datasets=("kin40k",))
    assert run(tiny, tmp_path, minutes=1e-9, rows=("svgp",), datasets=("kin40k",)) == first
    assert "no time left" in capsys.readouterr().err
    assert "## Not run yet" in (tmp_path / "qsgp.md").read_text()


def test_rows_of_other_steps_share_a_folder_but_not_the_same_row(tiny, tmp_path):
    run(tiny, tmp_path, rows=("rff0",), datasets=("kin40k",), steps=10)
    records = run(tiny, tmp_path, rows=("svgp",), datasets=("kin40k",))
    assert [record["steps"] for record in records] == [10, 20]
    with pytest.raises(ValueError, match="row rff0 of 10 steps: take the same --steps"):
        run(tiny, tmp_path, rows=("rff0",), datasets=("kin40k",))
    with pytest.raises(ValueError, match="split 0: take the same --splits"):
        run(tiny, tmp_path, splits=(1,))
    other = Size(tuple(r for r in tiny.sizes["small"].rows if r.key != "svgp"))
    with pytest.raises(ValueError, match="holds a row svgp of"):
        run(dataclasses.replace(tiny, sizes={"small": other}), tmp_path, rows=("rff0",), steps=10)
    with pytest.raises(ValueError, match="splits must be at most one for qsgp"):
        run(tiny, tmp_path, splits=(0, 1))


def test_odd_digits_are_one_and_pixels_from_zero_to_one(models, monkeypatch):
    rng = np.random.default_rng(0)

    def load(name, split):
        assert name == "mnist"
        X, Y = rng.integers(0, 256, size=(12, 784)) * 1.0, np.arange(12)[:, None] % 10 * 1.0
        return Dataset(name, (X[:8], Y[:8]), (X[8:], Y[8:]), ("p",) * 784, "label", 10)

    monkeypatch.setattr(binary, "load", load)
    dataset = models.read("mnist_parity", 0)
    assert dataset.train[1][:, 0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert (dataset.name, dataset.num_classes) == ("mnist_parity", 2)
    assert dataset.train[0].min() == 0.0
    assert 0.99 < dataset.train[0].max() <= 1.0
