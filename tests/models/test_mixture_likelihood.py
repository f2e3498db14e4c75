"""The likelihood of a component in NumPy against the one that TensorFlow compiles."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference.laplace import find_mode
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.initialization.repeated_rows import merge_rows
from gpflow_sparse.kernels import table_kernel
from gpflow_sparse.kernels.tables import log_normal, noise_parameter
from gpflow_sparse.models.mixture.likelihood import ClosedFormLikelihood, CompiledLikelihood


def rows_of(layout, rng, num_rows=40):
    X = rng.normal(size=(num_rows, 3))
    Y = np.sin(2.0 * X[:, :1]) + X[:, 1:] + 0.2 * rng.normal(size=(num_rows, 2))
    if layout == "repeated":
        X[10:20] = X[:10]
    weights = tf.constant(rng.uniform(0.5, 2.0, num_rows)) if layout == "weighted" else None
    known = tf.constant(rng.uniform(size=num_rows)) if layout == "known" else None
    return merge_rows(tf.constant(X), tf.constant(Y), weights, known_variance=known)


def both(kernel, rows):
    noise = noise_parameter()
    vector = LogParameters([*kernel.trainable_parameters, noise])
    assert ClosedFormLikelihood.takes(kernel, rows)
    kinds = ClosedFormLikelihood, CompiledLikelihood
    return vector, [kind(kernel, noise, vector, rows) for kind in kinds]


@pytest.mark.parametrize(
    ("profile", "ard", "layout"),
    [
        *((name, True, "one") for name in ("Matern12", "Matern32", "SquaredExponential")),
        *(("Matern52", False, "repeated"), ("Matern52", True, "weighted")),
        ("Matern32", False, "known"),
    ],
)
def test_values_and_gradients_are_those_of_tensorflow(profile, ard, layout, rng):
    kernel = table_kernel(getattr(gpflow.kernels, profile), 3, ard=ard)
    vector, (ours, compiled) = both(kernel, rows_of(layout, rng))
    at = vector.get() + 0.3 * rng.normal(size=vector.size)
    value, gradient = ours.with_gradient(at)
    wanted, wanted_gradient = compiled.with_gradient(at)
    # squared distances are rounded as differences, which the root of a Matern 1/2 magnifies
    assert value == pytest.approx(wanted, rel=1e-11)
    np.testing.assert_allclose(gradient, wanted_gradient, rtol=1e-9, atol=1e-9)
    draws = [vector.values(at + 0.1 * k) for k in range(3)]
    at_rows = np.array([5, 0, 11])
    found, wanted = ours.of_draws(draws, at_rows), compiled.of_draws(draws, at_rows)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-11)
    for one, other in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_gradients_in_several_blocks_are_differences_of_values(rng, monkeypatch):
    monkeypatch.setattr("gpflow_sparse.inference.exact_gp._BLOCK_ENTRIES", 1)  # 32 rows each
    monkeypatch.setattr("gpflow_sparse.inference.exact_gp._MOST_KEPT", 60)
    kernel = table_kernel(gpflow.kernels.Matern52, 3)
    for num_rows in (50, 90):  # with the profile kept, and computed twice
        vector, (ours, _) = both(kernel, rows_of("one", rng, num_rows))
        at = vector.get()
        _, gradient = ours.with_gradient(at)
        ends = [
            (ours.with_gradient(at + s)[0] - ours.with_gradient(at - s)[0]) / 2e-5
            for s in 1e-5 * np.eye(vector.size)
        ]
        np.testing.assert_allclose(gradient, ends, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("ard", [True, False])
def test_modes_are_those_of_tensorflow(ard, rng):
    kernel = table_kernel(gpflow.kernels.Matern32, 3, ard=ard)
    vector, pair = both(kernel, rows_of("one", rng, 60))

    def mode_of(own):
        def density(at):
            value, slope = own.with_gradient(at)
            prior, prior_slope = vector.log_prior(at)
            return value + prior, slope + prior_slope

        return find_mode(density, vector.get())

    np.testing.assert_allclose(*map(mode_of, pair), rtol=1e-6, atol=1e-6)


def test_kernels_without_a_closed_form_are_left_to_tensorflow(rng):
    rows, Matern32 = rows_of("one", rng), gpflow.kernels.Matern32
    first, second = Matern32(), Matern32()
    second.variance = first.variance
    for kernel in (
        gpflow.kernels.RationalQuadratic(),
        Matern32() + Matern32(),
        Matern32() * Matern32(),
        first + second,
        Matern32() + gpflow.kernels.White(),
    ):
        assert not ClosedFormLikelihood.takes(kernel, rows)
    assert ClosedFormLikelihood.takes(Matern32() + gpflow.kernels.Linear(), rows)


def test_a_draw_without_a_factor_has_no_density(rng):
    kernel = gpflow.kernels.SquaredExponential(lengthscales=log_normal(1e3, 1.0))
    kernel.variance = log_normal(1.0, 1.0)
    _, (ours, compiled) = both(kernel, rows_of("one", rng))
    draws = [[np.float64(1e3), np.float64(1.0), np.float64(noise)] for noise in (0.1, 1e-30)]
    for likelihood_ in (ours, compiled):
        found = likelihood_.of_draws(draws, np.arange(2)).values
        assert np.isfinite(found[0])
        assert found[1] == -np.inf


@pytest.mark.parametrize("layout", ["one", "repeated", "known"])
def test_errors_of_rows_left_out_are_those_of_exact_regression_without_them(layout, rng):
    kernel = table_kernel(gpflow.kernels.Matern32, 3)
    rows = rows_of(layout, rng)
    vector, (ours, _) = both(kernel, rows)
    at = vector.values(vector.get())
    found = ours.of_draws([at], np.array([3]))
    rest = rows.take(np.delete(np.arange(len(rows.X)), 3))
    K = kernel(rest.X).numpy() + np.diag(np.broadcast_to(rest.noises(at[-1]), len(rest.X)))
    Kuf = kernel(rest.X, rows.X[3:4]).numpy()
    error = rows.Y[3] - Kuf.T @ np.linalg.solve(K, rest.Y)
    own = np.broadcast_to(rows.noises(at[-1]), len(rows.X))[3]
    variance = kernel(rows.X[3:4]) - Kuf.T @ np.linalg.solve(K, Kuf) + own
    np.testing.assert_allclose(found.errors[0], error, rtol=1e-9)
    np.testing.assert_allclose(found.variances, variance, rtol=1e-9)
