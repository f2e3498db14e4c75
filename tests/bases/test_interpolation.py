"""Interpolated covariances against the full grid, which is small enough to form here."""

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.bases import interpolated_covariance
from tests.oracles import interpolation as oracle
from tests.oracles.grief import SE, Matern32

GRID = ([-1.3, -0.2, 0.1, 1.9], [-2.0, 0.0, 0.4], [0.3], [-1.0, -0.9, 0.5, 0.6, 2.5])


def squared_exponential():
    return gpflow.kernels.SquaredExponential(variance=1.7, lengthscales=[0.8, 1.1, 2.0, 0.6])


def squared_exponential_factors():
    return [SE(scale) for scale in (0.8, 1.1, 2.0, 0.6)]


def test_equals_the_dense_product_with_the_full_grid(rng, float_type):
    X, X2 = 1.5 * rng.normal(size=(7, 4)), 1.5 * rng.normal(size=(5, 4))  # some beyond the nodes
    factors = squared_exponential_factors()
    K = interpolated_covariance(squared_exponential(), GRID, X, X2)
    assert K.dtype == float_type
    wanted = oracle.interpolated_covariance(factors, 1.7, GRID, X, X2)
    np.testing.assert_allclose(K, wanted, atol=1e-12 if float_type == np.float64 else 1e-6)
    wanted = oracle.interpolated_covariance(factors, 1.7, GRID, X, X)
    K = interpolated_covariance(squared_exponential(), GRID, X)
    np.testing.assert_allclose(K, wanted, atol=1e-12 if float_type == np.float64 else 1e-6)


def test_a_product_of_kernels_that_leaves_columns_out(rng):
    parts = [
        gpflow.kernels.Matern32(variance=0.5, lengthscales=0.7, active_dims=[3]),
        gpflow.kernels.SquaredExponential(variance=3.0, lengthscales=1.2, active_dims=[0]),
        gpflow.kernels.Constant(2.0),
    ]
    factors = [SE(1.2), SE(np.inf), SE(np.inf), Matern32(0.7)]
    X = rng.normal(size=(6, 4))
    wanted = oracle.interpolated_covariance(factors, 3.0, GRID, X, X)
    np.testing.assert_allclose(
        interpolated_covariance(gpflow.kernels.Product(parts), GRID, X), wanted, atol=1e-12
    )


def test_on_the_nodes_it_is_the_kernel(rng):
    X = np.stack([rng.choice(nodes, size=9) for nodes in GRID], axis=1)
    kernel = squared_exponential()
    np.testing.assert_allclose(interpolated_covariance(kernel, GRID, X), kernel(X), atol=1e-12)


def test_the_error_falls_with_the_square_of_the_spacing(rng):
    X = rng.uniform(-1.0, 1.0, size=(40, 2))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.8, 1.3])
    errors = []
    for num_points in (21, 41, 81):
        grid = [np.linspace(-1.0, 1.0, num_points)] * 2
        errors.append(np.abs(interpolated_covariance(kernel, grid, X) - kernel(X)).max())
    assert 3.3 < errors[0] / errors[1] < 4.7
    assert 3.3 < errors[1] / errors[2] < 4.7


def test_many_columns_are_no_obstacle(rng):
    X = rng.uniform(-1.0, 1.0, size=(20, 30))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(30, np.sqrt(30.0)))
    grid = [np.linspace(-1.0, 1.0, 30)] * 30  # 2e44 points
    K = interpolated_covariance(kernel, grid, X)
    np.testing.assert_allclose(K, kernel(X), atol=2e-3)
    assert np.linalg.eigvalsh(K).min() > -1e-12


def test_gradients_reach_the_kernel_also_when_compiled(rng):
    X, kernel = rng.normal(size=(6, 4)), squared_exponential()
    variables = kernel.trainable_variables

    def value():
        return tf.reduce_sum(tf.square(interpolated_covariance(kernel, GRID, X)))

    def slopes():
        with tf.GradientTape() as tape:
            y = value()
        return tape.gradient(y, variables)

    eager, compiled = slopes(), tf.function(slopes, autograph=False)()
    for variable, slope, other in zip(variables, eager, compiled, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-12)
        start = variable.numpy()
        for index in np.ndindex(start.shape):
            step = np.zeros_like(start)
            step[index] = 1e-6
            variable.assign(start + step)
            above = value()
            variable.assign(start - step)
            below = value()
            variable.assign(start)
            difference = (above - below) / 2e-6
            np.testing.assert_allclose(slope.numpy()[index], difference, rtol=1e-6, atol=1e-8)
