"""Standardization is undone exactly, and survives a checkpoint."""

import subprocess
import sys

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import integrate, stats

from gpflow_sparse.data import Standardizer
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.inference.sinh_arcsinh import from_normal

X = np.array([[1.0, 5.0, 10.0], [3.0, 5.0, 30.0], [5.0, 5.0, 20.0]])
Y = np.array([[100.0, -1.0], [300.0, 1.0], [200.0, 0.0]])


def test_a_constant_column_is_centered_and_keeps_its_scale():
    scaler = Standardizer.fit(X, np.full((3, 1), 7.0))
    assert_allclose(scaler.x_scale.numpy()[1], 1.0)
    assert_allclose(scaler.transform_inputs(X)[:, 1], 0.0)
    assert_allclose(scaler.transform_inputs(X + np.array([0, 2, 0]))[:, 1], 2.0)
    assert_allclose(scaler.y_scale.numpy(), [1.0])
    assert scaler.log_density_offset == 0.0


def test_robust_units_of_outputs_are_not_set_by_outliers():
    Y = np.random.default_rng(0).normal(2.0, 3.0, size=(2001, 2))
    Y[:20, 1] = 1e6
    scaler = Standardizer.fit(Y, Y, robust=True)
    assert_allclose(scaler.y_mean.numpy(), np.median(Y, axis=0), rtol=1e-12)
    assert_allclose(
        scaler.y_scale.numpy(), stats.median_abs_deviation(Y, scale="normal"), rtol=1e-5
    )
    assert_allclose(scaler.y_scale.numpy(), 3.0, rtol=0.05)
    assert_allclose(scaler.x_scale.numpy()[1], Y[:, 1].std())  # of inputs as ever


@pytest.mark.parametrize("count", [4, 5])
def test_robust_units_of_weighted_rows_are_those_of_repeated_rows(count):
    Y = np.random.default_rng(0).normal(size=(count, 2))
    weights = np.arange(1, count + 1)
    repeated = np.repeat(Y, weights, axis=0)
    expected, found = (
        Standardizer.fit(Z, Z, robust=True, row_weights=w)
        for Z, w in ((repeated, None), (Y, 0.1 * weights))
    )
    for name in ("y_mean", "y_scale"):
        assert_allclose(getattr(found, name).numpy(), getattr(expected, name).numpy())


def test_outputs_that_are_half_equal_have_their_mean_and_deviation():
    Y = np.array([[0.0], [0.0], [0.0], [1.0], [3.0]])
    scaler = Standardizer.fit(Y, Y, robust=True)
    assert_allclose([scaler.y_mean.numpy(), scaler.y_scale.numpy()], [Y.mean(0), Y.std(0)])


UNITS = [1e-300, 1e-200, 1e-160, 1e150]


def test_inputs_of_every_unit_get_unit_variance():
    for unit in UNITS:
        X = np.random.default_rng(0).normal(size=(40, 2))
        expected = Standardizer.fit(X).transform_inputs(X)
        scaled = Standardizer.fit(X * [unit, 1.0])
        np.testing.assert_allclose(scaled.transform_inputs(X * [unit, 1.0]), expected, atol=1e-12)


@pytest.mark.parametrize("transform", ["none", "log", "yeo-johnson"])
def test_outputs_whose_variance_is_zero_in_float64_are_refused(transform):
    X = np.random.default_rng(0).normal(size=(40, 1))
    message = r"Y must have standard deviations above 1e-148.*column 1 has 1.02e-200.*multiply it"
    with pytest.raises(ValueError, match=message):
        Standardizer.fit(X, np.exp(X) * [1.0, 1e-200], transform=transform)
    fitted = Standardizer.fit(X, np.exp(X) * 1e-140)
    _, variance = fitted.inverse_mean_variance(np.zeros((1, 1)), np.full((1, 1), 1e-12))
    np.testing.assert_allclose(variance, 1e-12 * np.exp(X).var() * 1e-280)


def test_outputs_come_back_in_original_units():
    scaler = Standardizer.fit(X, Y)
    assert_allclose(scaler.inverse_outputs(scaler.transform_outputs(Y)), Y, atol=1e-13)
    mean, variance = scaler.inverse_mean_variance(np.zeros((1, 2)), np.full((1, 2), 0.5))
    assert_allclose(mean, [[200.0, 0.0]], atol=1e-13)
    assert_allclose(variance, 0.5 * Y.var(axis=0, keepdims=True))


def test_labels_stay_untouched_without_outputs_at_fitting():
    scaler, labels = Standardizer.fit(X), np.array([[0.0], [2.0], [1.0]])
    assert_allclose(scaler.transform(X, labels)[1], labels, rtol=0)
    assert_allclose(scaler.inverse_outputs(labels), labels, rtol=0)
    assert_allclose(scaler.inverse_mean_variance(labels, labels + 1)[1], labels + 1, rtol=0)
    assert scaler.log_density_offset == 0.0


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    inputs = rng.uniform(100, 200, (30, 2))
    outputs = 50 + 4 * np.sin(inputs[:, :1] / 20) + 0.5 * rng.standard_normal((30, 1))
    scaler = Standardizer.fit(inputs, outputs)
    model = gpflow.models.GPR(
        scaler.transform(inputs, outputs), gpflow.kernels.SquaredExponential(), noise_variance=0.1
    )
    return scaler, model, inputs, outputs


@pytest.mark.parametrize("batch_size", [1, 7, 30, 4096])
def test_predictions_are_those_of_the_same_model_in_original_units(fitted, batch_size):
    scaler, model, inputs, outputs = fitted
    scale = outputs.std()
    kernel = gpflow.kernels.SquaredExponential(scale**2, lengthscales=inputs.std(axis=0))
    raw = gpflow.models.GPR(
        (inputs, outputs),
        kernel,
        mean_function=gpflow.functions.Constant(outputs.mean()),
        noise_variance=0.1 * scale**2,
    )
    mean, variance = scaler.predict_y(model, inputs + 1.0, batch_size)
    raw_mean, raw_variance = raw.predict_y(inputs + 1.0)
    assert_allclose(mean, raw_mean, rtol=1e-9)
    assert_allclose(variance, raw_variance, rtol=1e-9)
    density = scaler.predict_log_density(model, inputs + 1.0, outputs, batch_size)
    assert_allclose(density, raw.predict_log_density((inputs + 1.0, outputs)), rtol=1e-9)


WRONG_SHAPES = [
    (lambda s: s.transform_inputs(X[:, :2]), "X must have 3 columns as at fitting, got 2"),
    (lambda s: s.transform_outputs(Y[:, :1]), "Y must have 2 columns as at fitting, got 1"),
    (lambda s: s.transform_inputs(X[0]), r"shape \[N,D\] .* got \(3,\)"),
    (lambda s: s.transform(X, Y[:2]), "same number of rows, got 3 and 2"),
    (lambda s: s.inverse_mean_variance(Y, Y[:1]), r"shape of mean, \(3, 2\), got \(1, 2\)"),
    (lambda s: s.predict_y(None, X, batch_size=0), "batch_size must be at least 1, got 0"),
    (lambda s: s.transform_inputs(X[:0]), "at least one row"),
]


def test_wrong_shapes_are_named():
    for call, message in WRONG_SHAPES:
        with pytest.raises(ValueError, match=message):
            call(Standardizer.fit(X, Y))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named_by_column(value):
    bad = X.copy()
    bad[1, 2] = value
    for call in (Standardizer.fit, Standardizer.fit(X).transform_inputs):
        with pytest.raises(ValueError, match=r"in column 2 \(first in row 1; 1 such entries"):
            call(bad)


def test_statistics_given_by_hand_are_checked():
    with pytest.raises(ValueError, match="x_scale must be positive"):
        Standardizer(np.zeros(2), np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="given together"):
        Standardizer(np.zeros(2), np.ones(2), y_mean=np.zeros(1))


def test_importing_the_data_package_does_not_import_tensorflow():
    heavy = {"tensorflow", "gpflow", "sklearn", "pooch", "pyarrow", "pandas"}
    code = f"import sys, gpflow_sparse.data; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("transform", ["log", "yeo-johnson"])
def test_transformed_outputs_come_back_with_their_density_and_moments(transform):
    rng = np.random.default_rng(0)
    Y = np.exp(rng.normal(1.0, 0.8, size=(200, 2)))
    scaler = Standardizer.fit(rng.normal(size=(200, 3)), Y, transform=transform)
    Z = scaler.transform_outputs(Y)
    assert_allclose(scaler.inverse_outputs(Z), Y, rtol=1e-10)
    assert abs(stats.skew(Z[:, 0])) < 0.6 < 2.0 < stats.skew(Y[:, 0])
    step = 1e-6 * Y
    slope = (scaler.transform_outputs(Y + step) - scaler.transform_outputs(Y - step)) / (2 * step)
    assert_allclose(scaler.log_jacobian(Y), np.log(slope).sum(axis=1), rtol=1e-6, atol=1e-6)
    mean, variance = np.array([[0.3, -0.2]]), np.array([[0.2, 0.1]])
    draws = mean + np.sqrt(variance) * rng.standard_normal((400_000, 2))
    points = scaler.inverse_outputs(draws)
    found = scaler.inverse_mean_variance(mean, variance)
    assert_allclose(found[0][0], points.mean(0), rtol=0.01)
    assert_allclose(found[1][0], points.var(0), rtol=0.03)


def test_moments_of_transformed_outputs_are_of_the_predicted_distribution():
    """Of a sinh-arcsinh distribution under a logarithm; a Gaussian has the mean 1.47."""
    scaler = Standardizer([0.0], [1.0], [0.1], [0.7], "log")
    shape = Calibration(skewness=0.3, tail=0.8)
    zero = tf.zeros([1, 1], tf.float64)
    found = scaler.to_original_summary(lambda levels: shape.quantiles((zero, zero + 1.0), levels))

    def moment(power):
        def integrand(z):
            r = from_normal(tf.constant(z, tf.float64), 0.3, 0.8).numpy()
            return np.exp(power * (0.1 + 0.7 * r)) * stats.norm.pdf(z)

        return integrate.quad(integrand, -7.0, 7.0, limit=200)[0]

    middle = from_normal(tf.constant(0.0, tf.float64), 0.3, 0.8).numpy()
    assert_allclose(found[0].numpy().item(), np.exp(0.1 + 0.7 * middle), rtol=1e-12)
    assert_allclose(found[1].numpy().item(), moment(1), rtol=1e-4)
    assert_allclose(found[2].numpy().item(), moment(2) - moment(1) ** 2, rtol=1e-2)
    assert found[1].numpy().item() > 1.03 * np.exp(0.1 + 0.5 * 0.7**2)


def test_a_transform_that_does_not_fit_is_refused():
    X, Y = np.ones((3, 1)), np.array([[1.0], [0.0], [2.0]])
    with pytest.raises(ValueError, match="must be positive for the transform log"):
        Standardizer.fit(X, Y, transform="log")
    with pytest.raises(ValueError, match="must be one of none, log, logit, yeo-johnson"):
        Standardizer.fit(X, Y, transform="sqrt")
    with pytest.raises(ValueError, match="y_power must be given for yeo-johnson"):
        Standardizer([0.0], [1.0], [0.0], [1.0], "yeo-johnson")


def test_a_logit_comes_back_with_its_density_and_refuses_outputs_at_the_ends():
    rng = np.random.default_rng(0)
    Y = 1.0 / (1.0 + np.exp(-rng.normal(2.0, 1.5, size=(200, 1))))
    scaler = Standardizer.fit(rng.normal(size=(200, 2)), Y, transform="logit")
    Z, step = scaler.transform_outputs(Y), 1e-6 * Y * (1.0 - Y)
    assert_allclose(scaler.inverse_outputs(Z), Y, rtol=1e-12)
    slope = (scaler.transform_outputs(Y + step) - scaler.transform_outputs(Y - step)) / (2 * step)
    assert_allclose(scaler.log_jacobian(Y), np.log(slope[:, 0]), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="between 0 and 1 for the transform logit, got values fr"):
        Standardizer.fit(Y, np.round(Y), transform="logit")
