"""Natural-gradient steps against GPflow's, and the schedule of the default Adam."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.numerics.linalg import FactorizationError
from gpflow_sparse.training import NaturalGradients, adam, natural_step

N, M, P = 15, 5, 2


def data(rng):
    X = rng.normal(size=(N, 1))
    return X, np.sin(2.0 * X) + 0.3 * rng.normal(size=(N, P))


def stock(rng, likelihood=None, whiten=True):
    return gpflow.models.SVGP(
        gpflow.kernels.Matern52(),
        likelihood or gpflow.likelihoods.Gaussian(0.2),
        np.linspace(-2.0, 2.0, M)[:, None],
        num_latent_gps=P,
        whiten=whiten,
        q_mu=rng.normal(size=(M, P)),
        q_sqrt=0.2 * np.tril(rng.normal(size=(P, M, M))) + np.eye(M),
    )


def one_step(model, pair, data, gamma):
    q_mu, q_sqrt = (tf.convert_to_tensor(q) for q in pair)
    variables = [q.unconstrained_variable for q in pair]
    with tf.GradientTape() as tape:
        loss = model.training_loss(data)
    grad_mu, grad_free = tape.gradient(loss, variables)
    return natural_step(q_mu, q_sqrt, grad_mu, pair[1].transform.forward(grad_free), gamma)


@pytest.mark.parametrize(
    ("likelihood", "whiten", "gamma"),
    [
        (gpflow.likelihoods.Gaussian, True, 1.0),
        (gpflow.likelihoods.Gaussian, False, 0.3),
        (gpflow.likelihoods.Poisson, True, 0.3),
        (gpflow.likelihoods.Poisson, False, 1.0),
    ],
)
def test_a_natural_step_equals_gpflows(rng, gamma, whiten, likelihood):
    """Two outputs, conjugate or not; GPflow's signs of the factor's columns are undone by S."""
    X, Y = data(rng)
    Y = np.round(np.exp(Y)) if likelihood is gpflow.likelihoods.Poisson else Y
    model = stock(rng, likelihood(), whiten)
    q_mu, q_sqrt = one_step(model, (model.q_mu, model.q_sqrt), (X, Y), gamma)
    before = model.q_mu.numpy()
    gpflow.optimizers.NaturalGradient(gamma).minimize(
        model.training_loss_closure((X, Y), compile=False), [(model.q_mu, model.q_sqrt)]
    )
    S = q_sqrt @ tf.linalg.matrix_transpose(q_sqrt)
    expected = model.q_sqrt @ tf.linalg.matrix_transpose(model.q_sqrt)
    np.testing.assert_allclose(q_mu, model.q_mu, atol=1e-8)
    np.testing.assert_allclose(S, expected, atol=1e-8)
    np.testing.assert_array_equal(q_sqrt, np.tril(q_sqrt))
    assert (tf.linalg.diag_part(q_sqrt) > 0).numpy().all()
    assert np.abs(model.q_mu - before).max() > 0.01


@pytest.mark.parametrize(
    ("signs", "whiten"), [(np.array([1.0, -1.0, -1.0, 1.0, -1.0]), True), (np.ones(M), False)]
)
def test_one_full_step_on_one_set_lands_on_the_collapsed_bound(rng, whiten, signs):
    """Also where Keras's optimizers left other signs of the columns of q_sqrt."""
    X, Y = data(rng)
    Y = Y[:, :1]
    Z = np.linspace(-2.0, 2.0, M)[:, None]
    model = SOLVEGP(
        gpflow.kernels.Matern52(),
        gpflow.likelihoods.Gaussian(0.2),
        OrthogonalInducingVariables(Z),
        whiten=whiten,
        q_mu=[rng.normal(size=(M, 1))],
        q_sqrt=[(0.2 * np.tril(rng.normal(size=(1, M, M))) + np.eye(M)) * signs],
    )
    NaturalGradients(1.0).minimize(model.training_loss_closure((X, Y), compile=False), model)
    collapsed = gpflow.models.SGPR((X, Y), model.kernel, Z, noise_variance=0.2)
    np.testing.assert_allclose(model.elbo((X, Y)), collapsed.elbo(), rtol=1e-8)
    for got, expected in zip(model.predict_f(X), collapsed.predict_f(X), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-7)


def test_gradients_that_are_not_finite_are_refused():
    q_mu, q_sqrt = tf.zeros((2, 1), tf.float64), tf.eye(2, batch_shape=[1], dtype=tf.float64)
    with pytest.raises(FactorizationError, match=r"precision after a natural-gradient step"):
        natural_step(q_mu, q_sqrt, q_mu, np.nan * q_sqrt, 1.0)


def two_sets(rng, sizes=(3, 5), whiten=True):
    """SOLVE-GP with a q away from its prior."""
    points = np.linspace(-2.0, 2.0, sum(sizes))[:, None]
    return SOLVEGP(
        gpflow.kernels.Matern52(),
        gpflow.likelihoods.Gaussian(0.2),
        OrthogonalInducingVariables(points[: sizes[0]], points[sizes[0] :]),
        num_latent_gps=P,
        whiten=whiten,
        q_mu=[rng.normal(size=(m, P)) for m in sizes],
        q_sqrt=[0.2 * np.tril(rng.normal(size=(P, m, m))) + np.eye(m) for m in sizes],
    )


def values(pairs):
    return [np.asarray(part) for pair in pairs for part in pair]


def deep(rng, X):
    def layer(outputs):
        return gs.models.GPLayer(gpflow.kernels.Matern52(), X[:4] + 0.01, num_latent_gps=outputs)

    likelihood = gpflow.likelihoods.Gaussian(0.2)
    return gs.models.DeepGP([layer(1), layer(P)], likelihood, num_data=N, seed=0)


def basis_svgp(rng, X):
    basis = gs.bases.RandomFourier(gpflow.kernels.SquaredExponential(), 6)
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    return gs.models.BasisSVGP(basis, likelihood, num_data=N, num_latent_gps=P)


def odvgp(rng, X):
    sets = OrthogonalInducingVariables(X[:4], X[4:7])
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    return gs.models.ODVGP(gpflow.kernels.Matern52(), likelihood, sets, num_latent_gps=P)


MODELS = {
    "svgp": lambda rng, X: stock(rng),
    "solvegp": lambda rng, X: two_sets(rng),
    "odvgp": odvgp,
    "basis_svgp": basis_svgp,
    "deep": deep,
}


def test_natural_gradients_refuse_what_they_cannot_move(rng):
    X, Y = data(rng)
    model, other = stock(rng), stock(rng)
    closure = model.training_loss_closure((X, Y), compile=False)
    diagonal = gpflow.models.SVGP(model.kernel, model.likelihood, X[:4], q_diag=True)
    before = values([(model.q_mu, model.q_sqrt)])
    for given, message in (
        (diagonal, r"natural gradients need a model with full covariances.*SVGP has none"),
        ([(diagonal.q_mu, diagonal.q_sqrt)], r"natural gradients need .*list has none"),
        ((model.q_mu, model.q_sqrt), r"or a list of pairs.*\[\(model.q_mu, model.q_sqrt\)\]"),
        ([], r"or a list of pairs.*list has none"),
        ([(other.q_mu, other.q_sqrt)], r"loss_closure must compute the loss from the q_mu"),
    ):
        with pytest.raises(ValueError, match=message):
            NaturalGradients().minimize(closure, given)
    with pytest.raises(FactorizationError, match="natural-gradient step"):
        NaturalGradients().minimize(lambda: np.nan * closure(), model)
    for mine, old in zip(values([(model.q_mu, model.q_sqrt)]), before, strict=True):
        np.testing.assert_array_equal(mine, old)
    for gamma in (-0.1, np.nan, True, "1"):
        with pytest.raises(ValueError, match="gamma must be a number of at least 0"):
            NaturalGradients(gamma)
    for optimizer in (NaturalGradients(), gpflow.optimizers.NaturalGradient(0.1)):
        with pytest.raises(ValueError, match=r"call gs\.training\.NaturalGradients\(gamma\)"):
            gs.training.fit(model, (X, Y), num_steps=1, optimizer=optimizer, progress=False)


def rate(optimizer, step):
    schedule = optimizer.get_config()["learning_rate"]
    return float(tf_keras.optimizers.schedules.deserialize(schedule)(step))


def test_the_rate_is_constant_or_decays_by_a_cosine_after_a_linear_warm_up():
    assert isinstance(adam(), tf_keras.optimizers.Adam)
    np.testing.assert_allclose(adam().learning_rate, 0.01, rtol=1e-6)
    optimizer = adam(0.1, decay_steps=100)
    for step in (0, 25, 50, 75, 100, 150):
        expected = 0.05 * (1.0 + np.cos(np.pi * min(step, 100) / 100))
        np.testing.assert_allclose(rate(optimizer, step), expected, atol=1e-8)  # float32 rates
    optimizer = adam(0.1, decay_steps=100, warmup_steps=20)
    for step, expected in ((0, 0.0), (10, 0.05), (20, 0.1), (60, 0.05), (100, 0.0)):
        np.testing.assert_allclose(rate(optimizer, step), expected, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup_steps": 5}, "warmup_steps needs decay_steps"),
        ({"warmup_steps": 5, "decay_steps": 5}, "warmup_steps must be below decay_steps=5, got 5"),
        ({"warmup_steps": -1, "decay_steps": 5}, "warmup_steps must be below decay_steps=5"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        adam(**options)
