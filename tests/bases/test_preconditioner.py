"""The preconditioner against a dense inverse, and the iterations that it saves."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models.cglb import cglb_conjugate_gradient

from gpflow_sparse.bases import GridEigenfunctions, RandomFourier, ReweightedBasis
from gpflow_sparse.inducing_variables import BasisFeatures
from gpflow_sparse.models.grief import GRIEF

NOISE = 0.02


def grief(X, count=60):
    kernel = gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=[1.5, 1.0, 2.0])
    return GridEigenfunctions(kernel, X, count)


@pytest.mark.parametrize("count", [20, 80])  # fewer and more functions than rows
def test_it_is_the_inverse_with_prior_variances_of_the_weights(rng, count):
    X, v = rng.normal(size=(40, 3)), rng.normal(size=(2, 40))
    variances = rng.uniform(0.2, 3.0, count)
    basis = grief(X, count)
    Phi = basis(X).numpy()
    inverse = np.linalg.inv(Phi * variances @ Phi.T + NOISE * np.eye(40))
    apply = ReweightedBasis(basis, variances).preconditioner(X, NOISE)
    solved, product = apply(tf.constant(v))
    np.testing.assert_allclose(solved, v @ inverse, atol=1e-8)
    np.testing.assert_allclose(product, np.trace(v @ inverse @ v.T), rtol=1e-8)


class Counted:
    """A preconditioner, or none, that counts its calls: one more than the iterations."""

    def __init__(self, apply=None):
        self.apply, self.calls = apply or (lambda v: (v, tf.reduce_sum(v * v))), 0

    def __call__(self, v):
        self.calls += 1
        return self.apply(v)


def test_iterations_fall_and_the_solution_is_the_dense_one(rng, float_type):
    X, y = rng.normal(size=(400, 3)).astype(float_type), rng.normal(size=(1, 400))
    basis = grief(X, 100)
    K = basis.kernel(X).numpy() + float_type(NOISE) * np.eye(400, dtype=float_type)
    y, tolerance = y.astype(float_type), {np.float64: 1e-10, np.float32: 1e-4}[float_type]
    iterations = []
    for apply in (Counted(), Counted(basis.preconditioner(X, NOISE))):
        v = cglb_conjugate_gradient(K, y, tf.zeros_like(y), apply, tolerance, 1000, 1001)
        error = np.linalg.norm(v @ K - y) / np.linalg.norm(y)
        assert error < {np.float64: 1e-5, np.float32: 1e-3}[float_type]
        iterations.append(apply.calls - 1)
    assert iterations[1] < iterations[0] / 4


def test_the_lower_bound_of_gpflow_has_it_for_the_inducing_variables(rng):
    X = rng.normal(size=(60, 3))
    data = X, np.sin(X[:, :1]) + 0.1 * rng.normal(size=(60, 1))
    basis = grief(X)
    options = {"noise_variance": NOISE, "cg_tolerance": 1e-10, "max_cg_iters": 400}
    bound = gpflow.models.CGLB(data, basis.kernel, BasisFeatures(basis), **options)
    exact = gpflow.models.GPR(data, basis.kernel, noise_variance=NOISE)
    np.testing.assert_allclose(
        bound.predict_f(X, cg_tolerance=1e-10)[0], exact.predict_f(X)[0], atol=1e-5
    )
    sgpr = GRIEF(data, basis.kernel, num_eigenfunctions=60, noise_variance=NOISE)
    assert sgpr.elbo() < bound.elbo() < exact.log_marginal_likelihood()


@pytest.mark.parametrize("noise", [0.0, -1.0, [1.0, 2.0], "little"])
def test_a_noise_that_is_not_one_positive_number_is_refused(rng, noise):
    X = rng.normal(size=(5, 3))
    with pytest.raises(ValueError, match="noise_variance"):
        grief(X, 4).preconditioner(X, noise)


def test_it_is_made_outside_of_graphs_and_for_columns_of_the_basis(rng):
    X = rng.normal(size=(5, 3))
    with pytest.raises(ValueError, match="X must have 3 column"):
        grief(X, 4).preconditioner(X[:, :2], NOISE)
    with pytest.raises(ValueError, match=r"noise_variance must be finite, .* at \(\)\.$"):
        grief(X, 4).preconditioner(X, np.nan)
    basis = RandomFourier(gpflow.kernels.SquaredExponential(), 4)
    with pytest.raises(ValueError, match=r"outside of tf\.function"):
        tf.function(lambda: basis.preconditioner(X, NOISE), autograph=False)()


@pytest.mark.parametrize("v", [np.zeros((5, 1)), np.zeros(5)])
def test_other_vectors_are_refused(rng, v):
    X = rng.normal(size=(5, 3))
    apply = grief(X, 4).preconditioner(X, NOISE)
    with pytest.raises(ValueError, match="v must be finite"):
        apply([[np.nan] * 5])
    for call in (apply, tf.function(apply, autograph=False)):
        with pytest.raises(ValueError, match="v must be "):
            call(v)
