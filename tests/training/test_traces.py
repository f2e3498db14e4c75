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


def svgp(kernel=gpflow.kernels.SquaredExponential):
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gpflow.models.SVGP(kernel(), likelihood, X[:3].copy(), num_data=60)


def fit(model, *, optimizer=None, batch_size=20, gamma=True, num_steps=4, Y=Y, **options):
    optimizer = gs.training.adam(0.01, decay_steps=10) if optimizer is None else optimizer()
    options |= {"num_steps": num_steps, "batch_size": batch_size, "natural_gradients": gamma}
    return gs.training.fit(model, (X, Y), optimizer=optimizer, progress=False, **options).elbo


def forget():
    """The next step is traced, as in a process of its own."""
    traces._KEPT.clear()


@pytest.fixture(autouse=True)
def nothing_kept():
    forget()


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
    def optimizer():
        return gs.training.adam(0.01, decay_steps=decay_steps)

    fit(solvegp(), optimizer=optimizer)
    first = count_traces()
    shared, traced = solvegp(0.1), solvegp(0.1)
    elbo = fit(shared, optimizer=optimizer)
    assert count_traces() == first
    forget()
    np.testing.assert_array_equal(elbo, fit(traced, optimizer=optimizer))
    assert count_traces() > first
    for name, value in gpflow.utilities.parameter_dict(traced).items():
        np.testing.assert_array_equal(value, gpflow.utilities.parameter_dict(shared)[name])


def test_a_second_fit_of_a_model_with_other_rows_is_not_traced(count_traces):
    model, again = svgp(), svgp()
    fit(model, gamma=False)
    first = count_traces()
    elbo = fit(model, Y=Y + 1.0, gamma=False)
    assert count_traces() == first
    forget()
    fit(again, gamma=False)
    forget()
    np.testing.assert_array_equal(elbo, fit(again, Y=Y + 1.0, gamma=False))


def changed(part, value):
    """A model with another attribute, which may be that of a part."""

    def make():
        model = solvegp()
        owner, _, name = part.rpartition(".")
        setattr(getattr(model, owner) if owner else model, name, value())
        return model

    return make


def frozen():
    model = solvegp()
    gpflow.set_trainable(model.kernel.variance, False)
    return model


def adam_of(package, **options):
    return lambda: package.optimizers.Adam(0.01, **options)


def scheduled(package, kind, *arguments):
    return lambda: package.optimizers.Adam(getattr(package.optimizers.schedules, kind)(*arguments))


SMALL = {"model": lambda: svgp(), "gamma": False}
PIECES = ("PiecewiseConstantDecay", [1, 2])
# What a first step has, and what a second has instead.
DIFFERENCES = [
    ({}, {"model": lambda: solvegp(mean_function=gpflow.functions.Constant(1.0))}),
    ({}, {"model": lambda: solvegp(kernel=gpflow.kernels.Matern32)}),
    ({}, {"model": lambda: solvegp(bound="log")}),
    ({}, {"model": frozen}),
    ({}, {"model": changed("jitter", lambda: 1e-3)}),
    ({}, {"optimizer": lambda: gs.training.adam(0.02, decay_steps=10)}),
    ({}, {"batch_size": 10}),
    ({}, {"gamma": 0.2}),
    ({}, {"gamma": False}),
    ({}, {"precision": "mixed"}),
] + [
    ({"optimizer": first, **SMALL}, {"optimizer": second, **SMALL})
    for package in (tf_keras, keras)
    for first, second in [
        *(
            (adam_of(package), adam_of(package, **options))
            for options in ({"beta_1": 0.5}, {"epsilon": 1e-3}, {"clipnorm": 1.0}, {"use_ema": 1})
        ),
        (scheduled(package, "CosineDecay", 0.1, 10), scheduled(package, "CosineDecay", 0.1, 20)),
        (
            scheduled(package, *PIECES, [0.1, 0.2, 0.3]),
            scheduled(package, *PIECES, [0.1, 0.3, 0.2]),
        ),
    ]
]


@pytest.mark.parametrize(("first", "second"), DIFFERENCES)
def test_a_step_that_differs_is_traced(first, second, count_traces):
    def run(model=solvegp, **options):
        return fit(model(), **options)

    run(**first)
    before = count_traces()
    elbo = run(**second)
    assert count_traces() > before
    forget()
    np.testing.assert_array_equal(elbo, run(**second))


class OwnKernel(gpflow.kernels.Matern52):
    """A class whose code may change between two fits."""


def softmax():
    sets = gs.inducing_variables.OrthogonalInducingVariables(X[:5], X[5:9])
    likelihood = gpflow.likelihoods.Softmax(2)
    return gs.models.SOLVEGP(
        gpflow.kernels.Matern52(), likelihood, sets, num_latent_gps=2, num_data=60
    )


def test_models_with_classes_of_the_user_and_stateful_draws_are_not_shared():
    fit(solvegp(kernel=OwnKernel))
    fit(softmax(), Y=(Y > 0).astype(int), gamma=False)
    assert not traces._KEPT


@pytest.mark.nightly
def test_kept_traces_do_not_keep_models():
    model = svgp()
    fit(model, num_steps=1, gamma=False)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


KERAS = pytest.mark.parametrize("package", [tf_keras, keras], ids=["tf_keras", "keras"])


def constant(package, rate, **methods):
    """A schedule whose rate is not in its settings, of a class that looks like one of Keras."""
    base = package.optimizers.schedules.LearningRateSchedule
    methods = {"__call__": lambda self, step: rate, **methods}
    return type("CosineDecay", (base,), {"__module__": base.__module__, **methods})()


@KERAS
@pytest.mark.parametrize("methods", [{}, {"get_config": lambda self: {}}], ids=["none", "empty"])
def test_schedules_without_settings_are_not_shared(package, methods):
    first, second, again = (
        fit(
            svgp(),
            optimizer=lambda rate=rate: package.optimizers.Adam(constant(package, rate, **methods)),
            gamma=False,
        )
        for rate in (0.01, 0.1, 0.1)
    )
    np.testing.assert_array_equal(second, again)
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
        lambda package, model: with_attribute(package, "mine", {"a": 1}),
        lambda package, model: type("Adam", (package.optimizers.Adam,), {})(0.01),
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
def test_a_constant_rate_is_an_input_of_the_trace(package, count_traces):
    def elbo(rate):
        return fit(svgp(), optimizer=lambda: package.optimizers.Adam(rate), gamma=False)

    elbo(0.01)
    first = count_traces()
    second = elbo(0.1)
    assert count_traces() == first
    forget()
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
    assert key(lambda model: setattr(model.kernel, "K", model.kernel.K)) is None
    with gs.training.rows_of_workers(None):
        assert key() is None


def test_runs_within_a_tape_and_in_threads_take_a_kept_trace():
    expected, found = fit(svgp(), gamma=False), {}
    gc.collect()
    with tf.GradientTape():
        np.testing.assert_array_equal(fit(svgp(), gamma=False), expected)

    def run(i):
        found[i] = [fit(svgp(), gamma=False) for _ in range(3)]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(np.concatenate(list(found.values())), [expected] * 9)
    assert len(traces._KEPT) == 1
