"""Results stored by rows, against a dictionary."""

import numpy as np
import pytest

from gpflow_sparse.numerics import row_table
from gpflow_sparse.numerics.row_table import RowTable

ROWS = {
    "normal": lambda rng: rng.normal(size=(5000, 3)),
    "whole numbers": lambda rng: rng.integers(0, 30, size=(5000, 3)).astype(float),
    "one column": lambda rng: np.arange(5000.0)[:, None],
}


@pytest.mark.parametrize("make", ROWS.values(), ids=list(ROWS))
@pytest.mark.parametrize("most", [700, 10**6])
def test_results_are_those_of_a_dictionary(rng, make, most):
    X: np.ndarray = make(rng)
    expected: dict[bytes, np.ndarray] = {}
    table = RowTable(X.shape[1], 2, most)
    for part in np.array_split(X, 17):
        part = np.unique(part, axis=0)
        results = rng.integers(0, 10**9, size=(len(part), 2)).astype(np.int32)
        new = ~table.find(part)[1]
        for row, result in zip(part[new], results[new], strict=True):
            if len(expected) < most:
                expected[row.tobytes()] = result
        table.add(part[new], results[new])
    found, known = table.find(X)
    assert table.size == len(expected)
    assert list(known) == [row.tobytes() in expected for row in X]
    for row, result in zip(X[known], found[known], strict=True):
        np.testing.assert_array_equal(result, expected[row.tobytes()])
    assert not table.find(X + 0.25)[1].any()


def test_rows_of_one_hash_are_told_apart(rng, monkeypatch):
    monkeypatch.setattr(row_table, "_hash", lambda words: np.full(len(words), 7, np.uint64))
    X, table = rng.normal(size=(60, 2)), RowTable(2, 1, 100)
    table.add(X[:50], np.arange(50, dtype=np.int32)[:, None])
    found, known = table.find(X)
    np.testing.assert_array_equal(known, np.arange(60) < 50)
    np.testing.assert_array_equal(found[:50, 0], np.arange(50))


def test_the_memory_of_a_row_is_that_of_full_arrays(rng):
    """Of one row more than a power of two, where the hash table is the largest."""
    table = RowTable(3, 5, 2049)
    table.add(rng.normal(size=(2049, 3)), np.zeros((2049, 5), np.int32))
    held = sum(part.nbytes for part in (table._rows, table._results, table._table))
    assert 0.99 < held / (2049 * RowTable.bytes_per_row(3, 5)) <= 1.0


@pytest.mark.parametrize("collide", [False, True])
def test_groups_of_equal_rows_are_those_of_a_dictionary(rng, monkeypatch, collide):
    if collide:
        monkeypatch.setattr(row_table, "_hash", lambda words: words[:, 0] & np.uint64(0))
    monkeypatch.setattr(row_table, "_AT_ONCE", 100)
    X = rng.integers(-1, 2, size=(300, 4)) * rng.choice([-1.0, 1.0], size=(300, 4))  # -0 too
    groups, numbers = row_table.group_rows(X), {}
    expected = [numbers.setdefault(tuple(row), len(numbers)) for row in X]
    np.testing.assert_array_equal(groups.of_row, expected)
    np.testing.assert_array_equal(groups.first, [expected.index(i) for i in range(len(numbers))])
    np.testing.assert_array_equal(groups.counts, np.bincount(expected))
    assert groups.any_repeats
    assert not row_table.group_rows(X[groups.first]).any_repeats
    assert len(row_table.group_rows(X[:0]).first) == 0
