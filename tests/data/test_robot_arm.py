"""The simulated arm obeys its own geometry."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gpflow_sparse.data.robot_arm import TARGET, link_geometry, robot_arm, tip_position


def test_the_tip_agrees_with_products_of_homogeneous_matrices():
    angles = np.random.default_rng(0).uniform(-3, 3, 5)
    pose = np.eye(4)
    for theta, a, d, alpha in zip(angles, *link_geometry(5), strict=True):
        c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
        rows = [[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d]]
        pose = pose @ np.array([*rows, [0, 0, 0, 1]])
    assert_allclose(tip_position(angles[None])[0], pose[:3, 3], atol=1e-14)


def test_without_noise_the_output_is_the_distance_to_the_target():
    X, Y = robot_arm(30, 4, noise_std=0.0, angle_range=1.0, seed=3)
    assert np.abs(X).max() <= 1.0
    assert_allclose(Y, np.linalg.norm(tip_position(X) - TARGET, axis=1, keepdims=True))


def test_the_noise_has_the_requested_standard_deviation():
    X, Y = robot_arm(20000, 3, noise_std=0.05, seed=4)
    residual = Y[:, 0] - np.linalg.norm(tip_position(X) - TARGET, axis=1)
    assert_allclose(residual.std(), 0.05, rtol=0.03)
    assert_allclose(residual.mean(), 0.0, atol=4 * 0.05 / np.sqrt(20000))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_data": 0}, "num_data must be an integer of at least 1, got 0"),
        ({"num_data": 2.5}, "num_data must be an integer"),
        ({"num_links": 0}, "num_links must be an integer of at least 1, got 0"),
        ({"noise_std": -0.1}, "noise_std must be finite and not negative"),
        ({"noise_std": np.nan}, "noise_std must be finite"),
        ({"angle_range": 0.0}, "angle_range must be in"),
        ({"angle_range": 90.0}, "radians, got 90"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        robot_arm(**arguments)
