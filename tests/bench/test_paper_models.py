"""The models of the papers' tables: every kind of row on tiny data, and what its scores are."""

import dataclasses
import json

import gpflow
import numpy as np
import pytest

from bench.papers import data_splits, harness, models, neighbor_models, training
from bench.papers.spec import PaperRun, load_paper
from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset, load, robot_arm
from gpflow_sparse.kernels import Basis
from gpflow_sparse.models import SOLVEGP, SWSGP, DeepGP
from tests.recipes.test_conv_images import make_dataset as make_images

TINY = {
    "batch_size": 16,
    "num_basis": 40,
    "num_leading": 6,
    "basis_batch_size": 10,
    "num_support": 8,
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
    "solvegp": ("svgp-256-unwhitened", "solvegp-256+256", "odvgp-256+2048"),
    "grief": ("type2", "type1-rotated", "type1-original"),
    "qsgp": (
        "rff0",
        "hybrid-learned",
        "rff100",
        "dictionary",
        "svgp",
        "parity-1e6",
    ),
    "softki": ("paper", "tied", "uncollapsed", "svgp"),
    "softki_arms": ("sgpr",),
    "swsgp": ("4-paper", "svgp", "10k-usage", "10k-chain", "svgp-512", "digits-usage"),
    "swsgp_union": ("exact", "union-learned", "svgp-fixed"),
    "conv": ("digits-solvegp", "cifar-3"),
}

# Rows that differ from another one in an option that tests of the model cover.
NIGHTLY = {"cifar-3", "rff100", "uncollapsed", "10k-chain", "svgp-fixed"}


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
    [
        pytest.param(paper, key, marks=[pytest.mark.nightly] if key in NIGHTLY else [])
        for paper, keys in CHECKED.items()
        for key in keys
    ],
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
    check_particulars(paper, key, record)


def check_particulars(paper, key, record):
    """What only rows of one kind have."""
    if paper == "grief":
        sizes = {"type2": 10, "type1-rotated": 15, "type1-original": 15}
        assert record["num_basis"] == sizes[key]
        assert record["rmse"] < 6.0
        assert 0.0 < record["explained_variance"] <= 1.0
        assert record["seconds"] > record["start_seconds"] > 0.0
    if paper == "qsgp":
        assert ("nlpd_as_trained" in record) == (key in ("rff0", "hybrid-learned", "dictionary"))
        if not record["config"]["dense_rate"] and key not in ("svgp", "parity-1e6"):
            data = make_dataset(record["dataset"]).standardized()
            _, start = models.exact_gp(data, 0, "squared_exponential", 1000, 200)
            np.testing.assert_allclose(record["noise_variance"], start.noise_variance, rtol=1e-5)
            np.testing.assert_allclose(record["lengthscales"], start.lengthscales, rtol=1e-5)
    if paper == "softki" and record["config"]["model"] == "softki":
        learned = record["config"]["refit_noise"]
        assert (record["noise_refitted"] == record["noise_variance"]) == learned
        assert (record["nlpd_refitted"] == record["nlpd_standardized"]) == learned
        assert len({record[f"nlpd_{name}"] for name in ("as_trained", "refitted", "filled")}) == 3
        assert (abs(record["temperature"] / record["config"]["temperature"] - 1) > 1e-3) == learned
    if paper == "swsgp":
        titles = [line["title"] for line in record["also"]]
        if record["config"]["model"] == "svgp":
            assert titles == [f"SVGP-12-{H}, from {H} neighbors" for H in (2, 12)]
            # all points are neighbors: the same model
            np.testing.assert_allclose(record["also"][1]["nlpd"], record["nlpd"], rtol=1e-4)
            assert abs(record["also"][0]["nlpd"] - record["nlpd"]) > 1e-4
        else:
            assert titles == ["the row above, then its best q"] * record["config"]["refit"]
    if paper == "swsgp_union":
        assert (record.get("covariance_4") == 0.0) == (key == "exact")
        assert ("covariance_4" in record) == (record["config"]["model"] != "swsgp")
        if key == "svgp-fixed":
            for name in ("covariance_4", "rmse_8", "nlpd_8"):
                np.testing.assert_allclose(record[name], record["also"][1][name], rtol=1e-3)


# Starts.


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("method", ["svgp", "solvegp", "odvgp"])
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


@pytest.mark.parametrize(
    ("rows", "size"), [(23, 10), (100, 100), (999, 100), (1030, 1000), (9999, 1000), (40000, 1000)]
)
def test_the_papers_number_of_eigenfunctions(rows, size):
    assert models.paper_size(rows) == size


def test_the_exact_gp_of_a_start_is_at_an_optimum_of_its_rows():
    dataset = make_dataset("kin40k").standardized()
    _, start = models.exact_gp(dataset, 5, "squared_exponential", 25, 200)
    assert models.exact_gp(dataset, 5, "squared_exponential", 25, 200)[1] is start
    rows = np.random.default_rng(5).permutation(60)[:25]
    X, Y = (part[rows] for part in dataset.train)
    kernel = gpflow.kernels.SquaredExponential(start.variance, start.lengthscales)
    gp = gpflow.models.GPR((X, Y), kernel, noise_variance=start.noise_variance)
    best = float(gp.log_marginal_likelihood())
    for parameter in gp.trainable_parameters:
        value = parameter.numpy()
        parameter.assign(1.2 * value)
        assert float(gp.log_marginal_likelihood()) < best
        parameter.assign(value)


def test_models_of_swsgp_are_as_their_rows_say():
    data = make_dataset("kin40k").standardized()
    start = models.subset_start(data, 0, "matern52", 30)
    rows = (("4-paper", "dense", "paper", True), ("10k-usage", "diag", "counts", False))
    for key, covariance, weighting, learned in rows:
        options = options_of("swsgp", key)
        model = neighbor_models.neighbor_model(options, start, data.train, 0)
        assert isinstance(model, SWSGP)
        assert (model.covariance, model.kl_weighting) == (covariance, weighting)
        assert model.inducing_variable.Z.trainable == learned
        assert isinstance(model.kernel, gpflow.kernels.Matern52)
        np.testing.assert_allclose(model.kernel.lengthscales, start.lengthscales)
        np.testing.assert_allclose(model.likelihood.variance, start.noise_variance, rtol=1e-6)
    assert all((z == data.train[0]).all(axis=1).any() for z in model.inducing_variable.Z.numpy())
    delays = make_dataset("flights2013").standardized()
    for key, kernel, shape in (("20k-usage", "Matern32", (2,)), ("digits-usage", "Matern52", ())):
        model = neighbor_models.neighbor_model(options_of("swsgp", key), None, delays.train, 0)
        assert isinstance(model.kernel, getattr(gpflow.kernels, kernel))
        assert model.kernel.lengthscales.shape == shape
        assert isinstance(model.likelihood, gpflow.likelihoods.Bernoulli)
    for key in ("union-fixed", "union-learned"):
        options = options_of("swsgp_union", key)
        model = neighbor_models.neighbor_model(options, start, data.train, 0)
        assert model.union == 8
        assert model.kernel.variance.trainable == key.endswith("learned")
        assert model.likelihood.variance.trainable == key.endswith("learned")


def test_models_of_images_are_as_their_rows_say():
    data = make_images()
    for key, kind, sizes in (("digits-solvegp", SOLVEGP, (6, 5)), ("mnist-2", DeepGP, None)):
        model = models.image_model(options_of("conv", key), data, data.train[0], 0)
        assert isinstance(model, kind)
        assert model.num_data == 30
        if sizes:
            assert model.inducing_variable.sizes == sizes
        else:
            assert model.layers[0].output_shape == (4, 4, 2)


# Scores.


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


def test_boosting_is_scored_as_the_models_are():
    from sklearn.ensemble import HistGradientBoostingClassifier

    data = make_dataset("flights2013").standardized()
    budget = training.Budget(20, None, 0, None, np.inf)
    record = neighbor_models.fit_swsgp({"model": "boosting"}, data, budget)
    trees = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    trees.fit(data.train[0], data.train[1][:, 0])
    late = trees.predict_proba(data.test[0])[:, 1:]
    chosen = np.where(data.test[1] == 1.0, late, 1.0 - late)
    np.testing.assert_allclose(record["nlpd"], -np.mean(np.log(chosen)))
    np.testing.assert_allclose(record["error_rate"], np.mean(chosen < 0.5))


def test_an_svgp_from_all_its_points_is_itself_and_from_one_a_regression_on_it(rng):
    X, Z = rng.normal(size=(7, 2)), rng.normal(size=(5, 2))
    q_sqrt = np.tril(rng.normal(size=(1, 5, 5))) + 2.0 * np.eye(5)
    parts = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), Z
    svgp = gpflow.models.SVGP(*parts, q_mu=rng.normal(size=(5, 1)), q_sqrt=q_sqrt)
    for count, full_cov in ((5, False), (9, True)):
        posterior = neighbor_models.from_neighbors(svgp, count)
        found = posterior.predict_f(X, full_cov=full_cov)
        for ours, theirs in zip(found, svgp.predict_f(X, full_cov=full_cov), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    # one neighbor: f given u_j, whose law is that of q
    near = np.argmin(np.sum((X[:, None] - Z) ** 2, axis=2), axis=1)
    u_mean, u_var = (part.numpy() for part in svgp.predict_f(Z))
    k = svgp.kernel(X, Z).numpy()[np.arange(7), near][:, None]
    mean, var = neighbor_models.from_neighbors(svgp, 1).predict_f(X)
    np.testing.assert_allclose(mean, k * u_mean[near], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(var, 1.0 - k**2 + k**2 * u_var[near], rtol=1e-4, atol=1e-5)


def test_scores_of_joint_predictions():
    data = make_dataset("powerplant").standardized()
    exact, start = models.exact_gp(data, 0, "matern52", 60, 5)
    truth = neighbor_models.together(exact, data.test[0])
    everything = np.arange(20)[None]
    mean, covariance = truth(everything)
    order = np.random.default_rng(0).permutation(60)
    gp = gpflow.models.GPR(
        tuple(part[order] for part in data.train),
        gpflow.kernels.Matern52(start.variance, start.lengthscales),
        noise_variance=start.noise_variance,
    )
    for ours, theirs in zip(
        (mean[0], covariance), gp.predict_f(data.test[0], full_cov=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)

    def off(rows):
        mean, covariance = truth(rows)
        return mean + 0.1, covariance + 0.01 * np.eye(rows.shape[1])

    found = neighbor_models.joint_scores(truth, data, [5], 0, off, 0.2)
    np.testing.assert_allclose(found["covariance_5"], 0.01**2 / 5)
    errors, scale = data.test[1] - mean[0] - 0.1, data.standardizer.y_scale.numpy()[0]
    np.testing.assert_allclose(found["rmse_5"], scale * np.sqrt(np.mean(errors**2)))
    variance = np.diag(covariance[0])[:, None] + 0.01 + 0.2
    density = -0.5 * (np.log(2.0 * np.pi * variance) + errors**2 / variance)
    np.testing.assert_allclose(found["nlpd_5"], np.log(scale) - np.mean(density))


def test_a_batch_is_predicted_from_the_union_of_neighbors(rng):
    data = make_dataset("powerplant").standardized()
    start = models.exact_gp(data, 0, "matern52", 60, 5)[1]
    options = options_of("swsgp_union", "union-fixed")
    model = neighbor_models.neighbor_model(options, start, data.train, 0)
    model.q_mu.assign(rng.normal(size=model.q_mu.shape))
    rows = np.array([[3, 1], [0, 9], [5, 7]])
    posterior = neighbor_models.from_neighbors(model, 2)
    mean, covariance = neighbor_models.apart(posterior, data.test[0])(rows)
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


@pytest.mark.parametrize(
    ("num_rows", "published"), [(40000, 25600), (45730, 29267), (48827, 31248), (16599, 10623)]
)
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
    assert abs(again.mean() - 0.2) < 0.02  # as drawn anew


def test_validation_and_few_rows_take_training_rows(monkeypatch):
    monkeypatch.setattr(data_splits, "load", lambda name, split: number_rows(name, 120))
    monkeypatch.setattr(data_splits, "_FEW_ROWS", 30)
    order = np.random.default_rng(2).permutation(100)
    found = data_splits.validation("kin40k", 2)
    np.testing.assert_allclose(raw(found, found.train)[0], order[:90], atol=1e-9)
    np.testing.assert_allclose(raw(found, found.test)[1], 2.0 * order[90:], atol=1e-9)
    np.testing.assert_allclose(found.train[0][:, 0].mean(), 0.0, atol=1e-12)
    few = data_splits.few_rows("kin40k", 2)
    np.testing.assert_allclose(raw(few, few.train)[0], order[:30], atol=1e-9)
    np.testing.assert_allclose(raw(few, few.test)[0], np.arange(100, 120), atol=1e-9)


def test_digits_and_delays_become_two_classes(monkeypatch, rng):
    def read(name, split):
        if name == "mnist":
            X, labels = rng.integers(0, 256, (6, 784)) * 1.0, np.arange(6.0)[:, None]
            return Dataset(name, (X, labels), (X, labels), ("p",) * 784, "label", 10)
        X, minutes = rng.normal(size=(6, 2)), np.array([[-9.0], [0.0], [1.0], [60.0], [-1.0], [2]])
        return Dataset(name, (X, minutes), (X[:2], minutes[:2]), ("a", "b"), "y", None)

    monkeypatch.setattr(data_splits, "load", read)
    delays = data_splits.published("flights2013", 0)
    assert delays.train[1][:, 0].tolist() == [0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    np.testing.assert_allclose(delays.train[0].std(axis=0), 1.0)
    parity = data_splits.published("mnist_parity", 0)
    assert (parity.name, parity.num_classes, delays.num_classes) == ("mnist_parity", 2, 2)
    assert parity.test[1][:, 0].tolist() == [0.0, 1.0] * 3
    assert 0.0 <= parity.train[0].min() < 0.01 < 0.99 < parity.train[0].max() <= 1.0


def test_robot_arms_are_generated_and_split_by_order(monkeypatch):
    monkeypatch.setattr(data_splits, "_ARM_ROWS", 50)
    dataset = data_splits.published("robot_arm_7", 3)
    X, Y = robot_arm(50, 7, seed=3)
    np.testing.assert_allclose(dataset.train[0], (X[:45] - X[:45].mean(0)) / X[:45].std(0))
    np.testing.assert_allclose(raw(dataset, dataset.test)[1], Y[45:, 0])
    assert len(dataset.feature_names) == 7


def test_images_of_digits_are_split_by_class():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    found = data_splits.images("digits", 3)
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(X, y, test_size=0.2, stratify=y, random_state=3)
    np.testing.assert_array_equal(found.train[1][:, 0], parts[2])
    np.testing.assert_array_equal(found.test[1][:, 0], parts[3])
    pixels = (parts[1] - parts[0].mean()) / parts[0].std()
    np.testing.assert_allclose(found.test[0], pixels, atol=1e-12)
    assert found.image_shape == load("digits").image_shape
