"""The rows of GPflux in the table of deep models of tables."""

import importlib.util
import time

import numpy as np
import pytest

from bench import deep_peers
from bench.papers.training import Budget
from gpflow_sparse.data import Dataset

has_gpflux = importlib.util.find_spec("gpflux") is not None


def table(rng, N=80):
    X = rng.normal(size=(N, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(N, 1))
    return Dataset("a", (X[:60], Y[:60]), (X[60:], Y[60:]), ("a", "b"), "y", None).standardized()


def budget(folder, steps=5):
    return Budget(steps, None, 0, folder, time.perf_counter() + 100.0)


@pytest.mark.skipif(has_gpflux, reason="GPflux is installed")
def test_without_gpflux_the_row_says_what_to_do(rng, tmp_path):
    options = {"method": "gpflux", "num_inducing": 8, "num_subset": 0}
    with pytest.raises(ValueError, match=r"--no-deps gpflux==0\.4\.5; or choose others"):
        deep_peers.fit_deep(options, table(rng), budget(tmp_path))
