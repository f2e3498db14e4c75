"""Nearest neighbors against a sort of all distances, on the host and in a graph."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics.neighbors import HostSearch, NeighborIndex, largest, nearest
from tests.oracles import swsgp as oracle

MAX_COLUMNS = {"tree": 1000, "all distances": 0}
module = "gpflow_sparse.numerics.neighbors"


@pytest.fixture(params=MAX_COLUMNS.values(), ids=list(MAX_COLUMNS))
def route(request, monkeypatch):
    """Both ways to search, whichever would be chosen."""
    monkeypatch.setattr(f"{module}._MAX_TREE_COLUMNS", request.param)


def points(rng, M=300, D=2, N=40):
    return rng.normal(size=(M, D)), rng.normal(size=(N, D))


@pytest.mark.parametrize(("D", "H"), [(1, 7), (2, 300), (16, 1), (16, 300)])
def test_the_index_finds_the_nearest_in_order(rng, route, D, H):
    Z, X = points(rng, D=D)
    found = NeighborIndex(Z).query(X, H)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, oracle.nearest(X, Z, H))


@pytest.mark.parametrize(("D", "H"), [(1, 300), (2, 1), (16, 7)])
def test_the_graph_finds_what_the_index_finds(rng, D, H):
    Z, X = points(rng, D=D)
    found = tf.function(lambda X, Z: nearest(X, Z, H), autograph=False)(X, Z)
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found, oracle.nearest(X, Z, H))


@pytest.mark.parametrize(("M", "H"), [(1000, 3), (1024, 16), (4097, 5), (4095, 40)])
def test_many_places_are_searched_alike(rng, route, M, H):
    Z, X = points(rng, M, D=5)
    expected = oracle.nearest(X, Z, H)
    np.testing.assert_array_equal(NeighborIndex(Z).query(X, H), expected)
    np.testing.assert_array_equal(nearest(X, Z, H), expected)


def tied_points(rng, kind):
    """Rows, points and units in which many distances are equal."""
    if kind == "coinciding":
        Z = np.tile(rng.normal(size=(20, 3)), [35, 1])
        return rng.normal(size=(20, 3)), Z, np.ones(3)
    if kind == "binary":
        Z = rng.integers(0, 2, (700, 1)).astype(float)
        return Z[:20], Z, np.ones(1)
    if kind == "one-hot":  # standardized: no whole numbers
        Z = (rng.integers(0, 5, (700, 13)) == 0).astype(float)
        Z = (Z - Z.mean(0)) / Z.std(0)
        return Z[:20], Z, np.exp(0.1 * rng.integers(-9, 9, 13))
    Z = rng.integers(0, 6, (700, 14)) + (1e9 if kind == "seconds since 1970" else 0.0)
    return Z[:20], Z, np.full(14, 1.0 if kind == "seconds since 1970" else 2.7)


@pytest.mark.parametrize(
    "kind", ["coinciding", "binary", "one-hot", "seconds since 1970", "scaled whole numbers"]
)
def test_every_search_takes_the_lower_index_of_equally_near_points(rng, monkeypatch, kind):
    """Tree, all distances, graph, and parts of the points in a graph; many rows as one."""
    X, Z, units = tied_points(rng, kind)
    X, Z = X / units, Z / units
    squares = np.square(X[:, None] - Z).sum(axis=2)
    order = np.argsort(np.round(squares, 9), axis=1, kind="stable")
    for most in MAX_COLUMNS.values():
        monkeypatch.setattr(f"{module}._MAX_TREE_COLUMNS", most)
        index = NeighborIndex(Z)
        for H in (1, 16, 700):
            np.testing.assert_array_equal(index.query(X, H), order[:, :H])
            np.testing.assert_array_equal(index.query(X[3:4], H), order[3:4, :H])
    for most in (700, 256):
        monkeypatch.setattr(f"{module}.MAX_AT_ONCE", most)
        compiled = tf.function(lambda X: nearest(X, Z, 16), autograph=False)
        np.testing.assert_array_equal(compiled(X), order[:, :16])


@pytest.mark.parametrize("D", [4, 14])
def test_points_whose_squared_distances_underflow_are_equally_near(rng, D):
    """Here products of differences are below the normal numbers, which some processors drop."""
    Z = np.concatenate([rng.integers(-2, 3, (40, D)) * 1e-160, np.full((5, D), 1e-100)])
    X = rng.integers(-2, 3, (30, D)) * 1e-160
    for H in (1, 10, 43):
        expected = np.tile(np.arange(H), (30, 1))
        np.testing.assert_array_equal(NeighborIndex(Z).query(X, H), expected)
        np.testing.assert_array_equal(nearest(tf.constant(X), tf.constant(Z), H), expected)


@pytest.mark.nightly
def test_xla_takes_the_lower_index_of_equally_near_points(rng):
    X, Z, units = tied_points(rng, "scaled whole numbers")
    expected = oracle.nearest(X, Z, 8)  # of whole numbers
    X, Z = X / units, Z / units
    np.testing.assert_array_equal(tf.function(nearest, jit_compile=True)(X, Z, 8), expected)


def test_parts_of_the_points_are_searched_as_all_of_them(rng, monkeypatch):
    X, Z, before = rng.normal(size=(9, 2)), rng.normal(size=(70, 2)), tf.range(0, 72, 8)
    expected = nearest(X, Z, 4), nearest(X, Z, 4, before)
    monkeypatch.setattr(f"{module}.MAX_AT_ONCE", 16)  # the last part has 6
    compiled = tf.function(lambda: (nearest(X, Z, 4), nearest(X, Z, 4, before)), autograph=False)
    np.testing.assert_array_equal(compiled(), expected)


@pytest.mark.parametrize(("M", "H"), [(30, 4), (2000, 4), (2000, 40)])
def test_only_places_before_a_row_count(rng, M, H):
    Z, _ = points(rng, M)
    before = np.array([0, 1, 3, H - 1, H, H + 1, M // 2, M - 1], np.int32)
    found = nearest(Z[before], Z, H, before)
    scores = -((Z[before][:, None] - Z) ** 2).sum(axis=2)
    np.testing.assert_array_equal(largest(scores, H, before), found)
    for j, row in zip(before, found.numpy(), strict=True):
        count = min(H, j)
        expected = oracle.nearest(Z[j : j + 1], Z[:j], count)[0] if j else []
        np.testing.assert_array_equal(row, [*expected, *[-1] * (H - count)])


def test_changes_of_places_and_units_in_place_are_noticed(rng):
    Z, X = points(rng)
    search, units = HostSearch(), np.array([1.0, 3.0])
    for change in (lambda: None, lambda: units.put(1, 0.2), lambda: Z[:50].__iadd__(1.0)):
        change()
        found = search.find(X / units, Z, units, 4)
        np.testing.assert_array_equal(found, oracle.nearest(X / units, Z / units, 4))


def test_what_was_found_ahead_is_used_only_for_its_rows(rng):
    Z, X = points(rng)
    search, units = HostSearch(0), np.ones(2)
    for rows, count, keep in [(X[:8], 4, True), (X[1:9], 4, True), (X[:8], 5, False)]:
        search.find_ahead(X[:8], Z, units, 4)
        found = search.find(rows, Z, units, count, keep=keep)
        np.testing.assert_array_equal(found, oracle.nearest(rows, Z, count))


REMEMBERED = [0, 15, 1000, None]


def test_rows_that_come_again_have_the_neighbors_of_the_places_as_they_are(rng):
    Z, X = points(rng)
    for num_remembered in REMEMBERED:
        search, units = HostSearch(num_remembered), np.ones(2)
        for places in (Z, -Z, Z):
            search.find_ahead(X[:20], places, units, 4)
            for rows, count in [(X[:20], 4), (X[10:30], 4), (X[5:25], 6), (X, 4)]:
                found = search.find(rows, places, units, count, keep=count == 4)
                np.testing.assert_array_equal(found, oracle.nearest(rows, places, count))
            search.find_ahead(X[:20], places, units, 4)  # not to be used among other places
