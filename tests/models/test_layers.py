"""Layers by themselves: marginals, KL, draws, the start, and what does not fit together."""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import (
    BasisFeatures,
    NeighborInducingPoints,
    OrthogonalInducingVariables,
)
from gpflow_sparse.models import ConvLayer, DeepGP, GPLayer
from tests.models.test_deep import (
    IMAGE,
    PATCH,
    VARIANCE,
    conv_layer,
    drawn,
    every_structure,
    k,
    kernel,
    noise_size,
    point_layer,
    top_layer,
    whitened,
)
from tests.oracles import convolutional, swsgp
from tests.oracles.solvegp import gaussian_kl

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
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=list(LAYERS))


@every_layer
@every_structure
@whitened
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


@pytest.mark.parametrize("make", [LAYERS["images"], LAYERS["channels"]], ids=["images", "channels"])
@every_structure
@whitened
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


@pytest.mark.parametrize("make", [LAYERS["channels"], LAYERS["sums"]], ids=["channels", "sums"])
@every_sampling
def test_draws_of_several_inputs_are_those_of_each(rng, make, sampling):
    layer, _, width = make(rng, (4, 3), True)
    X, eps = rng.normal(size=(N, width)), rng.normal(size=(3, N, noise_size(layer, sampling)))
    found = drawn(layer, X, eps, sampling)
    for n in (0, N - 1):
        alone = drawn(layer, X[[n]], eps[:, [n]], sampling)
        np.testing.assert_allclose(found[:, [n]], alone, atol=1e-9)


@pytest.mark.parametrize("make", [LAYERS["rows"], LAYERS["sums"]], ids=["rows", "sums"])
def test_where_an_input_has_one_row_all_draws_are_alike(rng, make):
    layer, _, width = make(rng, (4, 3), True)
    X, eps = rng.normal(size=(N, width)), rng.normal(size=(2, N, 2))
    assert {noise_size(layer, sampling) for sampling in SAMPLING} == {2}
    marginal, *others = (drawn(layer, X, eps, sampling) for sampling in SAMPLING)
    for other in others:
        np.testing.assert_array_equal(other, marginal)


@pytest.mark.parametrize("stride", [1, 2])
@every_structure
def test_hidden_marginals_move_with_the_image(rng, stride, sizes):
    """Rolled by the stride, the patches inside see what their neighbors saw."""
    layer, _ = conv_layer(rng, (8, 9, 2), (3, 2), 2, sizes, stride=stride)
    image = rng.normal(size=(8, 9, 2))

    def of(image):
        return np.reshape(moments(layer, image.reshape(1, -1)), (2, *layer.output_shape))

    still = of(image)
    down, right = of(np.roll(image, stride, axis=0)), of(np.roll(image, stride, axis=1))
    np.testing.assert_allclose(down[:, 1:], still[:, :-1], atol=1e-8)
    np.testing.assert_allclose(right[:, :, 1:], still[:, :, :-1], atol=1e-8)
    assert np.abs(down - still).max() > 0.1


def test_outputs_are_images_in_the_order_of_the_next_layer(rng):
    """Rows, columns, channels: the next layer's patches are blocks of neighboring outputs."""
    first, oracle = conv_layer(rng, IMAGE, PATCH, 2, (4,))
    assert first.output_shape == (4, 3, 2)
    x = rng.normal(size=(1, 20))
    per_patch = oracle.layer.marginals(convolutional.patches(x, IMAGE, PATCH)[0])[0]
    np.testing.assert_allclose(moments(first, x)[0][0], np.ravel(per_patch), atol=1e-10)
    second = ConvLayer(kernel(), rng.normal(size=(3, 8)), first.output_shape, (2, 2))
    assert second.output_shape == (3, 2, 1)


# starts


@every_layer
@every_structure
@whitened
def test_a_layer_starts_at_the_prior(rng, make, sizes, whiten):
    """KL zero, and no difference between inputs but through the mean function."""
    given, _, width = make(rng, sizes, whiten)
    shapes = (given.image_shape, given.patch_shape) if isinstance(given, ConvLayer) else ()
    options = {"stride": given.stride} if shapes else {}
    layer = type(given)(
        given.kernel, given.inducing_variable, *shapes, num_latent_gps=2, whiten=whiten, **options
    )
    np.testing.assert_allclose(kl_of(layer), 0.0, atol=1e-9)
    X = rng.normal(size=(N, width))
    mean, var = moments(layer, X)
    np.testing.assert_allclose(mean, 0.0, atol=1e-10)
    prior = layer.kernel(X, full_cov=False) if not shapes else np.full(N, VARIANCE)
    np.testing.assert_allclose(var, np.broadcast_to(np.asarray(prior)[:, None], var.shape), 1e-5)


@every_structure
@whitened
@pytest.mark.parametrize("images", [False, True], ids=["rows", "images"])
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


def test_a_layer_of_basis_functions_is_their_weighted_sum(rng):
    features = basis()
    q_mu = rng.normal(size=(8, 2))
    q_sqrt = 0.3 * np.tril(rng.normal(size=(2, 8, 8))) + np.eye(8)
    layer = GPLayer(
        gs.kernels.Basis(features), BasisFeatures(features), num_latent_gps=2,
        q_mu=[q_mu], q_sqrt=[q_sqrt],
    )  # fmt: skip
    X = rng.normal(size=(N, D))
    phi = features(X).numpy()
    mean, var = moments(layer, X)
    np.testing.assert_allclose(mean, phi @ q_mu, atol=1e-10)
    for g in range(2):
        cov = phi @ q_sqrt[g] @ q_sqrt[g].T @ phi.T
        np.testing.assert_allclose(var[:, g], np.diag(cov), atol=1e-10)
    expected = sum(gaussian_kl(q_mu[:, g], q_sqrt[g] @ q_sqrt[g].T, np.eye(8)) for g in range(2))
    np.testing.assert_allclose(kl_of(layer), expected, rtol=1e-10)


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
