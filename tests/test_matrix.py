"""Any basis with any inference: the same q has the same objective, whichever model holds it."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.bases import (
    GridEigenfunctions,
    Hybrid,
    KernelDictionary,
    RandomFourier,
    ReweightedBasis,
    SoftInterpolation,
)
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.likelihoods import BernoulliLogit
from gpflow_sparse.models import QSGP, SWSGP, BasisGPR, BasisSVGP

NOISE = 0.2


def inputs(rows=20):
    return np.random.default_rng(0).normal(size=(rows, 2))


def kernel():
    return gpflow.kernels.SquaredExponential(variance=1.4, lengthscales=[0.9, 1.3])


def grid():
    return GridEigenfunctions(kernel(), inputs(), 9, 5)


BASES = {
    "fourier": lambda: RandomFourier(kernel(), 8, seed=1),
    "orthogonal": lambda: RandomFourier(kernel(), 8, orthogonal=True, seed=1),
    "grid": grid,
    "reweighted": lambda: ReweightedBasis(grid(), np.linspace(0.5, 2.0, 9)),
    "hybrid": lambda: Hybrid(kernel(), inputs()[:3], 6, seed=1),
    "soft": lambda: SoftInterpolation(kernel(), inputs()[:7], temperature=0.4),
    "inducing": lambda: KernelDictionary(kernel(), inputs()[:7]),
    "relevance": lambda: KernelDictionary(
        kernel(),
        inputs()[:7],
        precision="diagonal",
        constant=True,
        initial_precision=np.linspace(0.5, 2.0, 8),
    ),
}
every_basis = pytest.mark.parametrize("basis", BASES.values(), ids=list(BASES))


def data(labels=False):
    X = inputs()
    Y = np.sin(2.0 * X[:, :1]) + 0.3 * np.random.default_rng(2).normal(size=(len(X), 1))
    return (X, (Y > 0.0).astype(float)) if labels else (X, Y)


def whitener(basis):
    """``T`` with ``v = T w ~ N(0, I)`` for weights w of the basis's own columns."""
    if basis.precision == "dense":
        return np.linalg.cholesky(basis.prior_precision().numpy() + 1.4e-6 * np.eye(7)).T
    return np.diag(np.sqrt(basis.precision_diagonal().numpy()))


@every_basis
@pytest.mark.parametrize("labels", [False, True], ids=["gaussian", "logit"])
def test_sub_sampling_and_all_functions_have_the_same_objective(basis, labels):
    """With all functions drawn, a QSGP is a BasisSVGP whose covariance has its shape."""
    functions, rng = basis(), np.random.default_rng(3)
    likelihood = BernoulliLogit() if labels else gpflow.likelihoods.Gaussian(NOISE)
    m = functions.num_basis
    model = QSGP(
        functions, likelihood, num_data=20, basis_batch_size=m, covariance="diag",
        variance_reduction="none",
    )  # fmt: skip
    mu, c = rng.normal(size=(m, 1)), rng.uniform(0.2, 1.5, size=m)
    model.q_mu.assign(mu)
    model.q_log_scale.assign(np.log(c)[:, None])
    T = whitener(functions)
    q_sqrt = np.linalg.cholesky(T @ np.diag(c**2) @ T.T)[None]
    options = {"q_mu": T @ mu, "q_sqrt": q_sqrt, "num_data": 20, "keep_residual": False}
    dense = BasisSVGP(functions, likelihood, **options)
    batch = data(labels)
    np.testing.assert_allclose(model.exact_elbo(batch), dense.elbo(batch), rtol=1e-5)
    for got, expected in zip(
        model.predict_f(batch[0], full_cov=True), dense.predict_f(batch[0], full_cov=True),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(got, expected, atol=2e-5)
    if functions.precision != "dense":  # whose steps leave out a constant
        np.testing.assert_allclose(model.elbo(batch), dense.elbo(batch), rtol=1e-5)


@every_basis
def test_the_exact_posterior_is_the_best_q(basis):
    """BasisGPR's evidence is BasisSVGP's elbo at its q; no diagonal q reaches it."""
    functions, batch = basis(), data()
    exact = BasisGPR(batch, functions, noise_variance=NOISE)
    evidence = float(exact.elbo())
    np.testing.assert_allclose(exact.to_svgp().elbo(batch), evidence, rtol=1e-8)
    model = QSGP(
        functions,
        gpflow.likelihoods.Gaussian(NOISE),
        num_data=20,
        basis_batch_size=functions.num_basis,
        covariance="diag",
    )
    mean = exact.compute_qu()[0].numpy()
    model.q_mu.assign(np.linalg.solve(whitener(functions), mean))
    model.update_covariance(batch[0])
    np.testing.assert_allclose(
        model.predict_f(inputs())[0], exact.predict_f(inputs())[0], atol=2e-4
    )
    assert float(model.exact_elbo(batch)) < evidence - 1e-3


@pytest.mark.parametrize("weighting", ["usage", "paper", "chain"])
@pytest.mark.parametrize("labels", [False, True], ids=["gaussian", "logit"])
def test_points_that_all_rows_see_are_a_basis_of_kernels_there(labels, weighting):
    """With all points for neighbors, any weighting is the bound over that basis and its rest."""
    rng, Z, likelihood = np.random.default_rng(3), inputs()[:7], gpflow.likelihoods.Gaussian(NOISE)
    likelihood = BernoulliLogit() if labels else likelihood
    mean, factor = rng.normal(size=(7, 1)), np.tril(rng.normal(size=(7, 7))) + 2.0 * np.eye(7)
    local = SWSGP(
        kernel(), likelihood, NeighborInducingPoints(Z, 7), covariance="dense", num_data=20,
        kl_weighting=weighting, q_mu=mean, q_sqrt=factor[None],
    )  # fmt: skip
    batch = data(labels)
    local.update_neighbors(batch[0])
    K = kernel()(Z).numpy() + 1.4e-6 * np.eye(7)
    T = np.linalg.inv(np.linalg.cholesky(K))  # whitens values of f, not weights
    q_sqrt = np.linalg.cholesky(T @ factor @ factor.T @ T.T)[None]
    whole = BasisSVGP(
        KernelDictionary(kernel(), Z), likelihood, q_mu=T @ mean, q_sqrt=q_sqrt, num_data=20
    )
    np.testing.assert_allclose(local.elbo(batch), whole.elbo(batch), rtol=1e-6)
    for full_cov in (False, True):
        for got, expected in zip(
            local.predict_f(batch[0], full_cov), whole.predict_f(batch[0], full_cov), strict=True
        ):
            np.testing.assert_allclose(got, expected, atol=1e-5)
