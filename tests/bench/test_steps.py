"""The benchmarks of speed and memory: the harness, and that variants do the work they name."""

import json
import pickle
import sys
import time
from functools import partial

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from bench import commands, peers, step_variants, steps


@pytest.fixture
def bench(monkeypatch):
    """A command of the benchmarks that succeeds, with small fixed sizes: its tables."""
    for name, value in {
        "_NUM_BASIS": 20,
        "_NUM_DATA": 60,
        "_NEIGHBORS": ((20, 5), (40, 5), (40, 3)),
        "_DENSE": (15, 3),
        "_SVGP": 10,
        "_NEIGHBOR_DATA": 60,
        "_SEARCHES": ((3, 5),),
        "_FEW_ROWS": 50,
    }.items():
        monkeypatch.setattr(step_variants, name, value)
    monkeypatch.setitem(sys.modules, "gpytorch", None)  # as if it were not installed
    # another process takes seconds to begin
    monkeypatch.setattr(step_variants, "measure_memory", in_this_process)

    def run(command):
        result = CliRunner().invoke(commands.bench, command.split())
        assert result.exit_code == 0, result.output
        run.stderr = result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    return run


def in_this_process(title, prepare, build, calls):
    work = pickle.dumps((prepare, build))
    return {"title": title} | steps.grow(work, calls, gpflow.default_float() == np.float32)


def require_ratios(rows, reference, unit="milliseconds"):
    (base,) = (row[unit] for row in rows if row["title"] == reference)
    for row in rows:
        np.testing.assert_allclose(row["ratio"], row[unit] / base)


def test_variants_are_timed_in_turn(capsys):
    order = []

    def build(name, seconds):
        return lambda: order.append(name) or time.sleep(seconds)

    def missing():
        raise steps.LeftOutError("not here")

    variants = {"a": partial(build, "a", 0.01), "b": partial(build, "b", 0.0), "c": missing}
    rows = steps.time_in_turn(variants, 2, "a", untimed=1, calls=2, unit=("seconds", 1.0))
    assert order == ["a", "b"] * 3
    assert [row["title"] for row in rows] == ["a", "b"]
    assert 0.005 <= rows[0]["seconds"] < 0.1
    require_ratios(rows, "a", "seconds")
    assert "left out: c (not here)" in capsys.readouterr().err


def test_a_table_has_the_columns_of_all_rows():
    rows = [{"title": "x", "a_b": 1.23456}, {"title": "y", "n": 3, "a_b": None}]
    assert steps.table_of(rows) == (("title", "a b", "n"), [("x", "1.235", ""), ("y", "", "3")])


def test_operations_are_three_times_the_forward_count():
    M, M2, n = 7, 11, 13
    count = step_variants.step_operations
    np.testing.assert_allclose(count((M,), n), M**3 + 9 * M**2 * n)
    np.testing.assert_allclose(count((M, M), n), 8 * M**3 + 24 * M**2 * n)
    assert count((M, 0), n) == count((M,), n)
    cholesky = (M**3 + M2**3) / 3
    between = M**2 * M2 + M * M2**2  # A, and A^T A of which half is needed
    solves = (M**2 + M2**2) * n
    products = 2 * (M**2 + M * M2 + M2**2) * n  # Ru^T B, A^T B, Rv^T D
    np.testing.assert_allclose(count((M, M2), n), 3 * (cholesky + between + solves + products))


@pytest.mark.nightly
def test_steps_of_qsgp(bench, tmp_path):
    pytest.importorskip("matplotlib")
    sizes = "--num-basis 10,20 --num-data 60,80 --basis-batch-size 8 --num-inducing 5"
    options = (
        f"--num-control-rows 6 --batch-size 9 --input-dim 2 --repeats 1 --output {tmp_path}/new"
    )
    found = bench(f"step qsgp {sizes} {options}")
    rows = found["rows"]
    assert [(row["title"], row["num_basis"], row["num_data"]) for row in rows] == [
        ("QSGP, m = 10, N = 60", 10, 60),
        ("QSGP, m = 20, N = 60", 20, 60),
        ("QSGP, m = 20, N = 80", 20, 80),
        ("QSGP, learned", 20, 60),
        ("GPflow SVGP(5)", None, 60),
    ]
    require_ratios(rows, "GPflow SVGP(5)")
    np.testing.assert_allclose([m["held"] for m in found["memory"]], np.array([320, 640]) / 2**20)
    assert "tables and picture in" in bench.stderr
    table = (tmp_path / "new" / "step-qsgp.md").read_text()
    assert "| QSGP, m = 20, N = 80 |" in table
    assert (tmp_path / "new" / "step-qsgp.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["softki", "svgp", "sgpr"])
def test_a_step_is_the_loss_and_the_gradient_of_every_parameter(kind):
    data, Z = step_variants.made_rows(10, 3), step_variants.made_rows(6, 3, 1)[0].numpy()
    build = {
        "softki": lambda: (step_variants.make("softki", Z), data),
        "svgp": lambda: (step_variants.make("svgp", Z), data),
        "sgpr": lambda: (gpflow.models.SGPR(data, step_variants.kernel_of(Z), Z),),
    }
    model, *given = build[kind]()
    loss, gradients = step_variants.loss_step(model, *given)()
    np.testing.assert_allclose(loss, model.training_loss(*given), rtol=1e-10)
    assert len(gradients) == len(model.trainable_variables)
    if kind != "svgp":  # whose points do not matter while q is the prior
        assert all(float(tf.reduce_max(tf.abs(g))) > 0.0 for g in gradients)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("conv --input-dim 3", "--input-dim is for solvegp, odvgp, softki, qsgp, swsgp, not for"),
        ("softki --num-orthogonal 4", "--num-orthogonal is for solvegp, odvgp, conv, not for"),
        ("qsgp --num-data 1e5", "num_data must be numbers such as"),
    ],
)
def test_options_of_other_methods_are_refused(options, message):
    result = CliRunner().invoke(commands.bench, ["step", *options.split()])
    assert result.exit_code == 1
    assert message in result.output


def test_what_precedes_a_row(rng):
    Z = rng.normal(size=(60, 3))
    found = peers.preceding(Z, 4, block=13)
    for j in range(4, 60):
        order = np.argsort(np.sum((Z[:j] - Z[j]) ** 2, axis=1))
        np.testing.assert_array_equal(found[j - 4], order[:4])
