"""QSGP's bound for a logit: the oracle's at given draws, and below the evidence."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from tests.models.test_qsgp import (
    MODELS,
    all_draws,
    build,
    close,
    data,
    dictionary,
    factor,
    fourier,
)
from tests.oracles import qsgp, qsgp_sites

SHIFT = 0.3


def problem(name="fourier-diag", **options):
    mean = gpflow.mean_functions.Constant(SHIFT)
    model = MODELS[name](
        likelihood=gs.likelihoods.BernoulliLogit(), mean_function=mean, num_data=31, **options
    )
    X, Y = data()
    return model, (X, (Y > 0).astype(float))


def oracle(model, X, draws):
    """Mean, second moment and KL from a pair of draws."""
    Phi, mu, C = model.basis(X).numpy(), model.q_mu.numpy()[:, 0], factor(model, 0)
    s, h = model.basis.precision_diagonal().numpy(), model.num_head
    it, jt = (h + draw for draw in draws)
    mean, second = qsgp_sites.pair_moments(Phi, mu, C, it, jt, h)
    w = 0.5 * (qsgp.weights(len(mu), it, h) + qsgp.weights(len(mu), jt, h))
    squares = s * (mu**2 + np.sum(C**2, axis=1)) - np.log(s) - 1.0
    kl = w @ (0.5 * squares - np.log(np.diag(C)))
    return mean + SHIFT, second + 2.0 * SHIFT * mean + SHIFT**2, kl


def place(second):
    return np.sqrt(np.maximum(second, 1e-10))


@pytest.mark.parametrize("name", ["relevance-diag", "fourier-chevron", "hybrid-block"])
def test_it_is_the_oracles_at_given_draws_and_below_the_exact_elbo_on_average(name, monkeypatch):
    model, (X, Y) = problem(name)
    y, weight, pairs = 2.0 * Y[:, 0] - 1.0, 31 / len(X), all_draws(model)
    drawn = iter([[tf.constant(part, tf.int32) for part in pairs[i]] for i in (1, -3)])
    monkeypatch.setattr(model, "_draw", lambda: next(drawn))
    found = model.logit_bound((X, Y))
    (*own, kl), (*others, kl2) = (oracle(model, X, pairs[i]) for i in (1, -3))
    rows = qsgp_sites.quadratic_logit(*own, y, place(others[1]))
    rows += qsgp_sites.quadratic_logit(*others, y, place(own[1]))
    close(found, 0.5 * (weight * rows.sum() - kl - kl2))

    moments = [oracle(model, X, pair) for pair in pairs]
    mean, second, kl = (np.mean(part, axis=0) for part in zip(*moments, strict=True))
    rows = [qsgp_sites.quadratic_logit(mean, second, y, place(one[1])).sum() for one in moments]
    exact = float(model.exact_elbo((X, Y)))
    assert weight * np.mean(rows) - kl < exact - 1e-2
    best = qsgp_sites.quadratic_logit(mean, second, y, place(second)).sum()
    assert weight * np.mean(rows) < weight * best < exact + kl


def test_with_all_functions_it_is_below_the_evidence_by_integration():
    """Two weights on a grid."""
    X, Y = data()
    y = 2.0 * (Y[:, 0] > 0) - 1.0
    logit, one = gs.likelihoods.BernoulliLogit(), gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    model = build(fourier(2), batch=2, likelihood=logit)
    Phi, axis = model.basis(X).numpy(), np.linspace(-8.0, 8.0, 401)
    w = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    log_joint = qsgp_sites.logit(w @ Phi.T, y).sum(axis=1) - 0.5 * np.sum(w**2, axis=1)
    cell = (axis[1] - axis[0]) ** 2 / (2.0 * np.pi)
    evidence = np.log(np.sum(np.exp(log_joint)) * cell)
    batch = X, 0.5 * (y[:, None] + 1.0)
    weights = np.exp(log_joint) / np.exp(log_joint).sum()
    model.q_mu.assign((weights @ w)[:, None])
    model.q_log_scale.assign(0.5 * np.log(weights @ (w - weights @ w) ** 2)[:, None])
    bound, elbo = float(model.logit_bound(batch)), float(model.exact_elbo(batch))
    assert evidence - 0.5 < bound < elbo < evidence
    model.likelihood = one  # GPflow's own
    close(model.logit_bound(batch), bound)


def test_several_outputs_and_graphs_and_float32(float_type):
    X, Y = data(2)
    batch = X.astype(float_type), (Y > 0).astype(float_type)
    model = build(fourier(), batch=6, L=2, likelihood=gs.likelihoods.BernoulliLogit())
    value = model.logit_bound(batch)
    assert value.dtype == float_type
    graph = tf.function(model.logit_bound, autograph=False)
    np.testing.assert_allclose(graph(batch), value, rtol=1e-5)
    assert value < model.exact_elbo(batch)


def test_other_likelihoods_and_dense_precisions_are_refused():
    X, Y = data()
    with pytest.raises(ValueError, match=r"needs gs\.likelihoods\.BernoulliLogit.*got Gaussian"):
        build(fourier()).logit_bound((X, Y))
    probit = build(fourier(), likelihood=gpflow.likelihoods.Bernoulli())
    with pytest.raises(ValueError, match=r"needs gs\.likelihoods\.BernoulliLogit"):
        probit.logit_bound((X, Y > 0))
    dense = build(dictionary(), likelihood=gs.likelihoods.BernoulliLogit())
    with pytest.raises(ValueError, match="determinant"):
        dense.logit_bound((X, Y > 0))
