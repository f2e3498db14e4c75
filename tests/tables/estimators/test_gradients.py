"""Gradients of predictions by inputs, of the models that estimators have fitted."""

import numpy as np
import pytest

from gpflow_sparse.estimators import SparseGPRegressor
from tests.test_input_gradients import slopes_by_inputs

STEPS = {"num_steps": 10}
FAST = {"gpnn": {}, "exact": {}, "site_vgp": {}, "swsgp": STEPS}
SLOW = {"mixture": {}, "solvegp": STEPS, "grief": STEPS, "deep": STEPS}


@pytest.mark.parametrize(
    "method", [*FAST, *(pytest.param(method, marks=pytest.mark.nightly) for method in SLOW)]
)
def test_gradients_of_a_fitted_model_equal_central_differences(method):
    """Calibrated, and of standardized inputs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.1 * rng.normal(size=150)
    options = (FAST | SLOW)[method] or None
    model = SparseGPRegressor(method, method_options=options, random_state=0).fit(X, y).model_
    slopes, differences = slopes_by_inputs(model, X[:5] + 0.01)
    np.testing.assert_allclose(slopes, differences, rtol=1e-5, atol=1e-8)
