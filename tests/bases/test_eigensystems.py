"""One-dimensional eigensystems inside a basis: rounding; gradients where eigenvalues are equal."""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Periodic, SquaredExponential

from tests.bases.test_grid_eigenfunctions import (
    VARIANCE,
    build,
    dense_lml,
    grid,
    inputs,
)
from tests.oracles import grief as oracle


def test_eigenvalues_below_the_rounding_error_are_left_out():
    """33 to 47 of 100 computed eigenvalues are negative: no logarithm, and no feature of noise."""
    data = inputs(500, 1)
    (nodes,) = grid(data, (100,))
    for lengthscale in (0.3, 1.0, 10.0):
        basis = build(SquaredExponential(lengthscales=lengthscale), data, 100, grid=[nodes])
        lam = np.linalg.eigvalsh(oracle.SE(lengthscale)(nodes, nodes))
        assert (lam <= 0.0).sum() > 20
        assert abs(basis.num_basis - (lam > 100 * oracle.EPS * lam.max()).sum()) <= 1
        assert np.isfinite(basis.log_eigenvalues()).all()
        assert np.sum(basis(data).numpy() ** 2, axis=1).max() <= 1.0 + 1e-12
        on_grid = np.sum(basis(nodes[:, None]).numpy() ** 2, axis=1)
        np.testing.assert_allclose(on_grid, np.ones(100), atol=1e-9)


def test_gradients_of_degenerate_eigenvalues_within_a_column():
    """A periodic kernel on an even grid of one period: sines and cosines come in pairs."""
    nodes = np.arange(12) / 12.0
    X = np.random.default_rng(1).uniform(size=(30, 1))
    kernel = Periodic(SquaredExponential(VARIANCE, 0.6), period=1.0)
    kernel.base_kernel.lengthscales = gpflow.Parameter(0.6)
    gpflow.set_trainable(kernel.period, False)
    basis = build(kernel, X, 7, grid=[nodes])
    assert basis.complete_multiplets() == 7
    y = np.sin(5.0 * X[:, 0])
    lengthscale = kernel.base_kernel.lengthscales
    with tf.GradientTape() as tape:
        value = dense_lml(basis, X, y, 0.2)
    gradient = tape.gradient(value, lengthscale.unconstrained_variable)
    lengthscale.assign(0.6 + 1e-5)
    above = dense_lml(basis, X, y, 0.2)
    lengthscale.assign(0.6 - 1e-5)
    np.testing.assert_allclose(gradient, (above - dense_lml(basis, X, y, 0.2)) / 2e-5, rtol=1e-5)
