"""Grids of one column: quantiles, few values, many equal ones; refusals."""

import numpy as np
import pytest

from gpflow_sparse.bases import percentile_grid
from tests.oracles import grief as oracle


@pytest.mark.parametrize("m_bar", [1, 2, 10, 100])
def test_nodes_are_quantiles_of_continuous_data(rng, m_bar):
    column = rng.normal(size=300)
    nodes = percentile_grid(column, m_bar)
    assert nodes.dtype == np.float64
    np.testing.assert_allclose(nodes, np.quantile(column, np.linspace(0.0, 1.0, m_bar)), rtol=1e-14)
    np.testing.assert_array_equal(nodes, oracle.percentile_grid(column, m_bar))
    np.testing.assert_array_equal(percentile_grid(rng.permutation(column), m_bar), nodes)
    if m_bar > 1:
        assert (nodes[0], nodes[-1]) == (column.min(), column.max())


def test_at_most_m_bar_values_are_the_nodes_themselves(rng):
    column = rng.choice([3.0, -1.0, 0.25, 7.0], size=50)
    for m_bar in (4, 5, 10):
        np.testing.assert_array_equal(percentile_grid(column, m_bar), [-1.0, 0.25, 3.0, 7.0])
    assert len(percentile_grid(column, 3)) == 3


@pytest.mark.parametrize("share", [0.5, 0.95, 0.999])
def test_a_column_of_mostly_zeros_gets_all_its_nodes(rng, share):
    """With 95 % zeros only 2 of 10 quantiles are distinct."""
    column = np.zeros(2000)
    others = rng.exponential(size=round(2000 * (1.0 - share))) + 1e-3
    column[: len(others)] = others
    m_bar = 10 if share < 0.99 else 2
    nodes = percentile_grid(column, m_bar)
    assert len(nodes) == m_bar
    assert (np.diff(nodes) > 0).all()
    assert nodes[0] == 0.0
    assert nodes[-1] == column.max()
    if share == 0.95:
        assert len(np.unique(np.quantile(column, np.linspace(0.0, 1.0, 10)))) == 2
        # the nodes that were lost spread over the values that are no zeros
        ranks = np.searchsorted(np.sort(others), nodes[1:])
        assert np.diff(ranks).max() < 0.35 * len(others)


def test_nodes_are_never_duplicated_nor_too_many(rng):
    for _ in range(200):
        values = rng.integers(0, rng.integers(1, 15), size=rng.integers(1, 60)) * 0.1
        m_bar = int(rng.integers(1, 12))
        nodes = percentile_grid(values, m_bar)
        assert len(nodes) == min(m_bar, len(np.unique(values)))
        assert (np.diff(nodes) > 0).all()
        assert values.min() <= nodes[0]
        assert nodes[-1] <= values.max()
