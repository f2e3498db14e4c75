"""Gradients of predictions by inputs of every model, against central differences."""

import gpflow
import numpy as np
import tensorflow as tf

from tests.battery import ALL, KINDS, perturb
from tests.test_battery import XNEW, assert_same_predictions, each

# A model of each class, basis, kernel and layer, which the inputs go through.
NAMES = (
    *KINDS,
    *("qsgp_block", "softki_filled", "solvegp_separate", "solvegp_patches", "solvegp_located"),
    *("swsgp_dense", "deep_neighbors", "deep_rectified", "deep_basis", "deep_convolution"),
)


def slopes_by_inputs(model, X, h=2e-4):
    """
    Derivatives along one direction of ``X [n, D]`` of weighted sums of the mean and the variance of
    f and of y: by gradients, and by central differences of fourth order. ``[4]`` each.
    """
    rng = np.random.default_rng(8)
    weights, direction = rng.normal(size=(len(X), 10)), rng.normal(size=X.shape)

    def sums(X):
        moments = *model.predict_f(X), *model.predict_y(X)
        return [tf.reduce_sum(weights[:, : m.shape[1]] * m) for m in moments]

    at = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(at)
        values = sums(at)
    slopes = [float(tf.reduce_sum(direction * tape.gradient(value, at))) for value in values]
    two, one = ([np.array(sums(X + s * h * direction)) for s in (-n, n)] for n in (2, 1))
    differences = (two[0] - two[1] + 8.0 * (one[1] - one[0])) / (12.0 * h)
    assert np.abs(differences).max() > 1e-3
    return slopes, differences


@each({name: ALL[name] for name in NAMES})
def test_gradients_of_predictions_by_inputs_equal_central_differences(member):
    """Those of a copy frozen by GPflow too, which predicts the same."""
    model = perturb(member.build())
    slopes, differences = slopes_by_inputs(model, XNEW)
    np.testing.assert_allclose(slopes, differences, rtol=1e-5, atol=1e-8)
    frozen = gpflow.utilities.freeze(model)
    assert_same_predictions(model, frozen)
    np.testing.assert_allclose(slopes_by_inputs(frozen, XNEW)[0], slopes, rtol=1e-10, atol=1e-12)
