"""Samplers on targets whose moments are known."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.models.grief import sampling

# standard deviations that differ by four orders of magnitude, which only `scales` can bridge
SD = np.array([1.0, 1e-3, 10.0])
MEAN = np.array([0.5, 2.0, -30.0])
CORRELATION = 0.6
COV = np.diag(SD) @ np.array([[1, CORRELATION, 0], [CORRELATION, 1, 0], [0, 0, 1]]) @ np.diag(SD)

OPTIONS = {
    "mala": {"num_samples": 300, "num_burnin": 300, "thin": 5},
    "hmc": {"num_samples": 200, "num_burnin": 300, "thin": 2, "num_leapfrog_steps": 3},
    "nuts": {"num_samples": 200, "num_burnin": 200, "thin": 1},
}


def gaussian(z):
    deviations = z - MEAN
    precision = tf.constant(np.linalg.inv(COV))
    return -0.5 * tf.einsum("ci,ij,cj->c", deviations, precision, deviations)


def start(chains=8):
    return tf.constant(np.tile(MEAN + SD, (chains, 1)))


def run(name, target=gaussian, **more):
    options = {"method": name, **OPTIONS[name], **more}
    return sampling.sample(target, start(), tf.constant(SD), **options)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_moments_of_a_gaussian(name):
    samples = run(name)
    assert samples.values.shape == (OPTIONS[name]["num_samples"], 8, 3)
    flat = samples.values.numpy().reshape(-1, 3)
    np.testing.assert_allclose((flat.mean(axis=0) - MEAN) / SD, 0.0, atol=0.15)
    np.testing.assert_allclose(flat.std(axis=0) / SD, 1.0, atol=0.1)
    np.testing.assert_allclose(np.corrcoef(flat.T)[0, 1], CORRELATION, atol=0.08)
    assert samples.acceptance.shape == (8,)
    goal = {"mala": 0.574, "hmc": 0.75, "nuts": 0.8}[name]
    assert abs(float(tf.reduce_mean(samples.acceptance)) - goal) < 0.12
    assert 0.1 < float(samples.step_size) < 10.0


@pytest.mark.nightly
@pytest.mark.parametrize("name", OPTIONS)
def test_the_seed_decides(name):
    small = {"num_samples": 5, "num_burnin": 10}
    first, again, other = (run(name, seed=seed, **small).values for seed in (1, 1, 2**32 - 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    assert np.abs(first - run(name, seed=1 + 2**31, **small).values).max() > 1e-3
    # chains differ from each other too
    assert np.abs(np.diff(first[-1], axis=0)).min() > 0.0


def test_a_skewed_target_keeps_its_moments():
    """The correction for the proposal's two directions matters where the gradient varies."""
    shape = 3.0

    def log_gamma(x):  # of x = log of a Gamma(3, 1) number, Jacobian included
        return shape * x[:, 0] - tf.exp(x[:, 0])

    samples = sampling.sample(
        log_gamma,
        tf.zeros([40, 1], tf.float64),
        tf.constant([1.0], tf.float64),
        num_samples=200,
        num_burnin=300,
        thin=5,
    )
    numbers = np.exp(samples.values.numpy().ravel())
    np.testing.assert_allclose(numbers.mean(), shape, rtol=0.03)
    np.testing.assert_allclose(numbers.var(), shape, rtol=0.08)


@pytest.mark.parametrize("name", OPTIONS)
def test_proposals_without_a_density_are_refused(name):
    def half(z):  # a half normal: nothing below 0
        inside = -0.5 * tf.square(z[:, 0])
        return tf.where(z[:, 0] > 0.0, inside, tf.constant(-np.inf, tf.float64))

    first = tf.ones([100, 1], tf.float64)
    scales = tf.constant([1.0], tf.float64)
    values = sampling.sample(half, first, scales, method=name, **OPTIONS[name]).values.numpy()
    assert np.isfinite(values).all()
    assert values.min() > 0.0
    np.testing.assert_allclose(values.mean(), np.sqrt(2.0 / np.pi), rtol=0.06)


@pytest.mark.parametrize("name", OPTIONS)
def test_refusals(name):
    for argument in ("num_samples", "num_burnin", "thin"):
        with pytest.raises(ValueError, match=argument):
            run(name, **{argument: 0})
    with pytest.raises(ValueError, match="seed"):
        run(name, seed=-1)
    with pytest.raises(ValueError, match="start must have a finite log density"):
        run(name, target=lambda z: tf.reduce_sum(z * np.nan, axis=1))


def test_the_samplers_of_version_01_are_found_by_their_names():
    options = {"num_samples": 3, "num_burnin": 5, "thin": 1}
    with pytest.warns(DeprecationWarning, match=r"is now sample\(method='hmc'\)"):
        old = sampling.hmc
    values = old(gaussian, start(), tf.constant(SD), **options).values
    again = sampling.sample(gaussian, start(), tf.constant(SD), method="hmc", **options).values
    np.testing.assert_array_equal(values, again)
    with pytest.raises(AttributeError, match="gibbs"):
        sampling.gibbs  # noqa: B018
