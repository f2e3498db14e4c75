"""The sampler on targets whose moments are known."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.models.grief import sampling

# standard deviations that differ by four orders of magnitude, which only `scales` can bridge
SD = np.array([1.0, 1e-3, 10.0])
MEAN = np.array([0.5, 2.0, -30.0])
CORRELATION = 0.6
COV = np.diag(SD) @ np.array([[1, CORRELATION, 0], [CORRELATION, 1, 0], [0, 0, 1]]) @ np.diag(SD)


def gaussian(z):
    deviations = z - MEAN
    precision = tf.constant(np.linalg.inv(COV))
    return -0.5 * tf.einsum("ci,ij,cj->c", deviations, precision, deviations)


def start(chains=8):
    return tf.constant(np.tile(MEAN + SD, (chains, 1)))


def run(target=gaussian, **options):
    options = {"num_samples": 200, **options}
    return sampling.sample(target, start(), tf.constant(SD), **options)


def test_the_moments_of_a_gaussian():
    values, acceptance = run()
    assert values.shape == (200, 8, 3)
    flat = values.numpy().reshape(-1, 3)
    np.testing.assert_allclose((flat.mean(axis=0) - MEAN) / SD, 0.0, atol=0.15)
    np.testing.assert_allclose(flat.std(axis=0) / SD, 1.0, atol=0.1)
    np.testing.assert_allclose(np.corrcoef(flat.T)[0, 1], CORRELATION, atol=0.08)
    assert acceptance.shape == (8,)
    assert abs(float(tf.reduce_mean(acceptance)) - 0.8) < 0.12


@pytest.mark.nightly
def test_the_seed_decides():
    small = {"num_samples": 5, "num_burnin": 10}
    first, again, other = (run(seed=seed, **small)[0] for seed in (1, 1, 2**32 - 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    assert np.abs(first - run(seed=1 + 2**31, **small)[0]).max() > 1e-3
    # chains differ from each other too
    assert np.abs(np.diff(first[-1], axis=0)).min() > 0.0


def test_a_skewed_target_keeps_its_moments():
    """Where the gradient varies, states must be weighed as the path through them says."""
    shape = 3.0

    def log_gamma(x):  # of x = log of a Gamma(3, 1) number, Jacobian included
        return shape * x[:, 0] - tf.exp(x[:, 0])

    first, scales = tf.zeros([40, 1], tf.float64), tf.constant([1.0], tf.float64)
    numbers = np.exp(sampling.sample(log_gamma, first, scales)[0].numpy().ravel())
    np.testing.assert_allclose(numbers.mean(), shape, rtol=0.03)
    np.testing.assert_allclose(numbers.var(), shape, rtol=0.08)


def test_proposals_without_a_density_are_refused():
    def half(z):  # a half normal: nothing below 0
        inside = -0.5 * tf.square(z[:, 0])
        return tf.where(z[:, 0] > 0.0, inside, tf.constant(-np.inf, tf.float64))

    first = tf.ones([100, 1], tf.float64)
    scales = tf.constant([1.0], tf.float64)
    values = sampling.sample(half, first, scales)[0].numpy()
    assert np.isfinite(values).all()
    assert values.min() > 0.0
    np.testing.assert_allclose(values.mean(), np.sqrt(2.0 / np.pi), rtol=0.06)


def test_refusals():
    for argument in ("num_samples", "num_burnin"):
        with pytest.raises(ValueError, match=argument):
            run(**{argument: 0})
    with pytest.raises(ValueError, match="seed"):
        run(seed=-1)
    with pytest.raises(ValueError, match="start must have a finite log density"):
        run(target=lambda z: tf.reduce_sum(z * np.nan, axis=1))
