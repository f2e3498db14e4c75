"""Grids of one column: quantiles, few values, many equal ones; refusals."""

import numpy as np

from gpflow_sparse.bases import percentile_grid


def test_at_most_m_bar_values_are_the_nodes_themselves(rng):
    column = rng.choice([3.0, -1.0, 0.25, 7.0], size=50)
    for m_bar in (4, 5, 10):
        np.testing.assert_array_equal(percentile_grid(column, m_bar), [-1.0, 0.25, 3.0, 7.0])
    assert len(percentile_grid(column, 3)) == 3


def test_nodes_are_never_duplicated_nor_too_many(rng):
    for _ in range(200):
        values = rng.integers(0, rng.integers(1, 15), size=rng.integers(1, 60)) * 0.1
        m_bar = int(rng.integers(1, 12))
        nodes = percentile_grid(values, m_bar)
        assert len(nodes) == min(m_bar, len(np.unique(values)))
        assert (np.diff(nodes) > 0).all()
        assert values.min() <= nodes[0]
        assert nodes[-1] <= values.max()
