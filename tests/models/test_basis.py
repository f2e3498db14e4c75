"""Models over the weights of a basis against GPflow's own with the kernel of the basis."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32, SquaredExponential
from gpflow.models import GPR, SGPR, SVGP

from gpflow_sparse.bases import (
    GridEigenfunctions,
    Hybrid,
    KernelDictionary,
    RandomFourier,
    ReweightedBasis,
)
from gpflow_sparse.inducing_variables import BasisFeatures
from gpflow_sparse.kernels import Basis
from gpflow_sparse.models import BasisGPR, BasisSVGP

D, M, N, NOISE = 2, 14, 30, 0.2

pytestmark = pytest.mark.filterwarnings("ignore:.*prior variance")


def inputs(rows=N, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, D))


def data(rows=N, columns=1):
    X = inputs(rows)
    noise = np.random.default_rng(2).normal(size=(rows, columns))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * noise


def kernel():
    return SquaredExponential(1.7, [0.9, 1.2])


def grid_basis(p=M):
    return GridEigenfunctions(kernel(), inputs(), p)


BASES = {
    "grid": grid_basis,
    "fourier": lambda: RandomFourier(Matern32(1.7, [0.9, 1.2]), M, seed=3),
    "dictionary": lambda: KernelDictionary(Matern32(1.7, [0.9, 1.2]), inputs(M, seed=8)),
    "relevance": lambda: KernelDictionary(
        Matern32(1.7, [0.9, 1.2]),
        inputs(M - 1, seed=8),
        precision="diagonal",
        constant=True,
        initial_precision=0.6,
    ),
    "hybrid": lambda: Hybrid(Matern32(1.7, [0.9, 1.2]), inputs(4, seed=8), M - 4, seed=3),
    "reweighted": lambda: ReweightedBasis(grid_basis(), np.linspace(0.1, 2.0, M)),
}
every_basis = pytest.mark.parametrize("build", BASES.values(), ids=list(BASES))


def whitened(basis, X):
    """Functions ``[N, m]`` whose weights are ``N(0, I)``, those of a dictionary too."""
    return basis.features(X).numpy().T


def slope(P=1):
    return gpflow.functions.Linear(np.full((D, P), 0.3), np.linspace(-0.2, 0.1, P))


def pair(rows, basis, mean=None):
    """Ours and GPflow's, around the same objects."""
    ours = BasisGPR(rows, basis, mean_function=mean, noise_variance=NOISE)
    stock = GPR(rows, Basis(basis), mean_function=mean, noise_variance=NOISE)
    return ours, stock


def values_and_gradients(model, objective):
    with tf.GradientTape() as tape:
        value = objective()
    variables = sorted(model.trainable_variables, key=lambda v: (v.shape.rank, v.name))
    return value, tape.gradient(value, variables), variables


def assert_close(got, expected, rtol=1e-9, atol=1e-9):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("build", "P"),
    [(build, 2) for build in BASES.values()] + [(BASES["grid"], 1)],
    ids=[*BASES, "one output"],
)
def test_likelihood_predictions_and_gradients_are_those_of_gpr(build, P):
    rows, Xnew = data(columns=P), inputs(6, seed=4)
    ours, stock = pair(rows, build(), slope(P))
    np.testing.assert_allclose(
        ours.log_marginal_likelihood(), stock.log_marginal_likelihood(), rtol=1e-10
    )
    np.testing.assert_allclose(ours.elbo(), ours.log_marginal_likelihood(), rtol=0.0)
    objective = ours.maximum_log_likelihood_objective()
    np.testing.assert_allclose(objective, ours.elbo(), rtol=0.0)
    np.testing.assert_allclose(ours.training_loss(), stock.training_loss(), rtol=1e-10)
    for full_cov in (False, True):
        assert_close(ours.predict_f(Xnew, full_cov), stock.predict_f(Xnew, full_cov))
        assert_close(ours.posterior().predict_f(Xnew, full_cov), stock.predict_f(Xnew, full_cov))
    assert_close(ours.predict_y(Xnew), stock.predict_y(Xnew))
    new = Xnew, data(6, P)[1]
    np.testing.assert_allclose(
        ours.predict_log_density(new), stock.predict_log_density(new), rtol=1e-9
    )
    shared = [*ours.basis.trainable_variables, *ours.mean_function.trainable_variables]
    noises = [model.likelihood.variance.unconstrained_variable for model in (ours, stock)]
    with tf.GradientTape(persistent=True) as tape:
        losses = ours.training_loss(), stock.training_loss()
    gradients = [
        tape.gradient(loss, [*shared, noise]) for loss, noise in zip(losses, noises, strict=True)
    ]
    assert len(gradients[0]) >= 5
    assert_close(*gradients, rtol=1e-7, atol=1e-8)


def random_q(L=1, m=M, seed=5):
    rng = np.random.default_rng(seed)
    q_sqrt = np.tril(0.2 * rng.normal(size=(L, m, m))) + 0.5 * np.eye(m)
    return rng.normal(size=(m, L)), q_sqrt


def labels(rows=N):
    return inputs(rows), (inputs(rows)[:, :1] > 0.0).astype(float)


def classes(rows=N):
    return inputs(rows), np.arange(float(rows))[:, None] % 3


PROBLEMS = {
    "gaussian": (lambda: gpflow.likelihoods.Gaussian(NOISE), data, 1),
    "two_outputs": (lambda: gpflow.likelihoods.Gaussian(NOISE), lambda: data(columns=2), 2),
    "bernoulli": (gpflow.likelihoods.Bernoulli, labels, 1),
    "student": (gpflow.likelihoods.StudentT, data, 1),
    "multiclass": (lambda: gpflow.likelihoods.MultiClass(3), classes, 3),
}


@pytest.mark.parametrize(
    ("build", "name"),
    [
        *(pytest.param(build, "two_outputs", id=name) for name, build in BASES.items()),
        *(pytest.param(BASES["hybrid"], name) for name in PROBLEMS if name != "two_outputs"),
    ],
)
def test_the_elbo_is_that_of_stock_svgp(build, name):
    """On basis features, with the kernel of the basis, at any q."""
    likelihood, rows, L = PROBLEMS[name]
    rows, basis, (q_mu, q_sqrt) = rows(), build(), random_q(L)
    ours = BasisSVGP(
        basis,
        likelihood(),
        mean_function=slope(L),
        num_latent_gps=L,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        num_data=50,
        keep_residual=False,
    )
    stock = SVGP(
        Basis(basis),
        ours.likelihood,
        BasisFeatures(basis),
        mean_function=ours.mean_function,
        num_latent_gps=L,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        num_data=50,
    )
    np.testing.assert_allclose(ours.elbo(rows), stock.elbo(rows), rtol=1e-10)
    np.testing.assert_allclose(ours.prior_kl(), stock.prior_kl(), rtol=1e-10)
    assert_close(ours.predict_y(inputs(6, seed=4)), stock.predict_y(inputs(6, seed=4)))
    # and from explicit inducing points, as many as functions, which span the same space
    dense = whitened(basis, rows[0])
    cov = dense @ (q_sqrt @ np.transpose(q_sqrt, [0, 2, 1])) @ dense.T
    mean = dense @ q_mu + slope(L)(rows[0]).numpy()
    assert_close(ours.predict_f(rows[0], full_cov=True), (mean, cov))


def test_a_projection_keeps_the_rest_of_its_kernel():
    """Then the optimum is SGPR's bound on the kernel itself, not the likelihood of the sum."""
    rows, basis = data(), grid_basis()
    model = BasisSVGP(basis, gpflow.likelihoods.Gaussian(NOISE))
    assert model.kernel is basis.kernel
    assert model.basis is basis
    gpflow.optimizers.NaturalGradient(gamma=1.0).minimize(
        model.training_loss_closure(rows, compile=False), list(model.variational_parameters)
    )
    bound = SGPR(rows, basis.kernel, BasisFeatures(basis), noise_variance=NOISE)
    np.testing.assert_allclose(model.elbo(rows), bound.elbo(), rtol=1e-9)
    assert_close(model.predict_f(inputs(6, seed=4), True), bound.predict_f(inputs(6, seed=4), True))
    far = model.predict_f(50.0 + inputs(3))[1]
    np.testing.assert_allclose(far, np.full((3, 1), 1.7), rtol=1e-9)
    bare = BasisSVGP(basis, gpflow.likelihoods.Gaussian(NOISE), keep_residual=False)
    np.testing.assert_allclose(bare.predict_f(50.0 + inputs(3))[1], np.zeros((3, 1)), atol=1e-12)
