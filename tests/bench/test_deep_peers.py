"""The rows of GPflux in the table of deep models of tables."""

import importlib.util
import time

import gpflow
import numpy as np
import pytest

from bench import deep_peers
from bench.papers.spec import load_paper
from bench.papers.training import Budget
from gpflow_sparse.data import Dataset

has_gpflux = importlib.util.find_spec("gpflux") is not None
needs_gpflux = pytest.mark.skipif(not has_gpflux, reason="GPflux is not installed")


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


def test_other_rows_are_those_of_the_command_line(rng, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(deep_peers, "fit_choice", lambda *given: seen.append(given) or {"rmse": 1})
    options, data = {"method": "deep", "num_layers": 3}, table(rng)
    assert deep_peers.fit_deep(options, data, budget(tmp_path)) == {"rmse": 1}
    assert seen[0][:2] == (options, data)
    methods = [row.options["method"] for row in load_paper("deep").rows["small"]]
    assert methods == ["deep", "deep", "solvegp", "svgp", "gpflux"]


@needs_gpflux
def test_our_model_of_the_same_parameters_has_the_same_bound(rng):
    """Where the hidden layer adds nothing, or next to nothing, draws are equal."""
    import gpflux

    X, Y = table(rng).train
    kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.2)
    layers = deep_peers.gpflux_layers(kernel, X[:10], 2, len(X))
    layers[1].q_mu.assign(rng.normal(size=(10, 1)))
    layers[0].kernel.kernel.variance.assign(1e-12)
    theirs = gpflux.models.DeepGP(layers, likelihood).elbo((X, Y))
    ours = deep_peers.as_deep(layers, likelihood, len(X)).elbo((X, Y))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@needs_gpflux
def test_gpflux_is_trained_and_scored(rng, tmp_path):
    options = {"method": "gpflux", "num_inducing": 8, "num_subset": 20, "num_layers": 2}
    options |= {"batch_size": 32, "learning_rate": 0.05}
    found = deep_peers.fit_deep(options, table(rng), budget(tmp_path, steps=60))
    assert found["steps"] == 60
    assert found["rmse"] < 0.8
    assert found["training_seconds"] > 0.0
