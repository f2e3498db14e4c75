"""Groups of equal rows, against a dictionary."""

import numpy as np
import pytest

from gpflow_sparse.numerics import row_groups


@pytest.mark.parametrize("collide", [False, True])
def test_groups_of_equal_rows_are_those_of_a_dictionary(rng, monkeypatch, collide):
    if collide:
        monkeypatch.setattr(row_groups, "_hashes", lambda X: np.zeros(len(X), np.int64))
    monkeypatch.setattr(row_groups, "_AT_ONCE", 100)
    X = rng.integers(-1, 2, size=(300, 4)) * rng.choice([-1.0, 1.0], size=(300, 4))  # -0 too
    groups, numbers = row_groups.group_rows(X), {}
    expected = [numbers.setdefault(tuple(row), len(numbers)) for row in X]
    np.testing.assert_array_equal(groups.of_row, expected)
    np.testing.assert_array_equal(groups.first, [expected.index(i) for i in range(len(numbers))])
    np.testing.assert_array_equal(groups.counts, np.bincount(expected))
    assert groups.any_repeats
    assert not row_groups.group_rows(X[groups.first]).any_repeats
    assert len(row_groups.group_rows(X[:0]).first) == 0
