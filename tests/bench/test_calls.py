"""The count of functions that a call runs, and the command that prints it."""

from pathlib import Path

import pytest

from bench import calls, commands


def inner(x):
    return sum(y for y in [x, x])


def outer():
    return inner(1) + (lambda: inner(2))()


def test_functions_are_counted_once_and_comprehensions_and_lambdas_not_at_all():
    found = calls.trace_calls(outer, Path(__file__).parent)
    assert list(found.functions.values()) == [1, 2]
    assert found.counts == {"files": 1, "functions": 2, "depth": 2}
    first, second = found.listing()
    assert first.startswith(f"{Path(__file__).name}:")
    assert first.endswith(" outer")
    assert second.startswith("  ")
    assert second.endswith(" inner x2")
    assert calls.trace_calls(outer, Path(__file__).parent / "none").functions == {}


@pytest.mark.parametrize("method", commands._TRACED[::4])
def test_a_prediction_is_traced(method):
    found = calls.prediction_calls(method)
    names = {name for _, name, _ in found.functions}
    assert any(name.split(".")[-1] == "predict_f" for name in names)
    assert 2 <= found.counts["files"] <= found.counts["functions"]
