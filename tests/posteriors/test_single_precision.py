"""Many cosines in single precision against the same in double precision."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.models import DualGPR
from gpflow_sparse.models.dual import posterior
from gpflow_sparse.numerics.cosines import cos_two_pi
from gpflow_sparse.posteriors.pathwise import single_precision_sums, sums_of_cosines


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_sums_have_the_error_of_single_precision_at_any_offset(offset, rng):
    S, P, D, F = 8, 2, 3, 64
    X = tf.constant(rng.normal(size=(20, D)) + offset)
    frequencies = tf.constant(rng.normal(size=(S, P, D, F)))
    phases = tf.constant(rng.uniform(0.0, 2.0 * np.pi, size=(S, P, F)))
    amplitudes = tf.constant(rng.rayleigh(size=(S, P, F)) / np.sqrt(F))
    cosines = frequencies, phases, amplitudes
    found = single_precision_sums(tf.reduce_mean(X, axis=0), *cosines)(X)
    assert found.dtype == tf.float64
    # the sums have standard deviation 1; double precision itself rounds angles near 1e4 to 1e-12
    np.testing.assert_allclose(found, sums_of_cosines(X, *cosines), atol=3e-6)


def test_an_amplitude_for_every_column_has_its_gradient(rng):
    turns, phases = tf.constant(rng.normal(size=(5, 3))), tf.constant(rng.uniform(size=3))
    sizes = tf.constant(rng.normal(size=3))
    with tf.GradientTape() as tape:
        tape.watch(sizes)
        total = tf.reduce_sum(turns * cos_two_pi(turns, phases, sizes))
    wanted = np.sum(turns * np.cos(2.0 * np.pi * (turns + phases)), axis=0)
    np.testing.assert_allclose(tape.gradient(total, sizes), wanted, rtol=1e-12)


def test_variances_of_a_dual_posterior_do_not_depend_on_the_precision(rng, monkeypatch):
    X = rng.normal(size=(60, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(60, 1))
    model = DualGPR(
        (X, Y), gpflow.kernels.Matern32(), noise_variance=0.01, num_paths=16, num_features=1024
    )
    model.solve()
    new, found = rng.normal(size=(30, 2)), []
    for least in (16 * 512, 2**30):
        monkeypatch.setattr(posterior, "_FROM", least)
        found.append([part.numpy() for part in model.posterior().predict_f(new)])
    (mean, var), (wanted_mean, wanted_var) = found
    np.testing.assert_array_equal(mean, wanted_mean)
    # standard deviations down to 0.05 with errors of 2e-6; their sampling error is 18 per cent
    np.testing.assert_allclose(var, wanted_var, rtol=3e-5)
