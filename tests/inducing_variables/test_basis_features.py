"""Weights of a basis as inducing variables of stock GPflow models and of SOLVE-GP."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.kernels import Matern52, SquaredExponential
from gpflow.models import SGPR, SVGP

from gpflow_sparse.bases import GridEigenfunctions, RandomFourier, ReweightedBasis
from gpflow_sparse.inducing_variables import BasisFeatures, Kuv, OrthogonalInducingVariables
from gpflow_sparse.kernels import Basis
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.posteriors import BasisPosterior
from tests.oracles import grief as oracle
from tests.oracles import solvegp as solvegp_oracle

D, M, NOISE = 2, 15, 0.2
VARIANCE, LENGTHSCALES = 1.7, [0.9, 1.2]

pytestmark = pytest.mark.filterwarnings("ignore:.*prior variance")


def inputs(rows=30, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, D))


def data(rows=30, columns=1):
    X = inputs(rows)
    noise = np.random.default_rng(2).normal(size=(rows, columns))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * noise


def kernel():
    return SquaredExponential(VARIANCE, LENGTHSCALES)


def reference(p=M):
    grid = [oracle.percentile_grid(column, 10) for column in inputs().T]
    return oracle.build_basis([oracle.SE(value) for value in LENGTHSCALES], VARIANCE, grid, p)


def grid_basis(p=M):
    return GridEigenfunctions(kernel(), inputs(), p)


def sgpr(rows, basis, k=None, **options):
    k = basis.kernel if k is None else k
    return SGPR(rows, k, BasisFeatures(basis), noise_variance=NOISE, **options)


def svgp(basis, k=None, whiten=True, q=None, P=1, **options):
    k = basis.kernel if k is None else k
    q_mu, q_sqrt = (None, None) if q is None else q
    return SVGP(
        k,
        gpflow.likelihoods.Gaussian(NOISE),
        BasisFeatures(basis),
        num_latent_gps=P,
        whiten=whiten,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        **options,
    )


def test_kuu_is_the_identity_whatever_the_jitter():
    basis = grid_basis()
    features = BasisFeatures(basis)
    for jitter in (0.0, 1e-6, 0.5):
        np.testing.assert_array_equal(Kuu(features, basis.kernel, jitter=jitter), np.eye(M))
    X = inputs(7, seed=3)
    np.testing.assert_array_equal(Kuf(features, basis.kernel, X), basis.features(X))
    points = gpflow.inducing_variables.InducingPoints(X)
    np.testing.assert_array_equal(Kuv(features, points, basis.kernel), basis.features(X))
    np.testing.assert_array_equal(Kuv(points, features, basis.kernel), basis(X))
    assert features.shape == (M, D, 1)
    assert int(features.num_inducing) == M


def random_q(P=1, seed=5):
    rng = np.random.default_rng(seed)
    q_sqrt = np.tril(0.2 * rng.normal(size=(P, M, M))) + 0.5 * np.eye(M)
    return rng.normal(size=(M, P)), q_sqrt


@pytest.mark.parametrize("build", ["projection", "weights"])
def test_predictions_of_any_q_are_those_of_the_dense_conditional(build):
    """Through stock SVGP, its cached posterior, and ``conditional``."""
    basis, (q_mu, q_sqrt), X = grid_basis(), random_q(2), inputs(6, seed=3)
    k = basis.kernel if build == "projection" else Basis(basis)
    model = svgp(basis, k, q=(q_mu, q_sqrt), P=2)
    A = basis.features(X).numpy()
    residual = k(X).numpy() - A.T @ A
    cov = residual + A.T @ q_sqrt @ np.transpose(q_sqrt, [0, 2, 1]) @ A
    posterior = model.posterior()
    assert isinstance(posterior, BasisPosterior)
    for predict in (model.predict_f, posterior.predict_f, posterior.fused_predict_f):
        mean, got = predict(X, full_cov=True)
        np.testing.assert_allclose(mean, A.T @ q_mu, atol=1e-12)
        np.testing.assert_allclose(got, cov, atol=1e-12)
        np.testing.assert_allclose(predict(X)[1], np.diagonal(cov, axis1=1, axis2=2).T, atol=1e-12)
    mean, got = gpflow.conditionals.conditional(
        X, BasisFeatures(basis), k, q_mu, q_sqrt=tf.constant(q_sqrt), white=True, full_cov=True
    )
    np.testing.assert_allclose(mean, A.T @ q_mu, atol=1e-12)
    np.testing.assert_allclose(got, cov, atol=1e-12)
    S = q_sqrt @ np.transpose(q_sqrt, [0, 2, 1])
    kl = sum(solvegp_oracle.gaussian_kl(m, s, np.eye(M)) for m, s in zip(q_mu.T, S, strict=True))
    np.testing.assert_allclose(model.prior_kl(), kl, rtol=1e-10)
    np.testing.assert_allclose(posterior.prior_kl(), kl, rtol=1e-10)


def joint_covariance(basis, O, X, eps):
    """
    A kernel of row numbers for the oracle of SOLVE-GP: first the weights, then O, then X.

    The oracle adds its jitter to Kuu too, which weights do not have; so it is taken off before.
    """
    points = np.concatenate([O, X])
    A, K = basis.features(points), basis.kernel(points, points)
    J = np.block([[(1.0 - eps) * np.eye(len(A)), A], [A.T, K]])
    rows = np.arange(len(J))[:, None]
    ends = [len(A), len(A) + len(O)]
    return lambda a, b: J[np.ix_(a[:, 0], b[:, 0])], *np.split(rows, ends)


@pytest.mark.parametrize("whiten", [True, False])
def test_as_the_base_of_orthogonal_sets(whiten):
    """SOLVE-GP with a GRIEF u-block, against dense conditionals: sheet 3.1."""
    rows, expected, eps = data(), reference(), 1e-6 * VARIANCE
    basis, O, rng = grid_basis(), inputs(6, seed=8), np.random.default_rng(9)
    # the oracle's features with the signs of the package's
    package, own = basis(rows[0]).numpy(), expected.features(rows[0])
    signs = np.sign(np.sum(package * own, axis=0))

    class Signed:
        kernel = staticmethod(expected.kernel)

        @staticmethod
        def features(X):
            return (expected.features(X) * signs).T

    k, Zr, Or, Xr = joint_covariance(Signed, O, rows[0], eps)
    means = [rng.normal(size=M), rng.normal(size=6)]
    factors = [np.tril(0.2 * rng.normal(size=(n, n))) + 0.5 * np.eye(n) for n in (M, 6)]
    if whiten:
        m, S = solvegp_oracle.unwhiten(k, Zr, Or, eps, means, factors)
    else:
        m, S = means, [R @ R.T for R in factors]
    model = SOLVEGP(
        basis.kernel,
        gpflow.likelihoods.Gaussian(NOISE),
        OrthogonalInducingVariables(BasisFeatures(basis), O),
        q_mu=[value[:, None] for value in means],
        q_sqrt=[value[None] for value in factors],
        whiten=whiten,
    )
    elbo = solvegp_oracle.gaussian_elbo(k, Zr, Or, eps, m, S, Xr, rows[1][:, 0], NOISE)
    np.testing.assert_allclose(model.elbo(rows), elbo, rtol=1e-8)
    mean, cov = solvegp_oracle.predict(k, Zr, Or, eps, m, S, Xr)
    got_mean, got_cov = model.predict_f(rows[0], full_cov=True)
    np.testing.assert_allclose(got_mean[:, 0], mean, atol=1e-8)
    np.testing.assert_allclose(got_cov[0], cov, atol=1e-8)


def test_a_kernel_that_is_not_the_one_of_the_basis_is_refused():
    rows, basis = data(), grid_basis()
    for other in (kernel(), Matern52(), Basis(grid_basis()), basis.kernel + Matern52()):
        for call in (
            lambda other=other: sgpr(rows, basis, other).elbo(),
            lambda other=other: svgp(basis, other).predict_f(rows[0]),
        ):
            with pytest.raises(ValueError, match="kernel must be the one that the GridEigen"):
                call()


def test_an_approximation_is_no_inducing_variable_of_its_kernel():
    for basis in (
        RandomFourier(kernel(), 10),
        ReweightedBasis(grid_basis(), np.linspace(0.1, 2.0, M)),
    ):
        with pytest.raises(ValueError, match=r"kernel must be gs\.kernels\.Basis\(basis\)"):
            sgpr(data(), basis).elbo()
