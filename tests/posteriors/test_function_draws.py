"""Functions drawn with neighbors, of a basis and its residual, of mixtures, of deep models."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.bases import GridEigenfunctions, KernelDictionary, ReweightedBasis
from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.models import GRIEF, SWSGP, BasisSVGP, DeepGP, GPLayer, ResidualNeighborGP
from gpflow_sparse.posteriors import CellPosterior
from gpflow_sparse.posteriors import pathwise as draws_file
from gpflow_sparse.posteriors.pathwise import PriorPaths, Sampler, projections

D, P, M, H = 2, 2, 9, 4
JITTER = 0.3  # so large that a noise left out shows by many standard errors


def inputs(rows=6, seed=2):
    return np.random.default_rng(seed).normal(size=(rows, D))


def outputs(X):
    rng = np.random.default_rng(5)
    return np.sin(X @ np.ones((D, P))) + 0.1 * rng.normal(size=(len(X), P))


def linear():
    return gpflow.functions.Linear(np.full((D, P), 0.4), np.full(P, 0.5))


def matern():
    return gpflow.kernels.Matern52(variance=1.7, lengthscales=[0.5, 0.9])


def swsgp(covariance="diag", H=H, kernel=matern, **points):
    rng = np.random.default_rng(1)
    model = SWSGP(
        kernel(),
        gpflow.likelihoods.Gaussian(0.1),
        NeighborInducingPoints(rng.normal(size=(M, D)), H, **points),
        covariance=covariance,
        mean_function=linear(),
        num_latent_gps=None if kernel is separate else P,
    )
    model.jitter = JITTER
    for variable in (model.q_mu, model.q_factor, model.q_log_scale):
        if variable is not None:
            variable.assign_add(0.3 * rng.normal(size=variable.shape))
    return model


def separate():
    return gpflow.kernels.SeparateIndependent([matern(), gpflow.kernels.RBF(lengthscales=0.8)])


def require_moments(draws, mean, cov, width=5.0):
    """
    Mean and covariance over rows of ``draws [S, N, P]`` are within so many standard errors.

    :param cov: ``[P, N, N]``, or variances ``[N, P]``.
    """
    residuals = np.asarray(draws) - mean
    count = len(residuals)
    error = residuals.std(axis=0) / np.sqrt(count)
    assert np.abs(residuals.mean(axis=0) / error).max() < width
    if np.ndim(cov) == 3:
        products = np.einsum("snp,smp->spnm", residuals, residuals)
    else:
        products = residuals**2
    error = products.std(axis=0) / np.sqrt(count)
    assert np.abs((products.mean(axis=0) - cov) / error).max() < width


def moments_of_map(model, paths, X):
    """
    Exact mean and covariance ``[N, P]``, ``[P, N, N]`` of ``f_prior(X) + W (u - f_prior(Z) -
    sqrt(eps) zeta)``, W the weights of the paths, by dense algebra.
    """
    places, w = (part.numpy() for part in paths.weights(tf.constant(X)))
    W = np.zeros((len(X), M))
    np.put_along_axis(W, places, w[:, :, 0], axis=1)
    Z = model.inducing_variable.Z.numpy()
    k = model.kernel
    Kzz = k(Z).numpy() + JITTER * 1.7 * np.eye(M)
    residual = k(X) - W @ k(Z, X) - k(X, Z) @ W.T + W @ Kzz @ W.T
    q = model._whole_q
    covs = []
    for p in range(P):
        S = np.zeros((M, M)) if q.scales is None else np.diag(q.scales[:, p].numpy() ** 2)
        if q.factors is not None:
            S = S + q.factors[:, p].numpy() @ q.factors[:, p].numpy().T
        covs.append(residual.numpy() + W @ S @ W.T)
    return W @ q.mean.numpy() + model.mean_function(X).numpy(), np.stack(covs)


@pytest.mark.parametrize("covariance", ["diag", "dense"])
def test_functions_with_neighbors_have_the_moments_of_every_row_by_itself(covariance):
    """Exactly, as a linear map; and so have 2,000 draws, with the covariance of that map."""
    model, X = swsgp(covariance, global_indices=[5]), inputs()
    posterior = model.posterior()
    draws = posterior.sample_functions(2000, num_features=16, seed=3)
    mean, cov = moments_of_map(model, draws.paths[0], X)
    expected_mean, expected_var = posterior.predict_f(X)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-10)
    np.testing.assert_allclose(np.diagonal(cov, axis1=1, axis2=2).T, expected_var, atol=1e-10)
    require_moments(draws(X), mean, cov)


def test_with_all_neighbors_they_have_the_joint_covariance_too():
    model, X = swsgp("dense", H=M), inputs()
    draws = model.posterior().sample_functions(2, num_features=16, seed=3)
    mean, cov = moments_of_map(model, draws.paths[0], X)
    expected_mean, expected_cov = model.predict_f(X, full_cov=True)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-9)
    np.testing.assert_allclose(cov, expected_cov, atol=1e-9)


def residual_neighbors():
    """On a base that explains much of f."""
    Z, O = inputs(6, 3), inputs(12, 5)
    sets = OrthogonalInducingVariables(Z, NeighborInducingPoints(O, 2))
    kernel = gpflow.kernels.Matern52(variance=1.7, lengthscales=1.5)
    model = ResidualNeighborGP(kernel, gpflow.likelihoods.Gaussian(), sets, num_latent_gps=P)
    rng = np.random.default_rng(9)
    model.q_mu.assign(rng.normal(size=model.q_mu.shape))
    model.base_q_mu.assign(rng.normal(size=model.base_q_mu.shape))
    model.base_q_sqrt.assign(0.5 * model.base_q_sqrt)
    model.jitter = JITTER
    return model


LOCAL = {
    "residual": lambda: residual_neighbors().posterior(),
    "neighbors": lambda: swsgp().posterior(),
    "separate": lambda: swsgp(kernel=separate).posterior(),
    "cells": lambda: CellPosterior(swsgp("dense").posterior()),
    "sites": lambda: swsgp().fit_sites(inputs(30, 7), outputs(inputs(30, 7))),
}
every_local = pytest.mark.parametrize("build", LOCAL.values(), ids=list(LOCAL))


@every_local
def test_drawn_values_have_the_predicted_mean_and_variance(build):
    posterior, X = build(), np.concatenate([inputs(5), np.full((1, D), 9.0)])
    draws = posterior.sample_functions(2000, num_features=16, seed=4)
    require_moments(draws(X), *(part.numpy() for part in posterior.predict_f(X)))


@every_local
def test_a_draw_is_one_function_in_every_call_and_every_block(build, monkeypatch):
    posterior, X = build(), inputs(23)
    draws = posterior.sample_functions(3, num_features=16, seed=6)
    together = draws(X).numpy()
    np.testing.assert_array_equal(draws(X), together)
    np.testing.assert_array_equal(
        posterior.sample_functions(3, num_features=16, seed=6)(X), together
    )
    assert np.abs(posterior.sample_functions(3, num_features=16, seed=7)(X) - together).min() > 0
    np.testing.assert_allclose(draws(X[::-1]), together[:, ::-1], atol=1e-11)
    compiled = tf.function(
        draws, autograph=False, input_signature=[tf.TensorSpec([None, D], tf.float64)]
    )
    for block in (2**21, 1000, 1):
        monkeypatch.setattr(draws_file, "_BLOCK", block)
        np.testing.assert_allclose(draws(X), together, atol=1e-11)
        np.testing.assert_allclose(compiled(tf.constant(X)), together, atol=1e-11)


def test_draws_are_of_the_model_as_it_was_and_of_any_search(monkeypatch):
    model, X = swsgp(), inputs()
    draws = model.posterior().sample_functions(3, num_features=16, seed=6)
    together = draws(X).numpy()
    monkeypatch.setattr("gpflow_sparse.inducing_variables.neighbors._MOST_IN_GRAPH", 1)
    outside = model.posterior().sample_functions(3, num_features=16, seed=6)
    np.testing.assert_allclose(outside(X), together, atol=1e-11)
    for variable in (*model.trainable_variables, model.inducing_variable.Z):
        variable.assign(variable + 0.3)
    np.testing.assert_allclose(draws(X), together, atol=1e-11)
    assert draws.trainable_variables == ()


def test_the_gradient_at_x_equals_central_differences():
    X, step = tf.constant(inputs()), 1e-6
    draws = swsgp().posterior().sample_functions(2, num_features=16, seed=6)
    direction = np.random.default_rng(8).normal(size=X.shape)
    with tf.GradientTape() as tape:
        tape.watch(X)
        total = tf.reduce_sum(draws(X))
    found = np.sum(tape.gradient(total, X) * direction)
    above, below = (tf.reduce_sum(draws(X + sign * step * direction)) for sign in (1.0, -1.0))
    np.testing.assert_allclose(found, (above - below) / (2 * step), rtol=1e-5)


def grief(kernel=None, points=5, **options):
    X = inputs(25, 7)
    kernel = gpflow.kernels.RBF(variance=1.7, lengthscales=[0.5, 0.9]) if kernel is None else kernel
    model = GRIEF(
        (X, outputs(X)),
        kernel,
        num_eigenfunctions=8,
        points_per_dimension=points,
        mean_function=linear(),
        noise_variance=0.1,
        **options,
    )
    if model.weights is not None:
        model.weights.assign(np.linspace(0.3, 2.0, 8))
    return model


def factors():
    first = gpflow.kernels.Matern32(variance=1.7, lengthscales=0.6, active_dims=[0])
    second = gpflow.kernels.Matern12(lengthscales=0.9, active_dims=[1])
    level = gpflow.kernels.Constant(variance=0.8)
    return first * second * gpflow.kernels.RBF(lengthscales=1.5, active_dims=[1]) * level


def dictionary():
    rng = np.random.default_rng(9)
    basis = KernelDictionary(matern(), rng.normal(size=(7, D)))
    return BasisSVGP(basis, gpflow.likelihoods.Gaussian(), mean_function=linear(), num_latent_gps=P)


WITH_RESIDUAL = {
    "bound": grief,
    "corrected": lambda: grief(objective="corrected"),
    "original": lambda: grief(reweighted="original"),
    "rotated": lambda: grief(reweighted="rotated"),
    "factors": lambda: grief(factors()),
    "weighted grid": lambda: grief(grid_weights=[np.arange(1.0, 6.0) / 15.0] * 2),
    "dictionary": dictionary,
}


@pytest.mark.filterwarnings("ignore:the 8 eigenfunctions")
@pytest.mark.parametrize("build", WITH_RESIDUAL.values(), ids=list(WITH_RESIDUAL))
def test_functions_of_a_basis_have_what_it_leaves_of_the_kernel(build):
    """Joint moments of 2,000 draws, among the rows and far away, where the basis is zero."""
    posterior, X = build().posterior(), np.concatenate([inputs(5), np.full((1, D), 9.0)])
    draws = posterior.sample_functions(2000, num_features=16, seed=4)
    mean, cov = (part.numpy() for part in posterior.predict_f(X, full_cov=True))
    assert cov[0, -1, -1] > 1.0
    require_moments(draws(X), mean, cov)
    np.testing.assert_allclose(draws(X[2:3]), draws(X)[:, 2:3], atol=1e-10)


@pytest.mark.filterwarnings("ignore:the 8 eigenfunctions")
@pytest.mark.parametrize("grid_weights", [None, [np.arange(1.0, 5.0) / 10.0] * 2])
def test_projections_are_those_over_the_whole_grid(grid_weights):
    """The functionals of the draws by columns equal dense algebra over all 16 nodes."""
    grid = [np.linspace(-1.0, 1.0, 4), np.linspace(-1.5, 1.2, 4)]
    basis = GridEigenfunctions(factors(), None, 8, grid=grid, grid_weights=grid_weights)
    sampler = Sampler(3, 6, np.random.default_rng(0))
    prior = PriorPaths(basis.kernel, P, D, sampler)
    nodes = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, D)
    # phi = C^T k(nodes, .), so that <f, phi> = C^T f(nodes)
    C = np.linalg.solve(basis.kernel(nodes).numpy(), basis(nodes).numpy())
    expected = np.einsum("un,sup->snp", C, prior(tf.constant(nodes)))
    got = projections(basis, prior, sampler)
    np.testing.assert_allclose(got, expected, atol=1e-9)


def test_a_reweighted_basis_is_a_sum_over_the_basis_inside():
    inner = GridEigenfunctions(gpflow.kernels.RBF(), inputs(), 6, 4)
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(6, 6)))[0]
    basis = ReweightedBasis(inner, np.linspace(0.5, 2.0, 6), rotation)
    w = np.random.default_rng(4).normal(size=(3, 6, P))
    expected = basis(inputs()) @ w
    np.testing.assert_allclose(inner(inputs()) @ basis.unweighted(tf.constant(w)), expected)


def test_noise_that_is_no_function_is_refused():
    model = gs.models.SoftKI(matern(), inputs(5), num_latent_gps=P)
    model.kernel = gs.kernels.Filled(model.basis)
    model.fit_posterior(inputs(9), outputs(inputs(9)))
    with pytest.raises(ValueError, match=r"kernels.Filled.* independent at every input"):
        model.posterior().sample_functions(2)


MIXTURES = {
    "rotated": ("rotated", "bound", {}),
    "rotated, finite": ("rotated", "likelihood", {}),
    "original": ("original", "bound", {}),
    "integrated": ("rotated", "bound", {"method": "quadrature"}),
}


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:the 8 eigenfunctions")
@pytest.mark.parametrize(("reweighted", "objective", "options"), MIXTURES.values(), ids=MIXTURES)
def test_functions_of_a_mixture_have_its_moments(reweighted, objective, options):
    model = grief(reweighted=reweighted, objective=objective)
    mixture = model.sample_posterior(
        7, num_burnin=20, weight_prior=(1.0, 4.0), noise_prior=(0.1, 0.04), **options
    )
    X = np.concatenate([inputs(5), np.full((1, D), 9.0)])
    draws = mixture.sample_functions(2000, num_features=16, seed=4)
    values = draws(X).numpy()
    mean, var = (part.numpy() for part in mixture.predict_f(X))
    rows = 5 if objective == "likelihood" else 6  # a finite sum is the mean function far away
    require_moments(values[:, :rows], mean[:rows], var[:rows])
    np.testing.assert_array_equal(
        mixture.sample_functions(2000, num_features=16, seed=4)(X), values
    )
    np.testing.assert_allclose(draws(X[1:3]), values[:, 1:3], atol=1e-9)
    with pytest.raises(ValueError, match="num_samples must be a positive integer"):
        mixture.sample_functions(0)


def deep():
    rng = np.random.default_rng(6)
    layers = [
        GPLayer(matern(), OrthogonalInducingVariables(rng.normal(size=(5, D))), num_latent_gps=2),
        GPLayer(matern(), NeighborInducingPoints(rng.normal(size=(6, 2)), 3), num_latent_gps=P),
    ]
    model = DeepGP(layers, gpflow.likelihoods.Gaussian(), num_prediction_samples=1000)
    for variable in model.trainable_variables:
        if "q_" in variable.name or variable.shape.rank == 2:
            variable.assign_add(0.2 * rng.normal(size=variable.shape))
    return model


@pytest.mark.nightly
def test_functions_of_a_deep_model_have_its_moments():
    """Within 5 standard errors of 40 draws and 1,000 predictions; and they are functions."""
    posterior, X = deep().posterior(), inputs(4)
    draws = posterior.sample_functions(40, num_features=16, seed=4)
    values = draws(X).numpy()
    require_moments(values, *(part.numpy() for part in posterior.predict_f(X)))
    np.testing.assert_allclose(draws(X[1:3]), values[:, 1:3], atol=1e-10)
    first, second = draws.paths[0]._chains[7]
    np.testing.assert_allclose(second(first(X)[0])[0], values[7], atol=1e-12)
    again, fewer = (posterior.sample_functions(3, num_features=16, seed=4) for _ in range(2))
    np.testing.assert_array_equal(again(X), fewer(X))
