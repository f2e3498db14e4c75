"""Partial dependence of known functions, residuals, and outliers that were planted."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import gpflow_sparse as gs
from gpflow_sparse.tables.reading.columns import Column
from gpflow_sparse.tables.reading.encoder import TableEncoder
from gpflow_sparse.tables.reading.targets import TableFormat
from gpflow_sparse.tables.report.effects import (
    Factor,
    factors_of,
    partial_dependence,
    residuals,
    surprising_rows,
)

OF_COLOR = {"blue": -3.0, "green": 0.0, "red": 5.0}


@pytest.fixture
def table(rng):
    """400 days with a number, a color, a missing cell and a date; and their encoding."""
    frame = pd.DataFrame(
        {
            "width": rng.normal(size=400),
            "color": rng.choice(["red", "red", "green", "blue"], size=400),
            "day": pd.date_range("2020-01-01", periods=400, freq="2D").astype(str),
            "same": 1.0,
        }
    )
    frame.loc[3, "width"] = np.nan
    encoder = TableEncoder().fit(frame)
    known = TableFormat(encoder.columns_, Column("y", "number"))
    return frame, encoder.transform(frame), factors_of(encoder.get_feature_names_out(), known)


def test_encoded_columns_that_vary_together_are_one_factor(table):
    frame, X, factors = table
    assert [(f.name, f.kind, f.columns) for f in factors] == [
        ("width", "number", (0,)),
        ("width missing", "number", (1,)),
        ("color", "category", (2, 3, 4)),
        ("day", "date", (5,)),
        ("day: time of year", "period", (6, 7)),
        ("day: time of week", "period", (8, 9)),
    ]
    assert X.shape[1] == 10
    assert factors[2].cells(X) == list(frame["color"])
    assert factors[3].cells(X)[:2] == ["2020-01-01", "2020-01-03"]
    X[0, 2:5] = 0.0
    assert factors[2].cells(X)[0] == "other"


def test_cells_that_the_file_does_not_have_are_empty(table):
    """With an indicator of training, and of a column that had no gaps then."""
    frame, _, factors = table
    encoder = TableEncoder().fit(frame)
    new = frame.iloc[:6].astype({"width": object})
    new.loc[1, "width"] = "unknown"
    new.loc[2, "day"] = None
    new.loc[4, "color"] = None
    empty = encoder.empty(new)
    expected = np.zeros((6, 10), dtype=bool)
    expected[[1, 3], 0] = True
    expected[2, 5:] = True
    np.testing.assert_array_equal(empty, expected)
    shown = np.where(empty, np.nan, encoder.transform(new))
    width, missing, color, day = (factor.cells(shown) for factor in factors[:4])
    assert np.flatnonzero(np.isnan(width)).tolist() == [1, 3]
    assert width[0] == pytest.approx(frame["width"][0])
    assert missing == [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    assert color == [*frame["color"][:4], "other", frame["color"][5]]
    assert day == ["2020-01-01", "2020-01-03", None, "2020-01-07", "2020-01-09", "2020-01-11"]


def test_the_partial_dependence_of_an_additive_function_is_its_parts(table):
    frame, X, factors = table
    phase = 2 * np.pi * X[:, 5] / 365.2425

    def predict(X):
        color = X[:, 2:5] @ np.array(list(OF_COLOR.values()))
        mean = X[:, 0] ** 2 + color + 2.0 * X[:, 6]
        return pd.DataFrame({"mean": mean, "lower_95": mean - 1.0, "upper_95": mean + 1.0})

    effects = partial_dependence(predict, X, factors, 9)
    assert [effect.factor.name for effect in effects][:3] == ["color", "width", "day: time of year"]
    color, width, year = effects[:3]
    # the typical row is red, of median width, at the mean phase of the year
    median = np.sort(X[:, 0])[199]
    angle = np.arctan2(np.sin(phase).mean(), np.cos(phase).mean())
    others = {"width": 5.0 + 2 * np.sin(angle), "color": median**2 + 2 * np.sin(angle)}
    assert width.places[[0, -1]] == pytest.approx(np.quantile(X[:, 0], [0.01, 0.99]))
    np.testing.assert_allclose(width.predicted["mean"], width.places**2 + others["width"])
    levels = [color.factor.levels[int(place)] for place in color.places]
    expected = [OF_COLOR[level] + others["color"] for level in levels]
    np.testing.assert_allclose(color.predicted["mean"], expected)
    np.testing.assert_allclose(color.predicted["upper_95"], np.array(expected) + 1.0)
    wave = 2.0 * np.sin(2 * np.pi * year.places) + 5.0 + median**2
    np.testing.assert_allclose(year.predicted["mean"], wave)
    # its size is the spread of this part of the function over the rows
    np.testing.assert_allclose(color.size, frame["color"].map(OF_COLOR).std(ddof=0))
    np.testing.assert_allclose(width.size, np.std(np.clip(X[:, 0], -2.4, 2.4) ** 2), rtol=0.1)
    np.testing.assert_allclose(year.size, np.std(2 * np.sin(phase)), rtol=0.02)
    np.testing.assert_allclose([effect.size for effect in effects[3:]], [0.0] * 3, atol=1e-9)


def test_constant_columns_have_no_effect_and_few_numbers_are_all_compared(rng):
    X = np.stack([np.ones(50), rng.integers(3, size=50), np.eye(50)[0]], axis=1)
    factors = [Factor(f"x{i}", "number", (i,)) for i in range(3)]
    effects = partial_dependence(lambda X: pd.DataFrame({"mean": X.sum(axis=1)}), X, factors, 9)
    assert [effect.factor.name for effect in effects] == ["x1", "x2"]
    assert effects[0].places.tolist() == [0.0, 1.0, 2.0]
    (first,) = partial_dependence(lambda X: pd.DataFrame({"mean": X.sum(axis=1)}), X, factors, 2)
    np.testing.assert_allclose(first.predicted["mean"], [1.0, 2.0, 3.0])  # x2 keeps its median
    # moving by 1 in one row of fifty matters less than by 1 in a third of the rows
    np.testing.assert_allclose(effects[1].size, X[:, 2].std())


def test_residuals_are_quantiles_of_the_transforms_of_any_likelihood(rng):
    Y, mean, variance = rng.normal(size=(9, 2)), rng.normal(size=(9, 2)), np.full((9, 2), 4.0)
    predictions = {"point": mean, "variance": variance}
    np.testing.assert_allclose(residuals(Y, predictions), (Y - mean) / 2.0, rtol=1e-6)
    pit = rng.uniform(size=(9, 2))
    pit[0, 0] = 1.0
    z = residuals(Y, predictions | {"pit": pit})
    np.testing.assert_allclose(z[1:], stats.norm.ppf(pit[1:]))
    assert 5.99 < z[0, 0] < 6.0
    P = np.array([[0.9, 0.1], [0.3, 0.7]])
    labels = np.array([[0.0], [0.0]])
    np.testing.assert_allclose(residuals(labels, {"probabilities": P}), [[0.1], [-0.7]])


def test_planted_outliers_are_the_most_surprising_rows(rng):
    """The last two are so far that their transforms round to 1: the farther comes first."""
    mean, variance = rng.normal(size=(1000, 1)), rng.uniform(0.5, 2.0, size=(1000, 1))
    Y = mean + np.sqrt(variance) * np.clip(rng.normal(size=(1000, 1)), -3.0, 3.0)
    for row, z in ((17, -4.0), (400, 5.0), (3, 20.0), (999, 30.0)):
        Y[row] = mean[row] + z * np.sqrt(variance[row])
    predictions = {"point": mean, "variance": variance}
    assert surprising_rows(Y, predictions, 4).tolist() == [999, 3, 400, 17]
    pit = gs.data.metrics.pit(Y, mean, variance)
    assert surprising_rows(Y, predictions | {"pit": pit}, 4).tolist() == [999, 3, 400, 17]
    P = np.tile([0.2, 0.8], (50, 1))
    P[7] = [0.99, 0.01]
    labels = np.ones((50, 1))
    labels[30] = 0.0
    assert surprising_rows(labels, {"probabilities": P}, 2).tolist() == [7, 30]
