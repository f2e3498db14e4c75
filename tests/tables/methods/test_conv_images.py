"""Models of images for the command line."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.kernels import TICK, Convolutional
from gpflow_sparse.models import SOLVEGP, DeepGP
from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.registry import recipe_of

SIZES = {"num_inducing": 6, "num_orthogonal": 5}


def make_dataset(shape=(6, 6, 1), count=40):
    """Images of three classes: which third of the rows is bright."""
    rng = np.random.default_rng(0)
    height, width, channels = shape
    labels = rng.integers(3, size=count)
    images = rng.normal(size=(count, height, width, channels))
    for image, label in zip(images, labels, strict=True):
        image[label * height // 3 : (label + 1) * height // 3] += 4.0
    X, Y = images.reshape(count, -1), labels[:, None].astype(float)
    names = tuple(f"p{i}" for i in range(X.shape[1]))
    parts = ((X[:-10], Y[:-10]), (X[-10:], Y[-10:]))
    data = Dataset("bars", *parts, names, "label", 3, image_shape=shape)
    return data.standardized(per_channel=True)


@pytest.mark.parametrize(
    ("options", "shape", "expected"),
    [
        ({}, (8, 8, 1), [(3, 1, None)]),
        ({"num_layers": 2}, (8, 8, 1), [(3, 1, 10), (3, 1, None)]),
        ({"num_layers": 3}, (8, 8, 1), [(3, 1, 10), (3, 1, 10), (3, 1, None)]),
        ({}, (28, 28, 1), [(5, 2, None)]),
        ({"num_layers": 2}, (32, 32, 3), [(5, 2, 10), (4, 2, None)]),
        ({"num_layers": 3}, (32, 32, 3), [(5, 2, 10), (4, 2, 10), (5, 1, None)]),
        # 28 -> 12 -> 5: a patch of 5 pixels is all of it
        ({"num_layers": 3}, (28, 28, 1), [(5, 2, 10), (4, 2, 10), (5, 1, None)]),
        ({"num_layers": 3}, (20, 20, 1), [(5, 2, 10), (4, 2, 10), (3, 1, None)]),
        ({"patch_size": 4, "stride": 3}, (28, 28, 1), [(4, 3, None)]),
        ({"patch_size": 4, "num_layers": 2}, (8, 8, 1), [(4, 1, 10), (3, 1, None)]),
    ],
)
def test_patches_of_each_layer(options, shape, expected):
    config = recipe_of("conv-solvegp", **options)
    assert [tuple(spec) for spec in config.architecture(shape)] == expected


def test_models_are_what_the_options_say():
    data = make_dataset()
    model = build_model(recipe_of("conv-solvegp", **SIZES), data)
    assert isinstance(model, SOLVEGP)
    assert isinstance(model.kernel, TICK)
    assert model.inducing_variable.sizes == (6, 5)
    assert (model.whiten, model.num_data, model.num_latent_gps) == (True, 30, 3)
    assert model.standardizer is data.standardizer
    plain = build_model(recipe_of("conv-solvegp", tick=False, whiten=False, **SIZES), data)
    assert type(plain.kernel) is Convolutional
    assert not plain.whiten
    stock = build_model(recipe_of("conv-svgp", num_inducing=6), data)
    assert isinstance(stock, gpflow.models.SVGP)
    assert int(stock.inducing_variable.num_inducing) == 6
    assert stock.num_data == 30
    assert stock.standardizer is data.standardizer
    deep = build_model(recipe_of("conv-solvegp", num_layers=2, **SIZES), data)
    assert isinstance(deep, DeepGP)
    assert [layer.inducing_variable.sizes for layer in deep.layers] == [(6,), (6, 5)]
    assert [layer.whiten for layer in deep.layers] == [True] * 2
    assert deep.sampling == "shared_inducing"
    assert deep.standardizer is data.standardizer
    single = build_model(recipe_of("conv-svgp", num_layers=2, num_inducing=6), data)
    assert [layer.inducing_variable.sizes for layer in single.layers] == [(6,)] * 2


def test_svgp_of_images_starts_as_solve_gp_with_one_set_does():
    data = make_dataset()
    stock = build_model(recipe_of("conv-svgp", num_inducing=6), data)
    own = build_model(recipe_of("conv-solvegp", num_inducing=6, num_orthogonal=0), data)
    np.testing.assert_array_equal(stock.inducing_variable.Z, own.inducing_variable.sets[0].Z)
    np.testing.assert_allclose(stock.elbo(data.train), own.elbo(data.train), rtol=1e-6)


def test_patches_larger_than_the_image_are_refused():
    with pytest.raises(ValueError, match="patch_shape must fit"):
        build_model(recipe_of("conv-solvegp", patch_size=7, **SIZES), make_dataset())


@pytest.mark.nightly
def test_predictions_of_deep_models_average_densities_some_rows_at_a_time(monkeypatch):
    data = make_dataset()
    deep = build_model(recipe_of("conv-solvegp", num_layers=2, **SIZES), data)
    X, Y = data.test
    rng = np.random.default_rng(1)
    for layer in deep.layers:
        for q_mu, q_sqrt in layer.variational_parameters:
            q_mu.assign(rng.normal(size=q_mu.shape))
            q_sqrt.assign(0.5 * np.tile(np.eye(q_sqrt.shape[-1]), (q_sqrt.shape[0], 1, 1)))
    cached = CachedModel(deep)
    P, variance = (part.numpy() for part in cached.predict_y(tf.constant(X)))
    log_density = cached.predict_log_density((tf.constant(X), tf.constant(Y))).numpy()
    for found, expected in zip((P, variance), deep.predict_y(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(log_density, deep.predict_log_density((X, Y)), rtol=1e-10)
    # a mixture: the probability of a label is not that under the moments of f
    np.testing.assert_allclose(log_density, np.log(P[range(10), Y[:, 0].astype(int)]), rtol=1e-10)
    moments = deep.likelihood.predict_log_density(X, *deep.predict_f(X), Y)
    assert np.abs(moments.numpy() - log_density).max() > 1e-4
    seen = []
    monkeypatch.setattr("gpflow_sparse.tables.methods.cached_model._DEEP_ROWS", 4)
    parts = CachedModel(deep)
    whole = parts._posterior.predict_y
    monkeypatch.setattr(
        parts._posterior, "predict_y", lambda x, *rest: (seen.append(len(x)), whole(x, *rest))[1]
    )
    np.testing.assert_allclose(parts.predict_y(tf.constant(X))[0], P, rtol=1e-10)
    assert seen == [4, 4, 2]
    densities = parts.predict_log_density((tf.constant(X), tf.constant(Y)))
    np.testing.assert_allclose(densities, log_density, rtol=1e-10)


def test_recipes_of_images_keep_their_sizes():
    config = recipe_of("conv-solvegp", num_layers=2, image_shape="6, 6,3", **SIZES)
    assert config.image == (6, 6, 3)
    assert config.sizes == (6, 5)
    assert config.shrunk_to(4) == config


@pytest.mark.nightly
def test_a_few_steps_learn_which_rows_are_bright():
    from gpflow_sparse import training

    data = make_dataset()
    model = build_model(recipe_of("conv-solvegp", num_inducing=20, num_orthogonal=20), data)
    training.fit(model, data.train, num_steps=60, optimizer=training.adam(0.05), progress=False)
    P = CachedModel(model).predict_y(tf.constant(data.test[0]))[0].numpy()
    assert metrics.error_rate(data.test[1], P / P.sum(axis=1, keepdims=True)) <= 0.1
