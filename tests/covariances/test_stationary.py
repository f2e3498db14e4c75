"""Fast covariance matrices against GPflow's own, values and gradients."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.covariances.stationary import covariance

KERNELS = {
    "squared_exponential": gpflow.kernels.SquaredExponential,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
}
every_kernel = pytest.mark.parametrize("kind", KERNELS.values(), ids=list(KERNELS))
OPTIONS = {
    "plain": {"variance": 1.7},
    "ard": {"variance": 0.3, "lengthscales": [0.5, 1.0, 3.0]},
    "columns": {"active_dims": [2, 0], "lengthscales": [0.5, 1.5]},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@every_kernel
def test_values_and_gradients_are_gpflows(rng, kind, options):
    kernel = kind(**options)
    X, Z, W = rng.normal(size=(6, 3)), rng.normal(size=(4, 3)), rng.normal(size=(6, 4))
    inputs = [tf.Variable(X), tf.Variable(Z), *kernel.trainable_variables]

    def value_and_gradients(function):
        with tf.GradientTape() as tape:
            K = function(inputs[0], inputs[1])
            loss = tf.reduce_sum(W * K)
        return [K, *tape.gradient(loss, inputs)]

    ours = value_and_gradients(lambda a, b: covariance(kernel, a, b))
    theirs = value_and_gradients(kernel)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@every_kernel
def test_coinciding_inputs_have_the_variance_and_finite_gradients(rng, float_type, kind):
    kernel = kind(variance=1.7)
    Z = tf.Variable(rng.normal(size=(5, 3)).astype(float_type))
    with tf.GradientTape(persistent=True) as tape:
        whole, pair = covariance(kernel, Z), covariance(kernel, Z, Z)
    np.testing.assert_array_equal(np.diag(whole), np.full(5, kernel.variance))
    tolerance = {np.float64: 1e-13, np.float32: 1e-5}[float_type]
    np.testing.assert_allclose(pair, whole, rtol=tolerance)
    for K in (whole, pair):
        gradients = tape.gradient(K, [Z, *kernel.trainable_variables])
        assert all(np.isfinite(g).all() for g in gradients)


@every_kernel
def test_an_offset_of_the_inputs_does_no_harm(rng, kind):
    """Such as seconds since 1970: without centering, squares of 1e12 would swallow distances."""
    kernel, X, Z = kind(), rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    moved = covariance(kernel, X + 1e6, Z + 1e6)
    np.testing.assert_allclose(moved, kernel(X, Z), rtol=1e-8)


def test_other_kernels_and_batches_are_evaluated_as_usual(rng):
    X, Z = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    both = gpflow.kernels.Matern32() + gpflow.kernels.White(0.1)
    for kernel in (both, gpflow.kernels.Matern12(), gpflow.kernels.Polynomial()):
        np.testing.assert_array_equal(covariance(kernel, X, Z), kernel(X, Z))
        np.testing.assert_array_equal(covariance(kernel, X), kernel(X))  # with White's diagonal
    kernel, batch = gpflow.kernels.Matern32(), rng.normal(size=(3, 6, 2))
    np.testing.assert_array_equal(covariance(kernel, batch, Z), kernel(batch, Z))
