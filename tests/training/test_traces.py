"""Traces of steps that models with the same structure share."""

import gc
import weakref

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.training import traces

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(60, 1))


def solvegp(shift=0.0, kernel=gpflow.kernels.Matern52, **options):
    sets = gs.inducing_variables.OrthogonalInducingVariables(X[:5] + shift, X[5:9])
    likelihood = gpflow.likelihoods.Gaussian(0.1 + shift)
    return gs.models.SOLVEGP(
        kernel(lengthscales=[1.0 + shift, 1.0]), likelihood, sets, **{"num_data": 60, **options}
    )


def fit(
    model, *, rate=0.01, decay_steps=10, batch_size=20, gamma=True, num_steps=4, Y=Y, **options
):
    return gs.training.fit(
        model,
        (X, Y),
        optimizer=gs.training.adam(rate, decay_steps=decay_steps),
        num_steps=num_steps,
        batch_size=batch_size,
        natural_gradients=gamma,
        progress=False,
        **options,
    ).elbo


@pytest.fixture
def count_traces(monkeypatch):
    """A function that counts the evaluations of the objective in Python, one for each trace."""
    calls, original = [], gpflow.likelihoods.Gaussian._variational_expectations

    def counted(self, *arguments):
        calls.append(self)
        return original(self, *arguments)

    monkeypatch.setattr(gpflow.likelihoods.Gaussian, "_variational_expectations", counted)
    return lambda: len(calls)


@pytest.mark.parametrize("decay_steps", [None, 10])
def test_a_second_model_is_not_traced_and_ends_with_the_same_bits(decay_steps, count_traces):
    fit(solvegp(), decay_steps=decay_steps)
    first = count_traces()
    shared, traced = solvegp(0.1), solvegp(0.1)
    elbo = fit(shared, decay_steps=decay_steps)
    assert count_traces() == first
    traces._KEPT.clear()
    np.testing.assert_array_equal(elbo, fit(traced, decay_steps=decay_steps))
    assert count_traces() > first
    for name, value in gpflow.utilities.parameter_dict(traced).items():
        np.testing.assert_array_equal(value, gpflow.utilities.parameter_dict(shared)[name])


def test_a_second_fit_of_a_model_with_other_rows_is_not_traced(count_traces):
    model = solvegp()
    fit(model)
    first = count_traces()
    elbo = fit(model, Y=Y + 1.0)
    assert count_traces() == first
    traces._KEPT.clear()
    again = solvegp()
    fit(again)
    traces._KEPT.clear()
    np.testing.assert_array_equal(elbo, fit(again, Y=Y + 1.0))


def frozen():
    model = solvegp()
    gpflow.set_trainable(model.kernel.variance, False)
    return model


def jittered():
    model = solvegp()
    model.jitter = 1e-3
    return model


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda: solvegp(mean_function=gpflow.functions.Constant(1.0)), {}),
        (lambda: solvegp(kernel=gpflow.kernels.Matern32), {}),
        (lambda: solvegp(bound="log"), {}),
        (frozen, {}),
        (jittered, {}),
        (solvegp, {"rate": 0.02}),
        (solvegp, {"batch_size": 10}),
        (solvegp, {"gamma": 0.2}),
        (solvegp, {"gamma": False}),
        (solvegp, {"precision": "mixed"}),
    ],
)
def test_a_step_that_differs_is_traced(make, options, count_traces):
    fit(solvegp())
    first = count_traces()
    elbo = fit(make(), **options)
    assert count_traces() > first
    traces._KEPT.clear()
    np.testing.assert_array_equal(elbo, fit(make(), **options))


class OwnKernel(gpflow.kernels.Matern52):
    """A class whose code may change between two fits."""


def test_models_with_classes_of_the_user_and_stateful_draws_are_not_shared():
    fit(solvegp(kernel=OwnKernel))
    assert not traces._KEPT
    classes = gpflow.likelihoods.Softmax(2)
    sets = gs.inducing_variables.OrthogonalInducingVariables(X[:5], X[5:9])
    kernel = gpflow.kernels.Matern52()
    model = gs.models.SOLVEGP(kernel, classes, sets, num_latent_gps=2, num_data=60)
    fit(model, Y=(Y > 0).astype(int), gamma=False)
    assert not traces._KEPT


def test_kept_traces_do_not_keep_models_and_are_few():
    for seed in range(traces._MOST_KEPT + 2):
        model = solvegp(num_data=60)
        fit(model, rate=0.01 + 0.001 * seed, num_steps=1)
    assert len(traces._KEPT) == traces._MOST_KEPT
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
