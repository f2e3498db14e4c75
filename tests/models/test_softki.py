"""SoftKI against dense regression with the kernel ``W (K + jitter) W^T``."""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.models import BasisSVGP, SoftKI
from tests.models.held import KINDS, held_in
from tests.oracles import softki as oracle

N, M, D, NOISE = 30, 7, 2, 0.05
VARIANCE, LENGTHSCALES, TEMPERATURE = 1.7, np.array([0.7, 1.4]), 0.4
TIED = {"temperature": TEMPERATURE, "tied": True}


def inputs(rows=N, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, D))


def data(rows=N, P=1):
    X = inputs(rows)
    phases = np.arange(P)
    noise = np.random.default_rng(2).normal(size=(rows, P))
    return X, np.sin(2.0 * X[:, :1] + phases) + 0.2 * noise


def kernel():
    return gpflow.kernels.Matern32(variance=VARIANCE, lengthscales=LENGTHSCALES)


def points():
    return inputs(M, seed=8)


def slope(P=1):
    return gpflow.functions.Linear(np.full((D, P), 0.3), np.linspace(-0.2, 0.1, P))


def prior_mean(X, P=1):
    return X @ np.full((D, P), 0.3) + np.linspace(-0.2, 0.1, P)


def build(P=1, mean=False, noise=NOISE, **options):
    return SoftKI(
        kernel(),
        points(),
        noise_variance=noise,
        num_latent_gps=P,
        mean_function=slope(P) if mean else None,
        **{**TIED, **options},
    )


def fitted(P=1, mean=False, **options):
    model = build(P, mean, **options)
    model.fit_posterior(data(P=P), refit_noise=False)
    return model


def whitened(X):
    """``B = W L`` by the oracle."""
    W = oracle.weights(X, points(), TEMPERATURE * LENGTHSCALES)
    K = oracle.with_jitter(oracle.matern32(points(), points(), VARIANCE, LENGTHSCALES), 1e-6)
    return oracle.whitened(W, K)


def dense_posterior(Xnew, P=1, mean=False, noise=NOISE):
    """Mean and covariance of f by n x n algebra."""
    X, Y = data(P=P)
    B, B_new = whitened(X), whitened(Xnew)
    errors = Y - prior_mean(X, P) if mean else Y
    f, cov = oracle.predict(B @ B.T, B_new @ B.T, B_new @ B_new.T, errors, noise)
    return f + (prior_mean(Xnew, P) if mean else 0.0), cov


def value_and_gradients(model, rows):
    with tf.GradientTape() as tape:
        value = model.training_loss(rows)
    variables = model.trainable_variables
    return value, tape.gradient(value, variables)


# The objective.


@pytest.mark.parametrize(("P", "mean"), [(1, False), (3, True)])
def test_the_objective_is_the_dense_log_density(P, mean):
    model, (X, Y) = build(P, mean), data(P=P)
    B = whitened(X)
    errors = Y - prior_mean(X, P) if mean else Y
    expected = oracle.log_density_dense(B @ B.T, errors, NOISE)
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-9)
    np.testing.assert_allclose(model.maximum_log_likelihood_objective((X, Y)), expected, rtol=1e-9)
    np.testing.assert_allclose(model.training_loss((X, Y)), -expected, rtol=1e-9)
    for compile in (False, True):
        closure = model.training_loss_closure((X, Y), compile=compile)
        np.testing.assert_allclose(closure(), -expected, rtol=1e-9)


OPTIONS = {"tied": TIED, "columns": {"temperature": [0.3, 0.6], "tied": False}}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_gradients_are_those_of_stock_regression_with_its_kernel(options):
    """Z, temperature, lengthscales, variance, mean function and noise."""
    model, rows = build(2, True, **options), data(P=2)
    stock = gpflow.models.GPR(
        rows, model.kernel, mean_function=model.mean_function, likelihood=model.likelihood
    )
    variables = model.trainable_variables
    assert len(variables) == 7
    with tf.GradientTape(persistent=True) as tape:
        losses = model.training_loss(rows), stock.training_loss()
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-9)
    for variable in variables:
        ours, theirs = (tape.gradient(loss, variable) for loss in losses)
        assert np.abs(theirs).max() > 1e-6
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8 * float(np.abs(theirs).max()))


def test_a_minibatch_counts_for_all_rows_and_is_a_composite_likelihood():
    X, Y = data(P=2)
    model = build(2, num_data=N)
    B = whitened(X)
    total = 0.0
    for start in range(0, N, 10):
        part = slice(start, start + 10)
        alone = oracle.log_density_dense(B[part] @ B[part].T, Y[part], NOISE)
        np.testing.assert_allclose(model.elbo((X[part], Y[part])), 3.0 * alone, rtol=1e-9)
        total += alone
    whole = float(model.elbo((X, Y)))
    np.testing.assert_allclose(whole, oracle.log_density_dense(B @ B.T, Y, NOISE), rtol=1e-9)
    assert abs(total - whole) > 1.0
    # nor is it unbiased over all batches of two rows
    X, Y, B = X[:5], Y[:5], B[:5]
    model.num_data = 5
    batches = [list(part) for part in itertools.combinations(range(5), 2)]
    average = np.mean([float(model.elbo((X[part], Y[part]))) for part in batches])
    assert abs(average - oracle.log_density_dense(B @ B.T, Y, NOISE)) > 0.5


def test_probes_are_drawn_anew_at_every_call():
    rows, model = data(), build(objective="pseudo")
    exact = value_and_gradients(build(), rows)[1]
    call = tf.function(lambda: value_and_gradients(model, rows), autograph=False)
    value, first = call()
    np.testing.assert_allclose(value, build().training_loss(rows), rtol=1e-10)
    drawn = [call()[1] for _ in range(100)]
    differences = [np.abs(a - b).max() for a, b in zip(first, drawn[0], strict=True)]
    assert max(differences) > 1e-3
    for k, slope in enumerate(exact):
        each = np.array([np.asarray(part[k]) for part in drawn])
        error = each.std(axis=0) / np.sqrt(len(drawn))
        assert (np.abs(each.mean(axis=0) - slope) < 4.5 * error + 1e-9).all()


# The posterior.


@pytest.mark.parametrize(("P", "mean"), [(1, False), (3, True)])
def test_predictions_are_those_of_dense_regression(P, mean):
    model, Xnew = fitted(P, mean), inputs(6, seed=4)
    f, cov = dense_posterior(Xnew, P, mean)
    for predict in (model.predict_f, model.posterior().predict_f):
        got, var = predict(Xnew)
        np.testing.assert_allclose(got, f, atol=1e-9)
        np.testing.assert_allclose(var, np.repeat(np.diag(cov)[:, None], P, 1), atol=1e-9)
        got, full = predict(Xnew, full_cov=True)
        np.testing.assert_allclose(got, f, atol=1e-9)
        np.testing.assert_allclose(full, np.repeat(cov[None], P, 0), atol=1e-9)
    got, var = model.predict_y(Xnew)
    spread = np.diag(cov)[:, None] + NOISE
    np.testing.assert_allclose(got, f, atol=1e-9)
    np.testing.assert_allclose(var, np.repeat(spread, P, 1), atol=1e-9)
    Ynew = data(6, P)[1]
    density = -0.5 * (np.log(2.0 * np.pi * spread) + (Ynew - f) ** 2 / spread)
    np.testing.assert_allclose(
        model.predict_log_density((Xnew, Ynew)), density.sum(axis=1), rtol=1e-8
    )
    variances = model.predict_f(100.0 * Xnew)[1].numpy()
    prior = np.sum(model.basis(100.0 * Xnew).numpy() ** 2, axis=1)[:, None]
    assert (variances >= 0.0).all()
    assert (variances <= prior + 1e-12).all()


def test_the_weights_are_those_of_the_whitened_qr():
    model, (X, Y) = fitted(2), data(P=2)
    R, v = oracle.whitened_qr(whitened(X), Y, NOISE)
    np.testing.assert_allclose(
        R.T @ R, np.eye(M) + whitened(X).T @ whitened(X) / NOISE, rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(model.weights.q_mu, v, rtol=1e-8, atol=1e-9)
    S = np.linalg.inv(R.T @ R)
    q_sqrt = model.weights.q_sqrt.numpy()
    np.testing.assert_allclose(q_sqrt @ q_sqrt.T, S, rtol=1e-8, atol=1e-11)
    np.testing.assert_array_equal(q_sqrt, np.tril(q_sqrt))


# Passes over rows.


@pytest.mark.parametrize(
    ("kind", "refit_noise"), [*((kind, True) for kind in KINDS), (KINDS[0], False)]
)
def test_rows_may_come_in_any_blocks(tmp_path, kind, refit_noise):
    rows, found = data(P=2), []
    for source in (rows, held_in(kind, rows, tmp_path)):
        model = build(2, True)
        model.fit_posterior(source, refit_noise=refit_noise)
        found.append([*model.predict_f(inputs(6, seed=4)), model.likelihood.variance])
    # the search for the noise ends anywhere within its tolerance
    tolerance = 1e-5 if refit_noise else 1e-10
    for got, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("P", "trainable"), [(1, False), (3, True)])
def test_the_refitted_noise_has_the_highest_evidence(P, trainable):
    model, (X, Y) = build(P, True, noise=1e-3), data(P=P)
    gpflow.set_trainable(model.likelihood.variance, trainable)
    before = float(model.elbo((X, Y)))
    model.fit_posterior((X, Y), refit_noise=True)
    best = float(model.likelihood.variance.numpy())
    B, errors = whitened(X), Y - prior_mean(X, P)
    values = np.exp(np.linspace(np.log(1e-3), np.log(1.0), 2001))
    dense = [oracle.log_density_dense(B @ B.T, errors, value) for value in values]
    np.testing.assert_allclose(np.log(best), np.log(values[np.argmax(dense)]), atol=5e-3)
    np.testing.assert_allclose(model.elbo((X, Y)), max(dense), atol=1e-4)
    assert float(model.elbo((X, Y))) > before + 10.0
    assert bool(model.likelihood.variance.trainable) == trainable
    f, cov = dense_posterior(inputs(6, seed=4), P, True, best)
    got, var = model.predict_f(inputs(6, seed=4))
    np.testing.assert_allclose(got, f, atol=1e-8)
    np.testing.assert_allclose(var[:, 0], np.diag(cov), atol=1e-8)


@pytest.mark.parametrize("size", [0.8, 1.0, 1.2, 1.5])
def test_the_highest_of_two_maxima_is_found(size):
    """
    Ten rows have a point each, and errors larger than their functions are; ten others share one,
    and have tiny errors: one maximum fits the ones, another the others.
    """
    Z = np.arange(11.0)[:, None]
    X = np.concatenate([Z[:10], np.repeat(Z[10:], 10, axis=0)])
    signs = np.where(np.arange(10) % 2, -1.0, 1.0)[:, None]
    Y = np.concatenate([np.sqrt(size) * signs, 0.01 * signs])
    kernel = gpflow.kernels.Matern32(variance=0.1, lengthscales=0.05)
    model = SoftKI(kernel, Z, temperature=0.02)
    B = model.basis(X).numpy()
    model.fit_posterior((X, Y), refit_noise=True)
    values = np.exp(np.linspace(np.log(1e-5), np.log(np.mean(Y**2)), 2001))
    dense = np.array([oracle.log_density_dense(B @ B.T, Y, value) for value in values])
    peaks = np.flatnonzero((dense[1:-1] > dense[:-2]) & (dense[1:-1] > dense[2:])) + 1
    assert len(peaks) == 2
    best = float(model.likelihood.variance.numpy())
    assert (best > 0.01) == (dense[peaks[1]] > dense[peaks[0]])
    assert oracle.log_density_dense(B @ B.T, Y, best) >= dense.max() - 1e-6


# The bound over the weights, which batches do not bias.


def uncollapsed(model, num_data=None):
    q_sqrt = tf.repeat(model.weights.q_sqrt[None], model.num_latent_gps, axis=0)
    return BasisSVGP(
        model.basis,
        gpflow.likelihoods.Gaussian(NOISE),
        mean_function=model.mean_function,
        num_latent_gps=model.num_latent_gps,
        q_mu=model.weights.q_mu,
        q_sqrt=q_sqrt,
        num_data=num_data,
    )


def test_the_bound_over_the_weights_is_unbiased_under_batches():
    """Of 2 of 5 rows, at any q."""
    X, Y = (part[:5] for part in data(P=2))
    model = fitted(2)
    bound = uncollapsed(model, num_data=5)
    bound.q_mu.assign(bound.q_mu + 0.3)
    batches = [list(part) for part in itertools.combinations(range(5), 2)]
    values = [float(bound.elbo((X[part], Y[part]))) for part in batches]
    np.testing.assert_allclose(np.mean(values), bound.elbo((X, Y)), rtol=1e-9)
    S = model.weights.q_sqrt.numpy() @ model.weights.q_sqrt.numpy().T
    expected = oracle.elbo(whitened(X), Y, NOISE, bound.q_mu.numpy(), S, batches[4], 5)
    np.testing.assert_allclose(values[4], expected, rtol=1e-9)


# float32.


def ill_conditioned(columns=2, size=64, rows=500):
    """Points so close for their lengthscale that ``cond Kzz`` is 10^10 and more."""
    rng = np.random.default_rng(11)
    X, Z, Xnew = (
        rng.normal(size=(count, columns)).astype(np.float32) for count in (rows, size, 50)
    )
    Y = np.sin(2.0 * X[:, :1]) * np.cos(X[:, 1:2]) + 0.03 * rng.normal(size=(rows, 1))
    Y = (Y / Y.std()).astype(np.float32)
    return [part.astype(float) for part in (X, Z, Xnew, Y)]


def slopes_by_name(dtype, X, Y, Z, temperature, noise):
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        model = SoftKI(
            gpflow.kernels.Matern32(lengthscales=np.full(X.shape[1], 0.8)),
            Z,
            temperature=temperature,
            tied=True,
            noise_variance=noise,
        )
        model.jitter = 1e-4
        value, slopes = value_and_gradients(model, (X, Y))
    return float(value), [np.asarray(slope, float) for slope in slopes]


@pytest.mark.parametrize(
    ("columns", "temperature", "noise"), [(2, 0.2, 1e-3), (10, 1.0, 1e-3), (10, 0.2, 1e-1)]
)
def test_float32_trains_with_the_gradient_of_float64(columns, temperature, noise):
    X, Z, _, Y = ill_conditioned(columns)
    value, exact = slopes_by_name(np.float64, X, Y, Z, temperature, noise)
    single, slopes = slopes_by_name(np.float32, X, Y, Z, temperature, noise)
    np.testing.assert_allclose(single, value, rtol=1e-5)
    norm = np.sqrt(sum(np.sum(part**2) for part in exact))
    error = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(exact, slopes, strict=True)))
    assert error / norm < 1e-4
    for part, slope in zip(exact, slopes, strict=True):
        assert np.linalg.norm(slope - part) < 1e-3 * np.linalg.norm(part) + 1e-5 * norm


# Doors.


DOORS = ["predict_f", "predict_y", "predict_f_samples", "posterior"]


def test_it_predicts_nothing_before_it_is_fitted():
    for door in DOORS:
        model = build()
        with pytest.raises(ValueError, match=r"no posterior yet: call fit_posterior\(\(X, Y\)\)"):
            getattr(model, door)(*([] if door == "posterior" else [inputs(3)]))


def change_noise(model):
    model.likelihood.variance.assign(0.2)


CHANGES = {
    "points": lambda model: model.basis.Z.assign(model.basis.Z + 0.1),
    "temperature": lambda model: model.basis.temperature.assign(0.5),
    "variance": lambda model: model.basis.kernel.variance.assign(1.9),
    "lengthscales": lambda model: model.basis.kernel.lengthscales.assign([0.5, 0.6]),
    "noise": change_noise,
    "mean": lambda model: model.mean_function.A.assign([[1.0], [0.0]]),
    "other mean": lambda model: setattr(model, "mean_function", gpflow.functions.Constant(5.0)),
    "other kernel": lambda model: setattr(
        model.basis, "kernel", gpflow.kernels.Matern52(VARIANCE, LENGTHSCALES)
    ),
    "jitter": lambda model: setattr(model, "jitter", 0.1),
}


def test_it_predicts_nothing_after_a_change():
    for change in CHANGES.values():
        model = fitted(mean=True)
        posterior = model.posterior()
        before = posterior.predict_f(inputs(3))[0].numpy()
        change(model)
        for stale in (model, gpflow.utilities.freeze(model)):
            with pytest.raises(ValueError, match="have changed since fit_posterior"):
                stale.predict_f(inputs(3))
        model.fit_posterior(data(), refit_noise=False)
        assert np.abs(model.predict_f(inputs(3))[0] - before).max() > 1e-4


class Weighted(gpflow.functions.MeanFunction):
    """A mean with constants in a tensor and, under a private name, an array."""

    def __init__(self):
        super().__init__()
        self.weights, self._offset = tf.constant([[0.3], [0.2]], tf.float64), np.array([0.1])

    def __call__(self, X):
        return tf.linalg.matmul(X, self.weights) + self._offset


# Attributes of the model below that are not variables, with other values.
OTHER_SETTINGS = {
    "active columns": lambda m: (m.basis.kernel, "active_dims", [1, 0]),
    "columns of a part": lambda m: (m.basis.kernel.kernels[1], "active_dims", [0]),
    "tensor": lambda m: (m.mean_function, "weights", tf.constant([[0.2], [0.3]], tf.float64)),
    "private array": lambda m: (m.mean_function, "_offset", np.array([0.2])),
}


def test_it_predicts_nothing_after_a_change_of_constants_or_of_the_default_jitter():
    part = gpflow.kernels.RBF(active_dims=[1])
    model = SoftKI(kernel() * part, points(), mean_function=Weighted())
    model.fit_posterior(data(), refit_noise=False)
    copied = gpflow.utilities.deepcopy(model)
    before = model.predict_f(inputs(3))[0].numpy()
    for other in OTHER_SETTINGS.values():
        owner, name, value = other(model)
        old = getattr(owner, name)
        setattr(owner, name, value)
        with pytest.raises(ValueError, match=r"settings .* have changed since fit_posterior"):
            model.predict_f(inputs(3))
        setattr(owner, name, old)
    jitter = gpflow.config.as_context(gpflow.config.Config(jitter=1e-3))
    with jitter, pytest.raises(ValueError, match="jitter, have changed since fit_posterior"):
        model.predict_f(inputs(3))
    for same in (model, copied):
        np.testing.assert_array_equal(same.predict_f(inputs(3))[0], before)


def test_an_interrupted_fit_of_the_posterior_leaves_none(monkeypatch):
    model = fitted()
    monkeypatch.setattr(model.weights.q_sqrt, "assign", interrupt)
    X, Y = data()
    with pytest.raises(KeyboardInterrupt):
        model.fit_posterior((X, 2.0 * Y), refit_noise=False)
    with pytest.raises(ValueError, match="no posterior yet"):
        model.predict_f(inputs(3))


def interrupt(*_):
    raise KeyboardInterrupt
