"""Kernels of mapped inputs: every computation on X equals that of the base on the mapped X."""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.covariances.stationary import covariance, in_lengthscales, local_covariances
from gpflow_sparse.initialization import gradient_axes, local_hyperparameters, neighbor_log_density
from gpflow_sparse.kernels import LinearMap

A = np.array([[0.6, 0.8, 0.0], [-0.4, 0.3, 1.2]])
KINDS = [gpflow.kernels.SquaredExponential, gpflow.kernels.Matern12, gpflow.kernels.Matern32]


def rows(count, seed=0):
    X = np.random.default_rng(seed).normal(size=(count, 3))
    return X, np.sin(2.0 * X @ A.T).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kind", KINDS)
def test_covariances_are_those_of_mapped_inputs(kind):
    base = kind(variance=1.4, lengthscales=[0.7, 1.9])
    kernel, X, Z = LinearMap(base, A), rows(6)[0], rows(4, 1)[0]
    r = np.sqrt(np.sum(((X @ A.T)[:, None] - (Z @ A.T)) ** 2 / np.array([0.7, 1.9]) ** 2, axis=2))
    wanted = {
        "SquaredExponential": 1.4 * np.exp(-0.5 * r**2),
        "Matern12": 1.4 * np.exp(-r),
        "Matern32": 1.4 * (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r),
    }[kind.__name__]
    np.testing.assert_allclose(kernel(X, Z), wanted, rtol=1e-10)
    np.testing.assert_allclose(covariance(kernel, X, Z), wanted, rtol=1e-10)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.full(6, 1.4))
    _, k, diagonal = local_covariances(kernel, X, np.repeat(Z[None], 6, axis=0))
    np.testing.assert_allclose(k, wanted, rtol=1e-10)
    np.testing.assert_allclose(diagonal, np.full(6, 1.4))
    np.testing.assert_allclose(in_lengthscales(kernel, X), X @ A.T / [0.7, 1.9])


def test_functions_drawn_are_those_of_mapped_inputs():
    (X, Y), Xnew = rows(20), rows(5, 1)[0]
    base = gpflow.kernels.Matern52(lengthscales=[0.5, 2.0]) * gpflow.kernels.Matern32()
    given = {"num_neighbors": 6, "noise_variance": 0.01}
    model = gs.models.NearestNeighborGP((X, Y), LinearMap(base, A), **given)
    mapped = gs.models.NearestNeighborGP((X @ A.T, Y), base, **given)
    found, wanted = (m.posterior().sample_functions(3, seed=0) for m in (model, mapped))
    np.testing.assert_allclose(found(Xnew), wanted(Xnew @ A.T), rtol=1e-8)


def test_hyperparameters_are_those_of_mapped_inputs():
    X, Y = rows(200)
    bases = [gpflow.kernels.Matern52(lengthscales=[1.0, 1.0]) for _ in range(2)]
    kernel, given = LinearMap(bases[0], A), {"num_rows": 20, "max_iterations": 5}
    noise = local_hyperparameters(X, Y, kernel, **given)
    np.testing.assert_allclose(local_hyperparameters(X @ A.T, Y, bases[1], **given), noise)
    np.testing.assert_allclose(*(base.lengthscales for base in bases), rtol=1e-6)
    assert np.array_equal(kernel.matrix, A)
    np.testing.assert_allclose(
        neighbor_log_density(X, Y, kernel, noise),
        neighbor_log_density(X @ A.T, Y, bases[1], noise),
        rtol=1e-6,
    )


def test_axes_of_gradients_are_the_directions_that_outputs_depend_on():
    """The mean is sin(2 u) + v / 4 in orthogonal u and v: slopes are known, the third is zero."""
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]

    class Wave(gpflow.mean_functions.MeanFunction):
        def __call__(self, X):
            u, v = (X @ direction[:, None] for direction in turn[:2])
            return gpflow.base.tf.sin(2.0 * u) + 0.25 * v

    X = rows(300)[0]
    model = gpflow.models.GPR(
        (X[:2], np.zeros((2, 1))), gpflow.kernels.Constant(1e-12), mean_function=Wave()
    )
    axes, slopes = gradient_axes(model, X)
    gradients = 2.0 * np.cos(2.0 * X @ turn[0])[:, None] * turn[0] + 0.25 * turn[1]
    squares = np.linalg.eigvalsh(gradients.T @ gradients / 300)[::-1]
    np.testing.assert_allclose(slopes, np.sqrt(np.maximum(squares, 0.0)), atol=1e-6)
    np.testing.assert_allclose(np.abs(axes @ turn[0]), [1.0, 0.0, 0.0], atol=0.1)
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)


def test_a_map_of_other_inputs_is_refused():
    base = gpflow.kernels.Matern52(lengthscales=[0.5, 2.0])
    with pytest.raises(ValueError, match=r"kernel\.lengthscales"):
        LinearMap(base, np.eye(3))
    X, Y = rows(10)
    with pytest.raises(ValueError, match=r"kernel\.matrix has 3 columns, but X has 2"):
        gs.models.NearestNeighborGP((X[:, :2], Y), LinearMap(base, A))
