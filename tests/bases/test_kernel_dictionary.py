"""Kernel functions around centers, against NumPy."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.bases import KernelDictionary
from tests.oracles import bases as oracle

RNG = np.random.default_rng(1)
X, CENTERS = RNG.normal(size=(9, 2)), RNG.normal(size=(5, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * RNG.normal(size=(9, 1))
LENGTHSCALES = np.array([0.7, 1.4])
PRECISIONS = np.array([0.3, 2.0, 5.0, 0.01, 1.7, 40.0])


def kernel():
    return gpflow.kernels.Matern52(variance=1.7, lengthscales=LENGTHSCALES)


def gram(A, B):
    return oracle.matern52(A, B, 1.7, LENGTHSCALES)


def dense(centers=CENTERS):
    return KernelDictionary(kernel(), centers)


def diagonal():
    return KernelDictionary(
        kernel(), CENTERS, precision="diagonal", constant=True, initial_precision=PRECISIONS
    )


def functions():
    """Of :func:`diagonal` at X."""
    return np.hstack([gram(X, CENTERS), np.ones((9, 1))])


def test_columns_are_kernel_functions_and_the_constant_is_the_last():
    np.testing.assert_allclose(dense()(X), gram(X, CENTERS), rtol=1e-12)
    np.testing.assert_allclose(dense()(X, [4, 0, 4]), gram(X, CENTERS)[:, [4, 0, 4]], rtol=1e-12)
    basis = diagonal()
    assert (basis.num_basis, dense().num_basis) == (6, 5)
    np.testing.assert_allclose(basis(X), functions(), rtol=1e-12)
    chosen = [5, 1, 5, 4, 0]
    np.testing.assert_allclose(basis(X, chosen), functions()[:, chosen], rtol=1e-12)
    np.testing.assert_array_equal(basis(X, [5])[:, 0], 1.0)


def test_prior_precisions_of_a_dense_dictionary():
    basis, S = dense(), gram(CENTERS, CENTERS)
    np.testing.assert_allclose(basis.prior_precision(), S, rtol=1e-12)
    i, j = [3, 0, 3], [0, 2, 4, 3]
    np.testing.assert_allclose(basis.prior_precision(i, j), S[np.ix_(i, j)], rtol=1e-12)
    np.testing.assert_allclose(basis.prior_precision(i), S[i], rtol=1e-12)
    np.testing.assert_allclose(basis.precision_diagonal(), np.full(5, 1.7), rtol=1e-15)
    assert basis.precision == "dense"
    assert basis.num_leading == 0
    noisy = KernelDictionary(kernel() + gpflow.kernels.White(0.4), CENTERS)
    np.testing.assert_allclose(noisy.prior_precision(), S + 0.4 * np.eye(5), rtol=1e-12)
    np.testing.assert_allclose(noisy.precision_diagonal([2]), [2.1], rtol=1e-12)


def test_prior_precisions_of_a_diagonal_dictionary():
    basis = diagonal()
    np.testing.assert_allclose(basis.prior_precision(), np.diag(PRECISIONS), rtol=1e-12)
    i, j = [3, 0, 3], [0, 2, 3]
    expected = np.diag(PRECISIONS)[np.ix_(i, j)]
    np.testing.assert_allclose(basis.prior_precision(i, j), expected, rtol=1e-12)
    np.testing.assert_allclose(basis.precision_diagonal([5, 5, 1]), PRECISIONS[[5, 5, 1]])
    np.testing.assert_allclose(basis.precision_diagonal(), PRECISIONS)
    assert basis.precision == "diagonal"
    assert isinstance(basis.log_precision, tf.Variable)
    plain = KernelDictionary(kernel(), CENTERS, precision="diagonal")
    np.testing.assert_array_equal(plain.log_precision, np.zeros(5))
    one = KernelDictionary(kernel(), CENTERS, precision="diagonal", initial_precision=3.0)
    np.testing.assert_allclose(one.log_precision, np.full(5, np.log(3.0)))


@pytest.mark.parametrize("make", [dense, diagonal])
def test_features_are_whitened(make):
    """``A^T A = Phi S^-1 Phi^T``, S with the jitter of the house where it is factored."""
    basis = make()
    S = np.diag(PRECISIONS)
    if make is dense:
        S = gram(CENTERS, CENTERS) + 1e-6 * 1.7 * np.eye(5)
    Phi = basis(X).numpy()
    A = basis.features(X).numpy()
    np.testing.assert_allclose(A.T @ A, Phi @ np.linalg.inv(S) @ Phi.T, rtol=1e-9)
    again = basis.features(X, basis.precompute())
    np.testing.assert_allclose(again, A, rtol=1e-13)
    covariance = gs.kernels.Basis(basis)(X, X[:3])
    np.testing.assert_allclose(covariance, (A.T @ A)[:, :3], rtol=1e-12)
