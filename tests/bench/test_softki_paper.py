"""The tables of SoftKI: what is run of them, and every row on a tiny data set."""

import dataclasses
import json

import gpflow
import numpy as np
import pytest

from gpflow_sparse.bench.papers import PAPERS, curves_runner, runner
from gpflow_sparse.bench.papers.spec import PaperRun, Size
from gpflow_sparse.data import Dataset, robot_arm
from gpflow_sparse.kernels import Basis, Filled
from gpflow_sparse.models import SoftKI

PAPER = PAPERS["softki"]
TINY = {"batch_size": 16, "num_inducing": 8, "epochs": 5, "steps": 19}
UCI = ["kin40k", "protein", "elevators", "keggdirected"]


@pytest.fixture
def models():
    from gpflow_sparse.bench.papers import softki_models

    return softki_models


def make_dataset(name, split=0):
    """60 training rows of a wave around 40."""
    rng = np.random.default_rng(split)
    X = rng.normal(size=(80, 2))
    wave = np.sin(2.0 * X[:, :1]) + 0.5 * np.cos(X[:, 1:]) + 0.2 * rng.normal(size=(80, 1))
    Y = 40.0 + 7.0 * wave
    return Dataset(name, (X[:60], Y[:60]), (X[60:], Y[60:]), ("a", "b"), "y", None)


def shrunk(row):
    options = {key: TINY.get(key, value) for key, value in row.options.items()}
    return dataclasses.replace(row, options=options)


def tiny(name):
    paper = PAPERS[name]
    rows = tuple(map(shrunk, paper.sizes["small"].rows))
    return dataclasses.replace(
        paper,
        sizes={"small": Size(rows)},
        read=lambda name, split: make_dataset(name, split).standardized(),
    )


def run(paper, folder, minutes=10.0, **changes):
    return runner.run_paper(PaperRun(paper, "small", folder, **changes), minutes)


def test_what_is_run(tmp_path):
    found = {}
    for name in ("softki", "softki_validation", "softki_arms", "softki_md22"):
        tasks = PaperRun(PAPERS[name], "small", tmp_path).tasks()
        found[name] = {}
        for task in tasks:
            found[name].setdefault(task.row.key, []).append(task.dataset)
    keys = ["paper", "paper-pseudo", "scalar", "tied", "uncollapsed", "svgp"]
    assert found["softki"] == dict.fromkeys(keys, UCI)
    assert found["softki_validation"] == dict.fromkeys([*keys, "tied-median"], UCI)
    arms = [f"robot_arm_{links}" for links in (10, 50, 100, 400)]
    assert found["softki_arms"] == dict.fromkeys(["tied", "sgpr", "svgp"], arms)
    molecules = list(PAPERS["softki_md22"].datasets)
    assert len(molecules) == 7
    assert found["softki_md22"] == dict.fromkeys(("paper", "tied", "svgp"), molecules)


@pytest.mark.parametrize(("num_train", "steps"), [(36000, 1758), (14939, 730), (1000, 50)])
def test_steps_are_those_of_fifty_epochs(tmp_path, num_train, steps):
    row = PAPER.sizes["small"].rows[0]
    assert PAPER.steps_for(PaperRun(PAPER, "small", tmp_path), row, num_train) == steps
    short = PaperRun(PAPER, "small", tmp_path, steps=7)
    assert PAPER.steps_for(short, row, num_train) == 7
    sgpr = PAPERS["softki_arms"].sizes["small"].rows[1]
    assert PAPER.steps_for(PaperRun(PAPER, "small", tmp_path), sgpr, num_train) == 100


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("softki", row.key) for row in PAPER.sizes["small"].rows),
        ("softki_validation", "tied-median"),
        ("softki_arms", "sgpr"),
    ],
)
def test_every_kind_of_row_runs(tmp_path, name, key):
    paper = tiny(name)
    dataset = paper.datasets[0]
    (record,) = run(paper, tmp_path, rows=(key,), datasets=(dataset,))
    assert record["status"] == "done", record
    assert [step for step, _ in record["curve"]] == list(range(1, 20))
    assert (record["steps"], record["num_train"], record["num_test"]) == (19, 60, 20)
    assert gpflow.default_float() is np.float64
    scale = make_dataset(name).standardized().standardizer.y_scale.numpy()[0]
    np.testing.assert_allclose(record["rmse"], scale * record["rmse_standardized"], rtol=1e-5)
    expected = record["nlpd_standardized"] + np.log(scale)
    np.testing.assert_allclose(record["nlpd"], expected, rtol=1e-5)
    page = (tmp_path / f"{name}.md").read_text()
    assert f"| {record['title']} | 19 |" in page
    assert not (tmp_path / "checkpoints").exists()
    assert np.size(record["lengthscales"]) == (2 if record["config"]["ard"] else 1)


@pytest.mark.nightly
def test_noise_and_temperature_are_fixed_or_learned_as_the_row_says(tmp_path):
    records = run(tiny("softki"), tmp_path, datasets=("protein",))
    found = {record["row"]: record for record in records}
    for key in ("paper", "paper-pseudo"):
        np.testing.assert_allclose(found[key]["noise_variance"], 1e-3, rtol=1e-4)
        np.testing.assert_allclose(found[key]["temperature"], 1.0, rtol=1e-6)
        assert found[key]["nlpd_as_trained"] == found[key]["nlpd_standardized"]
        assert found[key]["noise_refitted"] > 2e-3
        assert found[key]["nlpd_refitted"] < found[key]["nlpd_as_trained"]
    for key in ("scalar", "tied"):
        assert abs(found[key]["temperature"] / found[key]["config"]["temperature"] - 1.0) > 1e-3
        assert found[key]["noise_refitted"] == found[key]["noise_variance"]
        assert found[key]["nlpd_refitted"] == found[key]["nlpd_standardized"]
        assert found[key]["nlpd_refitted"] != found[key]["nlpd_as_trained"]
    assert "noise_refitted" not in found["svgp"]
    page = (tmp_path / "softki.md").read_text()
    assert "*paper: SoftKI 512* |  |  |  | 0.649 ± 0.01 |" in page


def test_scores_of_both_noises_and_of_the_filled_prior(tmp_path, models, monkeypatch):
    seen = []
    score = models._score

    def watched(model, dataset):
        seen.append((type(model.kernel), float(model.likelihood.variance.numpy())))
        return score(model, dataset)

    monkeypatch.setattr(models, "_score", watched)
    (record,) = run(tiny("softki"), tmp_path, rows=("paper",), datasets=("kin40k",))
    assert [kind for kind, _ in seen] == [Basis, Basis, Filled]
    noises = [noise for _, noise in seen]
    np.testing.assert_allclose(noises[0], 1e-3, rtol=1e-4)
    assert noises[1] == noises[2] == record["noise_refitted"]
    assert len({record[f"nlpd_{key}"] for key in ("as_trained", "refitted", "filled")}) == 3


def test_predictions_are_those_of_a_dense_gp(models):
    dataset = make_dataset("kin40k").standardized()
    X, Y = dataset.train
    options = shrunk(PAPER.sizes["small"].rows[0]).options
    model = models.build_model(X, Y, 0, options)
    assert isinstance(model, SoftKI)
    scores = models._score_softki(model, dataset, dataset.train, refit_noise=False)
    model.likelihood.variance.assign(1e-3)
    gp = gpflow.models.GPR((X, Y), Basis(model.basis), noise_variance=1e-3)
    mean, variance = (part.numpy() for part in gp.predict_y(dataset.test[0]))
    errors = dataset.test[1] - mean
    np.testing.assert_allclose(scores["rmse_standardized"], np.sqrt(np.mean(errors**2)), rtol=1e-6)
    nlpd = 0.5 * np.mean(np.log(2.0 * np.pi * variance) + errors**2 / variance)
    np.testing.assert_allclose(scores["nlpd_as_trained"], nlpd, rtol=1e-6)


@pytest.mark.nightly
def test_an_interrupted_row_goes_on_with_its_curve(tmp_path, monkeypatch):
    paper, chosen = tiny("softki"), {"rows": ("tied",), "datasets": ("kin40k",)}
    whole = run(paper, tmp_path / "whole", **chosen)[0]
    monkeypatch.setattr(curves_runner, "_CHECKPOINT_EVERY", 5)
    call = curves_runner.Watch.__call__

    def interrupt(self, state):
        call(self, state)
        if state.step == 13:
            raise KeyboardInterrupt

    monkeypatch.setattr(curves_runner.Watch, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(paper, tmp_path, **chosen)
    assert (tmp_path / "checkpoints").exists()
    monkeypatch.setattr(curves_runner.Watch, "__call__", call)
    again = run(paper, tmp_path, **chosen)[0]
    assert [step for step, _ in again["curve"]] == [step for step, _ in whole["curve"]]
    np.testing.assert_allclose(again["rmse"], whole["rmse"], rtol=1e-3)


def test_robot_arms_are_generated_and_split_by_order(models, monkeypatch):
    monkeypatch.setattr(models, "_ARM_ROWS", 50)
    dataset = models.read("robot_arm_7", 3)
    X, Y = robot_arm(50, 7, seed=3)
    scaler = dataset.standardizer
    np.testing.assert_allclose(dataset.train[0], (X[:45] - X[:45].mean(0)) / X[:45].std(0))
    np.testing.assert_allclose(scaler.inverse_outputs(dataset.test[1]), Y[45:])
    assert len(dataset.feature_names) == 7


def test_validation_holds_out_training_rows_and_forgets_the_test_rows(models, monkeypatch):
    monkeypatch.setattr(models, "load", make_dataset)
    found, whole = PAPERS["softki_validation"].read("kin40k", 2), make_dataset("kin40k", 2)
    assert (len(found.train[0]), len(found.test[0])) == (54, 6)
    scaler = found.standardizer
    back = np.concatenate(
        [
            part[0] * scaler.x_scale.numpy() + scaler.x_mean.numpy()
            for part in (found.train, found.test)
        ]
    )
    order = np.random.default_rng(2).permutation(60)
    np.testing.assert_allclose(back, whole.train[0][order])
    np.testing.assert_allclose(found.train[0].mean(axis=0), 0.0, atol=1e-12)
    outputs = scaler.inverse_outputs(found.test[1])
    np.testing.assert_allclose(outputs, whole.train[1][order[54:]])


def test_the_published_numbers_are_those_of_the_paper():
    cells = PAPER.published["SoftKI 512"]
    assert [cells[name]["RMSE, standardized"][:5] for name in UCI] == [
        *("0.237", "0.649", "0.389", "0.081")
    ]
    json.dumps([dict(row.options) for row in PAPER.sizes["small"].rows])
