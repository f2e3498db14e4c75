"""Softmax weights between learned points, against loops over pairs of points."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.bases import SoftInterpolation
from tests.oracles import softki as oracle

RNG = np.random.default_rng(4)
X, Z = RNG.normal(size=(9, 3)), RNG.normal(size=(6, 3))
VARIANCE, LENGTHSCALES, RATES = 1.7, np.array([0.7, 1.4, 1.1]), np.array([0.5, 0.3, 0.9])
JITTER = {np.float64: 1e-6, np.float32: 1e-4}
TOLERANCE = {np.float64: 1e-12, np.float32: 2e-6}


def kernel(lengthscales=LENGTHSCALES, **options):
    return gpflow.kernels.Matern32(variance=VARIANCE, lengthscales=lengthscales, **options)


# Arguments of the basis, and the temperature of every column that they stand for.
TEMPERATURES = {
    "one": ({}, 1.0),
    "scalar": ({"temperature": 0.3}, 0.3),
    "columns": ({"temperature": RATES}, RATES),
    "tied": ({"temperature": 0.4, "tied": True}, 0.4 * LENGTHSCALES),
    "tied columns": ({"temperature": RATES, "tied": True}, RATES * LENGTHSCALES),
}
every_temperature = pytest.mark.parametrize(
    ("options", "temperature", "float_type"),
    [
        *(pytest.param(*case, "float64", id=name) for name, case in TEMPERATURES.items()),
        pytest.param(*TEMPERATURES["tied columns"], "float32", id="float32"),
    ],
    indirect=["float_type"],
)


def rounded(array, float_type):
    """What an array is once it is in a float type, in float64."""
    return np.asarray(array, float_type).astype(float)


def covariance(points, relative=1e-6):
    return oracle.with_jitter(oracle.matern32(points, points, VARIANCE, LENGTHSCALES), relative)


@every_temperature
def test_weights_are_a_softmax_of_distances(options, temperature, float_type):
    W = SoftInterpolation(kernel(), Z, **options).weights(X)
    expected = oracle.weights(rounded(X, float_type), rounded(Z, float_type), temperature)
    assert W.dtype == float_type
    np.testing.assert_allclose(W, expected, atol=TOLERANCE[float_type])
    assert (W.numpy() >= 0.0).all()
    np.testing.assert_allclose(np.sum(W, axis=1), 1.0, atol=TOLERANCE[float_type])


@every_temperature
def test_columns_and_features_are_weights_times_the_factor(options, temperature, float_type):
    basis = SoftInterpolation(kernel(), Z, **options)
    x, z = rounded(X, float_type), rounded(Z, float_type)
    W, K = oracle.weights(x, z, temperature), covariance(z, JITTER[float_type])
    B, tolerance = oracle.whitened(W, K), 10.0 * TOLERANCE[float_type]
    np.testing.assert_allclose(basis(X), B, atol=tolerance)
    np.testing.assert_allclose(basis(X) @ tf.transpose(basis(X)), W @ K @ W.T, atol=tolerance)
    np.testing.assert_allclose(basis(X, [4, 0, 4]), B[:, [4, 0, 4]], atol=tolerance)
    A = basis.features(X)
    np.testing.assert_allclose(A, B.T, atol=tolerance)
    np.testing.assert_array_equal(basis.features(X, basis.precompute()), A)
    np.testing.assert_allclose(basis.covariance(), K, atol=tolerance)
    assert (basis.num_basis, basis.input_dim, basis.precision) == (6, 3, "identity")
    assert not basis.is_projection
    np.testing.assert_array_equal(basis.prior_precision(), np.eye(6))


def test_cold_weights_choose_the_nearest_point_and_hot_ones_average():
    nearest = np.argmin(((X[:, None] - Z) ** 2).sum(axis=2), axis=1)
    cold = SoftInterpolation(kernel(), Z, temperature=1e-4)
    np.testing.assert_allclose(cold.weights(X), np.eye(6)[nearest], atol=1e-12)
    K = covariance(Z)[np.ix_(nearest, nearest)]
    np.testing.assert_allclose(cold(X) @ tf.transpose(cold(X)), K, atol=1e-12)
    hot = SoftInterpolation(kernel(), Z, temperature=1e6).weights(X)
    np.testing.assert_allclose(hot, np.full((9, 6), 1.0 / 6.0), atol=1e-5)


def gradient(function, sources):
    with tf.GradientTape() as tape:
        value = function()
    return tape.gradient(value, sources)


GRADIENT_CASES = {
    **{name: (kernel, options) for name, (options, _) in TEMPERATURES.items()},
    "isotropic tied": (lambda: kernel(0.9), {"temperature": RATES, "tied": True}),
    "not stationary": (lambda: gpflow.kernels.Polynomial(2.0), {"temperature": 0.3}),
}


@pytest.mark.parametrize("case", GRADIENT_CASES.values(), ids=list(GRADIENT_CASES))
def test_gradients_equal_central_differences(case, rng):
    """Of a sum of covariances, which goes through the weights."""
    make, options = case
    basis = SoftInterpolation(make(), Z, **options)
    weights = rng.normal(size=(9, 9))

    def value():
        return tf.reduce_sum(weights * (basis(X) @ tf.transpose(basis(X))))

    variables = basis.trainable_variables
    slopes = gradient(value, variables)
    seen = 0
    for variable, slope in zip(variables, slopes, strict=True):
        start = variable.numpy()

        def moved(point, variable=variable):
            variable.assign(point)
            return float(value())

        numeric = oracle.central_difference(moved, start, 1e-6)
        variable.assign(start)
        got = np.zeros_like(start) if slope is None else slope
        np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=2e-8)
        seen += slope is not None and bool(np.any(np.abs(slope) > 1e-3))
    assert seen >= 4  # points, temperature, variance, lengthscales


@every_temperature
def test_gradients_by_the_rows_where_they_equal_points(options, temperature, float_type, rng):
    """The root of the distance has no slope there; nothing pulls in this term, all others do."""
    basis, values = SoftInterpolation(kernel(), Z, **options), rng.normal(size=6)
    rows = tf.constant(np.concatenate([Z[[2, 5]], X[:2]]), float_type)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(rows)
        total = tf.reduce_sum(basis.weights(rows) * values.astype(float_type))
    z = rounded(Z, float_type)
    expected = [oracle.slopes(row, z, values, temperature) for row in rounded(rows, float_type)]
    tolerance = 1e-9 if float_type == np.float64 else 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(tape.gradient(total, rows), expected, atol=tolerance)
    for variable in basis.trainable_variables:
        slope = tape.gradient(total, variable)
        assert slope is None or np.isfinite(slope).all()
    assert np.isfinite(tape.gradient(total, basis.Z.unconstrained_variable)).all()
