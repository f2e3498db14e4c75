"""The models of the papers' tables: every kind of row on tiny data, and what its scores are."""

import dataclasses
import json

import gpflow
import numpy as np
import pytest

from bench.papers import data_splits, harness, models
from bench.papers.spec import PaperRun, load_paper
from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset
from gpflow_sparse.kernels import Basis
from tests.tables.methods.test_conv_images import make_dataset as make_images

TINY = {
    "batch_size": 16,
    "num_basis": 40,
    "num_leading": 6,
    "basis_batch_size": 10,
    "num_control_rows": 8,
    "num_dense_columns": 3,
    "num_inducing": 12,
    "num_neighbors": 4,
    "num_subset": 30,
    "num_eigenfunctions": 15,
    "num_rounds": 2,
    "num_iterations": 5,
    "union": 8,
    "exact_iterations": 5,
    "batches": [4, 8],
    "predicted_from": [2, 12],
    "num_watched": 7,
    "num_columns": 5,
}
CLASSES = ("flights2013", "mnist_parity")
CHECKED = {
    "solvegp": ("svgp-256-unwhitened", "odvgp-256+2048"),
    "grief": ("type2", "type1-rotated"),
    "qsgp": ("hybrid-learned", "dictionary", "parity-1e6"),
    "softki": ("paper", "uncollapsed"),
    "softki_arms": ("sgpr",),
    "swsgp": ("4-paper", "10k-chain", "digits-usage"),
    "swsgp_union": ("exact", "union-learned"),
    "conv": ("digits-solvegp",),
}


@pytest.fixture(autouse=True)
def fresh_starts():
    models.subset_start.cache_clear()
    models.exact_gp.cache_clear()


def make_dataset(name, split=0):
    """60 training rows of a wave around 40; or of two classes."""
    rng = np.random.default_rng(split)
    X = rng.normal(size=(80, 2))
    wave = np.sin(2.0 * X[:, :1]) + 0.5 * np.cos(X[:, 1:]) + 0.2 * rng.normal(size=(80, 1))
    Y = (wave > 0.0) * 1.0 if name in CLASSES else 40.0 + 7.0 * wave
    classes = 2 if name in CLASSES else None
    return Dataset(name, (X[:60], Y[:60]), (X[60:], Y[60:]), ("a", "b"), "y", classes)


def options_of(paper, key):
    """The options of a row, with small sizes."""
    row = next(row for row in load_paper(paper).rows["small"] if row.key == key)
    options = {name: TINY.get(name, value) for name, value in row.options.items()}
    if "points" in options and paper == "solvegp":
        options["points"] = [6, 9][: len(options["points"])]
    if "model" in options and paper == "conv":
        hidden = len(options["model"]["architecture"]) - 1
        sizes = {"num_inducing": 6, "num_orthogonal": 5}
        architecture = [[3, 1, 2]] * hidden + [[2, 1, None]]
        options["model"] = options["model"] | sizes | {"architecture": architecture}
    return options


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("paper", "key"),
    [(paper, key) for paper, keys in CHECKED.items() for key in keys],
)
def test_every_kind_of_row_is_trained_scored_and_printed(paper, key, tmp_path, monkeypatch):
    given = load_paper(paper)
    row = next(row for row in given.rows["small"] if row.key == key)
    minutes = row.minutes and 60.0
    chosen = dataclasses.replace(row, options=options_of(paper, key), splits=1, minutes=minutes)
    tiny = dataclasses.replace(given, rows={"small": [chosen]}, read="tiny")

    def read(name, split):
        return make_images() if paper == "conv" else make_dataset(name, split).standardized()

    monkeypatch.setitem(data_splits.READERS, "tiny", read)
    steps = None if paper == "grief" else 20
    run = PaperRun(tiny, "small", tmp_path, steps, datasets=(row.datasets[0],))
    (record,) = harness.run_paper(run, 1000.0)
    assert record["status"] == "done", record
    assert json.loads((tmp_path / f"{paper}.jsonl").read_text()) == record
    assert gpflow.default_float() is np.float64
    page = (tmp_path / f"{paper}.md").read_text()
    assert f"| {row.title} |" in page or f"## {row.title}" in page
    assert not (tmp_path / "checkpoints").exists()
    if steps and key != "exact" and paper != "solvegp":
        assert [point["step"] for point in record["curve"]] == list(range(2, 21, 2))
    if paper in ("qsgp", "softki", "swsgp", "grief") and row.datasets[0] not in CLASSES:
        scale = make_dataset("").standardized().standardizer.y_scale.numpy()[0]
        np.testing.assert_allclose(record["rmse"], scale * record["rmse_standardized"], rtol=1e-5)
        expected = record["nlpd_standardized"] + np.log(scale)
        np.testing.assert_allclose(record["nlpd"], expected, rtol=1e-5, atol=1e-5)


# Starts.


@pytest.mark.parametrize(
    ("method", "whiten"),
    [("svgp", True), ("svgp", False), ("solvegp", False), ("odvgp", True)],
)
def test_rows_of_solvegp_start_at_the_prior_as_their_page_says(rng, method, whiten):
    X = rng.normal(size=(60, 3))
    options = {"method": method, "points": [8, 5], "whiten": whiten}
    model = models.orthogonal_regression(options, (X, X), 3)
    np.testing.assert_allclose(float(model.prior_kl()), 0.0, atol=1e-9)
    assert model.kernel.lengthscales.numpy() == model.kernel.variance.numpy() == 1.0
    np.testing.assert_allclose(model.likelihood.variance.numpy(), 0.1)
    assert isinstance(model.kernel, gpflow.kernels.Matern32)
    assert (model.whiten, model.num_data) == (whiten, 60)
    mean, variance = model.predict_f(X)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(variance, 1.0, atol=1e-5)


def test_inducing_points_of_all_methods_come_from_the_same_choice(rng):
    X = rng.normal(size=(60, 3))

    def sets(method, *points):
        options = {"method": method, "points": points, "whiten": True}
        inducing = models.orthogonal_regression(options, (X, X), 3).inducing_variable
        return [s.Z.numpy() for s in (inducing.sets if len(points) > 1 else [inducing])]

    ((union,), (Z, O)) = sets("svgp", 13), sets("solvegp", 8, 5)
    np.testing.assert_allclose(np.sort(np.concatenate([Z, O]), 0), np.sort(union, 0), rtol=1e-9)
    (base,), (Z, O) = sets("svgp", 8), sets("odvgp", 8, 5)
    np.testing.assert_allclose(Z, base, rtol=1e-9)
    np.testing.assert_array_equal(O, initialization.random_subset(X, 5, seed=3))


PAPER_SIZES = [(23, 10), (100, 100), (999, 100), (1030, 1000), (9999, 1000), (40000, 1000)]


def test_the_papers_number_of_eigenfunctions():
    for rows, size in PAPER_SIZES:
        assert models.paper_size(rows) == size


# Scores.


@pytest.mark.nightly
def test_scores_of_softki_are_those_of_a_dense_gp():
    dataset = make_dataset("kin40k").standardized()
    X, Y = dataset.train
    model = models.softki_model(options_of("softki", "paper"), (X, Y), 0)
    scores = models.score_softki(model, dataset, dataset.train, refit_noise=False)
    gp = gpflow.models.GPR((X, Y), Basis(model.basis), noise_variance=1e-3)
    mean, variance = (part.numpy() for part in gp.predict_y(dataset.test[0]))
    errors = dataset.test[1] - mean
    np.testing.assert_allclose(scores["rmse_standardized"], np.sqrt(np.mean(errors**2)), rtol=1e-6)
    nlpd = 0.5 * np.mean(np.log(2.0 * np.pi * variance) + errors**2 / variance)
    np.testing.assert_allclose(scores["nlpd_as_trained"], nlpd, rtol=1e-6)


# Data.


def number_rows(name, num_rows):
    """Rows in which the first column is the number of the row, and the outputs its double."""
    X = np.column_stack([np.arange(num_rows), np.ones(num_rows)])
    pairs = (X[:100], 2.0 * X[:100, :1]), (X[100:], 2.0 * X[100:, :1])
    return Dataset(name, *pairs, ("a", "b"), "y", None)


def raw(dataset, pair):
    """First inputs, and outputs, in the units of the file."""
    scaler = dataset.standardizer
    X = pair[0] * scaler.x_scale.numpy() + scaler.x_mean.numpy()
    return X[:, 0], scaler.inverse_outputs(pair[1])[:, 0]


@pytest.mark.parametrize(("num_rows", "published"), [(45730, 29267), (16599, 10623)])
def test_the_random_split_has_as_many_rows_as_the_papers(monkeypatch, num_rows, published):
    monkeypatch.setattr(data_splits, "load", lambda name: number_rows(name, num_rows))
    split = data_splits.random_split("kin40k", 0)
    (train, _), (test, outputs) = raw(split, split.train), raw(split, split.test)
    train, test = np.round(train).astype(int), np.round(test).astype(int)
    assert len(train) == published
    assert len(test) == num_rows - 4 * num_rows // 5
    assert len(np.union1d(train, test)) == len(train) + len(test)
    np.testing.assert_allclose(outputs, 2.0 * test, atol=1e-6)
    np.testing.assert_allclose(split.train[1].std(), 1.0)
    other = data_splits.random_split("kin40k", 1)
    again = np.isin(np.round(raw(other, other.test)[0]), test)
    assert abs(again.mean() - 0.2) < 0.02  # as drawn again
