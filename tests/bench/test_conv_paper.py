"""The image tables: what is run of them, and rows that are trained for so long on tiny data."""

import dataclasses
import json
import time
import types

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.bench.papers import PAPERS, runner, timed_runner
from gpflow_sparse.bench.papers.budget import TimedTraining
from gpflow_sparse.bench.papers.spec import PaperRun, Row, Size
from gpflow_sparse.data import load
from gpflow_sparse.models import SOLVEGP, DeepGP
from gpflow_sparse.numerics import linalg
from tests.runs.test_conv_images import make_dataset

PAPER = PAPERS["conv"]


@pytest.fixture
def models():
    from gpflow_sparse.bench.papers import conv_models

    return conv_models


def shrunk(row):
    model = dict(row.options["model"])
    layers = len(model["architecture"])
    model["architecture"] = [[3, 1, 2]] * (layers - 1) + [[2, 1, None]]
    model["num_inducing"] = 6
    model["num_orthogonal"] = 5 if model["num_orthogonal"] else 0
    options = {"model": model, "batch_size": 16, "minutes": 60.0, "num_watched": 7, "splits": 2}
    return dataclasses.replace(row, options={**row.options, **options})


def tiny(*keys):
    rows = [row for row in PAPER.sizes["small"].rows if not keys or row.key in keys]
    sizes = {"small": Size(tuple(map(shrunk, rows)))}
    return dataclasses.replace(PAPER, sizes=sizes, read=lambda name, split: make_dataset())


def run(paper, folder, minutes=1000.0, steps=4, **changes):
    return runner.run_paper(PaperRun(paper, "small", folder, steps, **changes), minutes)


def test_what_is_run(tmp_path):
    found = {}
    for task in PaperRun(PAPER, "small", tmp_path).tasks():
        found.setdefault(task.dataset, []).append((task.row.key, task.split))
    digits = ("digits-solvegp", "digits-svgp", "digits-svgp-double")
    assert sorted(found["digits"]) == [(key, split) for key in digits for split in range(5)]
    assert found["mnist"] == [("mnist-1", 0), ("mnist-2", 0)]
    cifar = ("svgp", "solvegp", "svgp-double", "2", "3")
    assert found["cifar10_20k"] == [(f"cifar-{name}", 0) for name in cifar]
    for size in ("small", "full"):
        for row in PAPER.sizes[size].rows:
            options = dict(row.options)
            assert json.loads(json.dumps(options)) == options  # as the results are compared
            (dataset,) = {n for n in PAPER.datasets if n == options["dataset"]}
            assert dataset in PAPER.datasets
    last = PaperRun(PAPER, "small", tmp_path, splits=(4,)).tasks()
    assert {task.dataset for task in last} == {"digits"}


def test_sizes_are_those_that_the_titles_say():
    titles = {row.key: row.title for size in PAPER.sizes.values() for row in size.rows}
    assert titles["digits-solvegp"].startswith("SOLVE-GP ")
    assert titles["cifar-2"].endswith(", 2 layers")
    assert titles["solvegp-1"] == "SOLVE-GP 1000+1000"
    assert titles["svgp-double-2"] == "SVGP 768, 2000, 2 layers"
    deepest = "SOLVE-GP 384+384, 384+384, 1000+1000, 3 layers"
    assert titles["solvegp-3"] == deepest
    assert deepest in PAPER.published
    rows = {row.key: row.options["model"] for row in PAPER.sizes["small"].rows}
    single, double = (rows[f"cifar-{key}"]["num_inducing"] for key in ("svgp", "svgp-double"))
    assert double == 2 * single == 2 * rows["cifar-solvegp"]["num_orthogonal"]


def test_the_published_numbers_are_those_of_the_paper():
    """Tables 1 and 3 as printed; the log-likelihoods of 3 layers are those of table 10."""
    printed = {
        "SVGP 1000": (66.07, -1.59, 0.241),
        "SVGP 1600": (67.18, -1.54, 0.380),
        "SOLVE-GP 1000+1000": (68.19, -1.51, 0.370),
        "SVGP 2000": (68.06, -1.48, 0.474),
        "SVGP 384, 1000, 2 layers": (76.35, -1.04, 0.392),
        "SOLVE-GP 384+384, 1000+1000, 2 layers": (77.80, -0.98, 0.657),
        "SVGP 768, 2000, 2 layers": (77.46, -0.98, 1.104),
        "SVGP 384, 384, 1000, 3 layers": (78.76, -0.88, 0.418),
        "SOLVE-GP 384+384, 384+384, 1000+1000, 3 layers": (80.30, -0.79, 0.752),
        "SVGP 768, 768, 2000, 3 layers": (80.33, -0.82, 1.246),
    }
    assert set(PAPER.published) == set(printed)
    for title, (accuracy, log_likelihood, seconds) in printed.items():
        for cells in PAPER.published[title].values():
            assert float(cells["accuracy, %"]) == accuracy
            assert float(cells["NLPD"]) == -log_likelihood
            np.testing.assert_allclose(float(cells["ms per step"]), 1000.0 * seconds)


@pytest.mark.parametrize("key", ["digits-solvegp", "cifar-3"])
def test_every_kind_of_row_runs(tmp_path, key):
    (record,) = run(tiny(key), tmp_path, splits=(0,))
    assert record["status"] == "done", record
    assert (record["steps"], record["num_train"], record["num_test"]) == (4, 30, 10)
    assert record["num_watched"] == 7
    assert 0.0 <= record["accuracy"] <= 100.0
    assert len(record["curve"]) == 10
    assert record["curve"][-1]["step"] == 4
    assert gpflow.default_float() is np.float64
    page = (tmp_path / "conv.md").read_text()
    assert f"| {record['title']} | 1 | {record['accuracy']:.2f} | {record['nlpd']:.4f} |" in page
    assert ("*paper: SVGP 1000*" in page) == ("cifar" in key)
    name = f"conv-{record['dataset']}.png"
    assert f"![Learning curves]({name})" in page
    assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    assert not (tmp_path / "checkpoints").exists()


def test_models_are_as_their_rows_say(models):
    X = make_dataset().train[0]
    rows = {row.key: shrunk(row).options["model"] for row in PAPER.sizes["small"].rows}
    likelihood = gpflow.likelihoods.MultiClass(3)
    made = {
        key: models.build(X, (6, 6, 1), likelihood, 0, rows[key])
        for key in ("digits-solvegp", "cifar-svgp", "mnist-2")
    }
    assert isinstance(made["digits-solvegp"], SOLVEGP)
    assert made["digits-solvegp"].inducing_variable.sizes == (6, 5)
    assert made["cifar-svgp"].inducing_variable.sizes == (6,)
    assert isinstance(made["mnist-2"], DeepGP)
    assert made["mnist-2"].layers[0].output_shape == (4, 4, 2)
    assert {model.num_data for model in made.values()} == {30}


def invented(options, dataset, training):
    """A result without training."""
    point = {"step": 4, "seconds": 1.0, "elbo": -3.0, "accuracy": 90.0, "nlpd": 0.5}
    scores = {"accuracy": 97.0 + training.seed, "nlpd": 0.1, "ece": 0.01, "num_watched": 7}
    took = {"steps": training.most_steps, "training_seconds": 60.0, "milliseconds_per_step": 5.0}
    return scores | took | {"curve": [point] * 10}


def test_splits_are_gathered_and_finished_rows_kept(tmp_path):
    paper = dataclasses.replace(tiny("digits-solvegp"), fit=invented)
    first = run(paper, tmp_path, splits=(0,))
    both = run(paper, tmp_path)
    assert both[0] == first[0]
    assert [record["split"] for record in both] == [0, 1]
    header, (line,) = paper.summary(both)
    cells = dict(zip(header, line, strict=True))
    assert cells["splits"] == "2"
    assert cells["accuracy, %"] == "97.50 ± 0.50"
    assert cells["minutes"] == "1.0"
    assert "Not run yet" not in (tmp_path / "conv.md").read_text()
    with pytest.raises(ValueError, match="with --steps 4: take the same"):
        run(paper, tmp_path, steps=5)
    (row,) = paper.sizes["small"].rows
    other = dataclasses.replace(row, options={**row.options, "learning_rate": 1.0})
    changed = dataclasses.replace(paper, sizes={"small": Size((other,))})
    with pytest.raises(ValueError, match="holds a row digits-solvegp"):
        run(changed, tmp_path)
    with pytest.raises(ValueError, match="splits must be among 0 to 1; got 2"):
        run(paper, tmp_path, splits=(2,))


def test_a_row_that_would_end_too_late_is_not_begun(tmp_path, capsys):
    paper = tiny("digits-solvegp", "cifar-svgp")
    assert run(paper, tmp_path, minutes=50.0) == []
    assert "no time left (60 min)" in capsys.readouterr().err
    page = (tmp_path / "conv.md").read_text()
    assert "## Not run yet" in page
    for row in paper.sizes["small"].rows:
        assert f"| {row.title} | {row.options['dataset']} | 2 | 120 min |" in page


def test_a_row_that_fails_is_kept_as_one(tmp_path):
    def fail(options, dataset, training):
        raise linalg.FactorizationError("Kuu is not positive definite")

    paper = dataclasses.replace(tiny("digits-solvegp"), fit=fail)
    (record,) = run(paper, tmp_path, splits=(0,))
    assert (record["status"], record["message"]) == ("failed", "Kuu is not positive definite")
    (row,) = paper.sizes["small"].rows
    assert f"- {row.title}, digits, split 0: Kuu" in (tmp_path / "conv.md").read_text()


def train(folder, model, data, *, seconds=60.0, most_steps=None, score=None):
    return timed_runner.train(
        model,
        data,
        TimedTraining(seconds, most_steps, 0, folder),
        learning_rate=0.05,
        batch_size=16,
        natural_gradients=0.0,
        score=score or (lambda model: {"nlpd": 0.0}),
    )


@pytest.fixture
def small():
    X = np.random.default_rng(0).normal(size=(40, 2))
    kernel, likelihood = gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian()
    return gpflow.models.SVGP(kernel, likelihood, X[:5], num_data=40), (X, np.sin(X[:, :1]))


def test_training_ends_when_its_time_is_over(small, tmp_path):
    record = train(tmp_path / "row", *small, seconds=0.01)
    assert record["steps"] == 1  # which took longer
    assert record["training_seconds"] > 0.01
    assert [point["step"] for point in record["curve"]] == [1] * 10


def test_looks_are_not_counted():
    def slow(model):
        time.sleep(0.3)
        return {"nlpd": 1.5}

    clock = timed_runner.Clock(60.0, 10, slow)
    for step in (1, 2):
        clock(types.SimpleNamespace(step=step, elbo=0.0, model=None))
    assert len(clock.points) == 2
    assert clock.seconds < 0.2
    np.testing.assert_allclose(clock.fraction, 0.2, rtol=1e-6)


def test_an_interrupted_row_goes_on_with_its_time_and_its_curve(small, tmp_path):
    model, data = small
    looks = []

    def interrupt(model):
        looks.append(model)
        if len(looks) == 6:  # after 150 steps; checkpoints are written every hundred
            raise KeyboardInterrupt
        return {"nlpd": float(len(looks))}

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "row", model, data, most_steps=250, score=interrupt)
    assert any((tmp_path / "row").glob("checkpoint-*"))
    fresh = gpflow.utilities.deepcopy(model)
    record = train(tmp_path / "row", fresh, data, most_steps=250)
    assert record["steps"] == 250
    assert [point["step"] for point in record["curve"]] == [25 * k for k in range(1, 11)]
    assert [point["nlpd"] for point in record["curve"]] == [1.0, 2.0, 3.0, 4.0] + [0.0] * 6


def test_the_rate_rises_and_falls_with_the_time():
    fraction = tf.Variable(0.0, dtype=tf.float32)
    rate = timed_runner.TimedCosine(0.2, fraction)
    np.testing.assert_allclose(rate(tf.constant(0)), 0.2 / 20, rtol=1e-6)
    np.testing.assert_allclose(rate(tf.constant(9)), 0.1, rtol=1e-6)
    for gone, expected in ((0.0, 0.2), (1 / 3, 0.15), (0.5, 0.1), (1.0, 0.0)):
        fraction.assign(gone)
        np.testing.assert_allclose(rate(tf.constant(500)), expected, atol=1e-8)


def test_a_long_step_fills_the_looks_that_it_missed():
    clock = timed_runner.Clock(100.0, None, lambda model: {"nlpd": 2.0})
    clock._since = time.perf_counter() - 35.0
    assert not clock(types.SimpleNamespace(step=1, elbo=-7.0, model=None))
    assert [point["step"] for point in clock.points] == [1, 1, 1]
    assert clock.points[0]["elbo"] == -7.0
    np.testing.assert_allclose(clock.fraction, 0.35, atol=1e-3)
    again = timed_runner.Clock(100.0, None, lambda model: {"nlpd": 2.0})
    again.set_state(json.loads(json.dumps(clock.get_state())))
    again._since = time.perf_counter() - 70.0
    assert again(types.SimpleNamespace(step=2, elbo=-5.0, model=None))
    assert [point["step"] for point in again.points] == [1] * 3 + [2] * 7
    np.testing.assert_allclose(again.seconds, 105.0, atol=0.1)


def test_scores_are_those_of_the_model(models):
    data = make_dataset()
    X, Y = data.test
    likelihood = gpflow.likelihoods.MultiClass(3)
    options = {"architecture": [[3, 1, None]], "num_inducing": 6, "num_orthogonal": 5}
    model = models.build(data.train[0], (6, 6, 1), likelihood, 0, options)
    rng = np.random.default_rng(1)
    for q_mu, _ in model.variational_parameters:
        q_mu.assign(rng.normal(size=q_mu.shape))
    found = models.scores_of(models.CachedModel(model), X, Y)
    np.testing.assert_allclose(found["nlpd"], -np.mean(model.predict_log_density((X, Y))))
    right = np.argmax(model.predict_y(X)[0], axis=1) == Y[:, 0]
    np.testing.assert_allclose(found["accuracy"], 100.0 * right.mean())


def test_digits_are_split_by_class(models):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    found = models.read("digits", 3)
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(X, y, test_size=0.2, stratify=y, random_state=3)
    np.testing.assert_array_equal(found.train[1][:, 0], parts[2])
    np.testing.assert_array_equal(found.test[1][:, 0], parts[3])
    pixels = (parts[1] - parts[0].mean()) / parts[0].std()
    np.testing.assert_allclose(found.test[0], pixels, atol=1e-12)
    assert found.image_shape == load("digits").image_shape


def test_rows_of_the_full_size_have_the_papers_layers():
    rows = {row.key: row for row in PAPER.sizes["full"].rows}
    assert isinstance(rows["svgp-1"], Row)
    assert rows["solvegp-2"].options["model"] == {
        "architecture": [[5, 1, 10], [4, 2, None]],
        "num_inducing": [384, 1000],
        "num_orthogonal": [384, 1000],
    }
    three = rows["solvegp-3"].options["model"]["architecture"]
    assert three == [[5, 1, 10], [4, 2, 10], [5, 1, None]]
    assert {row.options["learning_rate"] for row in rows.values()} == {0.003}
    assert {row.options["batch_size"] for row in rows.values()} == {64}
