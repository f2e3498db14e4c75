"""The preconditioner against a dense inverse, and what it saves."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse.linalg import LinearOperator

from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.bases.grid_eigenfunctions import GridEigenfunctions
from gpflow_sparse.bases.preconditioner import conjugate_gradients, grief_preconditioner
from gpflow_sparse.numerics.linalg import FactorizationError


def squared_exponential():
    return gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=[1.5, 1.0, 2.0])


def grief(X, num_eigenfunctions=40):
    return GridEigenfunctions(squared_exponential(), X, num_eigenfunctions)


@pytest.mark.parametrize("noise", [1e-3, 0.5])
@pytest.mark.parametrize("kind", ["grief", "fourier"])
def test_is_the_inverse(rng, kind, noise, float_type):
    X, V = rng.normal(size=(30, 3)), rng.normal(size=(30, 4))
    basis = grief(X) if kind == "grief" else RandomFourier(squared_exponential(), 16)
    Phi = basis(X).numpy().astype(np.float64)
    inverse = np.linalg.inv(Phi @ Phi.T + noise * np.eye(30))
    operator = grief_preconditioner(basis, X, noise)
    assert isinstance(operator, LinearOperator)
    assert operator.shape == (30, 30)
    tolerance = 1e-9 / noise
    np.testing.assert_allclose(operator @ np.eye(30), inverse, atol=tolerance)
    np.testing.assert_allclose(operator @ V, inverse @ V, atol=tolerance)
    np.testing.assert_allclose(operator @ V[:, 0], inverse @ V[:, 0], atol=tolerance)
    np.testing.assert_allclose(operator.T @ V, inverse @ V, atol=tolerance)


def test_more_functions_than_rows(rng):
    X = rng.normal(size=(8, 3))
    basis = grief(X, 50)
    Phi = basis(X).numpy()
    inverse = np.linalg.inv(Phi @ Phi.T + 0.2 * np.eye(8))
    np.testing.assert_allclose(grief_preconditioner(basis, X, 0.2) @ np.eye(8), inverse, atol=1e-10)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_solutions_are_those_of_a_dense_solve(rng, preconditioned, float_type):
    X, B = rng.normal(size=(60, 3)), rng.normal(size=(60, 3))
    B[:, 1] = 0.0
    kernel = gpflow.kernels.Matern32(lengthscales=1.5)
    operator = grief_preconditioner(grief(X), X, 0.1) if preconditioned else None
    V, iterations = conjugate_gradients(kernel, X, B, 0.1, preconditioner=operator, tolerance=1e-12)
    K = kernel(X.astype(float_type)).numpy() + 0.1 * np.eye(60)
    tolerance = 1e-9 if float_type == np.float64 else 1e-4
    np.testing.assert_allclose(V, np.linalg.solve(K, B), atol=tolerance)
    np.testing.assert_array_equal(V[:, 1], 0.0)
    assert 10 < iterations < 100


def test_iterations_fall_to_less_than_a_quarter(rng):
    """400 rows, 3 columns, 100 functions, noise 1e-3, to 1e-8."""
    X, B = rng.normal(size=(400, 3)), rng.normal(size=(400, 1))
    kernel = squared_exponential()
    plain, without = conjugate_gradients(kernel, X, B, 1e-3)
    operator = grief_preconditioner(grief(X, 100), X, 1e-3)
    solution, with_one = conjugate_gradients(kernel, X, B, 1e-3, preconditioner=operator)
    K = kernel(X).numpy() + 1e-3 * np.eye(400)
    for V in (plain, solution):
        assert np.linalg.norm(K @ V - B) < 2e-8 * np.linalg.norm(B)
    assert 4 * with_one < without


def test_the_preconditioner_of_a_basis_with_everything_needs_few_iterations(rng):
    X = rng.normal(size=(50, 1))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=1.0)
    operator = grief_preconditioner(GridEigenfunctions(kernel, X, 40, 40), X, 1e-2)
    _, iterations = conjugate_gradients(kernel, X, X, 1e-2, preconditioner=operator)
    assert iterations <= 3


def test_iterations_that_do_not_suffice_are_an_error(rng):
    X, B = rng.normal(size=(40, 3)), rng.normal(size=(40, 1))
    kernel = squared_exponential()
    with pytest.raises(ValueError, match=r"max_iterations: the residual is .* after 3 iterations"):
        conjugate_gradients(kernel, X, B, 1e-3, max_iterations=3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernel": None}, "kernel must be a GPflow kernel with one output.*got NoneType"),
        (
            {
                "kernel": gpflow.kernels.SharedIndependent(
                    gpflow.kernels.SquaredExponential(), output_dim=2
                )
            },
            "with one output, .* got SharedIndependent",
        ),
        ({"kernel": gpflow.kernels.Matern32(lengthscales=[1.0] * 4)}, "one per column .* 3"),
        ({"B": np.ones((4, 1))}, "B must have as many rows as X, 5; got 4"),
        ({"B": np.ones(5)}, "B must be a matrix"),
        ({"X": np.ones((20001, 3)), "B": np.ones((20001, 1))}, "at most 20000 rows"),
        ({"noise_variance": 0.0}, "noise_variance must be one positive number"),
        ({"noise_variance": [1.0, 2.0]}, "noise_variance must be one positive number"),
        ({"tolerance": 0.0}, "tolerance must be a number between 0 and 1"),
        ({"tolerance": "1e-3"}, "tolerance must be a number between 0 and 1"),
        ({"max_iterations": 0}, "max_iterations must be a positive integer"),
        ({"preconditioner": np.eye(4)}, r"preconditioner must .* shape \(5, 5\), got ndarray"),
    ],
)
def test_wrong_arguments_are_named(rng, changes, words):
    arguments = {
        "kernel": squared_exponential(),
        "X": rng.normal(size=(5, 3)),
        "B": np.ones((5, 1)),
        "noise_variance": 0.1,
        **changes,
    }
    with pytest.raises(ValueError, match=words):
        conjugate_gradients(**arguments)


def test_wrong_arguments_of_the_preconditioner_are_named(rng):
    X = rng.normal(size=(5, 3))
    for basis in (squared_exponential(), None):
        with pytest.raises(ValueError, match="basis must be a finite basis"):
            grief_preconditioner(basis, X, 0.1)
    with pytest.raises(ValueError, match="noise_variance must be one positive number"):
        grief_preconditioner(grief(X), X, -1.0)
    with pytest.raises(ValueError, match="X must"):
        grief_preconditioner(grief(X), X[:, :2], 0.1)


def test_a_factorization_that_fails_is_named(rng):
    X = rng.normal(size=(40, 3))
    with pytest.raises(FactorizationError, match="I \\+ Phi\\^T Phi / noise"):
        grief_preconditioner(grief(X, 60), X, 1e-25)  # more functions than rows, hardly any noise


def test_tracing_is_refused(rng):
    X = rng.normal(size=(5, 3))
    basis = grief(X)
    for call in (
        lambda: grief_preconditioner(basis, X, 0.1) @ X,
        lambda: conjugate_gradients(basis.kernel, X, X, 0.1)[0],
    ):
        with pytest.raises(ValueError, match=r"which tf\.function cannot trace"):
            tf.function(call, autograph=False)()
