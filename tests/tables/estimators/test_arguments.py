"""Parameters and rows that the estimators refuse, in a sentence that says what to do."""

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.estimators import SparseGPRegressor


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "best"}, "method must be one of auto, gpnn"),
        ({"likelihood": "normal"}, "likelihood must be gaussian, student_t"),
        ({"method": "softki", "likelihood": "laplace"}, "method softki is for Gaussian noise"),
        ({"method": ["exact"]}, r"method must be the name of a method.*got \['exact'\]"),
        ({"kernel": "matern52"}, "kernel must be a kernel of GPflow or None, got 'matern52'"),
        (
            {"likelihood": ["gaussian"]},
            "likelihood must be a likelihood of GPflow, the name",
        ),
        ({"time_budget": "5"}, "time_budget must be a positive number of seconds or None, got '5'"),
        ({"method_options": ["a"]}, "method_options must be a dict from names of options"),
        ({"method_options": {"nope": 1}}, "method_options must hold options .* got nope"),
        ({"method_options": {"num_steps": True}}, "num_steps must be of type int, got True"),
        ({"method_options": {"calibrate": "no"}}, "calibrate must be of type bool, got 'no'"),
    ],
)
def test_parameters_that_are_wrong_are_refused_in_one_sentence(options, message):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match=message):
        SparseGPRegressor(**{"method": "solvegp"} | options).fit(X, X[:, 0])


def test_rows_to_predict_that_cannot_be_squared_are_named():
    X = np.random.default_rng(0).normal(size=(40, 3))
    exact = SparseGPRegressor("exact", random_state=0).fit(X, X[:, 0])
    for method in (exact.predict, exact.predict_interval, exact.sample_y):
        with pytest.raises(ValueError, match=r"^row 2 of X, once standardized, .* in column 'x1'"):
            method([[1.0, 2.0, 3.0], [3.0, 1e200, 0.0]])


@pytest.mark.parametrize(
    ("cells", "found"),
    [(["1,234", "2"], "'1,234'"), (["1.5", "0,5"], "'0,5'"), ([1.5, "x"], "'x'")],
)
def test_outputs_that_are_texts_are_refused_with_one_of_them(cells, found):
    with pytest.raises(ValueError, match=f"^y must hold numbers, got text such as {found}; "):
        SparseGPRegressor("exact").fit(np.eye(6), np.array(cells * 3, dtype=object))


def test_rows_that_a_model_of_tables_cannot_read_are_refused():
    frame = pd.DataFrame({"b": np.arange(6.0), "k": list("uvuvuv")})
    model = SparseGPRegressor("exact").fit(frame, np.sin(frame["b"]))
    with pytest.raises(ValueError, match=r"^'b' must hold numbers as in training, .* 'abc'"):
        model.predict(frame.assign(b="abc"))
    with pytest.raises(ValueError, match=r"^X must hold numbers if it is an array: .* 'u'; give"):
        model.predict(frame.to_numpy())
    with pytest.raises(ValueError, match=r"^X must have columns of different names, b repeat"):
        SparseGPRegressor("exact").fit(frame[["b", "b"]], frame["b"])
