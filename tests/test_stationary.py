"""Fast covariance matrices against GPflow's own, values and gradients."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.stationary import covariance

KERNELS = {
    "squared_exponential": gpflow.kernels.SquaredExponential,
    "matern12": gpflow.kernels.Matern12,
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
    with tf.GradientTape() as tape:
        K = covariance(kernel, Z, Z)
    # rounding leaves squares of about 1e-16 (1e-7), whose root a Matern 1/2 sees
    tolerance = {np.float64: 1e-7, np.float32: 3e-3}[float_type]
    np.testing.assert_allclose(np.diag(K), np.full(5, 1.7), rtol=tolerance)
    gradients = tape.gradient(K, [Z, *kernel.trainable_variables])
    assert all(np.isfinite(g).all() for g in gradients)


def test_other_kernels_and_batches_are_evaluated_as_usual(rng):
    X, Z = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    both = gpflow.kernels.Matern32() + gpflow.kernels.White(0.1)
    for kernel in (both, gpflow.kernels.RationalQuadratic(), gpflow.kernels.Polynomial()):
        np.testing.assert_array_equal(covariance(kernel, X, Z), kernel(X, Z))
    kernel, batch = gpflow.kernels.Matern32(), rng.normal(size=(3, 6, 2))
    np.testing.assert_array_equal(covariance(kernel, batch, Z), kernel(batch, Z))
