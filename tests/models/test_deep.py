"""Deep models against loops over draws, shallow models, quadrature; predictions are mixtures."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables, Patches
from gpflow_sparse.models import ConvLayer, DeepGP, GPLayer
from gpflow_sparse.models.deep import layer_posterior
from tests.oracles import convolutional, deep, solvegp

N, D, NOISE = 5, 2, 0.2
VARIANCE = 1.3
IMAGE, PATCH = (5, 4, 1), (2, 2)
STRUCTURES = {"svgp": (6,), "solvegp": (4, 3)}


def k(A, B):
    """At random rows of any length the correlation is that of half a lengthscale or two."""
    return solvegp.matern52(A, B, VARIANCE, 0.7 * np.sqrt(A.shape[1]))


def kernel(columns=D):
    """The same, for rows of so many numbers."""
    return gpflow.kernels.Matern52(variance=VARIANCE, lengthscales=0.7 * np.sqrt(columns))


def sets_of(arrays, wrap=lambda Z: Z):
    wrapped = [wrap(Z) for Z in arrays]
    return wrapped[0] if len(wrapped) == 1 else OrthogonalInducingVariables(*wrapped)


def random_q(rng, sizes, G):
    means = [rng.normal(size=(M, G)) for M in sizes]
    lower = [0.3 * np.tril(rng.normal(size=(G, M, M)), -1) for M in sizes]
    scales = [rng.uniform(0.3, 1.2, size=(G, M, 1)) for M in sizes]
    return means, [R + s * np.eye(s.shape[1]) for R, s in zip(lower, scales, strict=True)]


def by_hand(function):
    """A linear map in float64, whatever the model's type."""
    A = None if function is None else function.A.numpy().astype(float)
    return None if A is None else lambda rows: rows @ A


def parts(rng, length, G, sizes, whiten):
    """Inducing rows, and q as a layer and as its oracle take it."""
    arrays = [rng.normal(size=(M, length)) for M in sizes]
    q_mu, q_sqrt = random_q(rng, sizes, G)
    options = {"num_latent_gps": G, "whiten": whiten, "q_mu": q_mu, "q_sqrt": q_sqrt}
    return arrays, options, (q_mu, q_sqrt, 1e-6 * VARIANCE, whiten)


def point_layer(rng, inputs, G, sizes=(4, 3), *, whiten=True, mean=False):
    """A layer on rows and its oracle."""
    arrays, options, q = parts(rng, inputs, G, sizes, whiten)
    function = gs.mean_functions.pca(rng.normal(size=(9, inputs)), G) if mean else None
    layer = GPLayer(kernel(inputs), sets_of(arrays), mean_function=function, **options)
    return layer, deep.Layer(k, arrays, *q, by_hand(function))


def conv_layer(rng, image, patch, G, sizes=(4, 3), *, stride=1, whiten=True, mean=False):
    """A layer on patches and its oracle."""
    arrays, options, q = parts(rng, patch[0] * patch[1] * image[2], G, sizes, whiten)
    function = gs.mean_functions.identity_convolution(patch, image[2], G) if mean else None
    options |= {"stride": stride, "mean_function": function}
    layer = ConvLayer(kernel(arrays[0].shape[1]), sets_of(arrays), image, patch, **options)
    rows = deep.Layer(k, arrays, *q, by_hand(function))
    return layer, deep.Convolution(rows, lambda X: convolutional.patches(X, image, patch, stride))


def top_layer(rng, image, patch, G, sizes=(4, 3), *, whiten=True):
    """A patch kernel on images and its oracle."""
    arrays, options, q = parts(rng, patch[0] * patch[1] * image[2], G, sizes, whiten)
    patch_kernel = gs.kernels.Convolutional(kernel(arrays[0].shape[1]), image, patch)
    layer = GPLayer(patch_kernel, sets_of(arrays, Patches), **options)
    weights = np.ones(patch_kernel.grid.num_patches)
    prior = convolutional.PatchSum(k, image, patch, weights)
    return layer, deep.Layer(prior, [(Z, None) for Z in arrays], *q)


def fully_connected(rng, sizes=(4, 3), P=1, *, whiten=True):
    """Three layers, of widths 3 and 2, with a mean function between."""
    made = [
        point_layer(rng, D, 3, sizes, whiten=whiten, mean=True),
        point_layer(rng, 3, 2, sizes, whiten=whiten),
        point_layer(rng, 2, P, sizes, whiten=whiten),
    ]
    return tuple(zip(*made, strict=True))


def convolutions(rng, sizes=(4, 3), P=1, *, whiten=True):
    """Three layers on images of 5 x 4 pixels: 4 x 3 x 2, 2 x 2 x 2, and what a patch sum is."""
    made = [
        conv_layer(rng, IMAGE, PATCH, 2, sizes, whiten=whiten, mean=True),
        conv_layer(rng, (4, 3, 2), (2, 1), 2, sizes, stride=2, whiten=whiten),
        top_layer(rng, (2, 2, 2), (1, 2), P, sizes, whiten=whiten),
    ]
    return tuple(zip(*made, strict=True))


def two_layers(rng, images=True, P=1):
    """What takes less time to compile."""
    if not images:
        return [point_layer(rng, D, 2)[0], point_layer(rng, 2, P)[0]]
    return [conv_layer(rng, IMAGE, PATCH, 2)[0], top_layer(rng, (4, 3, 2), PATCH, P)[0]]


def drawn(layer, X, eps, sampling="marginal"):
    """
    Outputs ``[S, N, width]`` of a hidden layer at noise ``[S, N, size]``: they are the means of a
    layer on top, which is at its prior around the identity.
    """
    width = layer.output_dim
    top = GPLayer(
        kernel(width),
        np.zeros((1, width)),
        num_latent_gps=width,
        mean_function=gpflow.functions.Identity(),
    )
    return gaussian([layer, top], sampling=sampling).propagate(X, [eps])[0].numpy()


def noise_size(layer, sampling="marginal"):
    top = GPLayer(kernel(layer.output_dim), np.zeros((1, layer.output_dim)))
    return gaussian([layer, top], sampling=sampling).posterior().noise_sizes[0]


STACKS = {"rows": (fully_connected, (D, [3, 2])), "images": (convolutions, (20, [24, 8]))}
every_stack = pytest.mark.parametrize(("build", "widths"), STACKS.values(), ids=list(STACKS))


def gaussian(layers, **options):
    return DeepGP(layers, gpflow.likelihoods.Gaussian(NOISE), **options)


def draws_for(rng, widths, S=3, rows=N):
    return [rng.normal(size=(S, rows, width)) for width in widths]


@every_stack
@pytest.mark.parametrize(
    ("sizes", "whiten"), [(STRUCTURES["svgp"], True), (STRUCTURES["solvegp"], False)]
)
def test_forward_at_given_draws_is_the_oracle(rng, build, widths, sizes, whiten):
    layers, oracles = build(rng, sizes, 2, whiten=whiten)
    X, eps = rng.normal(size=(N, widths[0])), draws_for(rng, widths[1])
    found = gaussian(layers).propagate(X, eps)
    for got, want in zip(found, deep.deep_forward(oracles, X, eps), strict=True):
        scale = max(1.0, np.abs(want).max())  # of plain q, means are large
        np.testing.assert_allclose(got, want, atol=1e-8 * scale)


@pytest.mark.parametrize(
    ("build", "widths", "whiten"), [(*STACKS["rows"], True), (*STACKS["images"], False)]
)
def test_the_kl_is_the_sum_of_the_layers(rng, build, widths, whiten):
    """Once per layer and output, however many patches."""
    layers, oracles = build(rng, whiten=whiten)
    X = rng.normal(size=(1, widths[0]))
    expected, h = 0.0, X
    for layer in oracles:
        expected += layer.kl(h)
        h = layer.marginals(h)[0]
    np.testing.assert_allclose(gaussian(layers).prior_kl(), expected, rtol=1e-9)


@every_stack
@pytest.mark.parametrize("S", [1, 4])
def test_the_elbo_averages_draws_and_sums_rows(rng, build, widths, S):
    layers, oracles = build(rng)
    X, Y = rng.normal(size=(N, widths[0])), rng.normal(size=(N, 1))
    model = gaussian(layers, num_samples=S, seed=3, num_data=4 * N)
    eps = frozen(model, S, widths[1])
    expected = deep.gaussian_elbo(oracles, X, Y, eps, NOISE, scale=4.0)
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-8)
    model.num_data = None
    expected = deep.gaussian_elbo(oracles, X, Y, eps, NOISE)
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-8)


def frozen(model, S, widths):
    """The draws of a model, one ``[S, N, width]`` per hidden layer, the same for all rows."""
    noise = model.posterior().frozen_noise(tf.zeros([N, model.input_dim], tf.float64), S)
    return [
        np.repeat(np.transpose(eps, [1, 0, 2]), N, axis=1)[..., :width]
        for eps, width in zip(noise, widths, strict=True)
    ]


@pytest.mark.nightly
def test_a_seed_freezes_the_draws_and_none_does_not(rng):
    layers = two_layers(rng, images=False)
    data = rng.normal(size=(N, D)), rng.normal(size=(N, 1))
    values = [float(gaussian(layers, seed=seed).elbo(data)) for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    free = gaussian(layers)
    assert float(free.elbo(data)) != float(free.elbo(data))
    compiled = tf.function(free.elbo, autograph=False)
    assert float(compiled(data)) != float(compiled(data))
    for method in ("predict_f", "predict_y"):
        one, other = (getattr(free, method)(data[0]) for _ in range(2))
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@every_stack
def test_predictions_are_those_of_the_mixture(rng, build, widths):
    layers, oracles = build(rng, P=2)
    X, Y, S = rng.normal(size=(N, widths[0])), rng.normal(size=(N, 2)), 7
    model = gaussian(layers, num_prediction_samples=S)
    mean, var = deep.deep_forward(oracles, X, frozen(model, S, widths[1]))
    middle, total = mean.mean(0), var.mean(0) + mean.var(0)
    for source in (model, model.posterior()):
        np.testing.assert_allclose(source.predict_f(X)[0], middle, atol=1e-8)
        np.testing.assert_allclose(source.predict_f(X)[1], total, atol=1e-8)
    y_mean, y_var = model.predict_y(X)
    np.testing.assert_allclose(y_mean, middle, atol=1e-8)
    np.testing.assert_allclose(y_var, total + NOISE, atol=1e-8)
    each = -0.5 * (np.log(2 * np.pi * (var + NOISE)) + (Y - mean) ** 2 / (var + NOISE))
    expected = logsumexp(each.sum(-1), axis=0) - np.log(S)
    np.testing.assert_allclose(model.predict_log_density((X, Y)), expected, atol=1e-8)
    cached = model.posterior()
    np.testing.assert_allclose(cached.predict_y(X, model.likelihood)[1], y_var, atol=1e-8)
    found = cached.predict_log_density((X, Y), model.likelihood)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    covariances = model.predict_f(X, full_output_cov=True)[1]
    errors = mean - middle
    spread = np.einsum("snp,snq->npq", errors, errors) / S
    outputs = spread + np.einsum("np,pq->npq", var.mean(0), np.eye(2))
    np.testing.assert_allclose(covariances, outputs, atol=1e-8)


def test_probabilities_are_averaged_not_their_logarithms(rng):
    layers, oracles = fully_connected(rng, P=3)
    likelihood, S = gpflow.likelihoods.MultiClass(3), 9
    model = DeepGP(layers, likelihood, num_prediction_samples=S)
    X, Y = rng.normal(size=(N, D)), rng.integers(0, 3, size=(N, 1)).astype(float)
    mean, var = deep.deep_forward(oracles, X, frozen(model, S, [3, 2]))
    each = np.stack(
        [likelihood.predict_mean_and_var(None, m, v)[0] for m, v in zip(mean, var, strict=True)]
    )
    probabilities = model.predict_y(X)[0]
    np.testing.assert_allclose(probabilities, each.mean(0), atol=1e-9)
    logs = np.stack(
        [likelihood.predict_log_density(None, m, v, Y) for m, v in zip(mean, var, strict=True)]
    )
    density = model.predict_log_density((X, Y))
    np.testing.assert_allclose(density, np.log(np.exp(logs).mean(0)), atol=1e-9)
    assert np.all(density > logs.mean(0))  # Jensen


def test_joint_samples_are_functions(rng):
    """The same row twice has one value, marginally drawn two."""
    layers, _ = fully_connected(rng)
    model, x = gaussian(layers), rng.normal(size=(1, D))
    X = np.concatenate([x, x, rng.normal(size=(2, D))])
    joint = model.predict_f_samples(X, 20, full_cov=True).numpy()
    free = model.predict_f_samples(X, 20, full_cov=False).numpy()
    together, apart = (np.abs(s[:, 0] - s[:, 1]).mean() for s in (joint, free))
    assert together < 0.1 * apart  # jitter lets them differ


def test_rows_of_very_different_variance_are_drawn_together():
    """The jitter of one row does not reach the others; a variance of zero is drawn as zero."""
    layer = GPLayer(gpflow.kernels.Linear(), np.array([[0.5], [0.7]]))
    X = np.array([[1e4], [0.01], [0.0]])
    drawn = gaussian([layer]).predict_f_samples(X, 2000, full_cov=True)
    np.testing.assert_allclose(np.std(drawn[..., 0], axis=0), X[:, 0], rtol=0.1, atol=1e-8)


def test_outputs_that_cancel_are_drawn_together(rng):
    """The variance of the sum of all outputs is zero, not the variance of an output."""
    X, smooth = np.linspace(0.0, 1.0, 30)[:, None], gpflow.kernels.SquaredExponential()
    mixed = gpflow.kernels.LinearCoregionalization([smooth], W=np.array([[1.0], [-1.0]]))
    last = GPLayer(gpflow.kernels.Matern52(), rng.normal(size=(3, 2)))
    mean, cov = gaussian([GPLayer(mixed, X[::8]), last]).predict_f(X, full_cov=True)
    np.testing.assert_allclose(mean, np.zeros((30, 1)), atol=1e-9)
    np.testing.assert_allclose(np.diagonal(cov[0]), np.ones(30), rtol=1e-5)


@pytest.mark.nightly
def test_chunks_change_nothing(rng, monkeypatch):
    """The hidden layer takes 15 rows in two, 5 rows in one; of the same draws."""
    monkeypatch.setattr(layer_posterior, "_CHUNK_ENTRIES", 10 * 2 * 7)  # two outputs, seven points
    model = gaussian(two_layers(rng, images=False), num_samples=50, seed=0)
    X, Y = rng.normal(size=(15, D)), rng.normal(size=(15, 1))

    def terms(rows):
        with tf.GradientTape() as tape:
            value = model.elbo((X[rows], Y[rows])) + model.prior_kl()
        return [value, *tape.gradient(value, model.trainable_variables)]

    parts = [terms(slice(start, start + 5)) for start in (0, 5, 10)]
    for whole, each in zip(terms(slice(None)), zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(whole, np.sum(each, axis=0), rtol=1e-8, atol=1e-8)


def test_a_zero_mean_at_the_prior_sends_no_signal_and_filters_do(rng):
    """Three layers on images; a hidden mean of 0 has a variance that is constant in the input."""
    shapes = ((IMAGE, 4), ((4, 3, 2), 8))
    layers = [
        ConvLayer(kernel(), rng.normal(size=(4, columns)), shape, PATCH, num_latent_gps=2)
        for shape, columns in shapes
    ]
    top = gs.kernels.Convolutional(kernel(), (3, 2, 2), PATCH)
    layers.append(GPLayer(top, Patches(rng.normal(size=(4, 8)))))
    model, X = gaussian(layers, seed=0), rng.normal(size=(N, 20))
    Z = layers[0].inducing_variable
    first = [getattr(Z, "sets", [Z])[0].Z, layers[0].kernel.lengthscales]

    def signals():
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, np.sin(X[:, :1])))
        found = tape.gradient(loss, [part.unconstrained_variable for part in first])
        return [float(tf.reduce_max(tf.abs(g))) for g in found]

    assert max(signals()) < 1e-6
    for layer, (_, columns) in zip(layers, shapes, strict=False):
        layer.start_at(rng.normal(size=(columns, 2)))
    layers[-1].q_mu[0].assign(rng.normal(size=layers[-1].q_mu[0].shape))
    assert min(signals()) > 1e-3


def test_the_last_layer_takes_natural_gradients(rng):
    """One step of size one is the optimum of a Gaussian likelihood, given the draws."""
    layers, _ = fully_connected(rng, sizes=(6,))
    model = gaussian(layers, seed=0)
    data = rng.normal(size=(20, D)), rng.normal(size=(20, 1))
    assert [id(p) for pair in model.variational_parameters for p in pair] == [
        id(layers[-1].q_mu[0]),
        id(layers[-1].q_sqrt[0]),
    ]
    before = model.elbo(data)
    loss = model.training_loss_closure(data, compile=False)
    optimizer = gpflow.optimizers.NaturalGradient(1.0)
    optimizer.minimize(loss, model.variational_parameters)
    after = model.elbo(data)
    assert after > before
    optimizer.minimize(loss, model.variational_parameters)
    np.testing.assert_allclose(model.elbo(data), after, rtol=1e-6)


def test_draws_that_keep_correlations_spread_sums_wider(rng):
    """All patches of a constant image are alike, so a mean over them is as uncertain as one."""
    hidden, _ = conv_layer(rng, IMAGE, PATCH, 1)
    X, spread = np.ones((1, 20)), {}
    for sampling in ("marginal", "shared_inducing", "joint"):
        eps = rng.normal(size=(400, 1, noise_size(hidden, sampling)))
        spread[sampling] = drawn(hidden, X, eps, sampling)[:, 0].mean(axis=1).var()
    assert spread["marginal"] < 0.5 * spread["shared_inducing"] < spread["joint"]


# doors


def rows_layer(inputs=D, outputs=1, M=4):
    return GPLayer(
        kernel(), np.random.default_rng(0).normal(size=(M, inputs)), num_latent_gps=outputs
    )


def test_layers_that_were_exchanged_are_looked_at_again(rng):
    model = gaussian([rows_layer(2, 3), rows_layer(3)])
    data = rng.normal(size=(N, D)), rng.normal(size=(N, 1))
    model.elbo(data)
    model.layers = (rows_layer(2, 2), model.layers[1])
    with pytest.raises(ValueError, match=r"layers\[1\] takes 3 columns"):
        model.elbo(data)
    model.layers = (rows_layer(2, 3), rows_layer(3))
    model.layers[0].kernel = gpflow.kernels.Matern32(lengthscales=np.ones(5))
    with pytest.raises(ValueError, match="lengthscales"):
        model.elbo(data)


def test_neighbors_have_nothing_to_share_between_patches(rng):
    """Each patch has inducing variables of its own neighborhood."""
    points = gs.inducing_variables.NeighborInducingPoints(rng.normal(size=(5, 4)), 2)
    hidden = ConvLayer(kernel(), points, IMAGE, PATCH, num_latent_gps=2)
    last, _ = top_layer(rng, (4, 3, 2), PATCH, 1)
    data = rng.normal(size=(N, 20)), rng.normal(size=(N, 1))
    with pytest.raises(ValueError, match="sampling must be 'marginal' or 'joint'"):
        gaussian([hidden, last], sampling="shared_inducing").elbo(data)
    assert np.isfinite(gaussian([hidden, last]).elbo(data))
