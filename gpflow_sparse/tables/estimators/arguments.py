"""Checks of the parameters of the estimators, targets, and weights and noise of rows."""

import warnings
from collections.abc import Mapping
from numbers import Number, Real
from typing import Any

import gpflow
import numpy as np
import pandas as pd
from gpflow.kernels import Kernel
from sklearn.utils import check_array, check_consistent_length

from gpflow_sparse.data.limits import listed
from gpflow_sparse.tables.fitting.observations import is_standardized, require_counts
from gpflow_sparse.tables.fitting.weights import advice_on_mean
from gpflow_sparse.tables.methods.registry import COMMON, OF_METHODS
from gpflow_sparse.tables.reading.cells import clean, plain_numbers
from gpflow_sparse.tables.reading.tables import as_pandas
from gpflow_sparse.tables.reading.targets import amounts
from gpflow_sparse.validation.checks import mean_at_most_one

# Rows whose joint covariance is one matrix.
_MAX_JOINT_ROWS = 10_000
_MAX_DECIMALS = 12  # of a target


def kind_of_non_numbers(y: Any) -> str:
    """What outputs hold that is not a number: text, dates or other objects; else empty."""
    values = np.asarray(y)
    if values.dtype.kind in "Mm":
        return "dates" if values.dtype.kind == "M" else "durations"
    if values.dtype.kind not in "OUS" or not values.size:
        return ""
    first = values.reshape(-1)[0]
    if texts := [cell for cell in values.reshape(-1).tolist() if isinstance(cell, str)]:
        found = [text for text in texts if plain_numbers([clean(text)]) is None]
        return f"text such as {found[0]!r}" if found else ""
    return "" if first is None or hasattr(first, "__float__") else type(first).__name__


def require_numbers(y: Any) -> np.ndarray:
    """Outputs ``[N]`` or ``[N, P]`` in float64. :raises ValueError: for what is not a number."""
    if found := kind_of_non_numbers(y):
        raise ValueError(
            f"y must hold numbers, got {found}; SparseGPClassifier takes labels of any kind."
        )
    return check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")


def require_parameters(estimator: Any) -> None:
    """:raises ValueError: naming the first parameter of a wrong type."""
    budget: Any = estimator.time_budget
    options: Any = estimator.method_options
    likelihoods = str | gpflow.likelihoods.Likelihood | None
    is_number = isinstance(budget, Real) and not isinstance(budget, bool)
    named = isinstance(options, Mapping) and all(isinstance(name, str) for name in options)
    for name, sound, expected in (
        ("method", isinstance(estimator.method, str), "the name of a method, such as 'auto'"),
        ("kernel", isinstance(estimator.kernel, Kernel | None), "a kernel of GPflow or None"),
        (
            "likelihood",
            isinstance(estimator.likelihood, likelihoods),
            "a likelihood of GPflow, the name of one, or None",
        ),
        (
            "time_budget",
            budget is None or (is_number and 0.0 < float(budget) < np.inf),
            "a positive number of seconds or None",
        ),
        ("method_options", options is None or named, "a dict from names of options to values"),
    ):
        if not sound:
            raise ValueError(f"{name} must be {expected}, got {getattr(estimator, name)!r}.")
    known = {*COMMON, *OF_METHODS, "transform", "trees"}
    if unknown := sorted(set(options or ()) - known):
        raise ValueError(
            f"method_options must hold options of gpflow-sparse fit, got {', '.join(unknown)}."
        )


def require_target(X: Any, y: Any, estimator: Any) -> None:
    """:raises ValueError: without ``y``, or with another number of rows than X has."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    check_consistent_length(X, y)


def with_log_exposure(
    X: pd.DataFrame, column: str | None, likelihood: Any, estimator: Any
) -> pd.DataFrame:
    """
    Rows with the logarithms of their exposures in place of these.

    :param column: the column of the exposures; None for rows as they are.
    :param estimator: as whose columns it is read.
    :raises ValueError: where it is missing or not positive, or outputs are not counts.
    """
    if column is None:
        return X
    require_counts(likelihood)
    if column not in X:
        raise ValueError(f"exposure must be a column of X, got {column!r}.")
    values = _amounts(X, column, estimator)
    if wrong := int(np.sum(~(values > 0.0) | (values == np.inf))):
        raise ValueError(
            f"exposure {column!r} must hold a positive number in every row, got {wrong} others; "
            "drop these rows."
        )
    return X.assign(**{column: np.log(values)})


def _amounts(X: pd.DataFrame, column: str, estimator: Any) -> np.ndarray:
    """The numbers of a column that is not an input [N]; a decimal comma may be in others alone."""
    known = estimator.encoder_.columns_ if hasattr(estimator, "encoder_") else ()
    usual = "," if any(other.decimal == "," for other in known) else None
    return amounts(X, column, estimator.reading, usual)


def without_noise(
    X: pd.DataFrame | Any, column: str | None, estimator: Any
) -> tuple[pd.DataFrame | Any, np.ndarray | None]:
    """
    Rows without the column of known noise variances, and these ``[N]``; None where it is not there.

    :param X: a frame, or what has no such column.
    :param column: None for none.
    :param estimator: as whose columns it is read.
    :raises ValueError: unless there is a finite number of at least 0 in every row.
    """
    X = as_pandas(X)
    if column is None or not isinstance(X, pd.DataFrame) or column not in X:
        return X, None
    values = _amounts(X, column, estimator)
    return X.drop(columns=column), _require_variances(values, f"noise_column {column!r}", len(X))


def known_noise(
    noise_variance: Any, in_column: np.ndarray | None, y: np.ndarray, weights: Any, column: Any
) -> np.ndarray | None:
    """
    Known variances of the noise of all rows ``[N]``; None where there are none.

    :param noise_variance: an argument of ``fit``: one number, or one for each row; or None.
    :param in_column: the values of the column with this name.
    :raises ValueError: for wrong ones, a column that is missing, several outputs, and weights.
    """
    found = in_column
    if noise_variance is not None:
        values = np.asarray(noise_variance, np.float64)
        values = np.full(len(y), values) if values.ndim == 0 else values
        found = _require_variances(values, "noise_variance", len(y))
    if column is not None and (in_column is None or noise_variance is not None):
        raise ValueError(
            f"noise_column must be a column of X, in place of noise_variance; got {column!r}."
        )
    if found is not None and (weights is not None or y.size != len(y)):
        raise ValueError(
            "noise_variance is for one output and rows without sample_weight; fit an estimator for "
            "each output."
        )
    return found


def _require_variances(values: np.ndarray, name: str, num_rows: int) -> np.ndarray:
    good = (values >= 0.0) & np.isfinite(values)
    if values.shape != (num_rows,) or not good.all():
        raise ValueError(
            f"{name} must be a finite number of at least 0 in each of {num_rows} rows, got shape "
            f"{values.shape} with {int((~good).sum())} others."
        )
    return values


def decimals_of(Y: np.ndarray) -> int | None:
    """The least number of decimals with which all numbers are written exactly; None above 12."""
    exact = (n for n in range(_MAX_DECIMALS + 1) if np.array_equal(np.round(Y, n), Y))
    return next(exact, None)


def require_joint(rows: np.ndarray) -> None:
    """:raises ValueError: for more rows than one joint covariance may have."""
    if len(rows) > _MAX_JOINT_ROWS:
        raise ValueError(
            f"X must have at most {_MAX_JOINT_ROWS} rows for a joint covariance, got {len(rows)}."
        )


def require_function(likelihood: Any, asked: str) -> None:
    """:raises ValueError: where f is not in the units of y: for counts and positive outputs."""
    if not is_standardized(likelihood):
        raise ValueError(
            f"likelihood must be one whose f has the units of y where {asked} asked for, got "
            f"{type(likelihood).__name__}; call model_.predict_f."
        )


def require_one_type(labels: np.ndarray) -> None:
    """:raises ValueError: for labels that are not all texts, all numbers, or all booleans."""
    if labels.dtype != object:
        return
    kinds = (str, bool | np.bool_, Number)
    if not any(all(isinstance(label, kind) for label in labels) for kind in kinds):
        names = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            "y must hold labels of one type, texts, numbers or booleans, got "
            f"{listed(names)}; make them texts."
        )


def row_weights(sample_weight: Any, num_rows: int) -> tuple[np.ndarray | None, np.ndarray]:
    """
    Positive weights of the rows that have one, with a mean of at most 1, None if all are 1; and
    which rows these are [N].

    :raises ValueError: unless there is a number of at least 0 for each row, positive for two.
    """
    if sample_weight is None:
        return None, np.ones(num_rows, bool)
    weights = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weights.shape != (num_rows,) or weights.min() < 0.0:
        raise ValueError(
            f"sample_weight must be {num_rows} numbers of at least 0, one for each row, got shape "
            f"{weights.shape}{f' and {weights.min():g}' if weights.size else ''}."
        )
    used = weights > 0.0
    if used.sum() < 2:
        raise ValueError(
            "sample_weight must be above zero for two rows or more, got "
            f"{int(used.sum())} rows of such a weight; leave it out for equal weights."
        )
    weights = weights[used]
    if advice := advice_on_mean(weights):
        warnings.warn(f"sample_weight has {advice}", stacklevel=4)
    weights = mean_at_most_one(weights)
    return (None if np.all(weights == 1.0) else weights), used
