"""`gs.diagnostics`: numbers against GPflow and naive NumPy, and advice exactly where it is due."""

import json

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern52, SquaredExponential

import gpflow_sparse as gs
from gpflow_sparse.diagnosis import evidence
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import ODVGP, SOLVEGP, SOLVEGPR, SoftKI
from tests import battery
from tests.battery import perturb
from tests.oracles import diagnosis as oracle
from tests.oracles.solvegp import matern52

NOISE, SCALE = 0.05, 0.7


def rows(N=60, D=2, P=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(N, D))
    return X, np.sin(2.0 * X[:, :1]) + np.sqrt(NOISE) * rng.normal(size=(N, P))


def points(*sizes, D=2):
    rng = np.random.default_rng(1)
    return [rng.uniform(-2.0, 2.0, size=(M, D)) for M in sizes]


def solvegp(*sets, likelihood=None, kernel=None, **options):
    return SOLVEGP(
        Matern52(lengthscales=SCALE) if kernel is None else kernel,
        gpflow.likelihoods.Gaussian(NOISE) if likelihood is None else likelihood,
        OrthogonalInducingVariables(*sets),
        **options,
    )


def svgp(Z, likelihood=None, kernel=None, **options):
    return gpflow.models.SVGP(
        Matern52(lengthscales=SCALE) if kernel is None else kernel,
        gpflow.likelihoods.Gaussian(NOISE) if likelihood is None else likelihood,
        np.array(Z),
        **options,
    )


def optimal(model, data):
    """Natural steps of full length on one block: the optimal q of Gaussian noise."""
    loss = model.training_loss_closure(data, compile=False)
    for _ in range(3):
        gpflow.optimizers.NaturalGradient(1.0).minimize(loss, [(model.q_mu, model.q_sqrt)])
    return model


def notes(found):
    """All notes but the one that every shallow model has."""
    assert found["layers"] is None
    assert found["notes"]["layers"].endswith(" has no hidden layers.")
    return {name: text for name, text in found["notes"].items() if name != "layers"}


def k(X1, X2):
    return matern52(X1, X2, lengthscale=SCALE)


@pytest.mark.parametrize("P", [1, 3])
def test_the_bounds_are_those_of_naive_numpy_with_any_mean(P):
    X, Y = data = rows(P=P)
    Z, O, third = points(6, 4, 3)
    mean = gpflow.functions.Linear(np.full((2, P), 0.3), np.full(P, 0.5))
    model = solvegp(Z, O, third, mean_function=mean, num_latent_gps=P)
    bound = gs.diagnostics(model, data)["bound"]
    e = Y - X @ np.full((2, P), 0.3) - 0.5
    union = np.vstack([Z, O, third])
    np.testing.assert_allclose(
        bound["collapsed"], oracle.collapsed(k, X, e, union, NOISE, 1e-6), rtol=1e-8
    )
    np.testing.assert_allclose(bound["upper"], oracle.upper(k, X, e, union, NOISE, 1e-6), rtol=1e-8)
    np.testing.assert_allclose(bound["exact"], oracle.exact(k, X, e, NOISE), rtol=1e-8)


def test_a_collapsed_bound_of_noise_far_below_the_signal_keeps_its_digits():
    data = rows(200)
    Z = points(12)[0]
    model = svgp(Z, gpflow.likelihoods.Gaussian(1e-5))
    sgpr = gpflow.models.SGPR(data, Matern52(lengthscales=SCALE), Z, noise_variance=1e-5)
    bound = gs.diagnostics(model, data)["bound"]
    np.testing.assert_allclose(bound["collapsed"], sgpr.elbo(), rtol=1e-8)
    np.testing.assert_allclose(bound["upper"], sgpr.upper_bound(), rtol=1e-8)


def assert_close(a, b, rtol):
    """Nested dicts and lists of numbers, to a relative tolerance."""
    tf.nest.map_structure(
        lambda x, y: (
            np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-9)
            if isinstance(x, float)
            else np.testing.assert_equal(x, y)
        ),
        a,
        b,
    )


def test_more_rows_than_the_exact_evidence_takes_leave_the_upper_bound(monkeypatch):
    monkeypatch.setattr(evidence, "MAX_EXACT_ROWS", 59)
    found = gs.diagnostics(solvegp(*points(7, 5)), rows(60))
    bound = found["bound"]
    assert bound["exact"] is None
    assert notes(found) == {"bound.exact": "60 rows are more than 59."}
    assert bound["inducing_gap"] == bound["upper"] - bound["collapsed"]
    assert bound["inducing_gap_from"] == "upper"
    (sentence,) = (s for s in found["advice"] if "inducing points" in s)
    assert sentence.startswith("More inducing points may help")
    assert "upper bound, which can be far too high" in sentence


def test_rows_other_than_the_training_rows_have_no_bound():
    found = gs.diagnostics(solvegp(*points(7, 5), num_data=60), rows(20))
    assert notes(found) == {"bound": "data has 20 rows, but the model's num_data is 60."}
    assert set(found["bound"].values()) == {None}
    assert found["calibration"]["count"] == 20


def test_the_unexplained_fraction_is_that_of_naive_numpy():
    X, _ = data = rows(200)
    Z, O = points(7, 5)
    kernel = Matern52(variance=1.7, lengthscales=SCALE)
    found = gs.diagnostics(solvegp(Z, O, kernel=kernel), data)["residual_variance"]

    def covariance(X1, X2):
        return 1.7 * k(X1, X2)

    expected = oracle.unexplained(covariance, X, np.vstack([Z, O]), 1.7e-6)
    np.testing.assert_allclose(found["overall"]["unexplained"], expected.mean(), rtol=1e-9)
    sizes = np.array([region["rows"] for region in found["regions"]])
    assert [region["region"] for region in found["regions"]] == list(range(8))
    assert sizes.sum() == 200
    for name, total in (("unexplained", expected.mean()), ("center", X.mean(axis=0))):
        parts = np.array([region[name] for region in found["regions"]])
        np.testing.assert_allclose(sizes @ parts / 200, total, rtol=1e-9, atol=1e-12)


def test_condition_numbers_are_those_of_the_factored_matrices():
    Z, O = points(12, 9)
    model = solvegp(Z, O)
    found = gs.diagnostics(model, rows())["condition_numbers"]
    for entry, L in zip(found["matrices"], model.posterior(None).prior_factors(), strict=True):
        L = L.numpy()
        assert entry["size"] == len(L)
        np.testing.assert_allclose(entry["condition"], np.linalg.cond(L @ L.T), rtol=1e-6)
    assert [m["name"] for m in found["matrices"]] == ["Kuu", "Cvv (orthogonal set 1)"]
    union = np.vstack([Z, O])
    gaps = np.linalg.norm(union[:, None] - union[None], axis=2)[~np.eye(21, dtype=bool)]
    np.testing.assert_allclose(found["smallest_distance"], gaps.min() / SCALE, rtol=1e-12)


def advice(model, data, start):
    return [s for s in gs.diagnostics(model, data)["advice"] if s.startswith(start)]


def test_held_out_rows_have_no_bound_and_no_advice_from_it():
    model, data = svgp(points(4)[0]), rows()
    whole, held_out = gs.diagnostics(model, data), gs.diagnostics(model, data, held_out=True)
    assert whole["bound"]["elbo"] is not None
    assert set(held_out["bound"].values()) == {None}
    assert held_out["notes"]["bound"] == "bounds are about the rows of training."
    assert any("inducing points" in sentence for sentence in whole["advice"])
    assert not any("inducing points" in sentence for sentence in held_out["advice"])
    for entry in ("residual_variance", "condition_numbers", "calibration", "hyperparameters"):
        assert held_out[entry] == whole[entry]


def test_the_effect_of_a_column_is_the_mean_squared_change_of_the_prior():
    X, Y = data = rows()
    kernel = SquaredExponential(lengthscales=[0.7, 5.0], variance=1.7)
    found = gs.diagnostics(svgp(points(9)[0], kernel=kernel), data)["hyperparameters"]
    for column, scale, deviation in zip(found["columns"], (0.7, 5.0), X.std(axis=0), strict=True):
        change = 2 * 1.7 * (1 - np.exp(-0.5 * (deviation / scale) ** 2))
        np.testing.assert_allclose(column["effect"], change / Y.var(), rtol=1e-6)
        np.testing.assert_allclose(column["ratio"], scale / deviation, rtol=1e-12)
        assert column["flag"] is None
    np.testing.assert_allclose(found["noise_fraction"], NOISE / Y.var(), rtol=1e-9)
    np.testing.assert_allclose(found["prior_variance"], 1.7, rtol=1e-12)


def labeled(N=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    return X, (X[:, :1] + 0.3 * rng.normal(size=(N, 1)) > 0).astype(float)


@pytest.mark.parametrize("build", [solvegp, svgp])
def test_binary_classes_have_error_rate_and_calibration(build):
    X, Y = data = labeled()
    model = build(points(9)[0], likelihood=gpflow.likelihoods.Bernoulli())
    gs.training.fit(model, data, num_steps=200, progress=False)
    found = gs.diagnostics(model, data)
    p = model.predict_y(X)[0].numpy()[:, 0]
    calibration = found["calibration"]
    assert calibration["kind"] == "classification"
    error = np.mean((p > 0.5) != Y[:, 0])
    assert calibration["error_rate"] == found["residual_variance"]["overall"]["error_rate"] == error
    probabilities = np.stack([1 - p, p], axis=1)
    np.testing.assert_allclose(calibration["ece"], gs.data.metrics.ece(Y, probabilities))
    np.testing.assert_allclose(calibration["mean_confidence"], np.maximum(p, 1 - p).mean())
    assert found["bound"]["collapsed"] is found["bound"]["exact"] is None
    np.testing.assert_allclose(found["bound"]["elbo"], model.elbo(data), rtol=1e-10)
    note = "it needs a Gaussian likelihood with one noise variance."
    assert notes(found) == {"bound.collapsed, exact, upper": note}


@pytest.mark.parametrize("kind", [gpflow.likelihoods.MultiClass, gpflow.likelihoods.Softmax])
def test_several_classes_and_several_binary_outputs_are_scored(kind):
    X, _ = labeled(90)
    labels = (X[:, :1] > 0) + (X[:, :1] > 1.0)
    model = solvegp(points(9)[0], likelihood=kind(3), num_latent_gps=3)
    found = gs.diagnostics(model, (X, labels.astype(float)))
    np.testing.assert_allclose(found["calibration"]["mean_confidence"], 1 / 3, atol=0.15)
    binary = solvegp(points(9)[0], likelihood=gpflow.likelihoods.Bernoulli(), num_latent_gps=2)
    perturb(binary)
    Y = (X > 0).astype(float)
    found = gs.diagnostics(binary, (X, Y))
    assert found["calibration"]["count"] == 180
    wrong = (binary.predict_y(X)[0].numpy() > 0.5) != Y
    regions = found["residual_variance"]["regions"]
    total = sum(region["rows"] * region["error_rate"] for region in regions) / 90
    np.testing.assert_allclose(total, wrong.mean(), rtol=1e-12)


def test_constant_columns_and_constant_outputs_are_flagged_not_divided_by():
    X, _ = rows()
    X[:, 1] = 3.0
    found = gs.diagnostics(svgp(X[::6]), (X, np.full((60, 1), 2.0)))
    assert json.dumps(found, allow_nan=False)
    first, second = found["hyperparameters"]["columns"]
    assert (second["flag"], second["ratio"], second["standard_deviation"]) == ("constant", None, 0)
    assert first["flag"] is None
    assert found["hyperparameters"]["noise_fraction"] is None
    assert len(gs.diagnostics(svgp(X[:1]), (X[:1].repeat(9, 0), X[:9, :1]))["advice"]) > 0


def test_a_regression_model_brings_its_bound_and_its_rows():
    data = rows()
    sets = OrthogonalInducingVariables(data[0][:4], data[0][4:7] + 0.1)
    model = SOLVEGPR(data, Matern52(lengthscales=SCALE), sets, noise_variance=NOISE)
    found = gs.diagnostics(model)
    np.testing.assert_allclose(found["bound"]["elbo"], model.elbo(), rtol=1e-12)
    np.testing.assert_allclose(found["bound"]["training_gap"], 0.0, atol=1e-6)
    other = gs.diagnostics(model, (data[0][:-1], data[1][:-1]))
    assert notes(other) == {"bound.elbo": "data are not the rows that the model holds."}
    with pytest.raises(ValueError, match="data must be a tuple"):
        gs.diagnostics(gpflow.models.SVGP(Matern52(), model.likelihood, data[0][:2]))


@pytest.mark.parametrize("num_data", [None, 60])
def test_the_bound_of_interpolation_is_the_evidence_of_all_rows_at_once(num_data):
    X, Y = rows()
    options = {"temperature": 0.4, "noise_variance": NOISE, "num_data": num_data}
    model = SoftKI(Matern52(lengthscales=SCALE), points(7)[0], **options)
    with pytest.raises(ValueError, match=r"no posterior yet: call fit_posterior\(\(X, Y\)\)"):
        gs.diagnostics(model, (X, Y))
    model.fit_posterior((X, Y))

    found = gs.diagnostics(model, (X, Y))
    assert json.dumps(found, allow_nan=False)
    for name in ("elbo", "exact"):
        np.testing.assert_allclose(found["bound"][name], model.elbo((X, Y)), rtol=1e-9)
    assert found["calibration"]["kind"] == "regression"
    model.basis.temperature.assign(0.5)
    with pytest.raises(ValueError, match="have changed since fit_posterior"):
        gs.diagnostics(model, (X, Y))


def test_sampled_columns_leave_the_bound_exact():
    data = rows()
    sets = OrthogonalInducingVariables(data[0][:4], data[0][4:7] + 0.1)
    model = ODVGP(Matern52(), gpflow.likelihoods.Gaussian(NOISE), sets)
    model.q_mu[1].assign([[0.5], [-0.3], [0.2]])
    exact = model.elbo(data)
    model.num_penalty_samples = 1
    found = gs.diagnostics(model, data)
    np.testing.assert_allclose(found["bound"]["elbo"], exact, rtol=1e-12)
    assert found["bound"]["factorization_gap"] is found["bound"]["training_gap"] is None
    assert "prior's covariance" in found["notes"]["bound.factorization_gap"]


def test_a_factorization_that_fails_leaves_the_rest():
    """Stock SVGP without jitter, two points in one place."""
    Z = points(9)[0]
    Z[1] = Z[0]
    with gpflow.config.as_context(gpflow.config.Config(jitter=0.0)):
        found = gs.diagnostics(svgp(Z), rows())
    assert "Cholesky factorization of Kuu failed" in found["notes"]["inducing points"]
    assert found["condition_numbers"] is None
    assert found["hyperparameters"]["flags"] == []
    assert found["bound"]["exact"] is not None
    assert json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("build", [solvegp, svgp])
def test_wrong_data_and_models_are_refused(build):
    X, Y = rows()
    model = build(points(9)[0])
    for data, message in (
        ((X, Y[:, 0]), r"Y must be a matrix.*Use Y\[:, None\]"),
        ((X, Y[:9]), "same number of rows"),
        ((X[:, :1], Y), r"X must have 2 column\(s\)"),
        ((X, np.hstack([Y, Y])), r"Y must have 1 column\(s\)"),
        ((X, np.where(X[:, :1] > 1.0, np.nan, Y)), "Y must be finite"),
        (X, "data must be a tuple"),
    ):
        with pytest.raises(ValueError, match=message):
            gs.diagnostics(model, data)
    with pytest.raises(ValueError, match=r"model must be a gpflow\.models\.GPModel, got str"):
        gs.diagnostics("model", (X, Y))
    mean = model.q_mu if build is svgp else model.q_mu[0]
    mean.unconstrained_variable.assign(np.full(mean.shape, np.nan))
    with pytest.raises(ValueError, match=r"parameters that are not finite: q_mu"):
        gs.diagnostics(model, (X, Y))


def test_the_elbo_of_a_sub_sampled_model_is_the_exact_one():
    X, Y = rows()
    basis = gs.bases.RandomFourier(SquaredExponential(), 40, seed=1)
    model = gs.models.QSGP(
        basis, gpflow.likelihoods.Gaussian(NOISE), num_data=len(X), basis_batch_size=5
    )
    model.q_mu.assign(np.random.default_rng(2).normal(size=(40, 1)))
    exact = float(model.exact_elbo((X, Y)))
    found = gs.diagnostics(model, (X, Y))["bound"]["elbo"]
    np.testing.assert_allclose(found, exact, rtol=1e-10)
    assert abs(float(model.elbo((X, Y))) - exact) > 1.0


def test_patches_explain_a_prior_and_enclose_the_evidence():
    member = battery.MEMBERS["solvegp_patches"]
    model = perturb(member.build())
    bound = gs.diagnostics(model, member.data)["bound"]
    assert bound["elbo"] < bound["collapsed"] <= bound["exact"] <= bound["upper"]


@pytest.mark.parametrize("name", ["deep", "deep_convolution"])
def test_a_deep_model_has_what_does_not_need_its_prior(name):
    """Columns of the last kernel are not those of the data."""
    member = battery.MEMBERS[name]
    model = perturb(member.build())
    found = gs.diagnostics(model, member.data)
    assert json.dumps(found, allow_nan=False)
    np.testing.assert_allclose(found["bound"]["elbo"], model.elbo(member.data), rtol=1e-10)
    assert found["bound"]["collapsed"] is found["bound"]["exact"] is None
    assert found["hyperparameters"]["columns"] is found["condition_numbers"] is None
    assert found["calibration"]["count"] > 0
    assert "DeepGP is not one stationary kernel" in found["notes"]["lengthscales"]
    assert [entry["layer"] for entry in found["layers"]] == [1]
    assert "layers" not in found["notes"]
