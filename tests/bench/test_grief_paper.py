"""The table of GP-GRIEF: what is run of it, and one row of each kind on a tiny data set."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse import data
from gpflow_sparse.bench.papers import PAPERS, runner
from gpflow_sparse.bench.papers.spec import PaperRun
from gpflow_sparse.data import Dataset, Standardizer

PAPER = PAPERS["grief"]


@pytest.fixture
def grief_models():
    from gpflow_sparse.bench.papers import grief_models

    grief_models.find_start.cache_clear()
    return grief_models


def make_dataset(name, split):
    """40 training rows of a smooth function of the first column; the last is constant."""
    rng = np.random.default_rng(split)
    X = np.column_stack([rng.uniform(size=50), rng.normal(size=50), np.full(50, 3.0)])
    Y = 100.0 + 20.0 * np.sin(6.0 * X[:, :1]) + rng.normal(size=(50, 1))
    return Dataset(name, (X[:40], Y[:40]), (X[40:], Y[40:]), ("a", "b", "c"), "y", None)


def test_how_many_splits_are_run(tmp_path):
    run = PaperRun(PAPER, "small", tmp_path)
    counts = {}
    for task in run.tasks():
        counts[task.row.key, task.dataset] = counts.get((task.row.key, task.dataset), 0) + 1
    large = {"pumadyn32nm", "elevators", "kin40k"}
    for row in ("type2", "type1-rotated"):
        for name in PAPER.datasets:
            assert counts.pop((row, name)) == (2 if name in large else 10)
    assert counts == {
        ("type1-original", n): 1 for n in ("challenger", "fertility", "concreteslump")
    }
    full = list(PaperRun(PAPER, "full", tmp_path).tasks())
    assert len(full) == 3 * 16 * 10


def test_small_sets_come_first():
    rows = [data.datasets._UCI[name][0] for name in PAPER.datasets]
    assert rows == sorted(rows)
    assert len(rows) == 16


@pytest.mark.parametrize(
    ("rows", "size"), [(23, 10), (100, 100), (999, 100), (1030, 1000), (9999, 1000), (40000, 1000)]
)
def test_the_papers_number_of_eigenfunctions(grief_models, rows, size):
    assert grief_models.paper_size(rows) == size


def test_the_start_is_that_of_an_exact_gp(grief_models):
    dataset = make_dataset("tiny", 0).standardized()
    start = grief_models.find_start(dataset, 0)
    assert grief_models.find_start(dataset, 0) is start
    assert grief_models.find_start(dataset, 1) is not start
    # a stationary point of the log density with log-normal priors, one e-fold wide
    kernel = gpflow.kernels.SquaredExponential(start.variance, start.lengthscales)
    model = gpflow.models.GPR(dataset.train, kernel, noise_variance=start.noise_variance)
    assert start.lengthscales.shape == (3,)
    assert start.noise_variance < 0.05
    assert start.lengthscales[1] > start.lengthscales[0]
    mean, _ = model.predict_f(dataset.test[0])
    assert np.sqrt(np.mean((mean - dataset.test[1]) ** 2)) < 0.2


class Straight:
    """Predicts 1.5 times the first column with variance 4, in standardized units."""

    def predict_y(self, X):
        return 1.5 * X[:, :1], np.full((len(X), 1), 4.0)

    def predict_log_density(self, pair):
        X, Y = (np.asarray(part) for part in pair)
        return -0.5 * (np.log(8.0 * np.pi) + (Y - 1.5 * X[:, :1])[:, 0] ** 2 / 4.0)


def test_scores_are_in_the_units_of_the_file(grief_models):
    raw = make_dataset("tiny", 0)
    scores = grief_models.score(Straight(), raw.standardized())
    scaler = Standardizer.fit(*raw.train)
    X, Y = raw.test
    shift, scale = scaler.y_mean.numpy(), scaler.y_scale.numpy()
    mean = shift + scale * 1.5 * scaler.transform_inputs(X)[:, :1]
    deviation = 2.0 * scale
    np.testing.assert_allclose(scores["rmse"], np.sqrt(np.mean((Y - mean) ** 2)))
    density = -0.5 * np.log(2 * np.pi) - np.log(deviation) - 0.5 * ((Y - mean) / deviation) ** 2
    np.testing.assert_allclose(scores["nlpd"], -density.mean())
    inside = np.abs(Y - mean) < 1.959964 * deviation
    np.testing.assert_allclose(scores["coverage_95"], inside.mean())


ROWS = {
    "type2": {"inference": "type-II", "objective": "bound", "num_rounds": 2, "num_iterations": 5},
    "type1-rotated": {
        "inference": "quadrature",
        "reweighted": "rotated",
        "num_eigenfunctions": 20,
    },
    "type1-original": {"inference": "mala", "reweighted": "original", "num_eigenfunctions": 15},
}


@pytest.mark.parametrize("key", ROWS)
def test_a_row_is_trained_and_scored(grief_models, key):
    dataset = make_dataset("tiny", 0).standardized()
    options = dict(next(row.options for row in PAPER.sizes["small"].rows if row.key == key))
    assert set(options) == set(ROWS[key])
    results = grief_models.fit_grief(dataset, seed=0, **ROWS[key])
    assert results["rmse"] < 4.0  # of outputs with a standard deviation of 14, and noise of 1
    assert results["nlpd"] < 3.5
    assert 0.7 <= results["coverage_95"] <= 1.0
    assert results["num_basis"] == {"type2": 10, "type1-rotated": 20, "type1-original": 15}[key]
    assert 0.0 < results["explained_variance"] <= 1.0
    assert 1e-4 < results["noise_variance"] < 0.1
    assert results["seconds"] > results["start_seconds"] > 0.0


def test_a_table_comes_of_it_from_one_command(tmp_path, monkeypatch, grief_models):
    monkeypatch.setattr(data, "load", make_dataset)
    run = PaperRun(
        PAPER, "small", tmp_path, datasets=("challenger",), rows=("type2",), splits=(0, 1)
    )
    records = runner.run_paper(run, 10.0)
    assert [r["status"] for r in records] == ["done", "done"]
    assert runner.run_paper(run, 10.0) == records
    text = (tmp_path / "grief.md").read_text()
    mean = np.mean([r["rmse"] for r in records])
    assert f"| challenger | 50 | 3 | {mean:.4g} ± " in text
    assert "| 0.554 ± 0.277 | 0.519 ± 0.261 | 0.63 ± 0.26 |" in text
