"""Fitted estimators in files: what comes back, and what is refused."""

import json

import gpflow
import numpy as np
import pandas as pd
import pytest

import gpflow_sparse as gs
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.persistence import files
from gpflow_sparse.tables.reading.cells import ReadingOptions

EXACT = {"method": "exact", "method_options": {"num_subset": 0}, "random_state": 0}


@pytest.fixture
def frame(rng):
    count = 40
    town = rng.choice(["Ulm", "Bonn"], count)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, count), "D")
    a = np.where(np.arange(count) % 9, rng.normal(size=count), np.nan)
    return pd.DataFrame({"a": a, "town": town, "day": day})


def test_a_regressor_of_a_table_comes_back(frame, rng, tmp_path):
    y = np.sin(frame["a"].fillna(0.0)) + (frame["town"] == "Ulm")
    options = {"kernel": gpflow.kernels.Matern32(), "reading": ReadingOptions(na_values=("-9",))}
    model = SparseGPRegressor(**EXACT, **options).fit(frame, y)
    gs.save(model, tmp_path / "model")
    found = gs.load(tmp_path / "model")
    for name in ("method", "method_options", "time_budget", "random_state", "verbose", "reading"):
        assert getattr(found, name) == getattr(model, name)
    assert isinstance(found.kernel, gpflow.kernels.Matern32)
    for ours, theirs in zip(
        found.predict(frame, return_std=True), model.predict(frame, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(found.predict_interval(frame), model.predict_interval(frame))
    np.testing.assert_array_equal(found.sample_y(frame, 3), model.sample_y(frame, 3))
    assert (found.method_, found.reason_, found.attempts_) == (
        *(model.method_, model.reason_, model.attempts_),
    )
    assert list(found.feature_names_in_) == ["a", "town", "day"]
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame.rename(columns={"a": "b"}))
    gs.save(found, tmp_path / "again")
    np.testing.assert_array_equal(gs.load(tmp_path / "again").predict(frame), model.predict(frame))


def test_two_outputs_of_an_array_come_back(rng, tmp_path):
    X = rng.normal(size=(30, 2))
    model = SparseGPRegressor(**EXACT).fit(X, np.column_stack([X[:, 0], np.sin(X[:, 1])]))
    gs.save(model, tmp_path / "model")
    found = gs.load(tmp_path / "model")
    assert not hasattr(found, "feature_names_in_")
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    assert found.predict(X).shape == (30, 2)


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [3, 7], [False, True], [1.0, 2.0]],
    ids=["str", "int", "bool", "float"],
)
def test_labels_come_back_with_their_type(rng, tmp_path, labels):
    X = rng.normal(size=(40, 2))
    y = np.array(labels)[(X[:, 0] > 0.0).astype(int)]
    options = {"num_inducing": 8, "num_steps": 3, "num_subset": 20}
    model = SparseGPClassifier("svgp", method_options=options, random_state=0).fit(X, y)
    gs.save(model, tmp_path / "model")
    found = gs.load(tmp_path / "model")
    assert found.classes_.tolist() == labels
    assert found.predict(X).dtype.kind == y.dtype.kind
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    np.testing.assert_array_equal(found.predict_proba(X), model.predict_proba(X))


def test_what_is_not_fitted_or_is_damaged_is_one_sentence(rng, tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        gs.save(SparseGPRegressor(), tmp_path / "model")
    X = rng.normal(size=(20, 1))
    gs.save(SparseGPRegressor(**EXACT).fit(X, X[:, 0]), tmp_path / "model")
    header, arrays = files.read(tmp_path / "model")
    known = json.loads(header["estimator"])
    for change in ({"class": "Other"}, {"columns": [{"name": 3}]}, {"recipe": {}}, {"reason": 1}):
        files.write(tmp_path / "bad", arrays, header | {"estimator": json.dumps(known | change)})
        with pytest.raises(ValueError, match="bad is damaged"):
            gs.load(tmp_path / "bad")
    with pytest.raises(ValueError, match="parameter or label of type complex"):
        gs.save(SparseGPRegressor(**EXACT).fit(X, X[:, 0]).set_params(random_state=1j), "x")
