"""The relevance vector machine: precisions in closed form, few vectors, pruning."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.inference.calibration import Calibration
from tests.models.test_qsgp import factor
from tests.oracles import qsgp

NOISE = 0.01


def sinc_data(rows, seed=0):
    """Noisy sinc on [-10, 10], as in the figure 3 of Evans and Nair (2020) but for the size."""
    rng = np.random.default_rng(seed)
    X = np.linspace(-10.0, 10.0, rows)[:, None]
    return X, np.sinc(X / np.pi) + np.sqrt(NOISE) * rng.normal(size=(rows, 1))


def build(X, batch, *, L=1, seed=1, **options):
    kernel = gpflow.kernels.SquaredExponential(lengthscales=2.0)
    gpflow.set_trainable(kernel, False)
    likelihood = gpflow.likelihoods.Gaussian(NOISE)
    gpflow.set_trainable(likelihood, False)
    model = gs.models.RVM(
        X, kernel, likelihood, num_data=len(X), basis_batch_size=batch, num_latent_gps=L, **options
    )
    rng = np.random.default_rng(seed)
    model.q_mu.assign(0.3 * rng.normal(size=model.q_mu.shape))
    model.q_log_scale.assign(0.3 * rng.normal(size=model.q_log_scale.shape) - 2.0)
    return model


SHAPES = {
    "diag": {},
    "block": {"covariance": "block", "num_dense_columns": 3},
    "chevron": {"covariance": "chevron", "num_dense_columns": 3},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("L", [1, 2])
def test_a_step_sets_touched_precisions_to_their_maximizer(shape, L):
    """At rate zero only what has closed forms moves, and the exact elbo does not go down."""
    X, Y = sinc_data(12)
    Y = np.hstack([Y, 1.0 - Y])[:, :L]
    model = build(X, 3, L=L, **SHAPES[shape])
    if model.q_columns is not None:
        model.q_columns.assign(0.1 * np.random.default_rng(3).normal(size=model.q_columns.shape))
    optimizer = gs.training.SparseSGD(0.0, dense=tf.keras.optimizers.SGD(0.0))
    before = model.basis.log_precision.numpy()
    elbo = float(model.exact_elbo((X, Y)))
    model.prepare_step(0, lambda: (X, Y))
    model.sparse_step((X, Y), optimizer)
    moments = [
        1.0 / qsgp.rvm_precisions(model.q_mu.numpy()[:, p], factor(model, p)) for p in range(L)
    ]
    best = 1.0 / np.mean(moments, axis=0)
    after = model.basis.log_precision.numpy()
    changed = after != before
    assert model.num_head < changed.sum() <= model.num_head + 6
    assert changed[: model.num_head].all()
    np.testing.assert_allclose(np.exp(after[changed]), best[changed], rtol=1e-10)
    A = qsgp.precision(model.basis(X).numpy(), np.exp(before), NOISE)  # proposition 1, before s
    h = model.num_head
    scales = np.exp(model.q_log_scale.numpy())
    for p in range(L):
        np.testing.assert_allclose(
            scales[changed[h:], p], np.diag(A)[h:][changed[h:]] ** -0.5, rtol=1e-10
        )
    assert float(model.exact_elbo((X, Y))) > elbo


@pytest.mark.parametrize("options", [{}, {"covariance": "chevron", "num_dense_columns": 3}])
def test_closed_forms_in_turn_raise_the_exact_elbo_to_a_stationary_point(options):
    X, Y = sinc_data(10)
    model = build(X, 6, **options)
    found = []
    for _ in range(4):
        model.refine((X, Y), 10)
        model.update_covariance(X)
        found.append(float(model.exact_elbo((X, Y))))
    assert np.all(np.diff(found) > -1e-6)
    Phi, s = model.basis(X).numpy(), model.basis.precision_diagonal().numpy()
    np.testing.assert_allclose(
        model.q_mu[:, 0], qsgp.weight_posterior(Phi, Y[:, 0], np.diag(s), NOISE)[0], rtol=1e-6
    )
    products = s / qsgp.rvm_precisions(model.q_mu.numpy()[:, 0], factor(model, 0))
    np.testing.assert_allclose(products[s < 1e3], 1.0, rtol=0.05)


@pytest.fixture(scope="module")
def trained():
    """60 centers, 30 of 61 functions in each draw, 1,000 steps."""
    X, Y = sinc_data(60)
    model = build(X, 30)
    model.q_mu.assign(tf.zeros_like(model.q_mu))
    steps = 1000
    rate = tf.keras.optimizers.schedules.PolynomialDecay(0.1, steps, 0.001)
    optimizer = gs.training.SparseAdagrad(rate)
    tf.random.set_seed(1)
    step = tf.function(lambda: model.sparse_step((X, Y), optimizer), autograph=False)
    for i in range(steps):
        model.prepare_step(i, lambda: (X, Y))
        step()
    return X, Y, model


@pytest.mark.nightly
def test_few_vectors_of_a_noisy_sinc_are_relevant(trained):
    X, _, model = trained
    vectors = model.relevance_vectors()
    assert vectors.shape[1] == 1
    assert 3 <= len(vectors) <= 15
    assert all(np.any(np.all(row == X, axis=1)) for row in vectors)
    error = model.predict_f(X)[0].numpy() - np.sinc(X / np.pi)
    assert np.sqrt(np.mean(error**2)) < 0.08


@pytest.mark.nightly
def test_pruning_keeps_the_predictions(trained):
    X, Y, trained_model = trained
    model = gpflow.utilities.deepcopy(trained_model)
    model.calibration, model.jitter = Calibration(function=1.2, noise=2.0), 1e-5
    model.standardizer = gs.Standardizer([0.5], [2.0])
    gpflow.set_trainable(model, False)
    small = model.prune()
    assert (small.jitter, repr(small.calibration)) == (1e-5, repr(model.calibration))
    np.testing.assert_array_equal(small.standardizer.x_mean, [0.5])
    vectors = model.relevance_vectors()
    np.testing.assert_array_equal(small.basis.centers, vectors)
    assert small.basis.num_basis == len(vectors) + 1  # and the constant
    assert not any(variable.trainable for variable in small.row_variables)
    Xnew = np.linspace(-11.0, 11.0, 60)[:, None]
    for a, b in zip(small.predict_f(Xnew), model.predict_f(Xnew), strict=True):
        np.testing.assert_allclose(a, b, atol=0.02)
    same = small.prune()
    np.testing.assert_array_equal(same.basis.centers, small.basis.centers)
    for a, b in zip(same.predict_f(Xnew), small.predict_f(Xnew), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    small.prepare_step(0, lambda: (X, Y))
    assert bool(small.sparse_step((X, Y), gs.training.SparseSGD(1e-5))[1])


def test_pruning_everything_is_refused():
    X, _ = sinc_data(12)
    model = build(X, 3)
    with pytest.raises(ValueError, match="threshold"):
        model.prune(1e-3)
    for wrong in (0.0, -1.0, "all", None, True, np.nan):
        with pytest.raises(ValueError, match="threshold"):
            model.relevance_vectors(wrong)
