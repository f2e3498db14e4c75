"""Interpolated covariances against the full grid, which is small enough to form here."""

import gpflow
import numpy as np

from gpflow_sparse.bases import interpolated_covariance
from tests.oracles import interpolation as oracle
from tests.oracles.grief import SE

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


def test_on_the_nodes_it_is_the_kernel(rng):
    X = np.stack([rng.choice(nodes, size=9) for nodes in GRID], axis=1)
    kernel = squared_exponential()
    np.testing.assert_allclose(interpolated_covariance(kernel, GRID, X), kernel(X), atol=1e-12)
