"""The importance-weighted objective of deep models: against loops, one draw, and more draws."""

import itertools

import gpflow
import numpy as np
import pytest

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import DeepGP, GPLayer
from tests.models.test_deep import NOISE, conv_layer, kernel, point_layer, top_layer
from tests.oracles import deep

N, D = 5, 2


def rows_of(rng, *widths):
    """Layers of one set, each with its oracle; widths of the input and of every output."""
    made = [
        point_layer(rng, inputs, outputs, (6,), mean=place == 0)
        for place, (inputs, outputs) in enumerate(itertools.pairwise(widths))
    ]
    return zip(*made, strict=True)


def weighted(layers, **options):
    likelihood = gpflow.likelihoods.Gaussian(NOISE)
    return DeepGP(layers, likelihood, importance_weighted=True, **options)


def test_the_objective_is_that_of_loops_over_draws(rng):
    layers, oracles = rows_of(rng, D, 3, 2, 1)
    model = weighted(layers, num_samples=4, num_data=7 * N)
    X, Y = rng.normal(size=(N, D)), rng.normal(size=(N, 1))
    eps = [rng.normal(size=(4, N, G + 6 * G)) for G in (3, 2)]
    expected = deep.weighted_elbo(oracles, X, Y, eps, NOISE, scale=7.0)
    np.testing.assert_allclose(model.elbo((X, Y), eps), expected, rtol=1e-7)


def test_one_draw_is_the_usual_objective_of_that_draw(rng):
    """In a layer of patches, whose draws with shared inducing outputs have the same noise."""
    hidden, _ = conv_layer(rng, (5, 4, 1), (2, 2), 2)
    last, _ = top_layer(rng, (4, 3, 2), (2, 2), 1)
    model = weighted([hidden, last])
    usual = DeepGP([hidden, last], model.likelihood, sampling="shared_inducing")
    X, Y = rng.normal(size=(N, 20)), rng.normal(size=(N, 1))
    (size,) = usual.posterior().noise_sizes
    eps = [rng.normal(size=(1, N, size))]
    np.testing.assert_allclose(model.elbo((X, Y), eps), usual.elbo((X, Y), eps), rtol=1e-12)


def test_draws_of_a_row_share_inducing_outputs_only(rng):
    """Draws with equal noise of f are equal, whatever their noise of u but that of the first."""
    layers, _ = rows_of(rng, D, 2, 1)
    model = weighted(layers, num_samples=2)
    X = rng.normal(size=(N, D))
    eps = rng.normal(size=(2, N, 2 + 12))
    eps[1, :, :2] = eps[0, :, :2]
    mean, _ = model.propagate(X, [eps])
    np.testing.assert_allclose(mean[0], mean[1], rtol=1e-12)
    eps[0, :, 2:] += 1.0
    moved, _ = model.propagate(X, [eps])
    assert np.abs(moved - mean).max() > 0.1


def test_what_has_no_weights_is_refused(rng):
    near = GPLayer(kernel(D), NeighborInducingPoints(rng.normal(size=(6, D)), 2), num_latent_gps=D)
    (last,), _ = rows_of(rng, D, 1)
    with pytest.raises(ValueError, match="importance_weighted must be False for hidden layers"):
        weighted([near, last])
    with pytest.raises(ValueError, match="bound must be 'standard'"):
        weighted([last], bound="log")
    with pytest.raises(ValueError, match="importance_weighted"):
        DeepGP([last], gpflow.likelihoods.Gaussian(), importance_weighted="yes")
