"""SiteVGP: the optimum, predictions, cavities and gradients against dense algebra; doors."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32

import gpflow_sparse as gs
from gpflow_sparse.inference.calibration import log_probabilities
from gpflow_sparse.inference.gaussian_sites import Limits
from gpflow_sparse.kernels import table_kernel
from gpflow_sparse.likelihoods import BernoulliLogit, OneVersusRest, Softmax
from gpflow_sparse.models import SiteVGP
from gpflow_sparse.models.site_vgp.fitting import SiteBound
from tests.oracles import calibration
from tests.oracles import site_vgp as oracle

N, D = 8, 2


def inputs(rows=N, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, D))


def labels(rows=N):
    return (inputs(rows)[:, :1] + 0.4 * np.sin(5.0 * inputs(rows)[:, 1:]) > 0).astype(float)


def reals(rows=N):
    return np.sin(2.0 * inputs(rows)[:, :1])


def classes(rows=N):
    return np.arange(float(rows))[:, None] % 3


def kernel():
    return Matern32(variance=2.0, lengthscales=[0.8, 1.3])


def build(likelihood=None, Y=None, k=None, **options):
    likelihood = BernoulliLogit() if likelihood is None else likelihood
    return SiteVGP((inputs(), labels() if Y is None else Y), k or kernel(), likelihood, **options)


def counts():
    return gpflow.likelihoods.Poisson()


@pytest.mark.parametrize(
    ("likelihood", "log_prob"),
    [(BernoulliLogit, oracle.bernoulli_logit), (counts, oracle.poisson)],
)
def test_the_best_q_and_its_predictions_are_those_of_dense_algebra(likelihood, log_prob):
    model, K, y = build(likelihood()), kernel()(inputs()).numpy(), labels()[:, 0]
    assert model.fit_sites()
    m, precision = oracle.optimum(log_prob, K, y)
    wanted = oracle.bound(log_prob, K, y, m, oracle.covariance(K, precision))
    assert float(model.elbo()) == pytest.approx(wanted, abs=1e-8)
    new = inputs(5, seed=3)
    mean, var = model.predict_f(new)
    k = kernel()(inputs(), new).numpy()
    each = [oracle.predict(K, k[:, i], 2.0, m, precision) for i in range(len(new))]
    np.testing.assert_allclose(np.hstack([mean, var]), each, atol=1e-4)  # differences find m and V


def test_the_bound_of_any_sites_is_that_of_dense_algebra(rng):
    model, K = build(), kernel()(inputs()).numpy()
    precision, linear = rng.uniform(0.05, 2.0, size=(N, 1)), rng.normal(size=(N, 1))
    model.site_precision.assign(precision)
    model.site_linear.assign(linear)
    V = oracle.covariance(K, precision[:, 0])
    wanted = oracle.bound(oracle.bernoulli_logit, K, labels()[:, 0], V @ linear[:, 0], V)
    assert float(model.elbo()) == pytest.approx(wanted, rel=1e-10)
    left_out = np.hstack(model.leave_one_out_f())
    each = [oracle.cavity(K, precision[:, 0], linear[:, 0], i) for i in range(N)]
    np.testing.assert_allclose(left_out, each, rtol=1e-8)


@pytest.mark.parametrize(
    ("likelihood", "Y", "P"),
    [
        (BernoulliLogit, labels, 1),
        (lambda: gpflow.likelihoods.Gaussian(0.3), reals, 1),
        (lambda: gs.likelihoods.Laplace(0.4), reals, 1),
        (lambda: OneVersusRest(3), classes, 3),
        (lambda: Softmax(3), classes, 3),
    ],
)
def test_the_gradient_at_the_best_sites_equals_differences(likelihood, Y, P):
    """Of all hyperparameters, those of the likelihood and the mean function included."""
    mean = gpflow.functions.Linear(np.full((D, P), 0.3), np.full(P, 0.2))
    model = build(likelihood(), Y(), table_kernel(Matern32, D), mean_function=mean)
    bound, h = SiteBound(model, Limits(0.0, 300)), 1e-4
    vector = bound.parameters.get()
    _, gradient = bound(vector)
    # a wrong entry has the same effect on this direction as on its own
    direction = np.random.default_rng(2).choice([-1.0, 1.0], size=len(vector))
    low, high = (bound(vector + sign * h * direction)[0] for sign in (-1.0, 1.0))
    np.testing.assert_allclose(gradient @ direction, (high - low) / (2 * h), rtol=0, atol=2e-5)


def test_hyperparameters_end_at_a_mode_and_sites_start_again_from_the_last():
    model = build(k=table_kernel(Matern32, D, for_classes=True))
    before = float(model.elbo() + model.log_prior_density())
    found = model.fit_hyperparameters()
    assert found == pytest.approx(float(model.elbo()), abs=1e-8)
    bound = SiteBound(model, Limits(0.0, 300))
    value, gradient = bound(bound.parameters.get())
    assert np.abs(gradient).max() < 0.02
    assert value > before
    assert model.fit_sites(max_passes=20)


def test_hyperparameters_that_are_not_trainable_stay_as_they_are():
    smooth = gpflow.kernels.Matern32(lengthscales=9.0)  # so that noise is needed
    model = build(gpflow.likelihoods.Gaussian(0.3), labels(), smooth)
    gpflow.set_trainable(model.kernel, False)
    found = model.fit_hyperparameters()
    exact = gpflow.models.GPR(model.data, model.kernel)  # shares the kernel
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    assert found == pytest.approx(float(exact.log_marginal_likelihood()), abs=1e-3)
    noise, expected = (m.likelihood.variance.numpy() for m in (model, exact))
    assert noise == pytest.approx(expected, rel=0.02)
    model.likelihood.variance.assign(0.2)
    gpflow.set_trainable(model, False)
    assert model.fit_hyperparameters() == pytest.approx(float(model.elbo()), abs=1e-8)
    assert model.likelihood.variance.numpy() == pytest.approx(0.2)


def test_functions_drawn_have_the_moments_of_predictions():
    model = build(OneVersusRest(3), classes())
    model.fit_sites()
    new = inputs(3, seed=4)
    draws = model.posterior().sample_functions(8000, num_features=64, seed=0)(new).numpy()
    mean, var = (m.numpy() for m in model.predict_f(new))
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(var.max() / 8000))
    np.testing.assert_allclose(draws.var(0), var, rtol=0.12)


def test_the_temperature_is_that_of_brute_force_cavities():
    X = inputs(60)
    Y = (X[:, :1] + 0.8 * np.random.default_rng(5).normal(size=(60, 1)) > 0).astype(float)
    model = SiteVGP((X, Y), kernel(), BernoulliLogit())
    model.fit_sites()
    K, sites = kernel()(X).numpy(), model.sites()
    each = [oracle.cavity(K, *(np.ravel(part) for part in sites), i) for i in range(60)]
    mean, _ = model.likelihood.predict_mean_and_var(X, *np.array(each).T[..., None])
    plain = np.exp(log_probabilities(model.likelihood, mean))
    found = model.fit_temperature()
    wanted = calibration.best_temperature(plain, Y[:, 0].astype(int))
    assert found.temperature == pytest.approx(wanted, abs=1e-3)  # of the grid
    assert model.calibration is found


REFUSED = [
    (lambda: build(k=gpflow.kernels.SharedIndependent(kernel(), 2)), "kernel"),
    (lambda: build(Y=reals()), "Y must hold labels"),
    (lambda: build(num_latent_gps=2), "Y must have 2 column"),
    (lambda: SiteVGP((tf.Variable(inputs()), labels()), kernel(), BernoulliLogit()), "data"),
    (lambda: build(counts()).fit_temperature(), "likelihood must predict classes"),
    (lambda: build().fit_sites(max_passes=0), "max_passes"),
    (lambda: tf.function(build().fit_sites)(), "outside of tf.function"),
    (lambda: OneVersusRest(1), "num_classes"),
]


def test_arguments_that_do_not_fit_are_refused():
    for call, word in REFUSED:
        with pytest.raises(ValueError, match=word):
            call()


def test_a_likelihood_that_is_not_concave_is_said_not_to_converge():
    model = build(gpflow.likelihoods.MultiClass(3), classes())
    with pytest.warns(UserWarning, match="have not converged"):
        assert not model.fit_sites(max_passes=40)


@pytest.mark.parametrize("scale", [1.0, 3000.0])
def test_sites_of_counts_converge_in_few_passes(rng, scale):
    """From the prior they took a hundred, and those of thousands did not converge."""
    X = rng.normal(size=(60, 1))
    Y = rng.poisson(scale * np.exp(np.sin(2.0 * X))).astype(float)
    model = SiteVGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
    assert model.fit_sites(max_passes=20)
    mean, var = model.predict_f(X)
    rate = np.exp(mean + 0.5 * var)  # lambda = -2 dE/dv, and K^-1 m = dE/dm
    np.testing.assert_allclose(model.site_precision, rate, rtol=1e-5)
    K = model.kernel(X).numpy()
    np.testing.assert_allclose(K @ (Y - rate), mean, rtol=1e-4, atol=1e-5)
