"""Functions rotated by the data, seen through `GRIEF`, against dense NumPy."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.models import GRIEF
from tests.oracles import grief_type_one as oracle

N, P, NOISE = 12, 2, 0.3
GRID = [np.linspace(-2.0, 2.0, 6), np.linspace(-1.5, 2.5, 5)]
pytestmark = pytest.mark.filterwarnings("ignore:.*prior variance")
every_p = pytest.mark.parametrize("p", [5, 20])


def build(p, rows=N, weights=None):
    """Functions of very different sizes, weighed on the rotated ones; more of them than rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    Y = np.sin(2.0 * X[:, :1]) + rng.normal(size=(rows, P))
    model = GRIEF(
        (X, Y),
        gpflow.kernels.SquaredExponential(1.7, [0.9, 1.2]),
        num_eigenfunctions=p,
        grid=GRID,
        reweighted="rotated",
        objective="likelihood",
        noise_variance=NOISE,
    )
    if weights is not None:
        model.weights.assign(weights)
    X_new = np.random.default_rng(7).normal(size=(4, 2))
    return model, Y, model.basis(X).numpy(), X_new, model.basis(X_new).numpy()


def rotation_of(Phi):
    return np.linalg.svd(Phi)[2].T


def require_predictions(model, X_new, mean, variance):
    got = model.predict_f(X_new)
    np.testing.assert_allclose(got[0], mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got[1], np.tile(variance[:, None], (1, P)), rtol=1e-7)


@every_p
def test_the_rotation_diagonalizes_the_sums(p):
    """The first weight is of the function with the largest sum of squares, and so on."""
    w = np.random.default_rng(1).lognormal(size=p)
    model, Y, Phi, X_new, Phi_new = build(p, weights=w)
    V = rotation_of(Phi)
    density = oracle.dense_lml(Phi @ V, Y, w, NOISE)
    np.testing.assert_allclose(model.log_marginal_likelihood(), density, rtol=1e-10)
    if p <= N:  # the directions of the others are any
        predicted = oracle.dense_predict(Phi @ V, Y, Phi_new @ V, w, NOISE)
        require_predictions(model, X_new, *predicted)


@every_p
def test_unit_weights_are_the_kernel_of_the_features_everywhere(p):
    """On the data and off it; with p > N a part of the features is zero on the data only."""
    model, Y, Phi, X_new, Phi_new = build(p)
    ones = np.ones(p)
    density = oracle.dense_lml(Phi, Y, ones, NOISE)
    np.testing.assert_allclose(model.log_marginal_likelihood(), density, rtol=1e-10)
    require_predictions(model, X_new, *oracle.dense_predict(Phi, Y, Phi_new, ones, NOISE))


def test_features_that_are_zero_keep_their_prior():
    """Their weights change no likelihood and no mean, and multiply their prior variance."""
    p, rows = 10, 3
    w = np.concatenate([[0.5, 2.0, 1.3], np.full(p - rows, 4.0)])
    model, Y, Phi, X_new, Phi_new = build(p, rows, w)
    V = rotation_of(Phi)
    mean, variance = oracle.dense_predict(Phi @ V, Y, Phi_new @ V, w, NOISE)
    require_predictions(model, X_new, mean, variance)
    assert np.sum((Phi_new @ V)[:, rows:] ** 2) > 0.1
    with tf.GradientTape() as tape:
        density = model.log_marginal_likelihood()
    slopes = tape.gradient(density, model.weights.unconstrained_variable).numpy()
    np.testing.assert_allclose(density, oracle.dense_lml(Phi @ V, Y, w, NOISE), rtol=1e-9)
    np.testing.assert_array_equal(slopes[rows:], np.zeros(p - rows))
    assert np.abs(slopes[:rows]).min() > 1e-3
