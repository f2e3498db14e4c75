"""ODVGP against the equations, and its sampled columns."""

from itertools import combinations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import ODVGP
from gpflow_sparse.numerics import random_draws
from tests.models.test_solvegp import NOISE, data, randomize, sets
from tests.oracles import odvgp as oracle
from tests.oracles import solvegp as parent


def build(inducing, rng=None, *, P=1, kernel=None, **options):
    model = ODVGP(
        kernel or gpflow.kernels.Matern52(),
        gpflow.likelihoods.Gaussian(NOISE),
        OrthogonalInducingVariables(*inducing),
        num_latent_gps=P,
        **options,
    )
    if rng is None:
        return model
    model.q_mu[1].assign(rng.normal(size=model.q_mu[1].shape))
    return randomize(model, rng)


@pytest.mark.parametrize("whiten", [True, False])
def test_predictions_kl_and_elbo_equal_the_oracle(rng, whiten):
    Z, O = sets(rng)
    X, Y = data(rng)
    model = build([Z, O], rng, whiten=whiten)
    m, w = (q.numpy()[:, 0] for q in model.q_mu)
    Cvv = parent.prior_blocks(parent.matern52, Z, O, 1e-6)[2]
    alpha = w / (np.diag(Cvv) + 0.01 * np.diag(parent.matern52(O, O)))
    R = model.q_sqrt[0].numpy()[0]
    if whiten:
        L = np.linalg.cholesky(parent.prior_blocks(parent.matern52, Z, O, 1e-6)[0])
        m, R = L @ m, L @ R
    q = (m, R @ R.T, alpha)
    mean, cov = oracle.predict(parent.matern52, Z, O, 1e-6, *q, X)
    for predicted, got in (
        (model.predict_f, model.predict_f(X, full_cov=True)),
        (model.posterior().predict_f, model.posterior().predict_f(X, full_cov=True)),
    ):
        np.testing.assert_allclose(got[0][:, 0], mean, atol=1e-8)
        np.testing.assert_allclose(got[1][0], cov, atol=1e-8)
        np.testing.assert_allclose(predicted(X)[1][:, 0], np.diag(cov), atol=1e-8)
    kl = oracle.prior_kl(parent.matern52, Z, O, 1e-6, *q)
    np.testing.assert_allclose(model.prior_kl(), kl, rtol=1e-9)
    elbo = oracle.gaussian_elbo(parent.matern52, Z, O, 1e-6, *q, X, Y[:, 0], NOISE)
    np.testing.assert_allclose(model.elbo((X, Y)), elbo, rtol=1e-9)


def test_sampled_columns_are_unbiased_by_enumeration(rng, monkeypatch):
    """Values and gradients, averaged over all draws of 2 from 4 columns."""
    inducing, (X, Y) = sets(rng, (5, 4)), data(rng)
    model = build(inducing, rng)

    def value_and_gradients():
        with tf.GradientTape() as tape:
            elbo = model.elbo((X, Y))
        return [elbo, *tape.gradient(elbo, model.trainable_variables)]

    exact = value_and_gradients()
    model.num_penalty_samples = 2
    draws = []
    for chosen in combinations(range(4), 2):
        monkeypatch.setattr(
            random_draws, "different", lambda *_, drawn=chosen: [tf.constant(drawn)]
        )
        draws.append(value_and_gradients())
    assert np.std([float(draw[0]) for draw in draws]) > 0.01
    for got, wanted in zip(zip(*draws, strict=True), exact, strict=True):
        np.testing.assert_allclose(np.mean(got, axis=0), wanted, rtol=1e-9, atol=1e-9)


def test_sampled_columns_leave_no_square_of_the_orthogonal_set(rng):
    """The claim on cost: no tensor of a compiled step has M2 x M2 entries or more."""
    X, Y = (tf.constant(part) for part in data(rng, N=11))
    model = build(sets(rng, (5, 37)), num_penalty_samples=3)
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y))
        return tape.gradient(loss, variables)

    outputs = [t for op in step.get_concrete_function().graph.get_operations() for t in op.outputs]
    sizes = [t.shape.num_elements() for t in outputs if t.shape.rank is not None]
    assert len(sizes) > 100
    assert max(size for size in sizes if size is not None) < 37 * 37
