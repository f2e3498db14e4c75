"""SOLVE-GP: identities of the sheet, limits, failure modes."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import block_diag

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP
from tests.oracles import solvegp as oracle

NOISE = 0.2
KERNELS = {
    "matern52": (gpflow.kernels.Matern52, oracle.matern52),
    "squared_exponential": (gpflow.kernels.SquaredExponential, oracle.squared_exponential),
}


def sets(rng, sizes=(7, 5), D=2):
    return [rng.normal(size=(M, D)) for M in sizes]


def data(rng, N=20, D=2, P=1):
    X = rng.normal(size=(N, D))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, P))


def randomize(model, rng):
    for q_mu, q_sqrt in model.variational_parameters:
        q_mu.assign(rng.normal(size=q_mu.shape))
        q_sqrt.assign(0.3 * np.tril(rng.normal(size=q_sqrt.shape)) + np.eye(q_sqrt.shape[-1]))
    return model


def build(inducing, rng=None, *, P=1, whiten=True, kernel=None, likelihood=None, **options):
    model = SOLVEGP(
        kernel or gpflow.kernels.Matern52(),
        likelihood or gpflow.likelihoods.Gaussian(NOISE),
        OrthogonalInducingVariables(*inducing),
        num_latent_gps=P,
        whiten=whiten,
        **options,
    )
    return model if rng is None else randomize(model, rng)


def stock_on_union(model, inducing, **options):
    """GPflow's SVGP on all points, with the model's q as a block-diagonal one."""
    P = model.num_latent_gps
    q_sqrt = [block_diag(*(R.numpy()[p] for R in model.q_sqrt)) for p in range(P)]
    return gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        np.concatenate(inducing),
        num_latent_gps=P,
        q_mu=np.concatenate([m.numpy() for m in model.q_mu]),
        q_sqrt=np.stack(q_sqrt),
        **options,
    )


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("name", list(KERNELS))
def test_predictions_kl_and_elbo_equal_the_oracle(rng, float_type, name, whiten):
    """Float32: jitter 1e-4 and the looser tolerances of the sheet, section 3."""
    kernel_class, k = KERNELS[name]
    double = float_type is np.float64
    eps, atol, rtol = (1e-6, 1e-8, 1e-8) if double else (1e-4, 5e-3, 5e-3)
    Z, O = sets(rng)
    X, Y = data(rng)
    model = build([Z, O], rng, whiten=whiten, kernel=kernel_class())
    m = [q.numpy()[:, 0].astype(float) for q in model.q_mu]
    R = [q.numpy()[0].astype(float) for q in model.q_sqrt]
    if whiten:
        m, S = oracle.unwhiten(k, Z, O, eps, m, R)
    else:
        S = [r @ r.T for r in R]
    mean, cov = oracle.predict(k, Z, O, eps, m, S, X)
    scale = 1.0 if whiten else max(1.0, float(np.abs(cov).max()))
    got_mean, got_cov = model.predict_f(X, full_cov=True)
    got_var = model.predict_f(X)[1]
    np.testing.assert_allclose(got_mean[:, 0], mean, atol=atol * scale)
    np.testing.assert_allclose(got_cov[0], cov, atol=atol * scale)
    np.testing.assert_allclose(got_var[:, 0], np.diag(cov), atol=atol * scale)
    if not (double or whiten):
        return  # un-whitened KL in float32 has no meaning (sheet 1.7); the docs say so
    np.testing.assert_allclose(model.prior_kl(), oracle.prior_kl(k, Z, O, eps, m, S), rtol=rtol)
    elbo = oracle.gaussian_elbo(k, Z, O, eps, m, S, X, Y[:, 0], NOISE)
    np.testing.assert_allclose(model.elbo((X, Y)), elbo, rtol=rtol)


@pytest.mark.parametrize("sizes", [(7, 5), (7,), (6, 4, 3)])
def test_whitened_solvegp_is_stock_svgp_on_the_union(rng, float_type, sizes):
    """Also T > 2 sets, and no orthogonal set at all."""
    double = float_type is np.float64
    jitter = 1e-6 if double else 1e-4
    inducing, P = sets(rng, sizes), 2
    X, Y = data(rng, P=P)
    model = build(inducing, rng, P=P, num_data=100)
    with gpflow.config.as_context(gpflow.config.Config(float=float_type, jitter=jitter)):
        union = stock_on_union(model, inducing, num_data=100)
        data_ = X.astype(float_type), Y.astype(float_type)
        np.testing.assert_allclose(
            model.elbo((X, Y)), union.elbo(data_), rtol=1e-9 if double else 1e-4
        )
        np.testing.assert_allclose(
            model.prior_kl(), union.prior_kl(), rtol=1e-9 if double else 1e-4
        )
        for full_cov in (False, True):
            for full_output_cov in (False, True):
                ours = model.predict_f(X, full_cov, full_output_cov)
                theirs = union.predict_f(data_[0], full_cov, full_output_cov)
                for a, b in zip(ours, theirs, strict=True):
                    np.testing.assert_allclose(a, b, atol=1e-9 if double else 1e-3)


@pytest.mark.parametrize("compile", [True, False])
def test_a_closure_over_batches_takes_them_in_turn(rng, compile):
    X, Y = data(rng)
    model = build(sets(rng), rng)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)
    loss = model.training_loss_closure(iter(batches), compile=compile)
    for part in (slice(0, 10), slice(10, 20)):
        np.testing.assert_allclose(loss(), model.training_loss((X[part], Y[part])), rtol=1e-12)
    with pytest.raises(ValueError, match=r"arrays or iter\(tf\.data\.Dataset\)"):
        model.training_loss_closure(iter([(X, Y)]))


@pytest.mark.parametrize("whiten", [True, False])
def test_more_sets_start_at_the_prior_with_the_models_jitter(rng, whiten):
    """Un-whitened, the prior's factor of the new set depends on the jitter."""
    (X, Y), inducing = data(rng), sets(rng)
    model = build(inducing, rng, whiten=whiten, kernel=gpflow.kernels.SquaredExponential())
    model.jitter = 1e-2
    for added in ([rng.normal(size=(4, 2))], [rng.normal(size=(4, 2)), rng.normal(size=(3, 2))]):
        wider = model.with_sets(*added)
        assert len(wider.q_mu) == 2 + len(added)
        np.testing.assert_allclose(wider.elbo((X, Y)), model.elbo((X, Y)), rtol=1e-9)
        np.testing.assert_allclose(wider.prior_kl(), model.prior_kl(), rtol=1e-9)
    wider.q_mu[0].assign_add(np.ones_like(wider.q_mu[0]))
    assert abs(float(wider.elbo((X, Y))) - float(model.elbo((X, Y)))) > 0.1  # nothing is shared


def test_a_kernel_with_white_noise_is_that_of_gpflow(rng):
    """White is on the diagonal of Kuu only: a covariance of two copies of Z lacks it."""
    inducing, (X, Y) = sets(rng), data(rng)
    for smooth in (gpflow.kernels.Matern32(), gpflow.kernels.Matern12()):
        model = build(inducing, rng, kernel=smooth + gpflow.kernels.White(0.3))
        elbo = model.elbo((X, Y))
        with gpflow.config.as_context(gpflow.config.Config(jitter=1.3e-6)):
            np.testing.assert_allclose(
                elbo, stock_on_union(model, inducing).elbo((X, Y)), rtol=1e-9
            )
