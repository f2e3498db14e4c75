"""Standardized sinh-arcsinh distributions, by numerical integration."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate

from gpflow_sparse.inference import sinh_arcsinh

GRID = tf.constant(np.linspace(-80.0, 80.0, 400_001))


@pytest.mark.parametrize("shape", [(0.0, 0.6), (0.4, 0.8), (-0.3, 1.5)])
def test_densities_have_mean_zero_and_variance_one(shape):
    density = np.exp(sinh_arcsinh.log_density(GRID, *shape))
    moments = [integrate.trapezoid(density * GRID.numpy() ** k, GRID) for k in range(3)]
    np.testing.assert_allclose(moments, [1.0, 0.0, 1.0], atol=2e-4)
    third = integrate.trapezoid(density * GRID.numpy() ** 3, GRID)
    assert np.sign(np.round(third, 3)) == np.sign(shape[0])


def test_the_transform_has_its_inverse_and_its_slope():
    z = tf.constant(np.linspace(-4.0, 4.0, 9))
    residual = sinh_arcsinh.from_normal(z, 0.3, 0.7)
    back, slope = sinh_arcsinh.to_normal(residual, 0.3, 0.7)
    np.testing.assert_allclose(back, z, atol=1e-12)
    ends = [sinh_arcsinh.to_normal(residual + step, 0.3, 0.7)[0] for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(np.exp(slope), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
