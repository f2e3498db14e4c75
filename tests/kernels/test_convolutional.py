"""Patch kernels against loops over patches, against GPflow, in their limits; their gradients."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu

from gpflow_sparse.inducing_variables import Kuv, LocatedPatches, Patches
from gpflow_sparse.kernels import TICK, Convolutional, convolutional
from tests.oracles import convolutional as oracle

GRIDS = {
    "one_channel": ((5, 6, 1), (3, 2), 1),
    "channels": ((5, 5, 3), (2, 3), 1),
    "stride": ((7, 6, 2), (3, 2), 2),
}


def lengths(geometry):
    """One lengthscale per number of a patch."""
    image_shape, (h, w), _ = geometry
    return np.linspace(1.0, 3.0, h * w * image_shape[2])


def ard(geometry):
    scales = lengths(geometry)
    return (
        gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=scales),
        lambda A, B: oracle.squared_exponential(A, B, 1.3, scales),
    )


def matern(geometry):
    return (
        gpflow.kernels.Matern32(variance=0.7, lengthscales=2.0),
        lambda A, B: oracle.matern32(A, B, 0.7, 2.0),
    )


def mixture(geometry):
    return (
        gpflow.kernels.Matern32(variance=0.7, lengthscales=2.0)
        + gpflow.kernels.SquaredExponential(variance=0.4, lengthscales=lengths(geometry)),
        lambda A, B: (
            oracle.matern32(A, B, 0.7, 2.0)
            + oracle.squared_exponential(A, B, 0.4, lengths(geometry))
        ),
    )


def some_columns(geometry):
    """Of each patch only the first and the third number count."""
    return (
        gpflow.kernels.SquaredExponential(lengthscales=1.5, active_dims=[0, 2]),
        lambda A, B: oracle.squared_exponential(A[:, [0, 2]], B[:, [0, 2]], 1.0, 1.5),
    )


def rational(geometry):
    """No kernel of those that are evaluated in fewer passes."""

    def by_hand(A, B):
        squares = np.array([[np.sum((a - b) ** 2) for b in B] for a in A]) / 1.5**2
        return 0.9 * (1.0 + 0.5 * squares / 1.2) ** -1.2

    return gpflow.kernels.RationalQuadratic(0.9, 1.5, alpha=1.2), by_hand


def location_kernel():
    return gpflow.kernels.Matern32(lengthscales=1.7)


def places_of(rng, geometry, M):
    """Anywhere between the first and the last patch, not only on the grid."""
    return rng.uniform(size=(M, 2)) * np.subtract(oracle.grid_shape(*geometry), 1)


def pair(rng, geometry, base, *, tick=False, average=True):
    """Our kernel and the oracle's, with weights of both signs."""
    kernel, by_hand = base(geometry)
    weights = rng.normal(size=int(np.prod(oracle.grid_shape(*geometry))))
    image_shape, patch_shape, stride = geometry
    options = {"weights": weights, "stride": stride, "average": average}
    if tick:
        ours = TICK(kernel, image_shape, patch_shape, location_kernel=location_kernel(), **options)
    else:
        ours = Convolutional(kernel, image_shape, patch_shape, **options)
    location = (lambda A, B: oracle.matern32(A, B, 1.0, 1.7)) if tick else None
    return ours, oracle.PatchSum(by_hand, *geometry[:2], weights, stride, average, location)


def images(rng, geometry, N):
    return rng.normal(size=(N, int(np.prod(geometry[0]))))


def patch_rows(rng, geometry, M):
    return rng.normal(size=(M, len(lengths(geometry))))


@pytest.mark.parametrize(
    ("geometry", "base", "average", "tick"),
    [
        *(
            (g, mixture, g is GRIDS["stride"], tick)
            for g in GRIDS.values()
            for tick in (False, True)
        ),
        *((GRIDS["channels"], base, True, False) for base in (ard, some_columns)),
        *((GRIDS["channels"], base, True, True) for base in (matern, rational)),
    ],
)
def test_covariances_are_sums_over_patches(rng, geometry, base, average, tick):
    ours, prior = pair(rng, geometry, base, tick=tick, average=average)
    X, X2 = images(rng, geometry, 3), images(rng, geometry, 2)
    (Z, O), (s, t) = ([make(rng, geometry, M) for M in (4, 3)] for make in (patch_rows, places_of))
    Z[0] = prior.cut(X)[0, 0]  # a patch that is there
    u, v = (LocatedPatches(Z, s), LocatedPatches(O, t)) if tick else (Patches(Z), Patches(O))
    found = [ours(X), ours(X, X2), ours(X, full_cov=False), Kuf(u, ours, X)]
    found += [Kuu(u, ours, jitter=0.0), Kuv(u, v, ours)]
    expected = [prior.Kff(X), prior.Kff(X, X2), prior.Kdiag(X), prior.Kuf(Z, X, s)]
    expected += [prior.Kuu(Z, s), prior.Kuv(Z, O, s, t)]
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12 * np.abs(want).max())
    jittered = Kuu(u, ours, jitter=0.25)
    np.testing.assert_allclose(jittered, expected[4] + 0.25 * np.eye(4), rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_one_channel_and_stride_one_is_the_kernel_of_gpflow(rng, weighted):
    geometry, base = GRIDS["one_channel"], mixture(GRIDS["one_channel"])[0]
    weights = rng.normal(size=15) if weighted else None
    theirs = gpflow.kernels.Convolutional(base, geometry[0][:2], geometry[1], weights)
    ours = Convolutional(base, geometry[0][:2], geometry[1], weights=weights)
    X, X2, Z = images(rng, geometry, 4), images(rng, geometry, 3), patch_rows(rng, geometry, 5)
    u, stock = Patches(Z), gpflow.inducing_variables.InducingPatches(Z)
    for got, want in [
        (ours(X), theirs(X)),
        (ours(X, X2), theirs(X, X2)),
        (ours(X, full_cov=False), theirs(X, full_cov=False)),
        (Kuu(u, ours, jitter=1e-6), Kuu(stock, theirs, jitter=1e-6)),
        (Kuf(u, ours, X), Kuf(stock, theirs, X)),
        (Kuv(u, Patches(Z[:2]), ours), Kuu(stock, theirs, jitter=0.0)[:, :2]),
    ]:
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_by_default_the_patches_are_averaged_with_weights_one(rng):
    """So that the variance is at most that of a patch, however many there are."""
    X = images(rng, GRIDS["one_channel"], 4)
    kernel = Convolutional(gpflow.kernels.SquaredExponential(1.6), (5, 6), (3, 2))
    np.testing.assert_array_equal(kernel.weights, np.ones(15))
    assert kernel.grid.image_shape == (5, 6, 1)
    assert np.all(kernel(X, full_cov=False) < 1.6)
    np.testing.assert_allclose(kernel(np.ones((1, 30)))[0, 0], 1.6, rtol=1e-12)
    summed = Convolutional(kernel.base_kernel, (5, 6), (3, 2), average=False)
    np.testing.assert_allclose(summed(X), 15.0**2 * kernel(X), rtol=1e-12)


def test_the_variance_of_the_location_kernel_is_one_and_stays(rng):
    """It could not be told from that of the patches."""
    tick = TICK(gpflow.kernels.SquaredExponential(), (5, 6), (3, 2))
    assert isinstance(tick.location_kernel, gpflow.kernels.Matern32)
    np.testing.assert_allclose(tick.location_kernel.lengthscales, 3.0)
    given = TICK(
        gpflow.kernels.SquaredExponential(),
        (5, 6),
        (3, 2),
        location_kernel=gpflow.kernels.Matern52(variance=2.5, lengthscales=[1.0, 2.0]),
    )
    for kernel in (tick, given):
        np.testing.assert_allclose(kernel.location_kernel.variance, 1.0, rtol=1e-12)
        assert not kernel.location_kernel.variance.trainable
        assert kernel.location_kernel.lengthscales.trainable
        assert kernel.base_kernel.variance.trainable
        assert kernel.weights.trainable


def naive(kernel, X, places=None, u=None):
    """Kuf, Kff and Kdiag by plain TensorFlow, all patches of all images in memory."""
    grid, N = kernel.grid, X.shape[0]
    P = grid.num_patches
    cut = tf.reshape(tf.gather(X, grid.pixels(), axis=1), [N * P, -1])
    weights = kernel.weights / P  # average
    g = tf.reshape(kernel.base_kernel(cut), [N, P, N, P])
    cross = None if u is None else tf.reshape(kernel.base_kernel(u.Z, cut), [-1, N, P])
    if places is not None:
        g = g * kernel.location_kernel(places)[None, :, None, :]
        if u is not None:
            cross = cross * kernel.location_kernel(u.locations, places)[:, None, :]
    Kff = tf.einsum("p,npmq,q->nm", weights, g, weights)
    return Kff if u is None else (tf.einsum("mnp,p->mn", cross, weights), Kff)


def sources(kernel, X, *sets):
    variables = [v for module in (kernel, *sets) for v in module.trainable_variables]
    assert len(variables) == len({id(v) for v in variables})
    return [X, *variables]


def gradients(total, watched):
    with tf.GradientTape() as tape:
        tape.watch(watched[0])
        value = total()
    return value, tape.gradient(value, watched)


def assert_same_gradients(ours, naively, watched, tolerance=1e-10):
    (value, found), (expected_value, expected) = (gradients(f, watched) for f in (ours, naively))
    np.testing.assert_allclose(value, expected_value, rtol=tolerance)
    for got, want in zip(found, expected, strict=True):
        scale = float(tf.reduce_max(tf.abs(want)))
        assert scale > 0.0
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize(
    ("base", "tick", "N"),
    [(ard, False, 7), (matern, True, 7), (some_columns, False, 7), (rational, True, 7)]
    + [(mixture, tick, N) for tick in (False, True) for N in (1, 5)]
    + [(mixture, False, 7), pytest.param(mixture, True, 7, marks=pytest.mark.nightly)],
)
def test_gradients_are_those_of_plain_differentiation(rng, monkeypatch, base, tick, N):
    """To images, patches, places, weights and hyperparameters; through Kuf, Kff and Kdiag."""
    geometry = ((4, 4, 2), (2, 3), 1)  # 6 patches
    monkeypatch.setattr(convolutional, "_CHUNK_SIZE", 72)  # 3 images at a time, 2 and 1
    kernel, _ = pair(rng, geometry, base, tick=tick)
    X = tf.constant(images(rng, geometry, N))
    Z, s = patch_rows(rng, geometry, 4), places_of(rng, geometry, 4)
    u = LocatedPatches(Z, s) if tick else Patches(Z)
    places = tf.constant(kernel.grid.locations()) if tick else None
    A, B, c = rng.normal(size=(4, N)), rng.normal(size=(N, N)), rng.normal(size=N)
    watched = sources(kernel, X, u)

    def ours():
        cross, full, diag = Kuf(u, kernel, X), kernel(X), kernel(X, full_cov=False)
        total = tf.reduce_sum(A * cross) + tf.reduce_sum(B * full)
        return total + tf.reduce_sum(c * diag)

    def naively():
        cross, full = naive(kernel, X, places, u)
        total = tf.reduce_sum(A * cross) + tf.reduce_sum(B * full)
        return total + tf.reduce_sum(c * tf.linalg.diag_part(full))

    assert_same_gradients(ours, naively, watched)
    if base is mixture and tick and N == 7:
        assert_same_gradients(tf.function(ours, autograph=False), naively, watched)


@pytest.mark.parametrize("tick", [False, True], ids=["plain", "tick"])
def test_leading_axes_as_in_gpflow(rng, tick):
    """``[S, N, D]`` gives ``[S, N, N]`` and ``[S, N]``; two stacks an outer product."""
    kernel, _ = pair(rng, GRIDS["stride"], ard, tick=tick)
    X = images(rng, GRIDS["stride"], 6).reshape(2, 3, -1)
    X2 = images(rng, GRIDS["stride"], 2)
    np.testing.assert_allclose(kernel(X), np.stack([kernel(x) for x in X]), atol=1e-12)
    diag = np.stack([kernel(x, full_cov=False) for x in X])
    np.testing.assert_allclose(kernel(X, full_cov=False), diag, atol=1e-12)
    np.testing.assert_allclose(kernel(X, X2), np.stack([kernel(x, X2) for x in X]), atol=1e-12)
