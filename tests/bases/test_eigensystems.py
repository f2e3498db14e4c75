"""The one-dimensional eigensystems inside a basis: rounding, signs, gradients, node weights."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Periodic, SquaredExponential

from tests.bases.test_grid_eigenfunctions import (
    LENGTHSCALES,
    VARIANCE,
    D,
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


GRADIENTS = {
    # lengthscales, nodes of each column, p
    "plain": (LENGTHSCALES, (5, 5, 5), 40),
    "everything": (LENGTHSCALES, (4, 4, 4), 64),
    "fewer nodes": (LENGTHSCALES, (6, 2, 4), 20),
    "tied columns": ([0.7, 0.7, 0.7], (6, 6, 6), 10),
    "tied and cut": ([0.7, 0.7, 0.7], (6, 6, 6), 9),
    "masked": ([2.5, 3.0, 2.0], (20, 20, 20), 60),
    "short": ([0.06, 0.1, 0.08], (6, 6, 6), 50),
}


@pytest.mark.parametrize("name", list(GRADIENTS))
def test_gradients_through_the_eigensystems_are_those_of_perturbation_theory(name):
    lengthscales, sizes, p = GRADIENTS[name]
    X, noise = inputs(40), 0.2
    if name.startswith("tied"):  # equal columns: equal grids and equal spectra
        X = np.sort(X, axis=0)[:, [0, 0, 0]]
        X = np.stack([np.random.default_rng(i).permutation(X[:, i]) for i in range(D)], axis=1)
    y = np.sin(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(5).normal(size=40)
    kernel = SquaredExponential()
    kernel.lengthscales = gpflow.Parameter(lengthscales)  # without a transform: plain derivatives
    kernel.variance = gpflow.Parameter(VARIANCE)
    nodes = grid(X, sizes)
    basis = build(kernel, X, p, grid=nodes)
    reference = oracle.build_basis([oracle.SE(v) for v in lengthscales], VARIANCE, nodes, p)
    np.testing.assert_array_equal(basis.indices, reference.idx)
    with tf.GradientTape() as tape:
        value = dense_lml(basis, X, y, noise)
    by_variables = tape.gradient(
        value, [kernel.lengthscales.unconstrained_variable, kernel.variance.unconstrained_variable]
    )
    expected, by_lengthscales, by_variance, _ = oracle.grief_lml_and_hyper_gradient(
        reference, X, y, noise
    )
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    scale = np.abs(by_lengthscales).max()
    np.testing.assert_allclose(by_variables[0], by_lengthscales, rtol=1e-7, atol=1e-7 * scale)
    np.testing.assert_allclose(by_variables[1], by_variance, rtol=1e-7)
    for i in range(D):
        steps = []
        for sign in (1.0, -1.0):
            kernel.lengthscales.assign(np.array(lengthscales) + sign * 1e-5 * np.eye(D)[i])
            steps.append(float(dense_lml(basis, X, y, noise)))
        slope = (steps[0] - steps[1]) / 2e-5
        np.testing.assert_allclose(slope, by_lengthscales[i], rtol=1e-5, atol=1e-5 * scale)


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
