"""Convolutional models from images: the shapes of the paper, where they start, what is refused."""

import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import LocatedPatches, Patches
from gpflow_sparse.initialization.image_patches import (
    glorot_filters,
    random_locations,
)
from gpflow_sparse.models import SOLVEGP, ConvLayer, ConvSpec, DeepGP, deep_convolutional
from tests.oracles import convolutional as oracle

SMALL = (ConvSpec(3, 1, 2), ConvSpec(2, 1, 3), ConvSpec(2))
SHAPE, PIXELS, N = (6, 5, 2), 60, 30


def make_grid(*geometry, **stride):
    return gs.kernels.Convolutional(gpflow.kernels.SquaredExponential(), *geometry, **stride).grid


def images(rng, N=N, pixels=PIXELS):
    return rng.normal(size=(N, pixels))


def small(rng, likelihood=None, X=None, **options):
    """Three layers: 6 x 5 x 2, 4 x 3 x 2, 3 x 2 x 3 and its sums of 2 x 2."""
    options = {"num_inducing": 5, "num_orthogonal": 4, "architecture": SMALL, **options}
    likelihood = gpflow.likelihoods.Gaussian(0.1) if likelihood is None else likelihood
    return deep_convolutional(images(rng) if X is None else X, SHAPE, likelihood, **options)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_the_models_of_table_5(rng, num_layers):
    """On images of 32 x 32 pixels and 3 channels; the sizes that the sheet counts."""
    X = images(rng, 4, 32 * 32 * 3)
    model = deep_convolutional(
        X, (32, 32, 3), gpflow.likelihoods.MultiClass(10), num_inducing=6, num_orthogonal=5,
        num_layers=num_layers,
    )  # fmt: skip
    hidden = [] if num_layers == 1 else list(model.layers[:-1])
    shapes = [(28, 28, 10), (13, 13, 10)][: num_layers - 1]
    assert [layer.output_shape for layer in hidden] == shapes
    last = model if num_layers == 1 else model.layers[-1]
    grid, (size, stride) = last.kernel.grid, {1: (5, 1), 2: (4, 2), 3: (5, 1)}[num_layers]
    assert (grid.patch_shape, grid.stride) == ((size, size), stride)
    assert (grid.num_patches, grid.patch_length) == {1: (784, 75), 2: (169, 160), 3: (81, 250)}[
        num_layers
    ]
    assert last.num_latent_gps == 10
    assert all(layer.whiten for layer in [*hidden, last])
    assert model.num_data == 4
    assert isinstance(model, SOLVEGP if num_layers == 1 else DeepGP)
    for layer in [*hidden, last]:
        assert layer.inducing_variable.sizes == (6, 5)
        base = getattr(layer.kernel, "base_kernel", layer.kernel)
        variance, scale = (5.0, 1.0) if layer is last else (0.1, 2.0)
        np.testing.assert_allclose(base.variance, variance, rtol=1e-12)
        length = layer.inducing_variable.sets[0].Z.shape[1]
        np.testing.assert_allclose(base.lengthscales, scale * np.sqrt(length), rtol=1e-12)
    np.testing.assert_allclose(last.kernel.location_kernel.lengthscales, 3.0)
    for inducing in last.inducing_variable.sets:
        assert isinstance(inducing, LocatedPatches)
        places = inducing.locations.numpy()
        assert np.all((places >= 0.0) & (places <= np.subtract(grid.shape, 1)))


def test_options_reach_the_model(rng):
    model = small(
        rng, num_inducing=[3, 4, 5], num_orthogonal=[2, 0, 1], tick=False, whiten=True,
        num_data=500, num_samples=3, sampling="joint", num_prediction_samples=4,
    )  # fmt: skip
    assert [layer.inducing_variable.sizes for layer in model.layers] == [(3, 2), (4,), (5, 1)]
    assert all(layer.whiten for layer in model.layers)
    assert (model.num_data, model.num_samples, model.sampling) == (500, 3, "joint")
    assert model.num_prediction_samples == 4
    assert type(model.layers[-1].kernel) is gs.kernels.Convolutional
    assert all(type(s) is Patches for s in model.layers[-1].inducing_variable.sets)
    alone = small(rng, architecture=[ConvSpec(2, 2)], num_orthogonal=0)
    assert isinstance(alone, SOLVEGP)
    assert alone.inducing_variable.sizes == (5,)
    assert alone.kernel.grid.shape == (3, 2)


def test_filters_have_responses_of_variance_one(rng):
    """Over all patches; before that they are uniform between the limits of Glorot."""
    grid, X = make_grid(SHAPE, (3, 2)), 3.0 + 2.0 * images(rng)
    filters = glorot_filters(X, grid, 50, rng)
    responses = oracle.patches(X, SHAPE, (3, 2)).reshape(-1, 12) @ filters
    np.testing.assert_allclose(responses.std(axis=0), 1.0, rtol=1e-10)
    shape = filters / np.abs(filters).max(axis=0)
    assert abs(shape.mean()) < 0.1
    np.testing.assert_allclose(np.var(shape) * 3.0, 1.0, atol=0.25)  # of a uniform one
    dark = glorot_filters(np.zeros((3, PIXELS)), grid, 2, rng)
    assert np.abs(dark).max() <= np.sqrt(6.0 / (6 * (2 + 2)))
    assert np.abs(dark).max() > 0.5 * np.sqrt(6.0 / (6 * (2 + 2)))


def test_locations_are_uniform_over_the_grid(rng):
    grid = make_grid((9, 30), (3, 2), stride=3)  # 3 x 10 patches
    places = random_locations(grid, 2000, rng)
    assert np.all((places >= 0.0) & (places <= [2.0, 9.0]))
    np.testing.assert_allclose(places.mean(axis=0), [1.0, 4.5], atol=0.2)
    np.testing.assert_allclose(places.std(axis=0), np.array([2.0, 9.0]) / np.sqrt(12), rtol=0.1)


def test_hidden_layers_start_at_filters_about_which_the_prior_is_narrow(rng):
    """Rectified responses of second moment one, and a variance of a tenth; then its patches."""
    X = images(rng, 200)
    model, shape = small(rng, X=X), SHAPE
    for layer, size in zip(model.layers[:-1], (3, 2), strict=True):
        assert isinstance(layer, ConvLayer)
        patches = oracle.patches(X, shape, (size, size)).reshape(-1, layer.grid.patch_length)
        mean, var = layer.posterior().posterior.fused_predict_f(patches)
        A = layer.mean_function.A.numpy()
        np.testing.assert_allclose(mean, np.maximum(0.0, patches @ A), atol=1e-10)
        np.testing.assert_allclose(np.var(patches @ A, axis=0), 2.0, rtol=0.05)
        np.testing.assert_allclose(var, 0.1, rtol=1e-3)
        X, shape = mean.numpy().reshape(len(X), -1), layer.output_shape
    last = model.layers[-1]
    # random means of standard deviation 0.01 relative to the prior's, so KL = |eps|^2 0.01^2 / 2
    count = sum(int(tf.size(m)) for m in last.q_mu)
    assert 0.3 < float(last.posterior().posterior.prior_kl()) / (0.5e-4 * count) < 2.0


@pytest.mark.parametrize("whiten", [True, False])
def test_hidden_layers_of_zero_mean_start_at_filters_in_q(rng, whiten):
    """f is linear at the inducing patches of both sets, with hardly any variance."""
    model = small(rng, zero_mean=True, whiten=whiten, num_inducing=16, num_orthogonal=8)
    for layer in model.layers[:-1]:
        assert isinstance(layer.mean_function, gpflow.functions.Zero)
        np.testing.assert_allclose(layer.kernel.variance, 5.0)
        Z = np.concatenate([one.Z for one in layer.inducing_variable.sets])  # [M + M2, L]
        mean, var = layer.posterior().posterior.fused_predict_f(Z)
        filters, _, rank, _ = np.linalg.lstsq(Z, mean, rcond=None)
        assert rank == Z.shape[1] < len(Z) == 24
        np.testing.assert_allclose(Z @ filters, mean, atol=1e-3)
        assert np.var(mean, axis=0).min() > 0.1
        assert np.max(var) < 1e-3


def test_orthogonal_patches_of_nothing_but_jitter_draw_a_warning(rng):
    """Lengthscales are for pixels of variance 1; with 0.01 all patches are alike."""
    with pytest.warns(UserWarning, match="Standardize each channel"):
        small(rng, X=1e-2 * images(rng), architecture=SMALL[-1:], tick=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(rng, architecture=SMALL[-1:], tick=False)
        small(rng, X=1e-2 * images(rng), architecture=SMALL[-1:], tick=False, num_orthogonal=0)
