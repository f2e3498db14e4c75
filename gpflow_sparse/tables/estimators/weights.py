"""The argument ``sample_weight`` of the estimators."""

import warnings
from typing import Any

import numpy as np
from sklearn.utils import check_array

from gpflow_sparse.tables.fitting.weights import advice_on_mean
from gpflow_sparse.validation.checks import mean_at_most_one


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
