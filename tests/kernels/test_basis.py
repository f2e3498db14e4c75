"""Bases as GPflow kernels: matrices, stock models around them, one kernel per column."""

import numpy as np
import pytest
from gpflow.kernels import Matern32, SquaredExponential

from gpflow_sparse.bases import GridEigenfunctions, RandomFourier, ReweightedBasis
from gpflow_sparse.kernels import GRIEF, Basis, Corrected, product_of
from tests.oracles import grief as oracle

D, P, NOISE = 2, 20, 0.2
VARIANCE, LENGTHSCALES = 1.7, [0.9, 1.2]


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=(*shape, D))


def kernel():
    return SquaredExponential(VARIANCE, LENGTHSCALES)


def data(rows=30):
    X = inputs(rows)
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * np.random.default_rng(2).normal(size=(rows, 1))


def reference(X, p=P):
    """Features of the oracle at the nodes that the package takes from X."""
    grid = [oracle.percentile_grid(column, 10) for column in X.T]
    return oracle.build_basis([oracle.SE(value) for value in LENGTHSCALES], VARIANCE, grid, p)


BASES = {
    "grid": lambda: GridEigenfunctions(kernel(), inputs(30), P),
    "fourier": lambda: RandomFourier(kernel(), P, seed=3),
    "reweighted": lambda: ReweightedBasis(
        GridEigenfunctions(kernel(), inputs(30), P), np.linspace(0.1, 2.0, P)
    ),
}
every_basis = pytest.mark.parametrize("build", BASES.values(), ids=list(BASES))


@pytest.mark.parametrize("corrected", [False, True])
def test_leading_axes_are_as_in_gpflow(corrected):
    """One set of inputs is batched; two are an outer product."""
    k = Corrected(BASES["reweighted"]()) if corrected else Basis(BASES["grid"]())
    X, Z = inputs(2, 3, 5, seed=4), inputs(4, 6, seed=5)
    batched, diagonal, outer = k(X), k(X, full_cov=False), k(X, Z)
    like = kernel()
    assert batched.shape == like(X).shape == (2, 3, 5, 5)
    assert diagonal.shape == like(X, full_cov=False).shape == (2, 3, 5)
    assert outer.shape == like(X, Z).shape == (2, 3, 5, 4, 6)
    np.testing.assert_allclose(batched[1, 2], k(X[1, 2]), atol=1e-13)
    np.testing.assert_allclose(diagonal[1, 2], k(X[1, 2], full_cov=False), atol=1e-13)
    np.testing.assert_allclose(outer[1, 2, :, 3], k(X[1, 2], Z[3]), atol=1e-13)


def test_grief_is_the_kernel_of_its_basis():
    X = inputs(30)
    k = GRIEF(kernel(), X, P, 6)
    basis = GridEigenfunctions(kernel(), X, P, 6)
    assert isinstance(k, Basis)
    np.testing.assert_array_equal(k.basis.indices, basis.indices)
    np.testing.assert_array_equal(k(X), Basis(basis)(X))


def corrected(seed=6):
    weights = np.random.default_rng(seed).exponential(size=P)
    basis = GridEigenfunctions(kernel(), inputs(30), P)
    return Corrected(ReweightedBasis(basis, weights)), weights, basis


def test_corrected_is_the_kernel_with_other_weights_for_its_leading_functions():
    k, w, basis = corrected()
    X, Z = inputs(40, seed=4), 3.0 * inputs(30, seed=5)
    Phi, Psi = basis(X).numpy(), basis(Z).numpy()
    factors = [oracle.SE(value) for value in LENGTHSCALES]
    for A, B, a, b in ((X, X, Phi, Phi), (X, Z, Phi, Psi)):
        prior = oracle.product_kernel(factors, VARIANCE, A, B)
        np.testing.assert_allclose(k(A, B), prior + a @ np.diag(w - 1.0) @ b.T, atol=1e-12)
    np.testing.assert_allclose(k(X), k(X, X), atol=1e-12)
    np.testing.assert_allclose(k(X, full_cov=False), np.diag(k(X)), atol=1e-12)
    everywhere = np.concatenate([X, Z])
    assert np.linalg.eigvalsh(k(everywhere).numpy()).min() > -1e-10
    with_ones = Corrected(ReweightedBasis(basis, np.ones(P)))
    np.testing.assert_allclose(with_ones(X), kernel()(X), atol=1e-12)


def test_product_of_is_one_kernel_per_column():
    k, X = product_of(Matern32, [0.8, 1.3], 1.7), inputs(6)
    expected = oracle.product_kernel([oracle.Matern32(0.8), oracle.Matern32(1.3)], 1.7, X, X)
    np.testing.assert_allclose(k(X), expected, atol=1e-13)
    assert np.abs(k(X) - Matern32(1.7, [0.8, 1.3])(X)).max() > 0.01
    np.testing.assert_allclose(
        product_of(SquaredExponential, [0.9, 1.2], 1.7)(X), kernel()(X), atol=1e-13
    )
    assert len(k.trainable_parameters) == 3
    assert GridEigenfunctions(k, inputs(30), 50).num_basis == 50
    single = product_of(Matern32, [0.8], 1.7)
    np.testing.assert_allclose(single(X[:, :1]), Matern32(1.7, 0.8)(X[:, :1]), atol=1e-14)
