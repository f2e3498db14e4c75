"""``partial_fit`` of the estimators."""

import pickle

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor

GENERATOR = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": GENERATOR.normal(size=120), "kind": GENERATOR.choice(list("xyz"), 120)})
Y = np.exp(np.sin(2.0 * FRAME["a"]) + (FRAME["kind"] == "x") + 0.1 * GENERATOR.normal(size=120))
Y = Y.to_numpy()
FEW = {"num_draws": 2, "transform": "log"}


def test_new_rows_are_encoded_and_transformed_as_the_old_ones():
    model = SparseGPRegressor("mixture", method_options=FEW, random_state=0)
    model.partial_fit(FRAME[:60], Y[:60])  # the first call is a fit
    before, trained, scale = model.predict(FRAME[100:]), model.model_, model.model_.standardizer
    model.partial_fit(FRAME[60:100], Y[60:100])
    told = trained.condition_on(
        scale.transform_inputs(model.encoder_.transform(FRAME[60:100])),
        scale.transform_outputs(Y[60:100, None]),
    )
    np.testing.assert_allclose(model.model_.predict_f(told.data[0]), told.predict_f(told.data[0]))
    after = model.predict(FRAME[100:])
    errors = [np.mean(np.abs(found - Y[100:])) for found in (before, after)]
    assert errors[1] < errors[0]
    stored = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(stored.predict(FRAME[100:]), after, rtol=1e-10)


def test_new_labels_other_columns_and_other_methods_are_refused():
    labels = np.where(Y > 1.0, "high", "low")
    model = SparseGPClassifier("dirichlet_gpnn", random_state=0).fit(FRAME[:60], labels[:60])
    before = model.predict_proba(FRAME[100:])
    with pytest.raises(ValueError, match="labels that fit has seen, got 'none'"):
        model.partial_fit(FRAME[60:62], ["none", "low"])
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(FRAME[["a"]][60:62], labels[60:62])
    np.testing.assert_array_equal(model.predict_proba(FRAME[100:]), before)
    model.partial_fit(FRAME[60:100], labels[60:100])
    assert np.abs(model.predict_proba(FRAME[100:]) - before).max() > 0.01
    stock = SparseGPRegressor("exact", kernel=None, random_state=0).fit(FRAME[:40], Y[:40])
    with pytest.raises(ValueError, match=r"its model is gpflow\.models\.GPR; fit all rows"):
        stock.partial_fit(FRAME[40:42], Y[40:42])
