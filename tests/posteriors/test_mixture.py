"""Mixture posteriors against the mixture written out in dense NumPy."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.inference import collapsed, rotation
from gpflow_sparse.models.grief import quadrature, sampling, type_one
from gpflow_sparse.models.grief.posterior import (
    MixturePosterior,
    RotatedComponents,
    WeightedComponents,
)
from gpflow_sparse.posteriors import pathwise as draws
from tests.oracles import grief_type_one as oracle

N, D, M, S, P = 15, 2, 6, 4, 2
NOISE = np.array([0.1, 0.3, 0.5, 0.2])


class Nystrom(FiniteBasis):
    """Eigenvectors of the kernel on fixed points, scaled: a projection, as GRIEF's are."""

    is_projection = True

    def __init__(self, num_points=5):
        super().__init__()
        self.kernel = gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=[0.9, 1.4])
        self.num_basis = num_points
        self.points = np.random.default_rng(8).normal(size=(num_points, D))

    @property
    def input_dim(self):
        return D

    def _columns(self, X, indices):
        points = tf.constant(self.points, X.dtype)
        Kuu = self.kernel(points) + 1e-6 * tf.eye(self.num_basis, dtype=X.dtype)
        columns = tf.linalg.triangular_solve(tf.linalg.cholesky(Kuu), self.kernel(points, X))
        return tf.transpose(columns)


def data(outputs=P):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, D))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, outputs))


def inputs():
    X = np.random.default_rng(3).normal(size=(M, D))
    X[-1] += 10.0  # where the basis says nothing
    return X


def mean_function():
    return gpflow.functions.Linear(np.full((D, P), 0.2), np.array([0.5, -1.0]))


def weights(basis):
    return np.random.default_rng(4).lognormal(size=(S, basis.num_basis))


def sums_of(basis, mean=None):
    X, Y = data()
    errors = Y if mean is None else Y - mean(X)
    return collapsed.row_sums(basis.features(X), errors, basis.kernel(X, full_cov=False))


def posterior(form, residual=True, mean=None, basis=None):
    """With the weights and the noise variances above."""
    basis = basis or Nystrom()
    sums = sums_of(basis, mean)
    values = tf.constant(NOISE), tf.constant(weights(basis))
    if form == "rotated":
        components = RotatedComponents.sampled(rotation.rotate(sums), *values)
    else:
        components = WeightedComponents(sums, *values)
    return MixturePosterior(basis, components, residual=residual, mean_function=mean)


def dense_components(form, residual=True, mean=None):
    """Means and variances ``[S, M, P]``."""
    basis = Nystrom()
    (X, Y), X_new = data(), inputs()
    Phi, Phi_new = basis(X).numpy(), basis(X_new).numpy()
    left = 1.3 - np.sum(Phi_new**2, axis=1) if residual else np.zeros(M)
    if form == "rotated":
        V = rotation.rotate(sums_of(basis)).V.numpy()
        Phi, Phi_new = Phi @ V, Phi_new @ V
    prior, prior_new = (0.0, 0.0) if mean is None else (mean(X).numpy(), mean(X_new).numpy())
    parts = [
        oracle.dense_predict(Phi, Y - prior, Phi_new, w, s)
        for w, s in zip(weights(basis), NOISE, strict=True)
    ]
    means = np.stack([m + prior_new for m, _ in parts])
    variances = np.stack([np.tile((v + left)[:, None], (1, P)) for _, v in parts])
    return means, variances


def dense_prediction(*args):
    means, variances = dense_components(*args)
    mean = means.mean(axis=0)
    return mean, variances.mean(axis=0) + np.mean((means - mean) ** 2, axis=0)


FORMS = pytest.mark.parametrize("form", ["rotated", "features"])


@FORMS
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("mean", [None, mean_function])
def test_predictions_are_those_of_the_mixture(form, residual, mean):
    mean = mean and mean()
    got = posterior(form, residual, mean)
    expected = dense_prediction(form, residual, mean)
    for one, other in zip(got.predict_f(inputs()), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)
    for one, other in zip(
        got.predict_y(inputs()), (expected[0], expected[1] + NOISE.mean()), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)


@FORMS
@pytest.mark.parametrize("mean", [None, mean_function])
def test_log_densities_are_those_of_the_mixture(form, mean):
    mean = mean and mean()
    Y_new = np.random.default_rng(5).normal(size=(M, P))
    means, variances = dense_components(form, True, mean)
    variances = variances + NOISE[:, None, None]
    terms = -0.5 * ((Y_new - means) ** 2 / variances + np.log(2 * np.pi * variances))
    expected = logsumexp(terms.sum(axis=2), axis=0) - np.log(S)
    got = posterior(form, True, mean).predict_log_density((inputs(), Y_new))
    np.testing.assert_allclose(got, expected, rtol=1e-8)


@FORMS
def test_blocks_of_rows_change_nothing(form, monkeypatch):
    got = posterior(form, mean=mean_function())
    Y_new = np.random.default_rng(5).normal(size=(M, P))
    whole = (*got.predict_f(inputs()), got.predict_log_density((inputs(), Y_new)))
    monkeypatch.setattr(draws, "_BLOCK", 20)  # two rows
    blocks = (*got.predict_f(inputs()), got.predict_log_density((inputs(), Y_new)))
    for one, other in zip(whole, blocks, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@FORMS
def test_it_compiles_for_any_number_of_rows(form):
    got = posterior(form, mean=mean_function())
    Y_new = np.random.default_rng(5).normal(size=(M, P))

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, D], tf.float64),
            tf.TensorSpec([None, P], tf.float64),
        ],
    )
    def compiled(X, Y):
        return (*got.predict_f(X), *got.predict_y(X), got.predict_log_density((X, Y)))

    eager = (
        *got.predict_f(inputs()),
        *got.predict_y(inputs()),
        got.predict_log_density((inputs(), Y_new)),
    )
    for one, other in zip(compiled(inputs(), Y_new), eager, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_unequal_probabilities():
    basis = Nystrom()
    rotated = rotation.rotate(sums_of(basis))
    values = tf.constant(NOISE), tf.constant(weights(basis))
    means, variances = rotation.coefficient_moments(rotated, *values)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    components = RotatedComponents(
        rotated, tf.constant(np.log(shares)), values[0], means, variances[..., None]
    )
    got = MixturePosterior(basis, components, residual=True)
    dense_means, dense_variances = dense_components("rotated")
    mean = np.einsum("s,smq->mq", shares, dense_means)
    variance = np.einsum("s,smq->mq", shares, dense_variances + (dense_means - mean) ** 2)
    np.testing.assert_allclose(got.predict_f(inputs())[0], mean, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(got.predict_f(inputs())[1], variance, rtol=1e-7)
    np.testing.assert_allclose(got.predict_y(inputs())[1], variance + shares @ NOISE, rtol=1e-7)


def test_from_a_quadrature():
    """Against samples of the same posterior, a few thousand."""
    basis = Nystrom(3)
    rotated = rotation.rotate(sums_of(basis))
    prior = type_one.Prior(
        type_one.lognormal_from_mode_variance(1.0, 100.0),
        type_one.lognormal_from_mode_variance(0.1, 0.04),
    )
    result = quadrature.quadrature(rotated, prior)
    exact = MixturePosterior(
        basis,
        RotatedComponents.integrated(rotated, result),
        residual=True,
        log_evidence=result.log_evidence,
    )
    assert exact.weights is None
    assert exact.acceptance is None
    np.testing.assert_array_equal(exact.log_evidence, result.log_evidence)
    start, scales = type_one.start_and_scales(prior, rotated, 40)
    target = type_one.log_posterior(rotated, prior)
    values, acceptance = sampling.sample(target, start, scales, num_samples=60)
    w, noise = type_one.weights_and_noise(values)
    sampled = MixturePosterior(
        basis,
        RotatedComponents.sampled(rotated, noise, w),
        residual=True,
        acceptance=acceptance,
    )
    np.testing.assert_array_equal(sampled.weights, w)
    np.testing.assert_array_equal(sampled.noise_variance, noise)
    np.testing.assert_array_equal(sampled.acceptance, acceptance)
    X_new = inputs()[:-1]
    for method in ("predict_f", "predict_y"):
        mean, variance = getattr(sampled, method)(X_new)
        expected = getattr(exact, method)(X_new)
        np.testing.assert_allclose(mean, expected[0], atol=0.02)
        np.testing.assert_allclose(variance, expected[1], rtol=0.06)
    # given the noise, Gaussians of the moments, by its definition
    Y_new = 0.5 * np.random.default_rng(5).normal(size=(M - 1, P))
    A = basis(X_new).numpy()
    R, left = A @ rotated.V.numpy(), 1.3 - np.sum(A**2, axis=1)
    variances = R**2 @ result.variances.numpy() + left[:, None] + result.noise[:, None, None]
    terms = (Y_new - R @ result.means.numpy()) ** 2 / variances + np.log(2 * np.pi * variances)
    terms = -0.5 * tf.reduce_sum(terms, axis=2)
    expected = logsumexp(result.log_weights[:, None] + terms, axis=0)
    np.testing.assert_allclose(exact.predict_log_density((X_new, Y_new)), expected, rtol=1e-9)


@pytest.mark.nightly
def test_samples_of_weights_on_features_agree_with_a_grid():
    basis = Nystrom(1)
    sums = sums_of(basis)
    prior = type_one.Prior(
        type_one.lognormal_from_mode_variance(1.0, 100.0),
        type_one.lognormal_from_mode_variance(0.3, 0.04),
    )
    start, scales = type_one.start_and_scales(prior, sums, 40)
    target = type_one.log_posterior(sums, prior)
    values, _ = sampling.sample(target, start, scales, num_samples=20)
    w, noise = type_one.weights_and_noise(values)
    got = MixturePosterior(basis, WeightedComponents(sums, noise, w), residual=False)
    (X, Y), X_new = data(), inputs()[:-1]
    _, mean, variance = oracle.brute_force(
        basis(X).numpy(),
        Y,
        basis(X_new).numpy(),
        prior.weights,
        prior.noise,
        np.linspace(-7, 7, 61),
        np.linspace(-7, 7, 61),
    )
    np.testing.assert_allclose(got.predict_f(X_new)[0], mean, atol=0.02)
    np.testing.assert_allclose(got.predict_f(X_new)[1], variance, rtol=0.06, atol=1e-4)


@FORMS
def test_later_changes_do_not_reach_it(form):
    basis, mean = Nystrom(), mean_function()
    got = posterior(form, mean=mean, basis=basis)
    before = got.predict_f(inputs())
    basis.kernel.lengthscales.assign([3.0, 3.0])
    mean.b.assign([9.0, 9.0])
    for one, other in zip(before, got.predict_f(inputs()), strict=True):
        np.testing.assert_array_equal(one, other)


def test_float32_features():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        basis = Nystrom()
        X, Y = (part.astype(np.float32) for part in data())
        sums = collapsed.row_sums(basis.features(X), Y, basis.kernel(X, full_cov=False))
        components = WeightedComponents(sums, tf.constant(NOISE), tf.constant(weights(basis)))
        got = MixturePosterior(basis, components, residual=True)
        mean, variance = got.predict_f(inputs())
        density = got.predict_log_density((inputs(), np.zeros((M, P))))
    assert mean.dtype == variance.dtype == density.dtype == tf.float32
    expected = dense_prediction("features")
    np.testing.assert_allclose(mean, expected[0], atol=2e-3)
    np.testing.assert_allclose(variance, expected[1], atol=2e-3)
    double = posterior("features").predict_log_density((inputs(), np.zeros((M, P))))
    np.testing.assert_allclose(density, double, atol=2e-3)


def test_refusals():
    got = posterior("rotated")
    with pytest.raises(ValueError, match="Xnew must be a matrix"):
        got.predict_f(np.zeros(D))
    with pytest.raises(ValueError, match=r"Xnew must have 2 column\(s\)"):
        got.predict_y(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="Xnew must be finite"):
        got.predict_f(np.full((3, D), np.nan))
    with pytest.raises(ValueError, match=r"Y must have 2 column\(s\)"):
        got.predict_log_density((inputs(), np.zeros((M, 1))))
    with pytest.raises(ValueError, match="same number of rows"):
        got.predict_log_density((inputs(), np.zeros((M + 1, P))))
    with pytest.raises(ValueError, match="Y must be finite"):
        got.predict_log_density((inputs(), np.full((M, P), np.inf)))
    basis = Nystrom()
    basis.is_projection = False
    with pytest.raises(ValueError, match="residual must be False for a Nystrom"):
        posterior("rotated", residual=True, basis=basis)
