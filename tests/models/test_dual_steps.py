"""Gradients of the log marginal likelihood by paths, and steps along them, against dense ones."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from tensorflow_probability import distributions

from gpflow_sparse.models import DualGPR, DualOptions
from gpflow_sparse.models.dual import solver
from gpflow_sparse.models.dual.gradients import QuadraticForms
from gpflow_sparse.models.dual.solver import ConvergenceError, System
from gpflow_sparse.models.dual.steps import subset

N, D, P = 150, 2, 2
EXACT = DualOptions(block_size=N, tolerance=1e-8, max_passes=200)


def make_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    return X, np.sin(2.0 * X).sum(axis=1)[:, None] + 0.3 * rng.normal(size=(N, P))


def make_kernel():
    """A product with ARD, a parameter that is fixed and one with a prior."""
    one = gpflow.kernels.Matern32(variance=1.3, lengthscales=[0.8, 1.2])
    other = gpflow.kernels.SquaredExponential(lengthscales=2.0)
    gpflow.set_trainable(other.variance, False)
    other.lengthscales.prior = distributions.Gamma(np.float64(2.0), np.float64(1.0))
    return one * other


def build(seed=0, kernel=None, **options):
    mean = gpflow.functions.Constant(np.array([0.2, 0.1]))
    options = {"noise_variance": 0.1, "num_paths": 16, "num_features": 8, **options}
    kernel = make_kernel() if kernel is None else kernel
    return DualGPR(make_data(), kernel, mean_function=mean, seed=seed, **options)


def exact(model):
    """GPflow's GPR with the same parameters."""
    parts = {"mean_function": model.mean_function, "likelihood": model.likelihood}
    return gpflow.models.GPR(model.data, model.kernel, **parts)


def exact_gradients(model):
    """One vector of all gradients."""
    with tf.GradientTape() as tape:
        value = exact(model).log_posterior_density()
    return flat(tape.gradient(value, model.trainable_variables))


def flat(gradients):
    return np.concatenate([np.ravel(gradient) for gradient in gradients])


@pytest.mark.nightly
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-6), ("float32", 1e-3)])
def test_what_depends_on_the_outputs_is_exact(precision, tolerance, monkeypatch):
    """
    Of two models with the same draws, the traces are the same, so the difference of the gradients
    is exact. A product takes several tiles.
    """
    monkeypatch.setattr(solver, "_TILE_ENTRIES", 2**13)
    X = make_data()[0]
    found, expected = [], []
    for Y in (np.sin(2.0 * X), 4.0 * np.sin(5.0 * X)):
        kernel = make_kernel()
        model = DualGPR((X, Y), kernel, noise_variance=0.1, num_paths=2, num_features=8)
        model.solve(DualOptions(block_size=N, tolerance=1e-8, precision="float64"))
        pairs = model.estimate_gradients(precision)
        found.append(flat(gradient for gradient, _ in pairs))
        expected.append(exact_gradients(model))
    exactly = expected[0] - expected[1]
    np.testing.assert_allclose(
        found[0] - found[1], exactly, atol=tolerance * np.abs(expected).max(), rtol=tolerance
    )
    assert np.abs(exactly).max() > 0.1 * np.abs(expected).max()


def test_gradients_are_unbiased_with_few_features():
    """Averaged over seeds; eight features a draw suffice, as only second moments matter."""
    found, model = [], build()
    shape = model.kernel, model.data[0], model.num_columns
    system, forms = System(*shape, EXACT), QuadraticForms(*shape, "float64")
    for model.seed in range(16):
        model.find_weights(EXACT, system=system)
        pairs = model.find_gradients(forms)
        assert all(a is b for (_, a), b in zip(pairs, model.trainable_variables, strict=True))
        found.append(flat(gradient for gradient, _ in pairs))
    expected, mean = exact_gradients(model), np.mean(found, axis=0)
    deviation = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert len(expected) == 7  # variance, three lengthscales, noise, and two means
    assert np.sort(deviation)[1] < 1e-6 * np.abs(expected).max()  # means have no trace
    np.testing.assert_array_less(deviation, 0.1 * np.abs(expected).max())
    np.testing.assert_array_less(
        np.abs(mean - expected), 3.0 * deviation + 1e-6 * np.abs(expected).max()
    )


@pytest.mark.nightly
def test_steps_climb_to_the_optimum_of_the_exact_gp():
    kernel = gpflow.kernels.Matern32(variance=0.3, lengthscales=[0.5, 0.5])
    model = build(kernel=kernel, num_paths=128)
    before = float(exact(model).log_posterior_density())
    calls = []
    adam = tf_keras.optimizers.Adam(0.2)
    steps = model.fit_hyperparameters(40, optimizer=adam, callback=calls.append)
    assert steps == calls
    assert len(steps) == 40
    assert all(0 <= step.num_passes <= 5 for step in steps)
    assert steps[-1].relative_residual < 0.05
    found = exact(model)
    after = float(found.log_posterior_density())
    with pytest.raises(ValueError, match=r"changed since solve\(\)"):
        model.predict_f(make_data()[0])
    gpflow.optimizers.Scipy().minimize(found.training_loss, found.trainable_variables)
    best = float(found.log_posterior_density())
    assert best - after < 0.05 * (best - before)


@pytest.mark.nightly
def test_steps_on_some_rows_are_steps_of_the_model():
    """Those of a model of these rows alone, whose components are shared."""
    model = build(row_noise=np.linspace(0.0, 1.0, N))
    part = subset(model, 60)
    rows = [np.flatnonzero((make_data()[0] == x).all(axis=1))[0] for x in part.data[0].numpy()]
    np.testing.assert_array_equal(part.row_noise, np.linspace(0.0, 1.0, N)[rows])
    model.fit_hyperparameters(2, num_rows=60)
    assert abs(model.likelihood.variance.numpy() - 0.1) > 1e-3
    alone = DualGPR(
        tuple(values[rows] for values in make_data()),
        make_kernel(),
        mean_function=gpflow.functions.Constant(np.array([0.2, 0.1])),
        noise_variance=0.1,
        row_noise=part.row_noise,
        num_paths=16,
        num_features=8,
    )
    alone.fit_hyperparameters(2)
    for a, b in zip(alone.trainable_variables, model.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert subset(model, N) is model


def test_fixed_parameters_stay_and_there_must_be_others():
    model = build()
    fixed = model.kernel.kernels[1].variance
    model.fit_hyperparameters(2)
    moved = [model.kernel.kernels[0].variance, model.likelihood.variance]
    assert fixed.numpy() == 1.0
    assert np.abs(np.array([p.numpy() for p in moved]) - [1.3, 0.1]).min() > 1e-3
    gpflow.set_trainable(model, False)
    with pytest.raises(ValueError, match="model must have trainable parameters"):
        model.fit_hyperparameters(2)


def test_weights_too_rough_for_a_gradient_are_an_error_and_parameters_stay():
    model = build(noise_variance=1e-5)
    model.kernel.kernels[0].lengthscales.assign([20.0, 20.0])
    before = [v.numpy() for v in model.trainable_variables]
    options = DualOptions(block_size=5, partition="random", max_passes=1)
    with pytest.raises(ConvergenceError, match=r"step 1 of the hyper.*max_passes.*block_size=5"):
        model.fit_hyperparameters(3, options=options)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    with pytest.raises(ValueError, match=r"no weights yet|changed since"):
        build().estimate_gradients()
