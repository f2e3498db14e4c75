"""Covariance matrices of all kinds of kernels, seen through a model, against GPflow's own."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP

N, M, EPS = 8, 5, 1e-6


class Scaled(gpflow.kernels.SquaredExponential):
    """With a covariance of its own, which is not stationary."""

    def K(self, X, X2=None):
        X2 = X if X2 is None else X2
        return tf.reduce_sum(X, 1)[:, None] * tf.reduce_sum(X2, 1) * super().K(X, X2)

    def K_diag(self, X):
        return tf.reduce_sum(X, 1) ** 2 * super().K_diag(X)


def kernels():
    k = gpflow.kernels
    rough, linear = k.Matern12(1.3, [0.5, 2.0]), k.Linear(0.1, active_dims=[1])
    return {
        "squared_exponential": k.SquaredExponential(1.7, [0.5, 1.5]),
        "matern32": k.Matern32(0.3),
        "matern52": k.Matern52(lengthscales=0.6, active_dims=[1]),
        "matern12": rough,
        "exponential": k.Exponential(active_dims=[1]),
        "rational_quadratic": k.RationalQuadratic(0.7, 0.5, 1.5),
        "cosine": k.Cosine(1.0, [1.0, 2.0]) + k.Matern12(),
        "sum": k.SquaredExponential(active_dims=[0]) + k.Matern32(0.5, 2.0) + k.Constant(0.2),
        "product": k.Matern52() * k.RationalQuadratic(active_dims=[0]),
        "nested": k.Matern32() * (rough + k.White(0.1)) + k.SquaredExponential(),
        "partly": linear + k.Matern32() * linear + k.Matern12(),
        "scaled": Scaled() + k.Matern12(),
    }


every_kernel = pytest.mark.parametrize("name", kernels())


def problem(shift=0.0, dtype=np.float64):
    """Inputs without rounding, among them inducing inputs; and q."""
    rng = np.random.default_rng(3)
    X, Z = (np.round(64.0 * rng.normal(size=(n, 2))) / 64.0 for n in (N, M))
    X[:2] = Z[:2]
    q_mu, q_sqrt = rng.normal(size=(M, 1)), np.tril(rng.normal(size=(1, M, M)))
    return [part.astype(dtype) for part in (X + shift, Z + shift, q_mu, q_sqrt)]


@every_kernel
def test_values_and_gradients_are_gpflows(name):
    X, Z, q_mu, q_sqrt = problem()
    kernel = kernels()[name]
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    sets = OrthogonalInducingVariables(Z)
    ours = SOLVEGP(kernel, likelihood, sets, q_mu=[q_mu], q_sqrt=[q_sqrt])
    stock = gpflow.models.SVGP(kernel, likelihood, Z.copy(), q_mu=q_mu, q_sqrt=q_sqrt)
    places = (sets.sets[0].Z, stock.inducing_variable.Z)
    found = []
    with gpflow.config.as_context(
        gpflow.config.Config(jitter=EPS * float(np.mean(kernel(Z, full_cov=False))))
    ):
        for model, place in zip((ours, stock), places, strict=True):
            variables = [place.unconstrained_variable, *kernel.trainable_variables]
            with tf.GradientTape() as tape:
                value = model.elbo((X, np.sin(X[:, :1])))
            # far from zero GPflow's jitter would be another
            found.append([value, *model.predict_f(X), *tape.gradient(value, variables)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())


STATIONARY = [name for name in kernels() if name not in ("partly", "scaled", "nested")]


@pytest.mark.parametrize(
    ("name", "dtype", "shift", "atol"),
    [
        *((name, np.float64, 2.0**20, 1e-7) for name in STATIONARY),
        *((name, np.float32, 1024.0, 2e-2) for name in STATIONARY[::3]),
    ],
)
def test_an_offset_of_the_inputs_does_no_harm(name, dtype, shift, atol):
    """Such as seconds since 1970: squares of 1e12 would swallow distances."""

    def predictions(dtype, shift):
        X, Z, *q = problem(shift, dtype)
        with gpflow.config.as_context(gpflow.config.Config(float=dtype, jitter=1e-4)):
            sets, q = OrthogonalInducingVariables(Z), {"q_mu": [q[0]], "q_sqrt": [q[1]]}
            model = SOLVEGP(kernels()[name], gpflow.likelihoods.Gaussian(), sets, **q)
            return model.predict_f(X, full_cov=True)

    for a, b in zip(predictions(dtype, shift), predictions(np.float64, 0.0), strict=True):
        np.testing.assert_allclose(a, b, atol=atol)
