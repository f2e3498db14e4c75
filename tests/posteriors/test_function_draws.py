"""Functions drawn with neighbors, of a basis and its residual, of mixtures, of deep models."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.bases import KernelDictionary
from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.models import GRIEF, SWSGP, BasisSVGP, DeepGP, GPLayer
from gpflow_sparse.posteriors import SitePosterior

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


def sites():
    """A posterior of one Gaussian site for each inducing variable."""
    rng, Z = np.random.default_rng(1), inputs(M, 7)
    precisions = np.exp(rng.normal(size=(M, P)))
    posterior = SitePosterior(
        matern(), NeighborInducingPoints(Z, H), outputs(Z), precisions, linear()
    )
    posterior.update_cache("tensor")
    return posterior


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


@pytest.mark.parametrize("covariance", ["diag", "dense"])
def test_with_all_neighbors_drawn_functions_have_the_joint_covariance(covariance):
    posterior, X = swsgp(covariance, H=M).posterior(), inputs()
    draws = posterior.sample_functions(2000, num_features=16, seed=3)
    require_moments(draws(X), *(part.numpy() for part in posterior.predict_f(X, full_cov=True)))


LOCAL = {
    "neighbors": lambda: swsgp().posterior(),
    "separate": lambda: swsgp(kernel=separate).posterior(),
    "sites": sites,
}
every_local = pytest.mark.parametrize("build", LOCAL.values(), ids=list(LOCAL))


@every_local
def test_drawn_functions_have_the_predicted_mean_and_variance_of_every_row(build):
    """And are functions, whose values do not depend on the rows beside, 40 in several blocks."""
    posterior, X = build(), np.concatenate([inputs(39), np.full((1, D), 9.0)])
    draws = posterior.sample_functions(2000, num_features=16, seed=4)
    together, some = draws(X).numpy(), np.r_[:5, 39]
    mean, var = (part.numpy()[some] for part in posterior.predict_f(X))
    require_moments(together[:, some], mean, var)
    np.testing.assert_allclose(draws(X[::-1]), together[:, ::-1], atol=1e-11)
    few = [posterior.sample_functions(3, num_features=16, seed=seed) for seed in (6, 6, 7)]
    values = [each(X).numpy() for each in few]
    np.testing.assert_array_equal(values[0], values[1])
    assert np.abs(values[2] - values[0]).min() > 0
    compiled = tf.function(
        few[0], autograph=False, input_signature=[tf.TensorSpec([None, D], tf.float64)]
    )
    np.testing.assert_allclose(compiled(tf.constant(X[:7])), values[0][:, :7], atol=1e-11)


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
