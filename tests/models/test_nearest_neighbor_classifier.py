"""GPnn for classes: observations, predictions and leave-one-out densities against inverses."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference.dirichlet import dirichlet_observations
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.models import NearestNeighborClassifier
from gpflow_sparse.models.nearest_neighbor.classifier import _LogDensity
from tests.oracles import dirichlet as oracle
from tests.oracles.solvegp import matern52
from tests.oracles.swsgp import with_lengthscales

SCALES, VARIANCE, EPS, N, H, C = np.array([0.7, 1.9]), 2.4, 0.05, 30, 6, 3
k = with_lengthscales(matern52, VARIANCE, SCALES)
MEANS = np.array([-1.0, -2.0, 0.5])


def rows(repeats=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    if repeats:
        X[20:] = X[:10]
        X[29] = X[0]
    return X, rng.integers(0, C, size=(N, 1)).astype(float)


def build(repeats=False, **options):
    model = NearestNeighborClassifier(
        rows(repeats),
        gpflow.kernels.Matern52(VARIANCE, SCALES),
        C,
        **{
            "num_neighbors": H,
            "mean_function": gpflow.functions.Constant(MEANS),
            **options,
        },
    )
    model.concentration.assign(EPS)
    return model


def test_labels_are_the_observations_of_the_paper():
    labels = np.array([0, 2, 1])
    found = dirichlet_observations(tf.constant(labels), C, tf.constant(EPS, tf.float64))
    for i, label in enumerate(labels):
        wanted = np.array([oracle.observation(label, c, EPS) for c in range(C)]).T
        np.testing.assert_allclose([part[i] for part in found], wanted, rtol=1e-12)


def test_predictions_are_those_of_one_gp_for_each_row_and_class():
    (X, Y), new = rows(), np.random.default_rng(1).normal(size=(7, 2))
    wanted = [
        oracle.moments(k, X, Y[:, 0], x, oracle.nearest(X, x, H, SCALES), MEANS, EPS) for x in new
    ]
    model = build()
    for predict in (model.predict_f, model.posterior().predict_f):
        np.testing.assert_allclose(np.stack(predict(new), axis=1), wanted, rtol=1e-9)
    P, _ = model.predict_y(new)
    np.testing.assert_allclose(P.numpy().sum(axis=1), 1.0, rtol=1e-12)
    several = build(repeats=True, num_neighbors=N)
    X, Y = rows(repeats=True)
    wanted = [oracle.moments(k, X, Y[:, 0], x, np.arange(N), MEANS, EPS) for x in new]
    np.testing.assert_allclose(np.stack(several.predict_f(new), axis=1), wanted, rtol=1e-8)


@pytest.mark.parametrize("repeats", [False, True])
def test_the_objective_leaves_each_row_out(repeats):
    X, Y = rows(repeats)
    model = build(repeats)
    wanted = [oracle.left_out(k, X, Y[:, 0], i, H, SCALES, MEANS, EPS) for i in range(N)]
    mean, var = np.stack(wanted, axis=1)
    each = model.likelihood.predict_log_density(X, mean, var, tf.cast(Y, tf.int64))
    found = model.leave_one_out_log_density()
    assert float(found) == pytest.approx(float(tf.reduce_sum(each)), rel=1e-7)
    closure = model.training_loss_closure()
    assert float(closure()) == pytest.approx(-float(found), rel=1e-12)


def test_the_gradient_equals_differences_and_fitting_raises_the_objective():
    model = build(repeats=True)
    parameters, h = LogParameters(model.trainable_parameters), 1e-5
    density = _LogDensity(model, parameters)
    vector = parameters.get()
    _, gradient = density(vector)
    # a wrong entry has the same effect on this direction as on its own
    direction = np.random.default_rng(2).choice([-1.0, 1.0], size=len(vector))
    low, high = (density(vector + sign * h * direction)[0] for sign in (-1.0, 1.0))
    np.testing.assert_allclose(gradient @ direction, (high - low) / (2 * h), rtol=1e-5, atol=1e-6)
    parameters.assign(vector)
    before = float(model.leave_one_out_log_density())
    assert model.fit_hyperparameters() > before + 1.0
    with pytest.warns(UserWarning, match="no time was left for the search for hyperparameters"):
        assert model.fit_hyperparameters(seconds=0.0) > before


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: build().elbo(), "no elbo"),
        (lambda: build(num_neighbors=0), "num_neighbors"),
        (lambda: NearestNeighborClassifier(rows(), gpflow.kernels.Matern52(), 2), "Y must hold"),
        (lambda: tf.function(build().fit_hyperparameters)(), "outside of tf.function"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()
