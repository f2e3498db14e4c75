"""A choice that ends in any of its phases, by its time or by Ctrl-C, leaves a model to save."""

import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.fitting import choice, race, starts, training

OPTIONS = {
    "num_subset": 50,
    "num_neighbors": 8,
    "num_inducing": 10,
    "num_orthogonal": 5,
    "kernel": "matern32",
}


def rows(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(1100, 2))
    y = np.sign(X[:, 0]) + np.sin(2.0 * X[:, 1]) + 0.3 * rng.normal(size=len(X))
    return X, (y > 0.0).astype(int) if kind is SparseGPClassifier else y


def ends_at(monkeypatch, number, ctrl_c):
    """Let the time jump to its end, or Ctrl-C arrive, where the time is asked for once more."""
    calls = itertools.count()

    def now():
        passed = next(calls) >= number
        if passed and ctrl_c:
            monkeypatch.undo()
            raise KeyboardInterrupt
        return time.perf_counter() + (1e6 if passed else 0.0)

    for module in (choice, race, starts, training):
        if hasattr(module, "time"):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=now))


KINDS = (SparseGPRegressor, SparseGPClassifier)
QUICK = [(n, kind, ctrl_c) for n in (8, 24, 40, 56) for kind in KINDS for ctrl_c in (False, True)]
# Other places, in turns one model by its time and the other by Ctrl-C.
OTHERS = [n for n in range(4, 80, 6) if n != 40]
NIGHTLY = [(n, kind, (kind is KINDS[0]) == (n % 12 == 4)) for n in OTHERS for kind in KINDS]


@pytest.mark.parametrize(
    ("number", "kind", "ctrl_c"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.nightly) for case in NIGHTLY)],
)
def test_the_model_of_a_choice_that_ends_anywhere_is_saved(
    monkeypatch, tmp_path, kind, number, ctrl_c
):
    X, y = rows(kind)
    estimator = kind(time_budget=60.0, method_options=OPTIONS, random_state=0)
    ends_at(monkeypatch, number, ctrl_c)
    try:
        estimator.fit(X, y)
    except KeyboardInterrupt:
        assert ctrl_c  # before the first model
        assert number <= 10
        return
    finally:
        monkeypatch.undo()
    gs.save(estimator, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    predict = "predict" if kind is SparseGPRegressor else "predict_proba"
    found = getattr(loaded, predict)(X[:50])
    np.testing.assert_allclose(found, getattr(estimator, predict)(X[:50]), rtol=1e-10)
    assert estimator.interrupted_ == ctrl_c
    assert np.mean((estimator.predict(X) - y) ** 2) <= max(0.5, 1.01 * np.var(y))
