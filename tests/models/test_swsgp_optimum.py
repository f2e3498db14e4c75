"""The best q of SWSGP for Gaussian noise, in closed form and by natural gradients."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import SWSGP
from tests.models import test_swsgp as base
from tests.models.test_swsgp import EPS, LENGTHSCALES, NOISE, H, L, M, build, rows
from tests.oracles import swsgp as oracle

Z = base.points().Z.numpy()
WEIGHTINGS = ["counts", "paper", "chain"]
every_weighting = pytest.mark.parametrize("weighting", WEIGHTINGS)
every_local = pytest.mark.parametrize("weighting", WEIGHTINGS[:2])


def fitted(weighting, N=40, **options):
    """A model at its best q, and its data."""
    X, Y = rows(N=N)
    model = build("diag", weighting, num_data=N, **options)
    model.count_neighbors(X)
    model.update_posterior((X, Y))
    return model, X, Y


def best(weighting, X, Y, count=H):
    """m and s ``[M, L]``."""
    sets = base.neighbor_sets(X, count)
    if weighting == "chain":  # predecessors are found in lengthscales
        k = oracle.with_lengthscales(base.matern52, 1.0, 1.0)
        case = k, X / LENGTHSCALES, Z / LENGTHSCALES
        found = [
            oracle.optimal_chain_q(*case[:2], y, case[2], sets, count, EPS, NOISE) for y in Y.T
        ]
    else:
        w = oracle.kl_weights(weighting, sets, M)
        found = [oracle.optimal_q(base.k, X, y, Z, sets, w, EPS, NOISE) for y in Y.T]
    return [np.stack(part, axis=1) for part in zip(*found, strict=True)]


@every_weighting
def test_the_best_q_is_that_of_dense_algebra(weighting):
    model, X, Y = fitted(weighting)
    m, s = best(weighting, X, Y)
    np.testing.assert_allclose(model.q_mu, m, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(model.q_sqrt**2, s, rtol=1e-8)


@every_weighting
def test_the_gradient_is_zero_there(weighting):
    model, X, Y = fitted(weighting)
    with tf.GradientTape() as tape:
        elbo = model.elbo((X, Y))
    for gradient in tape.gradient(elbo, model.row_variables):
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), np.zeros((M, L)), atol=1e-5)
    start = build("diag", weighting, num_data=len(X))
    start.count_neighbors(X)
    assert start.elbo((X, Y)) < elbo


@every_local
def test_a_whole_natural_step_stays_at_the_best_q(weighting):
    model, X, Y = fitted(weighting)
    expected = model.q_mu.numpy(), model.q_sqrt.numpy()
    model.natural_step((X, Y), 1.0)
    np.testing.assert_allclose(model.q_mu, expected[0], atol=1e-6)
    np.testing.assert_allclose(model.q_sqrt, expected[1], rtol=1e-8)


@every_local
@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_a_natural_step_from_anywhere(weighting, gamma):
    """Precisions move towards the best by gamma; means along the gradient by gamma s / W."""
    X, Y = rows(N=40)
    model = build("diag", weighting, num_data=40)
    model.count_neighbors(X)
    m, s = model.q_mu.numpy(), model.q_sqrt.numpy() ** 2
    with tf.GradientTape() as tape:
        loss = model.training_loss((X, Y))
    gradient = tf.convert_to_tensor(tape.gradient(loss, model.q_mu))
    sets = base.neighbor_sets(X)
    w = oracle.kl_weights(weighting, sets, M)
    W = np.array([[sum(w_i for w_i, I in zip(w, sets, strict=True) if j in I)] for j in range(M)])
    np.testing.assert_allclose(model.natural_step((X, Y), gamma), loss, rtol=1e-10)
    precision = (1.0 - gamma) / s + gamma / best(weighting, X, Y)[1]
    np.testing.assert_allclose(model.q_sqrt**-2, precision, rtol=1e-8)
    np.testing.assert_allclose(model.q_mu, m - gamma * gradient / precision / W, atol=1e-8)


def test_a_natural_step_moves_what_the_batch_sees():
    X, Y = rows(N=40)
    model = build("diag", "counts", num_data=40)
    model.count_neighbors(X)
    before = model.q_mu.numpy(), model.q_sqrt.numpy()
    step = tf.function(lambda X, Y: model.natural_step((X, Y), 0.1), autograph=False)
    step(X[:2], Y[:2])
    seen = np.isin(np.arange(M), base.neighbor_sets(X[:2]))
    for now, old in zip((model.q_mu.numpy(), model.q_sqrt.numpy()), before, strict=True):
        np.testing.assert_array_equal(np.any(now != old, axis=1), seen)


def test_rows_in_files_give_the_same_q_as_arrays(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(90, 3))
    for part in range(3):
        some = table[30 * part : 30 * (part + 1)]
        np.savetxt(tmp_path / f"{part}.csv", some, delimiter=",", header="a,b,y", comments="")
    found = []
    rows = gs.data.open_shards(tmp_path, target="y").data
    X, Y = (np.array(part, np.float64) for part in rows)
    for data in (rows, (X, Y)):
        points = NeighborInducingPoints(X[::6], 4)
        likelihood = gpflow.likelihoods.Gaussian(0.1)
        model = SWSGP(gpflow.kernels.Matern52(), likelihood, points, num_data=90)
        model.count_neighbors(X)
        model.update_posterior(data)
        found.append(model.q_mu.numpy())
    np.testing.assert_allclose(*found, rtol=1e-9)


@pytest.mark.parametrize("noise", [np.array([[0.1, 0.4]]), gpflow.functions.Constant([0.1])])
def test_other_noise_has_no_best_q_in_closed_form(noise):
    model, X, Y = fitted("counts")
    model.likelihood = gpflow.likelihoods.Gaussian(noise)
    with pytest.raises(ValueError, match="one variance for all rows and outputs, got Gaussian"):
        model.update_posterior((X, Y))
