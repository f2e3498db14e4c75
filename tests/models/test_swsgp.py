"""SWSGP's objective against dense algebra and the evidence, its start, and its parts."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import SVGP

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import SWSGP
from gpflow_sparse.training import NaturalGradients
from tests import test_swsgp_oracle as case
from tests.oracles import swsgp as oracle
from tests.oracles.solvegp import log_evidence, matern52

N, M, H, L = 7, 12, 4, 2
LENGTHSCALES, NOISE, EPS = np.array([0.8, 0.8 * np.exp(0.5)]), 0.2, 1e-6
k = oracle.with_lengthscales(matern52, 1.0, LENGTHSCALES)

every_covariance = pytest.mark.parametrize("covariance", ["diag", "dense"])
every_weighting = pytest.mark.parametrize("weighting", ["counts", "paper"])


def rows(seed=1, N=N):
    """X [N, 2] and Y [N, L]."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, :1]) + 0.3 * rng.normal(size=(N, L))


def points(count=H, M=M, **options):
    Z = np.random.default_rng(2).normal(size=(M, 2))
    return NeighborInducingPoints(Z, count, **options)


def some_q(covariance, M=M, L=L):
    """q_mu [M, L] and q_sqrt as the model takes it."""
    rng = np.random.default_rng(3)
    mean, scales = rng.normal(size=(M, L)), np.exp(0.5 * rng.normal(size=(M, L)) - 1.0)
    if covariance == "diag":
        return mean, scales
    return mean, np.tril(0.2 * rng.normal(size=(L, M, M))) + 0.5 * np.eye(M)


def build(covariance="diag", weighting="counts", count=H, likelihood=None, **options):
    """A model with some q, its users counted."""
    options = {"num_data": N, "num_latent_gps": L, **options}
    q_mu, q_sqrt = some_q(covariance, L=options["num_latent_gps"])
    model = SWSGP(
        gpflow.kernels.Matern52(lengthscales=LENGTHSCALES),
        likelihood or gpflow.likelihoods.Gaussian(NOISE),
        options.pop("inducing", None) or points(count),
        covariance=covariance,
        kl_weighting=weighting,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        **options,
    )
    model.count_neighbors(rows()[0])
    return model


def spread(model, p):
    """``S [M, M]`` of one output."""
    q_sqrt = model.q_sqrt
    if model.covariance == "diag":
        return np.diag(q_sqrt[:, p].numpy() ** 2)
    return q_sqrt[p].numpy() @ q_sqrt[p].numpy().T


def neighbor_sets(X, count=H):
    Z = points().Z.numpy()
    return oracle.nearest(X / LENGTHSCALES, Z / LENGTHSCALES, count)


def dense_objective(model, X, Y, w, eps=EPS):
    Z, sets = model.inducing_variable.Z.numpy(), neighbor_sets(X)
    return sum(
        oracle.objective(k, X, Y[:, p], Z, sets, w, m, spread(model, p), eps, NOISE)
        for p, m in enumerate(model.q_mu.numpy().T)
    )


def svgp(model):
    """GPflow's, with the same parts."""
    dense = model.covariance == "dense"
    return SVGP(
        model.kernel,
        model.likelihood,
        model.inducing_variable.Z.numpy(),
        num_latent_gps=L,
        q_mu=model.q_mu.numpy(),
        q_sqrt=model.q_sqrt.numpy(),
        q_diag=not dense,
        whiten=False,
        num_data=model.num_data,
    )


@every_weighting
@every_covariance
def test_the_objective_is_that_of_dense_algebra(covariance, weighting):
    X, Y = rows()
    model = build(covariance, weighting)
    w = oracle.kl_weights(weighting, neighbor_sets(X), M)
    expected = dense_objective(model, X, Y, w)
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-8)
    np.testing.assert_allclose(model.training_loss((X, Y)), -expected, rtol=1e-8)
    bare = dense_objective(model, X, Y, 0.0 * w)
    np.testing.assert_allclose(model.prior_kl(X), bare - expected, rtol=1e-8)


def compiled_elbo(model, P=L):
    """Of batches of any number of rows."""
    signature = [tf.TensorSpec([None, size], tf.float64) for size in (2, P)]
    return tf.function(lambda X, Y: model.elbo((X, Y)), input_signature=signature, autograph=False)


KERNELS = {
    "squared_exponential": lambda: gpflow.kernels.SquaredExponential(1.0, [0.5, 1.0]),
    "columns": lambda: gpflow.kernels.Matern32(lengthscales=0.7, active_dims=[1]),
    "other": lambda: gpflow.kernels.RationalQuadratic(1.0, [0.5, 1.0]),
    "linear": lambda: gpflow.kernels.Linear(0.4) + gpflow.kernels.Matern12(0.6),
    "products": lambda: gpflow.kernels.Polynomial() * gpflow.kernels.Matern32(),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))


def with_kernel(kernel, covariance, count, **options):
    model = build(covariance, count=count, num_data=15, **options)
    model.kernel = kernel()
    model.count_neighbors(rows(N=15)[0])
    return model


def test_every_latent_kernel_has_neighbors_of_its_own():
    """Two kernels of very different lengthscales: the sum of two models."""
    X, Y = rows()
    kernels = [gpflow.kernels.Matern52(lengthscales=ell) for ell in ([1.0, 0.1], [0.1, 1.0])]
    both = build(num_latent_gps=2)
    both = SWSGP(
        gpflow.kernels.SeparateIndependent(kernels),
        gpflow.likelihoods.Gaussian(NOISE),
        points(),
        q_mu=both.q_mu,
        q_sqrt=both.q_sqrt,
    )
    both.count_neighbors(X)
    parts = [
        SWSGP(
            kernel,
            gpflow.likelihoods.Gaussian(NOISE),
            points(),
            q_mu=both.q_mu[:, p : p + 1],
            q_sqrt=both.q_sqrt[:, p : p + 1],
        )
        for p, kernel in enumerate(kernels)
    ]
    for part in parts:
        part.count_neighbors(X)
    assert not np.array_equal(parts[0].usage, parts[1].usage)
    total = sum(part.elbo((X, Y[:, p : p + 1])) for p, part in enumerate(parts))
    np.testing.assert_allclose(both.elbo((X, Y)), total, rtol=1e-10)
    for i in range(2):
        apart = np.concatenate([part.predict_f(X)[i] for part in parts], axis=1)
        np.testing.assert_allclose(both.predict_f(X)[i], apart, rtol=1e-10)


def evidence_case(weighting, count):
    """Erratum W1: 60 rows, 40 inducing points, the best q for Gaussian noise."""
    X, y, Z = case.w1()
    sets = oracle.nearest(X, Z, count)
    w = oracle.kl_weights(weighting, sets, len(Z))
    m, s = oracle.optimal_q(case.k, X, y, Z, sets, w, EPS, case.NOISE)
    model = SWSGP(
        gpflow.kernels.Matern52(lengthscales=0.3),
        gpflow.likelihoods.Gaussian(case.NOISE),
        NeighborInducingPoints(Z, count),
        kl_weighting=weighting,
        q_mu=m[:, None],
        q_sqrt=np.sqrt(s)[:, None],
    )
    model.count_neighbors(X)
    return model.elbo((X, y[:, None])) - log_evidence(case.k, X, y, case.NOISE)


@pytest.mark.parametrize(("count", "above"), [(2, 31.10), (4, 28.76), (16, 1.03)])
def test_the_papers_objective_is_above_the_exact_evidence(count, above):
    np.testing.assert_allclose(evidence_case("paper", count), above, atol=0.01)
    assert evidence_case("counts", count) < -40.0


@pytest.mark.parametrize("count", [H, 30])
def test_it_starts_where_the_prior_is_closest(count):
    """The variance of each u_j given the others of its 16 nearest, itself among them."""
    inducing = points(count, M=40)
    model = SWSGP(
        gpflow.kernels.Matern52(lengthscales=LENGTHSCALES),
        gpflow.likelihoods.Gaussian(),
        inducing,
        num_latent_gps=L,
    )
    Z = inducing.Z.numpy()
    for j, I in enumerate(oracle.nearest(Z / LENGTHSCALES, Z / LENGTHSCALES, 16)):
        K = k(Z[I], Z[I]) + EPS * np.eye(16)
        expected = 1.0 / np.linalg.inv(K)[0, 0]  # z_j is its own nearest
        np.testing.assert_allclose(model.q_sqrt[j] ** 2, [expected] * L, rtol=1e-7)
    np.testing.assert_array_equal(model.q_mu, np.zeros((40, L)))


def test_another_number_of_neighbors_is_another_model(rng):
    X, Y = rng.normal(size=(20, 2)), rng.normal(size=(20, 1))

    def build(H):
        return SWSGP(
            gpflow.kernels.Matern32(),
            gpflow.likelihoods.Gaussian(0.1),
            NeighborInducingPoints(X[:9], H, global_indices=(2,)),
        )

    model, other = build(3), build(6)
    model.count_neighbors(X)
    model.start_from_sites((X, Y))
    other.q_mu.assign(model.q_mu)
    other.q_log_scale.assign(model.q_log_scale)
    model.set_neighbors(6)
    assert not np.any(model.usage)
    for one in (model, other):
        one.count_neighbors(X)
    np.testing.assert_allclose(model.elbo((X, Y)), other.elbo((X, Y)), rtol=1e-12)
    np.testing.assert_allclose(model.predict_f(X), other.predict_f(X), rtol=1e-12)
    for wrong in (0, 1, 10, 2.5):
        with pytest.raises(ValueError, match="num_neighbors"):
            model.set_neighbors(wrong)


@every_covariance
def test_the_variables_of_q_are_one_block(covariance):
    model = build(covariance)
    (found,) = model.variational_parameters
    parts = (model.q_mu, model.q_log_scale, model.q_factor)
    assert [v.ref() for v in found] == [v.ref() for v in parts if v is not None]
    with pytest.raises(ValueError, match="natural gradients need a model with full covariances"):
        NaturalGradients(0.1).minimize(lambda: tf.constant(0.0), model)
