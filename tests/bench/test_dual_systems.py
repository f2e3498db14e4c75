"""The benchmark of solvers of exact GP regression."""

import json

import gpflow
import numpy as np
import pytest
from click.testing import CliRunner

from bench import commands, dual_systems
from gpflow_sparse.models.dual.solver import DualOptions
from tests.oracles.dual import weights


def make_problem(max_passes):
    rng = np.random.default_rng(0)
    X, B = rng.normal(size=(120, 2)), rng.normal(size=(120, 3))
    kernel = gpflow.kernels.Matern32(lengthscales=0.7)
    options = DualOptions(block_size=40, max_passes=max_passes)
    return dual_systems._Problem(kernel, X, np.full(120, 0.1), B, options)


def test_the_preconditioner_is_the_inverse_of_its_approximation():
    """At full rank that of the matrix itself, with which one step suffices."""
    problem = make_problem(max_passes=100)
    K = problem.kernel(problem.X).numpy()
    found = dual_systems._preconditioner(problem, 120)(problem.B)
    expected = weights(K, problem.noise, problem.B)
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    ((_, residual),) = dual_systems._conjugate_gradients(problem, 120)
    assert residual < 1e-3
    plain = dual_systems._conjugate_gradients(problem, None)
    some = dual_systems._conjugate_gradients(problem, 40)
    assert 1 < len(some) < len(plain)
    assert plain[-1][1] <= 1e-3
    assert dual_systems._cholesky(problem)[1] < 1e-3


@pytest.mark.nightly
def test_the_command_writes_a_table_and_a_picture(tmp_path, monkeypatch):
    monkeypatch.delenv("GPFLOW_SPARSE_DATA", raising=False)
    sizes = "--num-rows 300 --num-paths 2 --num-inducing 50 --max-passes 30"
    command = ["dual", "solvers", *sizes.split(), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(commands.bench, command)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["solvers"]
    assert [row["solver"].split(",")[0] for row in rows] == [
        "blocks of neighbors",
        "conjugate gradients",
        "the same",
        "Cholesky",
    ]
    assert rows[0]["residual"] <= 1e-3
    assert (tmp_path / "out" / "dual.png").stat().st_size > 1000
    assert "300 rows" in (tmp_path / "out" / "dual.md").read_text()
    command = ["dual", "scaling", "--num-data", "200,600", "--repeats", "2"]
    result = CliRunner().invoke(commands.bench, command)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["scaling"]
    assert [(row["rows"], row["blocks"]) for row in rows] == [(200, 1), (600, 2)]


@pytest.mark.nightly
def test_scores_after_more_passes_are_better():
    (first, second) = dual_systems.passes([1, 3], 4, dataset="robot_arm_2")["passes"]
    assert second["relative residual"] < 0.1 * first["relative residual"]
    assert second["rmse_standardized"] < 0.3
    assert second["processor seconds"] > first["processor seconds"]
