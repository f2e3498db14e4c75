"""The builder of deep models of tables: where they start, their bound, what is refused."""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import SOLVEGP, DeepGP, deep

N, D, NOISE = 60, 3, 0.2
LENGTHSCALES = np.array([0.8, 1.3, 2.0])


def inputs(rng, rows=N, columns=D):
    return rng.normal(size=(rows, columns))


def matern(lengthscales=LENGTHSCALES):
    return gpflow.kernels.Matern52(variance=1.4, lengthscales=lengthscales)


def build(X, **options):
    options = {"num_inducing": 12, "num_orthogonal": 5, "kernel": matern(), **options}
    return deep(X, gpflow.likelihoods.Gaussian(NOISE), **options)


def quiet(model, variance=1e-10):
    """Hidden layers that add next to nothing to their mean function."""
    for layer in model.layers[:-1]:
        layer.kernel.variance.assign(variance)
        if isinstance(layer.inducing_variable, NeighborInducingPoints):
            layer.q_sqrt[0].assign(variance * layer.q_sqrt[0])  # which is not relative to it


def randomize(rng, layer):
    for m, R in zip(layer.q_mu, layer.q_sqrt, strict=True):
        m.assign(rng.normal(size=m.shape))
        R.assign(0.5 * R)


@pytest.mark.parametrize("num_layers", [2, 3])
def test_the_start_is_near_the_model_of_one_layer(rng, num_layers):
    """Equal without what hidden layers add; and near it with the variance that they start with."""
    X, Y, Xnew = inputs(rng), rng.normal(size=(N, 1)), inputs(rng, 20)
    shallow, model = build(X, num_layers=1), build(X, num_layers=num_layers)
    assert isinstance(shallow, SOLVEGP)
    assert len(model.layers) == num_layers
    randomize(rng, shallow)
    for name in ("q_mu", "q_sqrt"):
        for mine, theirs in zip(
            getattr(model.layers[-1], name), getattr(shallow, name), strict=True
        ):
            mine.assign(theirs)
    mean, var = shallow.predict_f(Xnew)
    model.num_prediction_samples = 100
    near, _ = model.predict_f(Xnew)
    # hidden values deviate by 0.064 at most, so that the mean of draws does, by curvature, by less
    assert 1e-6 < np.abs(near - mean).max() < 0.03
    density = model.predict_log_density((X, Y)) - shallow.predict_log_density((X, Y))
    assert np.mean(np.abs(density)) < 0.05
    quiet(model)
    found = model.predict_f(Xnew)
    np.testing.assert_allclose(found[0], mean, atol=1e-4)
    np.testing.assert_allclose(found[1], var, atol=1e-4)
    expected = shallow.elbo((X, Y)) - sum(hidden_kl(layer) for layer in model.layers[:-1])
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-4)


def hidden_kl(layer):
    """Of a layer of q with mean zero and standard deviations s: (s^2 - 1 - log s^2) / 2 each."""
    scales = np.concatenate([np.diagonal(R, axis1=1, axis2=2).ravel() for R in layer.q_sqrt])
    return 0.5 * np.sum(scales**2 - 1.0 - 2.0 * np.log(scales))


def test_points_are_those_of_what_a_layer_sees(rng):
    X = inputs(rng)
    last = build(X).layers[-1].inducing_variable.sets
    shallow = gs.initialization.split_orthogonal(X, 12, 5, kernel=matern())
    for mine, theirs in zip(last, shallow, strict=True):
        np.testing.assert_allclose(mine.Z, theirs, rtol=1e-12)
    model = build(X, num_hidden=2, kernel=None)
    seen = model.layers[0].mean_function(X).numpy()  # [N, 2]
    scales = gs.initialization.median_lengthscales(seen)
    np.testing.assert_allclose(model.kernel.lengthscales, scales, rtol=1e-12)
    expected = gs.initialization.split_orthogonal(seen, 12, 5, kernel=model.kernel)
    for mine, theirs in zip(model.layers[-1].inducing_variable.sets, expected, strict=True):
        np.testing.assert_allclose(mine.Z, theirs, rtol=1e-12)


def test_neighbors_start_near_the_identity(rng):
    X = inputs(rng)
    model = build(X, num_orthogonal=0, num_neighbors=4)
    assert all(isinstance(each.inducing_variable, NeighborInducingPoints) for each in model.layers)
    assert [int(each.inducing_variable.num_neighbors) for each in model.layers] == [4, 4]
    eps = [np.full((1, N, D), 2.0)]
    one = deep_of_last(model)
    quiet(model)
    for found, wanted in zip(model.propagate(X, eps), one.predict_f(X), strict=True):
        np.testing.assert_allclose(found[0], wanted, atol=1e-4)


def deep_of_last(model):
    return DeepGP(model.layers[-1:], model.likelihood)
