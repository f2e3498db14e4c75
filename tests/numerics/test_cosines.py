"""Cosines of many angles: values against NumPy's, gradients against TensorFlow's."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics.cosines import cos_two_pi

# Numbers of rows and columns below and above that from which the series is compiled.
SHAPES = pytest.mark.parametrize("shape", [(3, 4), (512, 513)], ids=["few", "many"])


def problem(shape, dtype=np.float64):
    """Up to a thousand turns, among them whole, half and quarter ones; phases; an amplitude."""
    rng = np.random.default_rng(0)
    turns = rng.normal(size=shape) * np.logspace(-6, 2.5, shape[1])
    turns[0, :4] = [0.0, 3.0, -7.5, 2.25]
    phases = np.where(np.arange(shape[1]) % 2, -0.25, 0.0)
    return tuple(tf.constant(part, dtype) for part in (turns, phases, 0.3))


def expected(turns, phases):
    """With NumPy, of angles that are reduced without rounding."""
    rest = turns.numpy().astype(np.float64)
    return 0.3 * np.cos(2.0 * np.pi * (rest - np.round(rest) + phases.numpy()))


@SHAPES
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_those_of_the_cosine(shape, dtype):
    turns, phases, amplitude = problem(shape, dtype)
    unknown = tf.function(
        cos_two_pi,
        autograph=False,
        input_signature=[tf.TensorSpec(s, dtype) for s in ([None, shape[1]], None, [])],
    )

    for function in (
        cos_two_pi,
        unknown,
        tf.function(cos_two_pi, jit_compile=True, autograph=False),
    ):
        found = function(turns, phases, amplitude)
        assert (found.dtype, found.shape) == (turns.dtype, turns.shape)
        atol = 2e-7 if dtype == np.float32 else 3e-16
        np.testing.assert_allclose(found, expected(turns, phases), rtol=0, atol=atol)


@SHAPES
def test_first_and_second_derivatives_are_those_of_the_cosine(shape):
    turns, phases, amplitude = problem(shape)
    rng = np.random.default_rng(1)
    weights, direction = (tf.constant(rng.normal(size=shape)) for _ in range(2))

    def derivatives(function):
        with tf.GradientTape() as outer:
            outer.watch([turns, amplitude])
            with tf.GradientTape() as tape:
                tape.watch([turns, amplitude])
                value = tf.reduce_sum(weights * function(turns, phases, amplitude))
            first = tape.gradient(value, [turns, amplitude])
            along = tf.reduce_sum(direction * first[0])
        return [*first, *outer.gradient(along, [turns, amplitude])]

    def plain(turns, phases, amplitude):
        rest = turns + phases
        return amplitude * tf.cos(2.0 * np.pi * (rest - tf.stop_gradient(tf.round(rest))))

    for found, wanted in zip(derivatives(cos_two_pi), derivatives(plain), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-9)
