"""What steps and predictions of SWSGP cost."""

import json
import sys

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from gpflow_sparse.bench import peers, qsgp_memory, swsgp_memory, swsgp_predictions, swsgp_steps
from gpflow_sparse.bench.swsgp_steps import NeighborStep
from gpflow_sparse.cli import main


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(swsgp_steps, "_DIAGONAL", ((20, 5), (40, 5), (40, 3)))
    monkeypatch.setattr(swsgp_steps, "_DENSE", (15, 3))
    monkeypatch.setattr(swsgp_steps, "_SVGP", 10)
    monkeypatch.setattr(swsgp_steps, "_NUM_DATA", 60)
    monkeypatch.setitem(sys.modules, "gpytorch", None)  # as if it were not installed


def test_every_size_is_timed_once_and_svgp_beside_it(small, capsys):
    steps = swsgp_steps.swsgp_steps(batch_size=8, input_dim=3, repeats=1)
    assert [step.name for step in steps] == [
        "SWSGP(20, H = 5)",
        "SWSGP(40, H = 5)",
        "SWSGP(40, H = 3)",
        "SWSGP, dense(15, H = 3)",
        "GPflow SVGP(10)",
    ]
    assert all(step.milliseconds > 0.0 for step in steps)
    assert "left out: GPyTorch" in capsys.readouterr().err


def test_ratios_are_those_asked_for():
    ours, peer = swsgp_steps.OURS, swsgp_steps.PEER
    steps = [
        NeighborStep(ours, 1000, 100, 10.0),
        NeighborStep(ours, 100_000, 100, 11.0),
        NeighborStep(ours, 100_000, 16, 3.0),
        NeighborStep(swsgp_steps.DENSE, 1024, 4, 5.0),
        NeighborStep(swsgp_steps.SVGP, 1024, None, 100.0),
        NeighborStep(peer, 100_000, 16, 12.0),
        NeighborStep(peer, 100_000, 100, 22.0),
    ]
    found = swsgp_steps.step_ratios(steps)
    expected = {
        "SWSGP, H = 16: M = 100000 over M = 100000": 1.0,
        "SWSGP, H = 100: M = 100000 over M = 1000": 1.1,
        "SWSGP(1000, H = 100) over GPflow SVGP(1024)": 0.1,
        "SWSGP(100000, H = 100) over GPflow SVGP(1024)": 0.11,
        "SWSGP(100000, H = 16) over GPflow SVGP(1024)": 0.03,
        "SWSGP, dense(1024, H = 4) over GPflow SVGP(1024)": 0.05,
        f"SWSGP(100000, H = 16) over {peer}(100000, H = 16)": 0.25,
        f"SWSGP(100000, H = 100) over {peer}(100000, H = 100)": 0.5,
    }
    assert found.keys() == expected.keys()
    for name, ratio in expected.items():
        np.testing.assert_allclose(found[name], ratio)


def test_a_step_trains_the_model(rng, monkeypatch):
    made = []
    plain = swsgp_steps.SWSGP

    def kept(*arguments, **options):
        made.append(plain(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(swsgp_steps, "SWSGP", kept)
    X, Y = swsgp_steps.made_rows(60, 3, False, 0)
    rows, Z = (tf.constant(X), tf.constant(Y)), rng.normal(size=(20, 3))
    step = swsgp_steps.swsgp_step(Z, 4, rows, 60)
    (model,) = made
    assert float(tf.reduce_sum(model.usage)) == 60 * 4
    before = float(model.elbo(rows))
    for _ in range(50):
        _, finite = step()
        assert bool(finite)
    assert float(model.elbo(rows)) > before
    assert model.num_data == 60
    np.testing.assert_array_equal(model.inducing_variable.Z, Z)


def test_rows_near_a_surface():
    X, Y = swsgp_steps.made_rows(3000, 8, True, 1)
    other, _ = swsgp_steps.made_rows(3000, 8, True, 2)
    assert (X.shape, Y.shape) == ((3000, 8), (3000, 1))
    assert np.abs(X).max() < 1.1
    # both samples are near the same surface: nearest neighbors are as near across as within
    across = np.sqrt(np.sum((X[:200, None] - other) ** 2, axis=2)).min(axis=1)
    within = np.sqrt(np.sum((X[:200, None] - X[200:]) ** 2, axis=2)).min(axis=1)
    np.testing.assert_allclose(np.median(across), np.median(within), rtol=0.15)
    plain, _ = swsgp_steps.made_rows(3000, 8, False, 1)
    np.testing.assert_allclose(plain.std(axis=0), 1.0, atol=0.05)


def test_the_step_benchmark_on_the_command_line(small):
    options = ["--batch-size", "8", "--input-dim", "3", "--repeats", "1", "--float32"]
    result = CliRunner().invoke(main, ["bench", "step", "swsgp", *options])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout.splitlines()[-1])
    assert len(record["rows"]) == 5
    assert "SWSGP, dense(15, H = 3) over GPflow SVGP(10)" in record["ratios"]
    for wrong in ("--num-basis", "--num-inducing"):
        result = CliRunner().invoke(main, ["bench", "step", "swsgp", wrong, "4"])
        assert result.exit_code == 1
        assert f"{wrong} is" in result.output
    result = CliRunner().invoke(main, ["bench", "step", "solvegp", "--memory"])
    assert "--memory is for swsgp, conv, not for solvegp." in result.output


@pytest.mark.nightly
def test_memory_is_that_of_a_process_of_its_own(monkeypatch, tmp_path):
    sizes = {"num_inducing": 300, "num_neighbors": 5, "batch_size": 8, "input_dim": 3}
    found = swsgp_memory.neighbor_memory(**sizes, float32=True, num_steps=1)
    np.testing.assert_allclose(found.held, 300 * 11 * 4 / 2**20)
    assert (found.num_inducing, found.num_neighbors) == (300, 5)
    assert 0.0 < found.grown <= found.peak < 2000.0
    monkeypatch.setattr(qsgp_memory, "_STATUS", tmp_path / "none")
    with pytest.raises(ValueError, match="on Linux"):
        swsgp_memory.neighbor_memory(**sizes, float32=True)


def test_predictions_of_five_kinds_are_timed():
    options = ["--num-inducing", "20", "--num-neighbors", "3", "--num-rows", "10"]
    command = ["bench", "predict", "swsgp", *options, "--input-dim", "3", "--repeats", "1"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["rows"]
    assert [row["title"] for row in rows] == [
        "GPflow SVGP(20)",
        "SWSGP(20, H = 3), diag",
        "SWSGP(20, H = 3), diag, neighbors given",
        "SWSGP(20, H = 3), dense",
        "SWSGP(20, H = 3), dense, neighbors given",
    ]
    svgp = rows[0]["microseconds"]
    for row in rows:
        np.testing.assert_allclose(row["ratio"], row["microseconds"] / svgp)


def test_predictions_with_and_without_the_search_are_the_same(monkeypatch):
    found = []

    def call(steps, repeats):
        found.extend(step() for step in steps)
        return [1.0] * len(steps)

    monkeypatch.setattr(swsgp_predictions, "alternate", call)
    swsgp_predictions.prediction_times(
        num_inducing=20, num_neighbors=3, num_rows=10, input_dim=3, repeats=1
    )
    for first, second in ((1, 2), (3, 4)):
        for ours, theirs in zip(found[first], found[second], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    np.testing.assert_allclose(found[1][0], found[3][0], rtol=1e-10)  # one mean
    assert not np.allclose(found[1][1], found[3][1])


def test_what_precedes_a_row(rng):
    Z = rng.normal(size=(60, 3))
    found = peers.preceding(Z, 4, block=13)
    for j in range(4, 60):
        order = np.argsort(np.sum((Z[:j] - Z[j]) ** 2, axis=1))
        np.testing.assert_array_equal(found[j - 4], order[:4])


def test_gpytorch_takes_a_step(rng):
    pytest.importorskip("gpytorch")
    Z = rng.normal(size=(50, 3))
    step = peers.gpytorch_neighbor_step(
        Z, np.sin(Z[:, :1]), num_neighbors=5, batch_size=8, dtype=tf.float64
    )
    losses = [float(step()) for _ in range(300)]
    assert np.mean(losses[-30:]) < np.mean(losses[:30])
    assert gpflow.default_float() is np.float64
