"""Cost models of training steps, and the benchmark of steps under a strategy."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

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


@pytest.mark.nightly
def test_every_method_is_measured(monkeypatch):
    small = {"SWSGP": 4, "QSGP": 20, "GRIEF": 500}
    few = {
        name: case._replace(
            sizes=tuple(k * small.get(name.split(",")[0], 10) for k in (1, 2, 3, 4))
        )
        for name, case in scaling.cases().items()
    }
    monkeypatch.setattr(scaling, "cases", lambda: few)
    rows = scaling.scaling(1)["rows"]
    assert [row["method"] for row in rows] == list(few)
    assert all(np.isfinite(row["predicted_ms"]) for row in rows)


@pytest.mark.nightly
def test_steps_under_a_strategy_are_timed():
    """In a process of its own: devices of a process are fixed by the first use of them."""
    command = "from bench.commands import bench; bench()"
    sizes = ["--num-data", "100", "--batch-size", "20", "--num-inducing", "8", "--num-steps", "3"]
    run = subprocess.run(
        [sys.executable, "-c", command, "replicas", "--repeats", "1", *sizes],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout.splitlines()[-1])["rows"]
    titles = ("SVGP(8)", "SOLVE-GP(4+4)", "SWSGP(100)")
    assert [row["method"] for row in rows] == [title for title in titles for _ in range(3)]
    assert all(row["milliseconds"] > 0.0 for row in rows)
