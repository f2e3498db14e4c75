"""Cost models of training steps."""

import numpy as np

from bench import scaling

CASE = scaling.Case("M", lambda M: None, lambda M: (9.0 * M**2, 2.0 * M**3), (100, 200, 300, 400))


def seconds(overhead, *rates):
    """Times of steps whose two kinds of operations have these rates."""
    return {
        ("a", M): overhead + sum(c / r for c, r in zip(CASE.operations(M), rates, strict=True))
        for M in CASE.sizes
    }


def test_rates_of_a_step_are_those_that_made_its_times():
    row = scaling._check("a", CASE, seconds(1e-3, 4e8, 2e10))
    np.testing.assert_allclose(row["overhead_ms"], 1.0, rtol=1e-6)
    np.testing.assert_allclose(row["gflops"], 0.4, rtol=1e-6)
    np.testing.assert_allclose(row["gflops_of_points"], 20.0, rtol=1e-6)
    np.testing.assert_allclose(row["predicted_over_measured"], 1.0, rtol=1e-6)


def test_the_largest_size_is_predicted_and_not_fitted():
    times = seconds(1e-3, 4e8, 2e10)
    times["a", 400] *= 2.0
    row = scaling._check("a", CASE, times)
    np.testing.assert_allclose(row["predicted_over_measured"], 0.5, rtol=1e-6)
    np.testing.assert_allclose(row["gflops_of_points"], 20.0, rtol=1e-6)


def test_a_term_that_is_not_there_has_no_rate():
    row = scaling._check("a", CASE, seconds(0.0, 4e8, np.inf))
    np.testing.assert_allclose(row["overhead_ms"], 0.0, atol=1e-6)
    assert row["gflops_of_points"] > 1e6
