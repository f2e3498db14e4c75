"""The table of all methods: agreement, peers, processes, and the page."""

import importlib.util
import time
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from bench.papers import agreement, harness, peer_models
from bench.papers.spec import PaperRun, load_paper
from bench.papers.training import Budget
from gpflow_sparse.data import Dataset
from gpflow_sparse.training import TrainingError

has_gpytorch = importlib.util.find_spec("gpytorch") is not None


def table(rng, N=100):
    X = rng.normal(size=(N, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.2 * rng.normal(size=(N, 1))
    count = 4 * N // 5
    pairs = (X[:count], Y[:count]), (X[count:], Y[count:])
    return Dataset("a", *pairs, ("a", "b"), "y", None).standardized()


def budget(folder, steps=None, seconds=None):
    return Budget(steps, seconds, 0, folder, time.perf_counter() + 100.0)


def test_libraries_agree_at_fixed_hyperparameters(rng):
    found = agreement.compare_libraries(table(rng), 0)
    libraries = {line["library"] for line in found["differences"]}
    assert libraries == {"scikit-learn", "gpflow_sparse"} | (
        {"GPyTorch"} if has_gpytorch else set()
    )
    assert max(line["difference"] for line in found["differences"]) < 1e-6
    assert found["num_rows"] == 80


def test_a_library_that_differs_ends_the_row(rng, monkeypatch):
    monkeypatch.setattr(
        agreement,
        "_sgpr",
        lambda *_: ({"mean": np.ones(2)}, {"other": {"mean": 1.0 + 1e-5 * np.ones(2)}}),
    )
    with pytest.raises(TrainingError, match=r"differ at the same hyperparameters.*other"):
        agreement.compare_libraries(table(rng), 0)


@pytest.mark.skipif(has_gpytorch, reason="GPyTorch is installed")
def test_without_gpytorch_the_row_says_what_to_do(rng, tmp_path):
    options = {"method": "gpytorch", "num_inducing": 8}
    with pytest.raises(ValueError, match=r"pip install gpytorch; or choose others by --rows"):
        peer_models.fit_evidence(options, table(rng), budget(tmp_path, steps=1))


def a_run(folder, size="small", **chosen):
    return PaperRun(load_paper("evidence"), size, folder, **chosen)


def test_a_process_that_ends_is_a_failure(tmp_path, monkeypatch):
    def ends(*_):
        raise BrokenProcessPool

    monkeypatch.setattr(harness, "run_alone", ends)
    run = a_run(tmp_path, datasets=("digits",), rows=("linear",))
    (record,) = harness.run_paper(run, 10.0)
    assert (record["status"], record["message"]) == (
        "failed", "the process ended, perhaps for want of memory",
    )  # fmt: skip
