"""The tables of SWSGP: what is run of them, and every kind of row on tiny data."""

import dataclasses
import json

import gpflow
import numpy as np
import pytest

from gpflow_sparse.bench.papers import PAPERS, binary, curves_runner, runner
from gpflow_sparse.bench.papers.spec import PaperRun, Size
from gpflow_sparse.data import Dataset
from gpflow_sparse.models import SWSGP
from gpflow_sparse.training import SparseAdam

PAPER, UNION = PAPERS["swsgp"], PAPERS["swsgp_union"]
TINY = {
    "steps": 20,
    "batch_size": 16,
    "num_inducing": 12,
    "num_neighbors": 4,
    "num_subset": 30,
    "union": 8,
    "exact_iterations": 5,
    "batches": [4, 8],
}


@pytest.fixture
def models():
    from gpflow_sparse.bench.papers import swsgp_models

    swsgp_models.find_start.cache_clear()
    return swsgp_models


@pytest.fixture
def joint():
    from gpflow_sparse.bench.papers import swsgp_joint

    swsgp_joint.find_exact.cache_clear()
    return swsgp_joint


def make_dataset(name, split=0):
    """60 training rows of a wave around 40; or of two classes."""
    rng = np.random.default_rng(split)
    X = rng.normal(size=(80, 2))
    wave = np.sin(2.0 * X[:, :1]) + 0.5 * np.cos(X[:, 1:]) + 0.2 * rng.normal(size=(80, 1))
    classes = 2 if name in ("flights2013", "mnist_parity") else None
    Y = (wave > 0.0) * 1.0 if classes else 40.0 + 7.0 * wave
    return Dataset(name, (X[:60], Y[:60]), (X[60:], Y[60:]), ("a", "b"), "y", classes)


def shrunk(row):
    options = {key: TINY.get(key, value) for key, value in row.options.items()}
    if "predicted_from" in options:
        options["predicted_from"] = [2, 12]
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
    for task in PaperRun(PAPER, "small", tmp_path).tasks():
        found.setdefault(task.dataset, []).append(task.row.key)
    weighted = {
        key: [f"{key}-{weighting}" for weighting in ("usage", "paper", "chain")]
        for key in ("4", "8", "10k", "20k", "digits")
    }
    small = [*weighted["4"], *weighted["8"], "svgp"]
    assert found == {
        "powerplant": small,
        "kin8nm": small,
        "kin40k": [*weighted["10k"], "36k-usage", "36k-paper", "svgp-1024"],
        "flights2013": [*weighted["20k"], "svgp-512", "boosting"],
        "mnist_parity": [*weighted["digits"], "svgp-digits"],
    }
    keys = [task.row.key for task in PaperRun(UNION, "small", tmp_path).tasks()]
    assert keys == ["exact", "union-fixed", "svgp-fixed", "union-learned", "svgp-learned"]
    for paper in (PAPER, UNION):
        json.dumps([dict(row.options) for row in paper.sizes["small"].rows])
    sizes = {
        row.key: (row.options["num_inducing"], row.options.get("num_neighbors"))
        for row in PAPER.sizes["small"].rows
        if "num_inducing" in row.options
    }
    assert sizes["8-paper"] == (64, 8)
    assert sizes["10k-usage"] == (10_000, 64)
    assert sizes["20k-chain"] == (20_000, 32)
    assert sizes["digits-usage"] == (1024, 4)
    assert sizes["svgp-1024"] == (1024, None)


def test_the_published_numbers_are_those_of_the_paper():
    for title, (powerplant, kin8nm) in {
        "SWSGP-64-4 (MNLL as printed + 0.46)": ((4.27, 2.41), (0.11, -1.27)),
        "SWSGP-64-8 (MNLL as printed + 0.46)": ((4.24, 2.40), (0.10, -1.38)),
    }.items():
        for name, (rmse, mnll) in (("powerplant", powerplant), ("kin8nm", kin8nm)):
            cells = PAPER.published[title][name]
            assert float(cells["RMSE"]) == rmse
            np.testing.assert_allclose(float(cells["NLPD"]), mnll + 0.46, atol=1e-9)
    assert PAPER.published["SWSGP-1024-4"]["mnist_parity"]["error rate"] == "0.016"


@pytest.mark.parametrize(
    ("key", "dataset"),
    [
        *((f"4-{weighting}", "powerplant") for weighting in ("usage", "paper", "chain")),
        ("svgp", "kin8nm"),
        *((f"10k-{weighting}", "kin40k") for weighting in ("usage", "chain")),
        ("20k-usage", "flights2013"),
        ("svgp-512", "flights2013"),
        ("digits-usage", "mnist_parity"),
    ],
)
def test_every_kind_of_row_runs(models, tmp_path, key, dataset):
    (record,) = run(tiny("swsgp"), tmp_path, rows=(key,), datasets=(dataset,))
    assert record["status"] == "done", record
    assert (record["steps"], record["num_train"], record["num_test"]) == (20, 60, 20)
    assert [step for step, _ in record["curve"]] == list(range(2, 21, 2))
    assert gpflow.default_float() is np.float64
    page = (tmp_path / "swsgp.md").read_text()
    assert f"| {record['title']} | 20 |" in page
    if dataset in ("flights2013", "mnist_parity"):
        assert 0.0 <= record["error_rate"] <= 1.0
        assert "rmse" not in record
    else:
        scale = make_dataset(dataset).standardized().standardizer.y_scale.numpy()[0]
        np.testing.assert_allclose(record["rmse"], scale * record["rmse_standardized"], rtol=1e-5)
        expected = record["nlpd_standardized"] + np.log(scale)
        np.testing.assert_allclose(record["nlpd"], expected, rtol=1e-5, atol=1e-5)
    titles = [line["title"] for line in record["also"]]
    if "svgp" in key:
        assert titles == [f"SVGP-12-{H}, from {H} neighbors" for H in (2, 12)]
        # all points are neighbors: the same model
        np.testing.assert_allclose(record["also"][1]["nlpd"], record["nlpd"], rtol=1e-4)
        assert abs(record["also"][0]["nlpd"] - record["nlpd"]) > 1e-4
    else:
        refitted = record["config"]["refit"]
        assert refitted == (key == "10k-usage")
        assert titles == ["the row above, then its best q"] * refitted
    for title in titles:
        assert f"| {title} | 20 |" in page


def test_boosting_is_scored_as_the_models_are(models, tmp_path):
    from sklearn.ensemble import HistGradientBoostingClassifier

    paper = tiny("swsgp")
    (record,) = run(paper, tmp_path, rows=("boosting",), datasets=("flights2013",))
    assert record["status"] == "done", record
    data = make_dataset("flights2013").standardized()
    trees = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    trees.fit(data.train[0], data.train[1][:, 0])
    odd = trees.predict_proba(data.test[0])[:, 1:]
    chosen = np.where(data.test[1] == 1.0, odd, 1.0 - odd)
    np.testing.assert_allclose(record["nlpd"], -np.mean(np.log(chosen)))
    np.testing.assert_allclose(record["error_rate"], np.mean(chosen < 0.5))


def test_models_are_as_their_rows_say(models):
    data = make_dataset("kin40k").standardized()
    rows = {row.key: shrunk(row).options for row in PAPER.sizes["small"].rows}
    for key, covariance, learned in (("4-paper", "dense", True), ("10k-usage", "diag", False)):
        parts = models._parts(data, 0, rows[key])
        model = models.assemble(data.train[0], *parts, 0, rows[key])
        assert isinstance(model, SWSGP)
        assert (model.covariance, model.kl_weighting) == (covariance, key.split("-")[1])
        assert model.inducing_variable.Z.trainable == learned
        assert isinstance(model.kernel, gpflow.kernels.Matern52)
        start = models.find_start(data, 0, 30, "matern52")
        np.testing.assert_allclose(model.kernel.lengthscales, start.lengthscales)
        np.testing.assert_allclose(model.likelihood.variance, start.noise_variance, rtol=1e-6)
    Z = model.inducing_variable.Z.numpy()
    assert all((row == data.train[0]).all(axis=1).any() for row in Z)
    delays = make_dataset("flights2013").standardized()
    kernel, likelihood = models._parts(delays, 0, rows["20k-usage"])
    assert isinstance(kernel, gpflow.kernels.Matern32)
    assert kernel.lengthscales.shape == (2,)
    assert isinstance(likelihood, gpflow.likelihoods.Bernoulli)
    digits, _ = models._parts(delays, 0, rows["digits-usage"])
    assert digits.lengthscales.shape == ()
    assert isinstance(models.make_optimizer(9, rows["20k-usage"]), SparseAdam)


def test_an_svgp_seen_from_all_its_points_is_itself(models, rng):
    X, Z = rng.normal(size=(7, 2)), rng.normal(size=(5, 2))
    factor = np.tril(rng.normal(size=(1, 5, 5))) + 2.0 * np.eye(5)
    svgp = gpflow.models.SVGP(
        gpflow.kernels.Matern52(),
        gpflow.likelihoods.Gaussian(),
        Z,
        q_mu=rng.normal(size=(5, 1)),
        q_sqrt=factor,
    )
    for count in (5, 9):
        seen = models.seen_from(svgp, count)
        for full_cov in (False, True):
            for ours, theirs in zip(
                seen.predict_f(X, full_cov=full_cov),
                svgp.predict_f(X, full_cov=full_cov),
                strict=True,
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    # one neighbor: f given u_j, whose law is that of q
    near = np.argmin(np.sum((X[:, None] - Z) ** 2, axis=2), axis=1)
    u_mean, u_var = (part.numpy() for part in svgp.predict_f(Z))
    k = svgp.kernel(X, Z).numpy()[np.arange(7), near][:, None]
    mean, var = models.seen_from(svgp, 1).predict_f(X)
    np.testing.assert_allclose(mean, k * u_mean[near], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(var, 1.0 - k**2 + k**2 * u_var[near], rtol=1e-4, atol=1e-5)


def test_two_classes(monkeypatch):
    rng = np.random.default_rng(0)

    def load(name, split):
        if name == "mnist":
            X, labels = rng.integers(0, 256, (6, 784)) * 1.0, np.arange(6.0)[:, None]
            return Dataset(name, (X, labels), (X, labels), ("p",) * 784, "label", 10)
        X, minutes = rng.normal(size=(6, 2)), np.array([[-9.0], [0.0], [1.0], [60.0], [-1.0], [2]])
        return Dataset(name, (X, minutes), (X[:2], minutes[:2]), ("a", "b"), "y", None)

    monkeypatch.setattr(binary, "load", load)
    delays = PAPER.read("flights2013", 0)
    assert delays.train[1][:, 0].tolist() == [0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert delays.num_classes == 2
    np.testing.assert_allclose(delays.train[0].std(axis=0), 1.0)
    parity = PAPER.read("mnist_parity", 0)
    assert parity.test[1][:, 0].tolist() == [0.0, 1.0] * 3
    assert parity.train[0].max() <= 1.0


@pytest.mark.nightly
def test_joint_predictions_of_all_kinds(joint, tmp_path):
    records = run(tiny("swsgp_union"), tmp_path)
    found = {record["row"]: record for record in records}
    assert [record["status"] for record in records] == ["done"] * 5, records
    assert found["exact"]["covariance_4"] == found["exact"]["covariance_8"] == 0.0
    page = (tmp_path / "swsgp_union.md").read_text()
    for key in ("union-fixed", "union-learned", "svgp-fixed", "svgp-learned"):
        lines = found[key]["also"]
        assert [line["title"] for line in lines] == [f"... from {H} neighbors" for H in (2, 12)]
        assert all(line["covariance_4"] > 0.0 for line in lines)
        assert ("covariance_4" in found[key]) == key.startswith("svgp")
    for n in (4, 8):
        own, seen = found["svgp-fixed"], found["svgp-fixed"]["also"][1]
        for name in (f"covariance_{n}", f"rmse_{n}", f"nlpd_{n}"):
            np.testing.assert_allclose(own[name], seen[name], rtol=1e-3)
    assert "| ... from 12 neighbors | 20 |" in page


def test_hyperparameters_are_those_of_the_exact_gp_and_fixed_or_not(joint):
    data = make_dataset("powerplant").standardized()
    exact = joint.find_exact(data, 0, 5)
    gp = gpflow.models.GPR(
        data.train,
        gpflow.kernels.Matern52(exact.start.variance, exact.start.lengthscales),
        noise_variance=exact.start.noise_variance,
    )
    mean, covariance = gp.predict_f(data.test[0], full_cov=True)
    np.testing.assert_allclose(exact.joint.mean, mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(exact.joint.covariance, covariance[0], rtol=1e-6, atol=1e-8)
    rows = {row.key: shrunk(row).options for row in UNION.sizes["small"].rows}
    for key in ("union-fixed", "union-learned", "svgp-fixed"):
        model = joint._build(data, exact.start, 0, rows[key])
        np.testing.assert_allclose(model.kernel.lengthscales, exact.start.lengthscales)
        assert model.kernel.variance.trainable == key.endswith("learned")
        assert model.likelihood.variance.trainable == key.endswith("learned")
    assert joint._build(data, exact.start, 0, rows["union-fixed"]).union == 8


def test_scores_of_joint_predictions(joint, rng):
    data = make_dataset("powerplant").standardized()
    exact = joint.find_exact(data, 0, 5)

    def off(rows):
        mean, covariance = exact.joint(rows)
        return mean + 0.1, covariance + 0.01 * np.eye(rows.shape[1])

    found = joint.score(exact, data, [5], 0, off, 0.2)
    np.testing.assert_allclose(found["covariance_5"], 0.01**2 / 5)
    Y, mean = data.test[1], exact.joint.mean + 0.1
    scale = data.standardizer.y_scale.numpy()[0]
    np.testing.assert_allclose(found["rmse_5"], scale * np.sqrt(np.mean((Y - mean) ** 2)))
    variance = np.diag(exact.joint.covariance)[:, None] + 0.01 + 0.2
    density = -0.5 * (np.log(2.0 * np.pi * variance) + (Y - mean) ** 2 / variance)
    np.testing.assert_allclose(found["nlpd_5"], np.log(scale) - np.mean(density))


def test_a_batch_is_predicted_from_the_union_of_neighbors(joint, models, rng):
    data = make_dataset("powerplant").standardized()
    options = shrunk(UNION.sizes["small"].rows[1]).options
    model = joint._build(data, joint.find_exact(data, 0, 5).start, 0, options)
    model.q_mu.assign(rng.normal(size=model.q_mu.shape))
    rows = np.array([[3, 1], [0, 9], [5, 7]])
    mean, covariance = joint._apart(models.seen_from(model, 2), data.test[0])(rows)
    Z, kernel, factor = model.inducing_variable.Z.numpy(), model.kernel, model.q_sqrt.numpy()[0]
    sizes = set()
    for place, chosen in enumerate(rows):
        X = data.test[0][chosen]
        squares = np.sum(((X[:, None] - Z) / kernel.lengthscales.numpy()) ** 2, axis=2)
        active = np.unique(np.argsort(squares, axis=1)[:, :2])
        sizes.add(len(active))
        K = kernel(Z[active]).numpy() + 1e-6 * kernel.variance.numpy() * np.eye(len(active))
        W = np.linalg.solve(K, kernel(Z[active], X).numpy())
        S = (factor @ factor.T)[np.ix_(active, active)]
        np.testing.assert_allclose(mean[place], W.T @ model.q_mu.numpy()[active], rtol=1e-6)
        expected = kernel(X).numpy() + W.T @ (S - K) @ W
        np.testing.assert_allclose(covariance[place], expected, rtol=1e-6, atol=1e-8)
    assert max(sizes) > 2


def test_an_interrupted_row_goes_on(models, tmp_path, monkeypatch):
    paper, chosen = tiny("swsgp"), {"rows": ("20k-usage",), "datasets": ("flights2013",)}
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
    monkeypatch.setattr(curves_runner.Watch, "__call__", call)
    again = run(paper, tmp_path, **chosen)[0]
    assert [step for step, _ in again["curve"]] == [step for step, _ in whole["curve"]]
    np.testing.assert_allclose(again["nlpd"], whole["nlpd"], rtol=1e-3)
