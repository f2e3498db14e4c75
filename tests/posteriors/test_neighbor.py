"""The posterior of which each row sees its neighbors only, against dense algebra and GPflow."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.conditionals import conditional
from gpflow.models import SVGP

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.posteriors import NeighborPosterior
from tests.oracles import swsgp as oracle
from tests.oracles.solvegp import matern52, squared_exponential

M, N, H, P = 25, 11, 6, 2
VARIANCE, LENGTHSCALES = 1.3, np.array([0.7, 1.9])
EPS = 1e-6 * VARIANCE
PROFILES = {
    "matern52": (matern52, gpflow.kernels.Matern52),
    "squared_exponential": (squared_exponential, gpflow.kernels.SquaredExponential),
}
every_spread = pytest.mark.parametrize("dense", [False, True], ids=["diag", "dense"])
every_profile = pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))


class Case:
    """A posterior, and the same in NumPy: ``S [P, M, M]``."""

    def __init__(self, rng, dense, profile=PROFILES["matern52"], count=H, whole=False):
        self.k = oracle.with_lengthscales(profile[0], VARIANCE, LENGTHSCALES)
        self.Z, self.X = rng.normal(size=(M, 2)), rng.normal(size=(N, 2))
        self.m = rng.normal(size=(M, P))
        lower = np.tril(0.3 * rng.normal(size=(P, M, M))) + 0.5 * np.eye(M)
        scales = np.exp(rng.normal(size=(M, P)))
        self.q_sqrt = lower if dense else scales
        spread = np.stack([np.diag(s) for s in scales.T])
        self.S = lower @ lower.transpose(0, 2, 1) if dense else spread**2
        self.kernel = profile[1](VARIANCE, LENGTHSCALES)
        self.inducing = NeighborInducingPoints(self.Z, count)
        self.sets = self.inducing.neighbors(self.X, self.kernel).numpy()

    def posterior(self, **options):
        return NeighborPosterior(self.kernel, self.inducing, self.m, self.q_sqrt, **options)

    def locals(self, eps=EPS):
        """Mean and variance [N, P], KL [N] over all outputs."""
        parts = [
            oracle.locals_of(self.k, self.X, self.Z, self.sets, self.m[:, p], self.S[p], eps)
            for p in range(P)
        ]
        mean, var, kl = np.stack(parts, axis=2)
        return mean, var, kl.sum(axis=1)


def kl_of_every_row(posterior, X):
    return [float(posterior.prior_kl(tf.constant(x[None]))) for x in X]


@every_profile
@every_spread
def test_moments_and_kl_of_every_row_are_those_of_dense_algebra(rng, dense, profile):
    case = Case(rng, dense, profile)
    expected, posterior = case.locals(), case.posterior()
    found = [*posterior.fused_predict_f(case.X), kl_of_every_row(posterior, case.X)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(posterior.prior_kl(case.X), expected[2].sum(), rtol=1e-8)


@every_spread
def test_all_neighbors_are_gpflows_svgp(rng, dense):
    """Values, and gradients by every argument, of marginals and joint covariances."""
    case = Case(rng, dense, count=M)
    case.kernel.variance.assign(1.0)  # GPflow's jitter is not a multiple of the variance
    gpflow.set_trainable(case.kernel.variance, False)

    def predict(Z, inducing, full_cov):
        model = SVGP(
            case.kernel,
            gpflow.likelihoods.Gaussian(),
            inducing,
            num_latent_gps=P,
            q_mu=case.m,
            q_sqrt=case.q_sqrt,
            q_diag=not dense,
            whiten=False,
        )
        variables = [part.unconstrained_variable for part in (model.q_mu, model.q_sqrt, Z)] + list(
            case.kernel.trainable_variables
        )
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            mean, cov = model.predict_f(case.X, full_cov=full_cov)
            loss = tf.reduce_sum(tf.sin(mean)) + tf.reduce_sum(tf.sin(cov))
        gradients = tape.gradient(loss, variables)
        return [mean, cov, *(tf.convert_to_tensor(gradient) for gradient in gradients)]

    whole = gpflow.inducing_variables.InducingPoints(case.Z)
    for full_cov in (False, True):
        ours = predict(case.inducing.Z, case.inducing, full_cov)
        theirs = predict(whole.Z, whole, full_cov)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_a_fixed_mean_has_no_covariance_of_its_own(rng):
    """``q_sqrt=None``, as in ``gpflow.conditionals.conditional`` by default."""
    case = Case(rng, True)
    case.S = np.zeros((P, M, M))
    arguments = tf.constant(case.X), case.inducing, case.kernel, tf.constant(case.m)
    mean, var = conditional(*arguments, white=False)
    for p in range(P):
        for i, I in enumerate(case.sets):
            a, residual, _ = oracle.projection(case.k, case.X[i], case.Z[I], EPS)
            np.testing.assert_allclose(mean[i, p], a @ case.m[I, p], rtol=1e-8)
            np.testing.assert_allclose(var[i, p], residual, rtol=1e-7)


def test_what_cannot_be_is_refused(rng):
    case = Case(rng, False)
    kernel, points, good = case.kernel, case.inducing, (np.zeros((M, 2)), np.ones((M, 2)))
    posterior = NeighborPosterior(kernel, points, *good)
    white = SVGP(kernel, gpflow.likelihoods.Gaussian(), points)
    shared = gpflow.kernels.SharedIndependent(kernel, P)
    calls = [
        (lambda: case.posterior(whiten=True), "whiten must be False"),
        (lambda: NeighborPosterior(shared, points, *good), "SharedIndependent"),
        (lambda: NeighborPosterior(kernel, points, *good, jitter=-1.0), "jitter"),
        (white.prior_kl, r"write gpflow\.models\.SVGP\(.*q_diag=True, whiten=False\)\.$"),
    ]
    for X in (np.zeros((3, 1)), np.zeros(2), np.full((1, 2), np.nan)):
        calls.append((lambda X=X: posterior.prior_kl(X), "X"))
    for q_mu in (np.zeros((M - 1, 2)), np.zeros(M)):
        calls.append((lambda q=q_mu: NeighborPosterior(kernel, points, q, good[1]), "q_mu"))
    for wrong in (np.ones((M, 3)), np.ones((2, M, 5)), np.ones((3, M, M)), (good[1], np.ones(2))):
        calls.append((lambda q=wrong: NeighborPosterior(kernel, points, good[0], q), "q_sqrt"))
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
