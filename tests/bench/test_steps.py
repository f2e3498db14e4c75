"""What a step costs: the count of operations, and the peers beside it."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.bench import peers, steps

SIZES = {"num_inducing": 6, "num_orthogonal": 4, "batch_size": 10, "repeats": 2}


def test_operations_are_three_times_the_forward_count():
    M, n = 30, 50
    svgp = M**3 / 3 + 3 * M**2 * n
    twice = 8 * M**3 / 3 + 12 * M**2 * n
    solvegp = 8 * M**3 / 3 + 8 * M**2 * n
    np.testing.assert_allclose(steps.step_operations((M,), n), 3 * svgp)
    np.testing.assert_allclose(steps.step_operations((2 * M,), n), 3 * twice)
    np.testing.assert_allclose(steps.step_operations((M, M), n), 3 * solvegp)
    assert steps.step_operations((M, 0), n) == steps.step_operations((M,), n)


def test_operations_of_unequal_sets_term_by_term():
    M, M2, n = 7, 11, 13
    cholesky = (M**3 + M2**3) / 3
    between = M**2 * M2 + M * M2**2  # A, and A^T A of which half is needed
    solves = (M**2 + M2**2) * n
    products = 2 * (M**2 + M * M2 + M2**2) * n  # Ru^T B, A^T B, Rv^T D
    expected = 3 * (cholesky + between + solves + products)
    np.testing.assert_allclose(steps.step_operations((M, M2), n), expected)


@pytest.mark.parametrize(("method", "title"), [("solvegp", "SOLVE-GP"), ("odvgp", "ODVGP")])
def test_fractions_are_counted_operations_over_time_over_rate(method, title):
    rows, rate = steps.bench_step(method, **SIZES)
    assert rows[0].title == f"{title}(6+4)"
    counts = [steps.step_operations((6, 4), 10)] + 2 * [steps.step_operations((10,), 10)]
    for row, count in zip(rows, counts, strict=False):
        expected = count / (1e-3 * row.milliseconds) / (1e9 * rate)
        if row.title.startswith("ODVGP"):
            assert row.fraction is None
        else:
            np.testing.assert_allclose(row.fraction, expected)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method must be one of solvegp, odvgp; got 'svgp'"):
        steps.bench_step("svgp", **SIZES)


def test_without_gpytorch_its_row_is_left_out_with_a_note(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gpytorch", None)
    rows, _ = steps.bench_step("solvegp", **SIZES)
    assert len(rows) == 3
    assert "left out: GPyTorch decoupled(6+4), mean only" in capsys.readouterr().err


def test_a_peer_alternates_with_the_others_on_the_same_batch(monkeypatch):
    calls = []

    def peer(Z, O, X, Y, *, num_data, dtype):
        calls.append((Z.shape, O.shape, X.shape, Y.shape, num_data, dtype))
        return lambda: calls.append("step") or tf.zeros([])

    monkeypatch.setattr(steps, "gpytorch_decoupled_step", peer)
    rows, _ = steps.bench_step("solvegp", **SIZES)
    assert calls[0] == ((6, 8), (4, 8), (10, 8), (10, 1), 100_000, tf.float64)
    assert calls[1:] == ["step"] * 5
    assert rows[3].title == "GPyTorch decoupled(6+4), mean only"
    assert rows[3].fraction is None
    np.testing.assert_allclose(rows[3].ratio, rows[3].milliseconds / rows[1].milliseconds)


def test_gpytorch_has_a_gradient_for_every_parameter(rng):
    pytest.importorskip("gpytorch")
    Z, O, X = (rng.normal(size=(n, 3)) for n in (6, 4, 20))
    Y = rng.normal(size=(20, 1))
    step = peers.gpytorch_decoupled_step(Z, O, X, Y, num_data=100, dtype=tf.float64)
    value, gradients = step()
    assert np.isfinite(float(value))
    shapes = sorted(tuple(g.shape) for g in gradients)
    assert shapes == sorted([(4, 3), (4,), (6, 3), (6,), (6, 6), (), (1, 3), (1,)])
    assert all(float(g.abs().max()) > 0.0 for g in gradients)
