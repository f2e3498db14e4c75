"""New rows without training: ``model.condition_on(X, Y)``."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse import models
from gpflow_sparse.inference.calibration import Calibration
from tests import battery
from tests.battery import MEMBERS, N, inputs, perturb
from tests.models.held import held_in
from tests.oracles.conditioning import (
    chain_precision,
    kl_between,
    streaming_optimum,
    with_sites,
)
from tests.test_battery import ALL

X, XNEW = inputs(seed=11, rows=30), inputs(seed=12, rows=7)
Y = np.sin(2.0 * X[:, :1]) + 0.3 * np.random.default_rng(5).normal(size=(30, 2))
CLASSES = (X[:, :1] > 0).astype(float) + (X[:, 1:] > 0.5)
OLD, NOISE = slice(0, 20), 0.2
GRID = [np.linspace(-2.0, 2.0, 5)] * 2
OPTIONS = {"noise_variance": NOISE}


def linear():
    return battery.linear(2)


def mixture(rows):
    """Of two kernels and draws of their hyperparameters."""
    kernels = [battery.matern(), gpflow.kernels.Matern32(variance=0.7)]
    return models.GPMixture(rows, kernels, mean_function=linear(), shares=[0.3, 0.7], **OPTIONS)


def solvegpr(bound):
    return lambda rows: models.SOLVEGPR(
        rows, battery.matern(), battery.sets(), bound=bound, mean_function=linear(), **OPTIONS
    )


def grief(**options):
    kernel = battery.gaussian_product
    options = {"num_eigenfunctions": 9, "grid": GRID, "mean_function": linear(), **options}
    return lambda rows: models.GRIEF(rows, kernel(), **options, **OPTIONS)


def softki(rows):
    model = models.SoftKI(battery.matern(), inputs(seed=3, rows=6), num_latent_gps=2, **OPTIONS)
    model.fit_posterior(rows, refit_noise=False)
    return model


def site_vgp(rows):
    model = models.SiteVGP(rows, battery.matern(), gpflow.likelihoods.Poisson(), num_latent_gps=2)
    model.fit_sites()
    return model


def nearest(rows):
    return models.NearestNeighborGP(
        rows, battery.matern(), num_neighbors=25, mean_function=linear(), **OPTIONS
    )


def nearest_classes(rows):
    mean = gpflow.functions.Constant(np.full(3, -1.0))
    return models.NearestNeighborClassifier(
        rows, battery.matern(), 3, num_neighbors=6, mean_function=mean
    )


HOLDING = {
    "mixture": (mixture, Y),
    "solvegpr": (solvegpr("standard"), Y),
    "solvegpr_block": (solvegpr("block"), Y),
    "solvegpr_coupled": (solvegpr("coupled"), Y),
    "basis_gpr": (lambda rows: models.BasisGPR(rows, battery.fourier(), **OPTIONS), Y),
    "grief_corrected": (grief(objective="corrected"), Y),
    "grief_original": (grief(reweighted="original"), Y),
    "grief_rotated": (grief(reweighted="rotated"), Y),
    "softki": (softki, Y),
    "site_vgp": (site_vgp, np.round(np.exp(Y))),
    "gpnn": (nearest, Y),
    "gpnn_classes": (nearest_classes, CLASSES),
}


def split(Y):
    """Old rows and new ones, of which some repeat inputs of old ones."""
    repeated = X.copy()
    repeated[20:23] = X[:3]
    return (repeated, Y), (repeated[OLD], Y[OLD]), (repeated[20:], Y[20:])


@pytest.mark.parametrize("name", HOLDING)
def test_a_model_with_its_data_equals_a_model_of_all_rows(name):
    build, outputs = HOLDING[name]
    both, old, new = split(outputs)
    model, full = build(old).condition_on(*new), build(both)
    tolerance = 1e-10 if name.startswith("gpnn") else 1e-8
    for a, b in zip(model.predict_f(XNEW), full.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=0.0, atol=tolerance)
    if name != "softki":
        values = [m.maximum_log_likelihood_objective() for m in (model, full)]
        np.testing.assert_allclose(*values, rtol=1e-8)


def test_a_mixture_keeps_its_draws_and_weights_of_rows():
    both, old, new = split(Y)
    kernel = gs.kernels.table_kernel(gpflow.kernels.Matern52, 2)
    model = models.GPMixture(old, [kernel], num_draws=4, row_weights=np.linspace(0.2, 1.0, 20))
    model.integrate()
    told = model.condition_on(*new)
    full = gpflow.utilities.deepcopy(model)
    full.data = tuple(map(tf.constant, both))
    full.row_weights = tf.concat([model.row_weights, tf.ones([10], tf.float64)], axis=0)
    assert np.array_equal(told.components[0].draws, model.components[0].draws)
    np.testing.assert_allclose(told.predict_y(XNEW), full.predict_y(XNEW), atol=1e-10)


def test_rows_in_files_have_the_new_rows_as_one_more_batch(tmp_path):
    both, old, new = split(Y)
    held = models.BasisGPR(held_in("dataset", old, tmp_path), battery.fourier(), **OPTIONS)
    full = models.BasisGPR(both, battery.fourier(), **OPTIONS)
    np.testing.assert_allclose(held.condition_on(*new).elbo(), full.elbo(), rtol=1e-10)


def test_gpnn_keeps_local_factors_and_calibration():
    rng = np.random.default_rng(0)
    A = rng.uniform(-3.0, 3.0, size=(600, 2))
    B = np.sin(A[:, :1]) + np.exp(A[:, 1:]) / 3.0 * rng.normal(size=(600, 1))
    model = models.NearestNeighborGP((A, B), battery.matern(), num_neighbors=40)
    local = model.fit_local_variance()
    model.calibration = Calibration(function=1.3, noise=0.9)
    new = model.condition_on(A[:50] + 0.01, B[:50])
    assert repr(new.calibration) == repr(model.calibration)
    sums = np.append(local.sums, np.zeros(50))
    np.testing.assert_array_equal(new.local_variance.sums, sums)
    mean, var = new.predict_f(XNEW)
    new.local_variance = None
    plain, prior = new.predict_f(XNEW)
    near = new.neighbors.neighbors(tf.constant(XNEW), new.kernel).numpy()[:, : local.num_nearest]
    counts = np.append(local.counts, np.zeros(50))
    ratio = (local.strength + sums[near].sum(1)) / (local.strength + counts[near].sum(1))
    np.testing.assert_allclose(mean, plain, atol=1e-12)
    np.testing.assert_allclose(var / prior, local.level * ratio[:, None] ** 2, rtol=1e-10)


def whitened_projection(model, X):
    """``chol(K)^-1 k(Z, X)`` of all sets, by NumPy."""
    Z = np.concatenate([part.Z.numpy() for part in model.inducing_variable.sets])
    K = model.kernel(Z).numpy()
    L = np.linalg.cholesky(K + 1e-6 * np.mean(np.diag(K)) * np.eye(len(Z)))
    return np.linalg.solve(L, model.kernel(Z, X).numpy())


def test_solvegp_has_the_optimum_of_the_streaming_bound():
    model = perturb(battery.solvegp((5, 4), P=2)(num_data=40))
    new = model.condition_on(X, Y)
    assert new.num_data == 70
    A, errors = whitened_projection(model, X), Y - model.mean_function(X).numpy()
    noise = float(model.likelihood.variance.numpy())
    for p in range(2):
        old = [R.numpy()[p] @ R.numpy()[p].T for R in model.q_sqrt]
        start = np.concatenate([m.numpy()[:, p] for m in model.q_mu])
        mean, covariances = streaming_optimum(A, errors[:, p], noise, start, old)
        found = np.concatenate([m.numpy()[:, p] for m in new.q_mu])
        np.testing.assert_allclose(found, mean, atol=1e-8)
        for R, S in zip(new.q_sqrt, covariances, strict=True):
            np.testing.assert_allclose(R.numpy()[p] @ R.numpy()[p].T, S, atol=1e-8)


def test_swsgp_has_the_optimum_of_the_streaming_bound():
    model = perturb(battery.swsgp(P=2)(num_data=N))
    new = model.condition_on(X, Y)
    Z, near = model.points.Z.numpy(), model.points.neighbors(tf.constant(X), model.kernel).numpy()
    A, eps = np.zeros((len(Z), len(X))), 1e-6 * model.kernel.variance.numpy()
    links = model.points.links(tf.range(len(Z)), model.kernel).numpy()
    before = [[i for i in links[j, 1:] if i != j] for j in range(len(Z))]
    P = chain_precision(lambda *points: model.kernel(*points).numpy(), Z, before, eps)
    for i, I in enumerate(near):
        K = model.kernel(Z[I]).numpy() + eps * np.eye(len(I))
        A[I, i] = np.linalg.solve(K, model.kernel(Z[I], X[i : i + 1]).numpy()[:, 0])
    errors = Y - model.mean_function(X).numpy()
    for p in range(2):
        old = [s.reshape(1, 1) ** 2 for s in model.q_sqrt.numpy()[:, p]]
        noise = float(model.likelihood.variance.numpy())
        posterior = with_sites(P, model.q_sqrt.numpy()[:, p])
        start = model.q_mu.numpy()[:, p]
        optimum = streaming_optimum(A, errors[:, p], noise, start, old, posterior)
        np.testing.assert_allclose(new.q_mu.numpy()[:, p], optimum[0], atol=1e-7)
        np.testing.assert_allclose(new.q_sqrt.numpy()[:, p] ** 2, np.ravel(optimum[1]), rtol=1e-7)
    counts = np.bincount(near.ravel(), minlength=len(Z))[:, None]
    np.testing.assert_array_equal(new.usage, model.usage + counts)


def test_q_in_pieces_is_q_of_all_rows_where_it_is_dense_and_near_it_where_it_is_not():
    """The ordinary bound is the one whose old q is the prior."""
    gaps = []
    for member in (battery.swsgp(covariance="dense"), battery.solvegp()):
        prior, y = member(), Y[:, :1]
        once = prior.condition_on(X, y)
        pieces = prior.condition_on(X[OLD], y[OLD]).condition_on(X[20:], y[20:])
        densities = [np.mean(model.predict_log_density((X, y))) for model in (once, pieces)]
        gaps.append(abs(densities[0] - densities[1]))
    assert gaps[0] < 1e-8
    assert 1e-4 < gaps[1] < 0.02


def test_basis_svgp_from_its_prior_is_exact_regression():
    prior = battery.basis_svgp(battery.fourier, P=2)(num_data=1)
    pieces = prior.condition_on(X[OLD], Y[OLD]).condition_on(X[20:], Y[20:])
    exact = models.BasisGPR((X, Y), prior.basis, mean_function=linear(), **OPTIONS)
    np.testing.assert_allclose(pieces.predict_f(XNEW), exact.predict_f(XNEW), atol=1e-8)


STATIONARY = ["solvegp_bernoulli", "solvegp_mixed_unwhitened", "basis_svgp_bernoulli"]


@pytest.mark.parametrize("name", STATIONARY)
def test_the_bound_is_stationary_for_any_likelihood(name):
    """Its slopes by q are zero: by differences of a bound with the KL of dense algebra."""
    model = perturb(MEMBERS[name].build())
    data = X[:N], MEMBERS[name].outputs()
    new = model.condition_on(*data)
    pairs, old = new.variational_parameters, model.variational_parameters

    def bound():
        rows = new.likelihood.variational_expectations(data[0], *new.predict_f(data[0]), data[1])
        value = float(tf.reduce_sum(rows))
        for (m, R), (m0, R0) in zip(pairs, old, strict=True):
            for p in range(m.shape[1]):
                S, S0 = (r.numpy()[p] @ r.numpy()[p].T for r in (R, R0))
                value -= kl_between(m.numpy()[:, p], S, m0.numpy()[:, p], S0)
        return value

    rng, best = np.random.default_rng(1), bound()
    for variable in (part.unconstrained_variable for pair in pairs for part in pair):
        at, step = variable.numpy(), 1e-5 * rng.normal(size=variable.shape)
        values = []
        for sign in (1.0, -1.0):
            variable.assign(at + sign * step)
            values.append(bound())
        variable.assign(at)
        assert max(values) < best  # a maximum
        np.testing.assert_allclose(*values, rtol=0.0, atol=1e-3 * (best - min(values)) + 1e-8)


# One model of each class, and of each way in which the class treats new rows.
OF_EACH_CLASS = [
    *("solvegp_mixed", "solvegp_bernoulli", "odvgp", "basis_svgp_fourier", "qsgp", "rvm"),
    *("swsgp_bernoulli", "swsgp_dense", "swsgp_union", "deep_basis", "solvegpr", "softki"),
    *("basis_gpr_fourier", "grief_original", "mixture", "site_vgp_classes", "gpnn", "gpnn_classes"),
]


def test_every_class_of_models_is_asked_for_new_rows():
    public = [vars(models)[name] for name in models.__all__ if name != "VariationalModel"]
    kinds = {kind for kind in public if isinstance(kind, type)}
    kinds = {kind for kind in kinds if issubclass(kind, gpflow.models.GPModel)}
    assert {type(ALL[name].build()) for name in OF_EACH_CLASS} == kinds


@pytest.mark.parametrize("name", OF_EACH_CLASS)
def test_every_model_takes_new_rows_or_says_why_not(name, tmp_path):
    member = ALL[name]
    model = perturb(member.build())
    rows = XNEW[:3], member.outputs()[:3]
    before = [np.asarray(part) for part in model.predict_f(XNEW)]
    if isinstance(model, models.DeepGP | models.QSGP | models.ODVGP):
        with pytest.raises(ValueError, match=r"^\w+ cannot .* rows, since .*; train it on all"):
            model.condition_on(*rows)
        return
    new = model.condition_on(*rows)
    assert type(new) is type(model)
    np.testing.assert_array_equal(before, model.predict_f(XNEW))
    after = new.predict_f(XNEW)
    assert np.abs(np.subtract(before, after)).max() > 1e-3
    gs.save(new, tmp_path / "model")
    np.testing.assert_allclose(gs.load(tmp_path / "model").predict_f(XNEW), after, atol=1e-12)


def test_rows_that_do_not_fit_are_refused():
    model = battery.solvegp()()
    with pytest.raises(ValueError, match="Y must have 1 column"):
        model.condition_on(X, Y)
    with pytest.raises(ValueError, match="same number of rows"):
        model.condition_on(X, Y[:5, :1])
    held = models.BasisGPR(tuple(map(tf.Variable, (X, Y))), battery.fourier())
    with pytest.raises(ValueError, match="assign all rows to the variables"):
        held.condition_on(X, Y)
    rotated = grief(reweighted="rotated")((X, Y))
    rotated.weights.assign(np.linspace(0.5, 2.0, 9))
    with pytest.raises(ValueError, match="weights must be 1 for condition_on with"):
        rotated.condition_on(X, Y)
    with pytest.raises(ValueError, match=r"outside of tf\.function"):
        tf.function(lambda: model.condition_on(X, Y[:, :1]).elbo((X, Y[:, :1])))()
