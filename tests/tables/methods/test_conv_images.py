"""Models of images for the command line."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.data import Dataset
from gpflow_sparse.kernels import TICK, Convolutional
from gpflow_sparse.models import SOLVEGP, DeepGP
from gpflow_sparse.models.deep.convolutional import TABLE_5
from gpflow_sparse.tables.fitting.building import build_model
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


PAPER = {
    "num_layers": 3,
    "num_inducing": "4, 5,6",
    "num_orthogonal": "3,2,1",
    "zero_mean": True,
    "sampling": "marginal",
    "whiten": False,
    "likelihood": "multiclass",
}


def test_the_paper_s_model_has_sizes_of_every_layer_and_zero_means():
    model = build_model(recipe_of("conv-solvegp", **PAPER), make_dataset((7, 7, 1)))
    assert [layer.inducing_variable.sizes for layer in model.layers] == [(4, 3), (5, 2), (6, 1)]
    assert all(type(layer.mean_function) is gpflow.functions.Zero for layer in model.layers)
    assert not any(layer.whiten for layer in model.layers)
    assert model.sampling == "marginal"
    assert isinstance(model.likelihood, gpflow.likelihoods.MultiClass)
    wide = recipe_of("conv-solvegp", **PAPER, stride=1).architecture((32, 32, 3))
    assert wide == [*TABLE_5[3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_inducing": "8,9"}, "num_inducing must be .*, or 3 such .* for 3 .*; got '8,9'"),
        ({"num_orthogonal": "8,9,1,1"}, "num_orthogonal must be .* got '8,9,1,1'"),
        ({"num_inducing": "8,0,9"}, "num_inducing must be a number of at least 1"),
        ({"num_orthogonal": "8,,9"}, "num_orthogonal must be a number of at least 0"),
        ({"num_orthogonal": -1}, "num_orthogonal must be a number of at least 0"),
    ],
)
def test_sizes_that_are_not_one_for_each_layer_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        recipe_of("conv-solvegp", num_layers=3, **options)


def test_svgp_of_images_starts_as_solve_gp_with_one_set_does():
    data = make_dataset()
    stock = build_model(recipe_of("conv-svgp", num_inducing=6), data)
    own = build_model(recipe_of("conv-solvegp", num_inducing=6, num_orthogonal=0), data)
    np.testing.assert_array_equal(stock.inducing_variable.Z, own.inducing_variable.sets[0].Z)
    np.testing.assert_allclose(stock.elbo(data.train), own.elbo(data.train), rtol=1e-6)


def test_patches_larger_than_the_image_are_refused():
    with pytest.raises(ValueError, match="patch_shape must fit"):
        build_model(recipe_of("conv-solvegp", patch_size=7, **SIZES), make_dataset())


def test_recipes_of_images_keep_their_sizes():
    config = recipe_of("conv-solvegp", num_layers=2, image_shape="6, 6,3", **SIZES)
    assert config.image == (6, 6, 3)
    assert config.sizes == (6, 5)
    assert config.shrunk_to(4) == config
