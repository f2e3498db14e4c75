"""The likelihood in NumPy against the one that TensorFlow differentiates."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference.laplace import find_mode
from gpflow_sparse.initialization import hyperparameters
from gpflow_sparse.initialization.exact_likelihood import ExactDensity
from gpflow_sparse.initialization.repeated_rows import Rows, merge_rows
from gpflow_sparse.kernels import LinearMap

KINDS = ["Matern12", "Matern32", "Matern52", "SquaredExponential"]


def kernel_of(kind, ard, mapped):
    kernel = getattr(gpflow.kernels, kind)(0.7, lengthscales=[0.8, 1.5, 2.0] if ard else 1.2)
    matrix = [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 2.0]]
    return LinearMap(kernel, matrix) if mapped else kernel


def rows_of(layout, rng):
    X, Y = rng.normal(size=(24, 3)), rng.normal(size=(24, 2))
    if layout == "repeated":
        X[8:16] = X[:8]
        return merge_rows(tf.constant(X), tf.constant(Y))
    if layout == "known":
        return Rows(tf.constant(X), tf.constant(Y), known=tf.constant(rng.uniform(size=24)))
    shape = (3, 8) if layout == "several" else (24,)
    return Rows(tf.constant(X.reshape(*shape, 3)), tf.constant(Y.reshape(*shape, 2)))


@pytest.mark.parametrize(
    ("kind", "layout", "ard"),
    [
        *((kind, "one", kind != "Matern12") for kind in KINDS),
        *(("Matern32", "several", False), ("Matern52", "repeated", True)),
        ("Matern32", "known", True),
    ],
)
def test_value_and_gradient_equal_those_of_tensorflow(kind, ard, layout, rng):
    kernel = kernel_of(kind, ard, mapped=layout == "one")
    model = hyperparameters._ExactGPs(rows_of(layout, rng), kernel, None, 0.2)
    hyperparameters._set_priors(model)
    density = hyperparameters._closed_form(model)
    assert isinstance(density, ExactDensity)
    for variable in model.trainable_variables:  # away from the modes of the priors
        variable.assign_add(0.3 * tf.ones_like(variable))
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    wanted = tape.gradient(loss, model.trainable_variables)
    value, gradient = density(density.logs.get())
    # rounding of squared distances as differences, which the root of a Matern 1/2 magnifies
    np.testing.assert_allclose(-value, loss, rtol=1e-11)
    np.testing.assert_allclose(-gradient, density.logs.gradient(wanted), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["Matern12", "SquaredExponential"])
def test_fits_end_in_the_optimum_of_tensorflow(kind, rng, monkeypatch):
    X = rng.normal(size=(60, 3))
    Y = np.sin(2.0 * X[:, :1]) + 0.2 * rng.normal(size=(60, 1))
    found = []
    for closed in (hyperparameters._closed_form, lambda model: None):
        monkeypatch.setattr(hyperparameters, "_closed_form", closed)
        kernel = kernel_of(kind, True, False)
        noise, evidence = hyperparameters.posterior_mode(X, Y, kernel)
        found.append([noise, evidence, kernel.variance.numpy(), *kernel.lengthscales.numpy()])
    # the path of L-BFGS magnifies rounding; 2e-11 was the largest of 18 fits
    np.testing.assert_allclose(found[0], found[1], rtol=1e-7)


def test_other_models_are_left_to_tensorflow(rng):
    rows = rows_of("one", rng)
    for kernel, mean in (
        (gpflow.kernels.RationalQuadratic(), None),
        (gpflow.kernels.Matern32() + gpflow.kernels.White(), None),
        (gpflow.kernels.Matern32(), gpflow.functions.Constant()),
    ):
        model = hyperparameters._ExactGPs(rows, kernel, mean, 0.2)
        hyperparameters._set_priors(model)
        assert hyperparameters._closed_form(model) is None


def test_neighbors_in_blocks_predict_as_at_once(rng, monkeypatch):
    X = rng.normal(size=(600, 3))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(600, 1))
    kernel, values = kernel_of("Matern52", True, False), []
    for entries in (2**21, 50 * 64**2):
        monkeypatch.setattr(hyperparameters, "_ENTRIES", entries)
        values.append(hyperparameters.neighbor_log_density(X, Y, kernel, 0.01, num_neighbors=64))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


GAPS = [0.0, 1e-16, 1e-12, 1e-9, 1e-8, 1e-6, 1e-3]


def test_a_search_that_ends_where_it_began_says_so(recwarn):
    find_mode(lambda at: (-float(at @ at), -2.0 * at), np.ones(2))
    find_mode(lambda at: (-float(at @ at), -2.0 * at), np.zeros(2))  # the mode
    assert not recwarn.list
    with pytest.warns(UserWarning, match="hyperparameters ended where it began.* slope of 2 "):
        find_mode(lambda at: (-float(at @ at), 2.0 * at), np.ones(2))  # a wrong sign
