"""Patches as inducing variables of SOLVE-GP, against an oracle and SVGP on all patches."""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import (
    LocatedPatches,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.models import SOLVEGP
from tests.oracles import convolutional as oracle
from tests.oracles import deep

IMAGE, PATCH, STRIDE, N = (5, 6, 2), (3, 2), 2, 6
NUM_PATCHES, LENGTH, PIXELS = 6, 12, 60
VARIANCE, JITTER = 1.3, 1.3e-6
both_kernels = pytest.mark.parametrize("tick", [False, True], ids=["plain", "tick"])
whitened = pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "plain_q"])


def weights():
    return np.random.default_rng(3).uniform(0.5, 1.5, size=NUM_PATCHES)


def make_kernel(tick, *, image=IMAGE, patch=PATCH):
    base = gpflow.kernels.SquaredExponential(variance=VARIANCE, lengthscales=2.5)
    if (image, patch) != (IMAGE, PATCH):
        return (gs.kernels.TICK if tick else gs.kernels.Convolutional)(base, image, patch)
    options = {"weights": weights(), "stride": STRIDE, "average": False}
    if tick:
        location = gpflow.kernels.Matern32(lengthscales=1.7)
        return gs.kernels.TICK(base, IMAGE, PATCH, location_kernel=location, **options)
    return gs.kernels.Convolutional(base, IMAGE, PATCH, **options)


def make_prior(tick):
    return oracle.PatchSum(
        lambda A, B: oracle.squared_exponential(A, B, VARIANCE, 2.5),
        IMAGE,
        PATCH,
        weights(),
        STRIDE,
        False,
        (lambda A, B: oracle.matern32(A, B, 1.0, 1.7)) if tick else None,
    )


def arrays(rng, sizes=(4, 3)):
    """Images, and pairs of patches and places."""
    sets = [(rng.normal(size=(M, LENGTH)), rng.uniform(0, 2, size=(M, 2))) for M in sizes]
    return rng.normal(size=(N, PIXELS)), sets


def wrap(sets, tick):
    return [LocatedPatches(Z, s) if tick else Patches(Z) for Z, s in sets]


def plain(sets, tick):
    """For the oracle."""
    return [(Z, s if tick else None) for Z, s in sets]


def random_q(rng, sizes, P):
    means = [rng.normal(size=(M, P)) for M in sizes]
    return means, [0.3 * np.tril(rng.normal(size=(P, M, M))) + np.eye(M) for M in sizes]


def solvegp(rng, sets, tick, *, P=2, whiten=True, likelihood=None):
    q_mu, q_sqrt = random_q(rng, [len(Z) for Z, _ in sets], P)
    return SOLVEGP(
        make_kernel(tick),
        gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood,
        OrthogonalInducingVariables(*wrap(sets, tick)),
        num_latent_gps=P,
        whiten=whiten,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
    )


def layer_of(model, sets, tick, jitter=JITTER):
    """The oracle of a model."""
    as_tuple = [v if isinstance(v, tuple) else (v,) for v in (model.q_mu, model.q_sqrt)]
    q_mu, q_sqrt = ([p.numpy() for p in part] for part in as_tuple)
    return deep.Layer(make_prior(tick), plain(sets, tick), q_mu, q_sqrt, jitter, model.whiten)


@both_kernels
@whitened
def test_solvegp_on_patches_is_the_oracle(rng, tick, whiten):
    X, sets = arrays(rng)
    model = solvegp(rng, sets, tick, whiten=whiten)
    layer, Y = layer_of(model, sets, tick), rng.normal(size=(N, 2))
    mean, cov = layer.joint(X)
    found_mean, found_cov = model.predict_f(X, full_cov=True)
    scale = 1e-9 * np.abs(cov).max()
    np.testing.assert_allclose(found_mean, mean, atol=scale)
    np.testing.assert_allclose(found_cov, cov, atol=scale)
    found_mean, found_var = model.predict_f(X)
    np.testing.assert_allclose(found_mean, mean, atol=scale)
    np.testing.assert_allclose(found_var, layer.marginals(X)[1], atol=scale)
    np.testing.assert_allclose(model.prior_kl(), layer.kl(X), rtol=1e-9)
    # one layer, no draw: [1, 0, 0] stands for one sample of nothing
    var = layer.marginals(X)[1]
    expectations = -0.5 * np.log(2 * np.pi * 0.2) - ((Y - mean) ** 2 + var) / 0.4
    np.testing.assert_allclose(model.elbo((X, Y)), expectations.sum() - layer.kl(X), rtol=1e-9)


@both_kernels
@whitened
def test_solvegp_is_svgp_on_all_patches_with_the_q_of_both(rng, tick, whiten):
    """Of the values of f at Z and at O; predictions and KL."""
    X, sets = arrays(rng)
    model = solvegp(rng, sets, tick, P=1, whiten=whiten)
    layer = layer_of(model, sets, tick)
    prior = layer.prior(X)
    _, [(m, S)] = deep.merged(prior, layer.q(prior, 0))
    everything = [(np.concatenate([Z for Z, _ in sets]), np.concatenate([s for _, s in sets]))]
    with gpflow.config.as_context(gpflow.config.Config(jitter=JITTER)):
        merged = gpflow.models.SVGP(
            model.kernel,
            model.likelihood,
            wrap(everything, tick)[0],
            whiten=False,
            q_mu=m[:, None],
            q_sqrt=np.linalg.cholesky(S)[None],
        )
        expected = (*merged.predict_f(X, full_cov=True), merged.prior_kl())
    found = (*model.predict_f(X, full_cov=True), model.prior_kl())
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)
