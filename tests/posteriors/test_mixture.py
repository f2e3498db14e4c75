"""The mixture of type-I inference against the mixture of its samples in dense NumPy."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from gpflow_sparse.models import GRIEF
from tests.oracles import grief_type_one as oracle

N, D, M, S, P = 15, 2, 6, 4, 2
pytestmark = pytest.mark.filterwarnings("ignore:.*prior variance")


def data():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, D))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, P))


def inputs():
    X = np.random.default_rng(3).normal(size=(M, D))
    X[-1] += 10.0  # where the basis says nothing
    return X


def build(reweighted, objective="bound"):
    kernel = gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=[0.9, 1.4])
    mean = gpflow.functions.Linear(np.full((D, P), 0.2), np.array([0.5, -1.0]))
    return GRIEF(
        data(),
        kernel,
        num_eigenfunctions=5,
        points_per_dimension=4,
        reweighted=reweighted,
        objective=objective,
        mean_function=mean,
        noise_variance=0.2,
    )


@pytest.fixture(scope="module", params=["rotated", "original"])
def case(request):
    """A model, its mixture, and means and variances ``[S, M, P]`` of the components."""
    model = build(request.param, "bound" if request.param == "rotated" else "likelihood")
    mixture = model.sample_posterior(S, num_burnin=5, seed=4)
    (X, Y), X_new, mean = data(), inputs(), model.mean_function
    Phi, Phi_new = model.basis(X).numpy(), model.basis(X_new).numpy()
    left = 1.3 - np.sum(Phi_new**2, axis=1) if model.objective == "bound" else np.zeros(M)
    if request.param == "rotated":
        V = np.linalg.svd(Phi)[2].T
        Phi, Phi_new = Phi @ V, Phi_new @ V
    weights, noises = mixture.weights.numpy(), mixture.noise_variance.numpy()
    assert weights.shape == (S, 5)
    assert len(np.unique(noises)) > 1
    parts = [
        oracle.dense_predict(Phi, Y - mean(X), Phi_new, w, s)
        for w, s in zip(weights, noises, strict=True)
    ]
    means = np.stack([m + mean(X_new) for m, _ in parts])
    return model, mixture, means, np.stack([np.tile((v + left)[:, None], (1, P)) for _, v in parts])


def test_predictions_are_those_of_the_mixture(case):
    _, mixture, means, variances = case
    mean = means.mean(axis=0)
    var = variances.mean(axis=0) + np.mean((means - mean) ** 2, axis=0)
    compiled = tf.function(mixture.predict_f, autograph=False)
    for predict, extra in ((mixture.predict_f, 0.0), (compiled, 0.0), (mixture.predict_y, 1.0)):
        got = predict(tf.constant(inputs()))
        np.testing.assert_allclose(got[0], mean, rtol=1e-7, atol=1e-10)
        expected = var + extra * np.mean(mixture.noise_variance)
        np.testing.assert_allclose(got[1], expected, rtol=1e-7, atol=1e-10)


def test_log_densities_are_those_of_the_mixture(case):
    _, mixture, means, variances = case
    Y_new = np.random.default_rng(5).normal(size=(M, P))
    variances = variances + mixture.noise_variance.numpy()[:, None, None]
    terms = -0.5 * ((Y_new - means) ** 2 / variances + np.log(2 * np.pi * variances))
    expected = logsumexp(terms.sum(axis=2), axis=0) - np.log(S)
    got = mixture.predict_log_density((inputs(), Y_new))
    np.testing.assert_allclose(got, expected, rtol=1e-8)


def test_a_mixture_keeps_its_own_components(case):
    model, mixture, *_ = case
    before = mixture.predict_f(inputs())
    model.mean_function.b.assign([9.0, 9.0])
    for one, other in zip(before, mixture.predict_f(inputs()), strict=True):
        np.testing.assert_array_equal(one, other)
