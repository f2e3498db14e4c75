"""Layers by themselves: marginals, KL, draws, the start, and what does not fit together."""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import (
    NeighborInducingPoints,
    OrthogonalInducingVariables,
)
from gpflow_sparse.models import ConvLayer, DeepGP, GPLayer
from tests.models.test_deep import (
    IMAGE,
    PATCH,
    STRUCTURES,
    VARIANCE,
    conv_layer,
    drawn,
    k,
    kernel,
    noise_size,
    point_layer,
    top_layer,
)
from tests.oracles import swsgp

N, D = 5, 2
SAMPLING = ["marginal", "shared_inducing", "joint"]
every_sampling = pytest.mark.parametrize("sampling", SAMPLING)


def map_of_noise(layer, x, sampling):
    """A draw is ``mean + J eps``: both, for one input ``x [D]``."""
    size = noise_size(layer, sampling)
    eps = np.concatenate([np.zeros((1, size)), np.eye(size)])[:, None]  # [S, 1, size]
    draws = drawn(layer, x[None], eps, sampling)[:, 0]
    return draws[0], (draws[1:] - draws[0]).T


def moments(layer, X):
    """Mean and variance ``[N, width]`` of marginal draws, which are ``mean + sd eps``."""
    size = noise_size(layer)
    eps = np.stack([np.zeros((len(X), size)), np.ones((len(X), size))])
    mean, high = drawn(layer, X, eps)
    return mean, (high - mean) ** 2


def kl_of(layer):
    """Of a layer below another at its prior."""
    return DeepGP(
        [layer, GPLayer(kernel(layer.output_dim), np.zeros((1, layer.output_dim)))],
        gpflow.likelihoods.Gaussian(),
    ).prior_kl()


LAYERS = {
    "rows": lambda rng, sizes, whiten: (
        *point_layer(rng, D, 2, sizes, whiten=whiten, mean=True), D,
    ),
    "images": lambda rng, sizes, whiten: (
        *conv_layer(rng, IMAGE, PATCH, 2, sizes, whiten=whiten, mean=True), 20,
    ),
    "channels": lambda rng, sizes, whiten: (
        *conv_layer(rng, (5, 4, 2), (3, 2), 3, sizes, stride=2, whiten=whiten), 40,
    ),
    "sums": lambda rng, sizes, whiten: (*top_layer(rng, IMAGE, PATCH, 2, sizes, whiten=whiten), 20),
}  # fmt: skip
# Every layer of one set and of orthogonal sets, one of them whitened.
FORMS = {
    f"{name}-{structure}": (make, STRUCTURES[structure], i % 2 == j)
    for i, (name, make) in enumerate(LAYERS.items())
    for j, structure in enumerate(STRUCTURES)
}
every_form = pytest.mark.parametrize(("make", "sizes", "whiten"), FORMS.values(), ids=list(FORMS))


@every_form
def test_marginals_and_kl_are_those_of_the_oracle(rng, make, sizes, whiten):
    layer, oracle, width = make(rng, sizes, whiten)
    X = rng.normal(size=(N, width))
    mean, var = oracle.marginals(X)
    scale = 1e-9 * max(1.0, np.abs(mean).max(), np.abs(var).max())
    found = moments(layer, X)
    np.testing.assert_allclose(found[0], mean, atol=scale)
    np.testing.assert_allclose(found[1], var, atol=4.0 * scale)
    np.testing.assert_allclose(kl_of(layer), oracle.kl(X), rtol=1e-9)
    assert (layer.input_dim, layer.output_dim) == (width, mean.shape[1])


@pytest.mark.parametrize(
    ("make", "sizes", "whiten"), [FORMS["images-solvegp"], FORMS["channels-solvegp"]]
)
@every_sampling
def test_draws_have_the_covariance_they_should(rng, make, sizes, whiten, sampling):
    """Of ``mean + J eps`` it is ``J J^T``: no sampling error."""
    layer, oracle, width = make(rng, sizes, whiten)
    x = rng.normal(size=width)
    mean, J = map_of_noise(layer, x, sampling)
    expected, (cov,) = getattr(oracle, "shared" if sampling == "shared_inducing" else "joint")(
        x[None]
    )
    expected_cov = np.diag(np.diag(cov)) if sampling == "marginal" else cov
    np.testing.assert_allclose(mean, expected[0], atol=1e-8 * max(1.0, np.abs(expected).max()))
    # the joint factorization adds jitter of its own
    jitter = 2e-6 * VARIANCE if sampling == "joint" else 1e-8
    np.testing.assert_allclose(J @ J.T, expected_cov, atol=jitter + 1e-8 * np.abs(cov).max())
    if sampling != "marginal":  # there is something to get wrong
        assert np.abs(cov - np.diag(np.diag(cov))).max() > 0.05


# starts


@pytest.mark.parametrize(
    ("sizes", "whiten", "images"),
    [
        (STRUCTURES["svgp"], True, False),
        (STRUCTURES["svgp"], False, True),
        (STRUCTURES["solvegp"], True, True),
        (STRUCTURES["solvegp"], False, False),
    ],
)
def test_a_layer_started_at_filters_passes_them_on(rng, sizes, whiten, images):
    """The mean at the inducing inputs of all sets is their product with the filters."""
    length = 4 if images else D
    filters = rng.normal(size=(length, 3))
    arrays = [rng.normal(size=(M, length)) for M in sizes]
    sets = OrthogonalInducingVariables(*arrays)
    shapes = (PATCH, PATCH) if images else ()  # images of one patch
    kind = ConvLayer if images else GPLayer
    layer = kind(kernel(), sets, *shapes, num_latent_gps=3, whiten=whiten)
    before = [R.numpy() for R in layer.q_sqrt]
    layer.start_at(filters, scale=1e-2)
    for R, start in zip(layer.q_sqrt, before, strict=True):
        np.testing.assert_allclose(R, 1e-2 * start, rtol=1e-12)
    Z = np.concatenate(arrays)
    mean, var = moments(layer, Z)
    np.testing.assert_allclose(mean, Z @ filters, atol=1e-4)  # but for jitter
    assert np.max(var) < 1e-2  # nearly without doubt there
    X = rng.normal(size=(40, length))
    found, _ = moments(layer, X)
    correlation = np.corrcoef(np.ravel(found), np.ravel(X @ filters))[0, 1]
    assert correlation > 0.5


# other structures


def basis():
    return gs.bases.RandomFourier(kernel(), 8, seed=1)


def test_a_layer_with_neighbors_sees_those_of_each_row_and_the_kl_of_a_chain(rng):
    Z, X, H = rng.normal(size=(7, D)), rng.normal(size=(N, D)), 3
    q_mu, q_sqrt = rng.normal(size=(7, 2)), rng.uniform(0.2, 1.0, size=(7, 2))
    layer = GPLayer(
        kernel(), NeighborInducingPoints(Z, H), num_latent_gps=2, q_mu=[q_mu], q_sqrt=[q_sqrt]
    )
    found = moments(layer, X)
    sets, kl = swsgp.nearest(X, Z, H), 0.0
    for g in range(2):
        S = np.diag(q_sqrt[:, g] ** 2)
        mean, var, _ = swsgp.locals_of(k, X, Z, sets, q_mu[:, g], S, 1e-6 * VARIANCE)
        np.testing.assert_allclose(found[0][:, g], mean, atol=1e-8)
        np.testing.assert_allclose(found[1][:, g], var, atol=1e-8)
        kl += swsgp.chain_kl(k, Z, H, q_mu[:, g], S, 1e-6 * VARIANCE)
    np.testing.assert_allclose(kl_of(layer), kl, rtol=1e-8)


# doors
