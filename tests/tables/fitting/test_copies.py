"""Copies of rows of a table, which are not new measurements."""

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.estimators import SparseGPRegressor
from gpflow_sparse.tables.fitting.copies import distinct_rows_of


@pytest.fixture
def table(rng):
    frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    frame["c"] = np.where(frame["a"] > 0.0, "x", None)
    frame.loc[3, "b"] = np.nan
    return frame.assign(y=np.sin(frame["a"]) + 0.3 * rng.normal(size=40))


def test_copies_are_left_out_and_their_weights_added(table):
    twice = pd.concat([table, table.iloc[2:5]])
    inputs, Y = twice.drop(columns="y"), twice[["y"]].to_numpy()
    kept, weights, note = distinct_rows_of(inputs, Y, np.full(43, 0.5))
    np.testing.assert_array_equal(kept, np.arange(40))
    np.testing.assert_array_equal(weights, np.where(np.isin(kept, [2, 3, 4]), 1.0, 0.5))
    _, weights, _ = distinct_rows_of(inputs, Y)
    np.testing.assert_allclose(weights, np.where(np.isin(kept, [2, 3, 4]), 2.0, 1.0) * 40 / 43)
    assert note.startswith("3 rows left out: copies of other rows in all inputs")
    kept, weights, note = distinct_rows_of(inputs.iloc[:40], Y[:40])
    assert (len(kept), weights, note) == (40, None, "")


def test_a_row_with_another_output_is_no_copy(table):
    inputs, Y = table.drop(columns="y"), table[["y"]].to_numpy()
    kept, _, note = distinct_rows_of(pd.concat([inputs, inputs]), np.append(Y, Y + 0.1)[:, None])
    assert (len(kept), note) == (80, "")


@pytest.mark.parametrize("kind", ["weight 1.3", "twice"])
def test_an_estimator_keeps_its_noise_with_weights_and_copies(table, kind):
    X, y = table[["a"]].to_numpy(), table["y"].to_numpy()
    options = {"method": "mixture", "method_options": {"num_components": 1}, "random_state": 0}
    expected = SparseGPRegressor(**options).fit(X, y)
    found = SparseGPRegressor(**options)
    if kind == "twice":
        with pytest.warns(UserWarning, match="40 rows left out: copies"):
            found.fit(np.tile(X, (2, 1)), np.tile(y, 2))
    else:
        with pytest.warns(UserWarning, match="sum 52 for 40 rows and was divided by the mean, 1.3"):
            found.fit(X, y, sample_weight=np.full(40, 1.3))
    noises = [model.model_.components[0].noise_variance.numpy() for model in (found, expected)]
    np.testing.assert_allclose(*noises, rtol=1e-6)


def test_lists_in_cells_are_refused_by_the_name_of_the_column(table):
    lists = table.assign(a=[*table["a"][:39], [1, 2]])
    with pytest.raises(ValueError, match=r"column 'a' must hold single real numbers.*got a list"):
        SparseGPRegressor("exact").fit(lists[["a", "b"]], lists["y"])
