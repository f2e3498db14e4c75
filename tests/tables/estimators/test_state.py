"""State that estimators keep: after a fit that ends early, in pickles, compiled predictions."""

import copy
import io
import pickle
from types import SimpleNamespace

import gpflow
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import gpflow_sparse as gs
from gpflow_sparse.data import Standardizer
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor, TableEncoder
from gpflow_sparse.tables.estimators import base


def table(levels):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=30), "level": np.resize(levels, 30)})
    return frame, np.where(frame["x"] > 0.0, *levels)


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def of_a_and_b():
    return SparseGPClassifier("dirichlet_gpnn", random_state=0).fit(*table(["a", "b"]))


def trained(*_, **__):
    """A result of training with a method whose predictor cannot be made."""
    recipe = SimpleNamespace(name="solvegp", predictor=interrupt)
    return SimpleNamespace(recipe=recipe, attempts=(), reason="", interrupted=False), None


FAULTS = {
    "columns": (TableEncoder, "transform_training", interrupt),
    "scales": (Standardizer, "fit", interrupt),
    "training": (base, "fit_task", interrupt),
    "predictor": (base, "fit_task", trained),
}


@pytest.mark.parametrize("place", FAULTS.values(), ids=list(FAULTS))
def test_an_interrupted_fit_keeps_the_last_fit_whole(of_a_and_b, monkeypatch, place):
    before, expected = dict(vars(of_a_and_b)), of_a_and_b.predict_proba(table(["a", "b"])[0])
    with monkeypatch.context() as patch:
        patch.setattr(*place)
        with pytest.raises(KeyboardInterrupt):
            of_a_and_b.fit(*table(["c", "d"]))
    assert vars(of_a_and_b).keys() == before.keys()
    assert all(vars(of_a_and_b)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(of_a_and_b.predict_proba(table(["a", "b"])[0]), expected)
    assert set(of_a_and_b.predict(table(["a", "b"])[0])) == {"a", "b"}


def test_a_refused_fit_keeps_the_last_fit_whole(of_a_and_b):
    X, y = table(["c", "d"])
    before = {k: v for k, v in vars(of_a_and_b).items() if k != "method"}
    for method, labels in (("nope", y), ("dirichlet_gpnn", np.where(y == "c", None, y))):
        with pytest.raises(ValueError, match=r"method must be|a label in every row"):
            of_a_and_b.set_params(method=method).fit(X, labels)
    assert all(vars(of_a_and_b)[name] is value for name, value in before.items())


def test_a_refused_fit_of_an_encoder_keeps_the_last_fit_whole():
    encoder = TableEncoder().fit(pd.DataFrame({"a": [1.0, 2.0, 4.0]}))
    with pytest.raises(ValueError, match="must have a column that varies"):
        encoder.fit(pd.DataFrame({"b": [1.0, 1.0, 1.0]}))
    assert list(encoder.feature_names_in_) == list(encoder.get_feature_names_out()) == ["a"]


class Scaled(gpflow.kernels.SquaredExponential):
    """A kernel of a user."""

    def K_r2(self, r2):
        return 1.5 * super().K_r2(r2)

    def K_diag(self, X):
        return 1.5 * super().K_diag(X)


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal(size=(12, 1))


@pytest.fixture(scope="module")
def scaled(X):
    return SparseGPRegressor("exact", kernel=Scaled(), random_state=0).fit(X, np.sin(X[:, 0]))


def test_an_estimator_with_a_kernel_of_the_user_is_pickled_and_copied(X, scaled):
    stream = io.BytesIO()
    joblib.dump(scaled, stream)
    stream.seek(0)
    copies = [pickle.loads(pickle.dumps(scaled)), copy.deepcopy(scaled), joblib.load(stream)]
    for again in [*copies, pickle.loads(pickle.dumps(copies[0]))]:
        assert type(again.model_.kernel) is Scaled
        np.testing.assert_array_equal(again.predict(X), scaled.predict(X))
    assert type(clone(copies[0]).kernel) is Scaled


def test_repeated_predictions_of_few_rows_are_compiled_once_and_for_one_row(X, scaled):
    model = pickle.loads(pickle.dumps(scaled))
    expected = model.predict(X, return_std=True)  # of 12 rows, in one call
    for num_rows in (1, 3, 8, 1):
        model.predict(X[:num_rows])
    assert not model._posterior._compiled
    for num_rows in (1, 3, 8, 1):
        found = model.predict(X[-num_rows:], return_std=True)
        np.testing.assert_allclose(found, np.array(expected)[:, -num_rows:], rtol=1e-7)
    compiled = model._posterior._compiled["predict_y"]
    assert compiled.experimental_get_tracing_count() == 1
    model.predict(X)
    assert compiled.experimental_get_tracing_count() == 1


def test_labels_that_a_file_cannot_hold_are_refused(X, tmp_path):
    labels = np.array(["2020-01-01", "2021-01-01"], "datetime64[D]")[np.arange(len(X)) % 2]
    model = SparseGPClassifier("simple", method_options={"mean": "linear"}).fit(X, labels)
    with pytest.raises(ValueError, match=r"labels of type datetime64.*make them texts or numbers"):
        gs.save(model, tmp_path / "model")
