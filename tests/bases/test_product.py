"""Which kernels are products over columns, and their factors."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Constant, Matern12, Matern32, Matern52, Periodic, SquaredExponential

from gpflow_sparse.bases.product import ProductFactors, is_product_kernel
from tests.oracles import grief as oracle

D = 3


class Laplace(gpflow.kernels.Kernel):
    """A product that GPflow does not have: ``exp(-|x - z|_1)``."""

    def __init__(self, variance=1.0):
        super().__init__()
        self.variance = gpflow.Parameter(variance, transform=gpflow.utilities.positive())

    def K(self, X, X2=None):
        X2 = X if X2 is None else X2
        distance = tf.reduce_sum(tf.abs(X[..., :, None, :] - X2[..., None, :, :]), axis=-1)
        return self.variance * tf.exp(-distance)

    def K_diag(self, X):
        return tf.fill(tf.shape(X)[:-1], tf.identity(self.variance))


class Radial(Laplace):
    """Nearly the same, and no product."""

    def K(self, X, X2=None):
        X2 = X if X2 is None else X2
        squares = tf.reduce_sum((X[..., :, None, :] - X2[..., None, :, :]) ** 2, axis=-1)
        return self.variance / (1.0 + squares)


class Growing(Laplace):
    """A product of factors that are not stationary."""

    def K(self, X, X2=None):
        X2 = X if X2 is None else X2
        return super().K(X, X2) * tf.exp(X[..., :, None, 0] + X2[..., None, :, 0])

    def K_diag(self, X):
        return super().K_diag(X) * tf.exp(2.0 * X[..., 0])


class Warped(Laplace):
    """A product of one variance whose factors are not stationary either."""

    def K(self, X, X2=None):
        return super().K(X**3, None if X2 is None else X2**3)


PRODUCTS = {
    "isotropic": lambda: SquaredExponential(variance=1.7, lengthscales=0.8),
    "ard": lambda: SquaredExponential(variance=1.7, lengthscales=[0.8, 1.3, 0.5]),
    "active_dims": lambda: SquaredExponential(1.7, [0.8, 1.3], active_dims=[2, 0]),
    "slice": lambda: SquaredExponential(1.7, [0.8, 1.3], active_dims=slice(1, 3)),
    "materns": lambda: (
        Matern12(1.1, 0.7, active_dims=[0])
        * Matern32(0.9, 0.8, active_dims=[1])
        * Matern52(1.3, 0.9, active_dims=[2])
    ),
    "mixed": lambda: (
        SquaredExponential(1.2, [0.8, 0.9], active_dims=[0, 2])
        * kernels.RationalQuadratic(1.2, 0.7, alpha=0.6, active_dims=[1])
    ),
    "same_column": lambda: SquaredExponential(1.2) * Matern32(1.4, 0.9, active_dims=[1]),
    "periodic": lambda: Periodic(SquaredExponential(1.4, [0.8, 1.1, 0.9]), period=[1.5, 2.0, 3.0]),
    "periodic_matern": lambda: (
        Periodic(Matern32(1.4, 0.8, active_dims=[1]), period=1.5)
        * SquaredExponential(active_dims=[0, 2])
    ),
    "constant": lambda: Constant(2.5) * SquaredExponential(1.2, [0.8, 1.3, 0.5]) * Constant(0.5),
    "nested": lambda: kernels.Product(
        [SquaredExponential(1.1, active_dims=[0]) * Matern12(active_dims=[1]), Constant(3.0)]
    ),
    "exponential": lambda: kernels.Exponential(1.2, active_dims=[1]),
    "cosine": lambda: kernels.Cosine(1.2, 0.9, active_dims=[1]),
    "own": lambda: Laplace(1.3),
    "own_times": lambda: Laplace(1.3) * SquaredExponential(0.7, [0.8, 1.3, 0.5]),
}
every_product = pytest.mark.parametrize("build", PRODUCTS.values(), ids=list(PRODUCTS))

OTHERS = {
    "Matern12 of 3 columns": Matern12,
    "Matern32 of 3 columns": Matern32,
    "Matern52 of 2 columns": lambda: Matern52(active_dims=[0, 2]),
    "Exponential of 3 columns": kernels.Exponential,
    "RationalQuadratic of 3 columns": kernels.RationalQuadratic,
    "Cosine of 3 columns": kernels.Cosine,
    "Sum": lambda: SquaredExponential() + SquaredExponential(),
    "Linear": kernels.Linear,
    "Polynomial": kernels.Polynomial,
    "ArcCosine": kernels.ArcCosine,
    "White": kernels.White,
    "Radial": Radial,
    "Growing": Growing,
    "Warped": Warped,
    "SharedIndependent": lambda: kernels.SharedIndependent(SquaredExponential(), 2),
    "ChangePoints": lambda: kernels.ChangePoints(
        [SquaredExponential(), SquaredExponential()], locations=[0.0], steepness=1.0
    ),
}
every_other = pytest.mark.parametrize(("name", "build"), OTHERS.items(), ids=list(OTHERS))


def points(rng, N=6):
    return tf.constant(rng.normal(size=(N, D)))


@every_product
def test_the_kernel_is_its_variance_times_its_factors(rng, build):
    kernel, X, Z = build(), points(rng), points(rng, 4)
    factors = ProductFactors(kernel, D)
    product = factors.variance().numpy()
    np.testing.assert_allclose(kernel(X, full_cov=False), np.full(6, product), rtol=1e-13)
    for i in factors.columns:
        factor = factors.factor(i, X[:, i], Z[:, i]).numpy()
        np.testing.assert_allclose(
            np.diag(factors.factor(i, X[:, i], X[:, i])), np.ones(6), rtol=1e-13
        )
        product = product * factor
    np.testing.assert_allclose(product, kernel(X, Z), rtol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        *("Matern12 of 3 columns", "Matern52 of 2 columns", "RationalQuadratic of 3 columns"),
        *("Cosine of 3 columns", "Sum", "Linear", "Polynomial", "ArcCosine", "Radial"),
    ],
)
def test_the_numerical_test_refuses_other_kernels_as_the_oracle_does(rng, name):
    kernel = OTHERS[name]()
    kernel = Matern12() + Matern32() if name == "Sum" else kernel
    assert not is_product_kernel(kernel, D)
    assert not oracle.is_product_kernel(lambda a, b: kernel(a, b).numpy(), D, rng)


@every_other
def test_other_kernels_are_refused_by_name(name, build):
    """On their own, and as a part of a product."""
    width = 1 if name == "ChangePoints" else D
    with pytest.raises(ValueError, match=f"kernel must be a product.*: {name}; take"):
        ProductFactors(build(), width)
    if name not in ("SharedIndependent", "ChangePoints"):
        with pytest.raises(ValueError, match=f"kernel must be a product.*: {name}; take"):
            ProductFactors(SquaredExponential() * build(), D)
