"""GRIEF: objectives, predictions and gradients against dense algebra; index set; data; doors."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32, SquaredExponential
from gpflow.models import GPR, GPRFITC

from gpflow_sparse.inducing_variables import BasisFeatures
from gpflow_sparse.kernels import product_of
from gpflow_sparse.models import GRIEF
from tests.oracles import grief as oracle

D, M, N, NOISE = 2, 14, 30, 0.2
VARIANCE, LENGTHSCALES = 1.7, [0.9, 1.2]
OBJECTIVES = ("bound", "likelihood", "corrected")
REWEIGHTED = ("original", "rotated")
every_objective = pytest.mark.parametrize("objective", OBJECTIVES)

pytestmark = pytest.mark.filterwarnings("ignore:.*prior variance")


def inputs(rows=N, seed=1, columns=D):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def data(rows=N, P=1):
    X = inputs(rows)
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * np.random.default_rng(2).normal(size=(rows, P))


def kernel():
    return SquaredExponential(VARIANCE, LENGTHSCALES)


def slope(P=1):
    return gpflow.functions.Linear(np.full((D, P), 0.3), np.linspace(-0.2, 0.1, P))


def build(rows=None, **options):
    rows = data() if rows is None else rows
    defaults = {"num_eigenfunctions": M, "noise_variance": NOISE}
    return GRIEF(rows, options.pop("kernel", None) or kernel(), **(defaults | options))


def reference(p=M, lengthscales=LENGTHSCALES, X=None):
    """The oracle at the nodes that the package takes from X."""
    nodes = [oracle.percentile_grid(column, 10) for column in (inputs() if X is None else X).T]
    return oracle.build_basis([oracle.SE(value) for value in lengthscales], VARIANCE, nodes, p)


def diagonal(X):
    return np.full(len(X), VARIANCE)


def dense_objective(objective, Phi, X, y):
    ones = np.ones(Phi.shape[1])
    return {
        "bound": lambda: oracle.collapsed_bound(Phi, diagonal(X), y, NOISE),
        "likelihood": lambda: oracle.dense_lml(Phi, ones, y, NOISE),
        "corrected": lambda: oracle.corrected_lml(Phi, ones, diagonal(X), y, NOISE),
    }[objective]()


def dense_prediction(objective, Phi, y, Xnew, Phi_new, basis):
    """Mean and variance."""
    ones = np.ones(Phi.shape[1])
    if objective == "corrected":
        return oracle.corrected_predict(
            Phi, ones, diagonal(Phi), y, NOISE, Phi_new, diagonal(Phi_new)
        )
    if objective == "likelihood":
        mean, cov = oracle.predict(Phi, ones, y, NOISE, Phi_new)
    else:
        K_new = basis.kernel(Xnew, Xnew)
        mean, cov = oracle.predict_with_residual(Phi, y, NOISE, Phi_new, K_new)
    return mean, np.diag(cov)


def assert_close(got, expected, rtol=1e-9, atol=1e-9):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def weights(seed=6):
    return np.random.default_rng(seed).exponential(size=M) + 0.05


@every_objective
@pytest.mark.parametrize("P", [1, 2])
def test_every_objective_and_its_predictions_are_the_dense_ones(objective, P):
    """Two outputs, a mean function: sums over the residuals of each."""
    X, Y = data(P=P)
    Xnew = np.concatenate([inputs(5, seed=4), 5.0 + inputs(3, seed=5)])
    model = build((X, Y), objective=objective, mean_function=slope(P))
    basis = reference()
    Phi, Phi_new = basis.features(X), basis.features(Xnew)
    errors = (Y - slope(P)(X).numpy()).T
    expected = sum(dense_objective(objective, Phi, X, y) for y in errors)
    np.testing.assert_allclose(model.maximum_log_likelihood_objective(), expected, rtol=1e-10)
    np.testing.assert_allclose(model.training_loss(), -expected, rtol=1e-10)
    bound = sum(dense_objective("bound", Phi, X, y) for y in errors)
    np.testing.assert_allclose(model.elbo(), bound, rtol=1e-9)
    lml = "corrected" if objective == "corrected" else "likelihood"
    expected = sum(dense_objective(lml, Phi, X, y) for y in errors)
    np.testing.assert_allclose(model.log_marginal_likelihood(), expected, rtol=1e-10)
    pairs = [dense_prediction(objective, Phi, y, Xnew, Phi_new, basis) for y in errors]
    mean = np.stack([pair[0] for pair in pairs], axis=1) + slope(P)(Xnew).numpy()
    var = np.stack([pair[1] for pair in pairs], axis=1)
    for predict in (model.predict_f, model.posterior().predict_f):
        assert_close(predict(Xnew), (mean, var))
        full_mean, cov = predict(Xnew, full_cov=True)
        assert_close((full_mean, np.diagonal(cov, axis1=1, axis2=2).T), (mean, var))
    assert_close(model.predict_y(Xnew), (mean, var + NOISE))


def test_corrected_is_stock_fitc_on_the_functions_as_inducing_variables():
    rows, Xnew = data(), np.concatenate([inputs(5, seed=4), 5.0 + inputs(3, seed=5)])
    model = build(rows, objective="corrected")
    stock = GPRFITC(rows, model.kernel, BasisFeatures(model.basis), noise_variance=NOISE)
    np.testing.assert_allclose(model.training_loss(), stock.training_loss(), rtol=1e-9)
    for full_cov in (False, True):
        assert_close(model.predict_f(Xnew, full_cov), stock.predict_f(Xnew, full_cov))


@pytest.mark.parametrize("p", [5, M, 60])
def test_the_gradient_of_the_likelihood_is_that_of_perturbation_theory(p):
    """In batches of 7 rows: the exact two-pass gradient."""
    k = SquaredExponential()
    k.lengthscales = gpflow.Parameter(LENGTHSCALES)  # without a transform: plain derivatives
    k.variance = gpflow.Parameter(VARIANCE)
    X, Y = data()
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(7)
    model = build(batches, kernel=k, num_eigenfunctions=p, objective="likelihood")
    model.likelihood.variance = gpflow.Parameter(NOISE)
    variables = [
        part.unconstrained_variable
        for part in (k.lengthscales, k.variance, model.likelihood.variance)
    ]
    with tf.GradientTape() as tape:
        value = model.log_marginal_likelihood()
    got = tape.gradient(value, variables)
    expected, *gradients = oracle.grief_lml_and_hyper_gradient(reference(p), X, Y[:, 0], NOISE)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    assert_close(got, gradients, rtol=1e-7, atol=1e-7)


def test_with_too_few_functions_the_likelihood_prefers_wrong_lengthscales_and_the_bound_does_not():
    """20 functions of many, on data with many wiggles."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-3.0, 3.0, size=(300, 2))
    exact = SquaredExponential(1.0, 1.0)
    Y = np.linalg.cholesky(exact(X).numpy() + 0.1 * np.eye(300)) @ rng.normal(size=(300, 1))
    evidence, likelihood, bound = [], [], []
    for lengthscale in (0.5, 0.7, 1.0, 1.4, 2.0, 3.0):
        k = SquaredExponential(1.0, lengthscale)
        evidence.append(float(GPR((X, Y), k, noise_variance=0.1).log_marginal_likelihood()))
        model = build((X, Y), kernel=k, num_eigenfunctions=20, noise_variance=0.1)
        likelihood.append(float(model.log_marginal_likelihood()))
        bound.append(float(model.elbo()))
    assert np.argmax(evidence) in (1, 2, 3)
    assert (np.array(bound) <= evidence).all()
    assert np.argmax(likelihood) != np.argmax(evidence)


def test_grids_of_the_users_own_and_other_products():
    rows = data()
    nodes = [np.linspace(-3.0, 3.0, 7), np.linspace(-2.0, 2.0, 5)]
    factors = [oracle.Matern32(0.8), oracle.Matern32(1.3)]
    model = build(rows, kernel=product_of(Matern32, [0.8, 1.3], 1.7), grid=nodes)
    Phi = oracle.build_basis(factors, VARIANCE, nodes, M).features(rows[0])
    expected = oracle.collapsed_bound(Phi, diagonal(Phi), rows[1][:, 0], NOISE)
    np.testing.assert_allclose(model.elbo(), expected, rtol=1e-9)
