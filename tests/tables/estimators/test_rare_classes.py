"""The automatic choice on random tables with classes of few rows."""

import numpy as np
import pytest

from gpflow_sparse.estimators import SparseGPClassifier

NUM_TABLES = 24
# A short table whose only row of a class is held out in the choice, for the default tier.
CHEAP = 1


def table(seed):
    """
    A table of 30 to 300 or of 1,001 to 2,000 rows, whose labels follow the first column but for
    those of rare classes: in every second table one class of one row, elsewhere one to three
    classes of 1 to 15 rows.
    """
    rng = np.random.default_rng(seed)
    num_rows = int(rng.choice([rng.integers(30, 301), rng.integers(1001, 2001)], p=[0.25, 0.75]))
    X = rng.normal(size=(num_rows, rng.integers(1, 9)))
    X[:, rng.uniform(size=X.shape[1]) < 0.2] //= 0.5  # columns of few values
    if rng.uniform() < 0.3:
        repeated = rng.integers(0, num_rows, num_rows // 10)
        X[repeated] = X[rng.integers(0, num_rows, len(repeated))]
    num_frequent = 1 if seed % 2 else int(rng.integers(1, 6))
    score = X[:, 0] + 0.3 * rng.normal(size=num_rows)
    y = np.searchsorted(np.quantile(score, np.arange(1, num_frequent) / num_frequent), score)
    order = rng.permutation(num_rows)
    for label in range(num_frequent, num_frequent + (1 if seed % 2 else int(rng.integers(1, 4)))):
        count = 1 if seed % 2 else int(rng.choice([1, rng.integers(2, 10), rng.integers(10, 16)]))
        rare, order = np.split(order, [count])
        y[rare] = label
    return X, np.array([f"class {label}" for label in y])


@pytest.mark.parametrize(
    "seed",
    [pytest.param(s, marks=() if s == CHEAP else pytest.mark.nightly) for s in range(NUM_TABLES)],
)
def test_a_second_is_enough_for_a_model_of_a_table_with_rare_classes(seed):
    X, y = table(seed)
    model = SparseGPClassifier(time_budget=1.0, random_state=seed).fit(X, y)
    P = model.predict_proba(X)
    assert P.shape == (len(y), len(np.unique(y)))
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-6)
