"""Traces of steps that models with the same structure share."""

import gc
import threading
import weakref

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_sparse as gs
from gpflow_sparse.numerics.tracing import compiled
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


@pytest.mark.nightly
def test_kept_traces_do_not_keep_models_and_are_few():
    for seed in range(traces._MOST_KEPT + 2):
        model = svgp()
        fit(model, rate=0.01 + 0.001 * seed, num_steps=1, gamma=False)
    assert len(traces._KEPT) == traces._MOST_KEPT
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def svgp(kernel=gpflow.kernels.SquaredExponential):
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gpflow.models.SVGP(kernel(), likelihood, X[:3].copy(), num_data=60)


KERAS = pytest.mark.parametrize("package", [tf_keras, keras], ids=["tf_keras", "keras"])


def constant(package, rate, **methods):
    """A schedule whose rate is not in its settings, of a class that looks like one of Keras."""
    base = package.optimizers.schedules.LearningRateSchedule
    methods = {"__call__": lambda self, step: rate, **methods}
    return type("CosineDecay", (base,), {"__module__": base.__module__, **methods})()


@KERAS
@pytest.mark.parametrize("methods", [{}, {"get_config": lambda self: {}}], ids=["none", "empty"])
def test_schedules_without_settings_are_not_shared(package, methods):
    def elbo(rate):
        optimizer = package.optimizers.Adam(constant(package, rate, **methods))
        return gs.training.fit(
            svgp(), (X, Y), optimizer=optimizer, num_steps=3, progress=False
        ).elbo

    first, second = elbo(0.01), elbo(0.1)
    traces._KEPT.clear()
    np.testing.assert_array_equal(second, elbo(0.1))
    assert abs(second[2] - first[2]) > 0.1


def without_decay(package, model, **options):
    optimizer = package.optimizers.AdamW(0.01)
    optimizer.exclude_from_weight_decay(**options)
    return optimizer


def with_attribute(package, name, value):
    optimizer = package.optimizers.Adam(0.01)
    object.__setattr__(optimizer, name, value)
    return optimizer


@KERAS
@pytest.mark.parametrize(
    "make",
    [
        lambda package, model: without_decay(package, model, var_list=model.trainable_variables),
        lambda package, model: without_decay(package, model, var_names=["Variable"]),
        lambda package, model: with_attribute(package, "update_step", lambda *_: None),
        lambda package, model: with_attribute(package, "_clip_gradients", lambda grads: grads),
        lambda package, model: with_attribute(package, "mine", {"a": 1}),
        lambda package, model: type("Adam", (package.optimizers.Adam,), {})(0.01),
        lambda package, model: keras.optimizers.Adam(lambda: 0.01),
        lambda package, model: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
        lambda package, model: tf_keras.optimizers.legacy.Adam(0.01),
        lambda package, model: gs.training.SparseAdagrad(0.01),
    ],
)
def test_optimizers_that_cannot_be_compared_are_not_shared(package, make):
    model = svgp()
    assert traces.key_of(model, package.optimizers.AdamW(0.01), []) is not None
    assert traces.key_of(model, make(package, model), []) is None


@KERAS
@pytest.mark.parametrize(
    "options",
    [
        {"beta_1": 0.5},
        {"epsilon": 1e-3},
        {"weight_decay": 0.1},
        {"clipnorm": 1.0},
        {"clipvalue": 1.0},
        {"global_clipnorm": 1.0},
        {"use_ema": True},
        {"amsgrad": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_all_settings_of_an_optimizer_are_in_the_key(package, options):
    model = svgp()

    def key(**options):
        optimizer = package.optimizers.Adam(0.01, **options)
        optimizer.build(model.trainable_variables)
        return traces.key_of(model, optimizer, [])

    assert key() == key() != key(**options) is not None
    later = package.optimizers.Adam(0.01)
    later.build(model.trainable_variables)
    ((name, value),) = options.items()
    object.__setattr__(later, name, value)
    assert traces.key_of(model, later, []) != key()


@KERAS
def test_all_settings_of_a_schedule_are_in_the_key(package):
    def key(*options, kind="CosineDecay"):
        schedule = getattr(package.optimizers.schedules, kind)(*options)
        return traces.key_of(svgp(), package.optimizers.Adam(schedule), [])

    assert key(0.1, 10) == key(0.1, 10)
    found = [key(0.1, 10), key(0.2, 10), key(0.1, 20), key(0.1, 10, 0.5)]
    found += [key([1, 2], [0.1, 0.2, 0.3], kind="PiecewiseConstantDecay")]
    found += [key([1, 2], [0.1, 0.3, 0.2], kind="PiecewiseConstantDecay")]
    assert None not in found
    assert len(set(found)) == len(found)
    assert key(tf.constant(0.1), 10) is None


@KERAS
def test_a_constant_rate_is_an_input_of_the_trace(package, count_traces):
    def elbo(rate):
        optimizer = package.optimizers.Adam(rate)
        return gs.training.fit(
            svgp(), (X, Y), optimizer=optimizer, num_steps=3, progress=False
        ).elbo

    elbo(0.01)
    first = count_traces()
    second = elbo(0.1)
    assert count_traces() == first
    traces._KEPT.clear()
    np.testing.assert_array_equal(second, elbo(0.1))


def test_what_a_model_freezes_is_in_the_key():
    def key(change=lambda model: None, model=None):
        model = svgp() if model is None else model
        change(model)
        return traces.key_of(model, tf_keras.optimizers.Adam(0.01), [])

    def deep(jitter):
        points = gpflow.inducing_variables.InducingPoints(X[:3].copy())
        layer = gs.models.GPLayer(gpflow.kernels.Matern52(), points)
        layer.jitter = jitter
        return gs.models.DeepGP([layer], gpflow.likelihoods.Gaussian(), num_data=60)

    assert key() == key()
    assert key(model=deep(1e-3)) == key(model=deep(1e-3)) != key(model=deep(1e-2))
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-3)):
        other = key()
    students = svgp()
    students.likelihood = gpflow.likelihoods.StudentT()
    plain = key(model=students)
    students.likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 7)
    assert len({key(), other, plain, key(model=students)}) == 4
    assert None not in (other, plain)

    def constrain(model):
        model.q_mu.unconstrained_variable._constraint = lambda value: 0.0 * value

    assert key(constrain) is None
    assert key(lambda model: setattr(model.kernel, "K", model.kernel.K)) is None
    with gs.training.rows_of_workers(None):
        assert key() is None


@pytest.mark.parametrize("calls_python", [False, True])
def test_steps_that_call_python_are_not_kept(calls_python):
    def step(x):
        return tf.numpy_function(np.sin, [x], tf.float64) if calls_python else tf.sin(x)

    concrete = compiled(step).get_concrete_function(tf.TensorSpec([], tf.float64))
    traces._keep("key", concrete, {})
    assert len(traces._KEPT) == (not calls_python)


def test_a_run_within_a_tape_takes_a_kept_trace():
    expected = fit(svgp(), gamma=False)
    gc.collect()
    with tf.GradientTape():
        found = fit(svgp(), gamma=False)
    np.testing.assert_array_equal(found, expected)


def test_threads_train_with_one_kept_trace():
    expected = fit(svgp(), gamma=False)
    found = {}

    def run(i):
        found[i] = [fit(svgp(), gamma=False) for _ in range(3)]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(np.concatenate(list(found.values())), [expected] * 9)
    assert len(traces._KEPT) == 1
