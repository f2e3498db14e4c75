"""Nearest neighbors against a sort of all distances, on the host and in a graph."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics.neighbors import HostSearch, NeighborIndex, largest, nearest
from tests.oracles import swsgp as oracle

BY_TREE = {"tree": True, "all distances": False}


@pytest.fixture(params=BY_TREE.values(), ids=list(BY_TREE))
def route(request, monkeypatch):
    """Both ways to search, whichever would be chosen."""
    monkeypatch.setattr(NeighborIndex, "_tree_is_faster", lambda *_: request.param)
    return request.param


def points(rng, M=300, D=2, N=40):
    return rng.normal(size=(M, D)), rng.normal(size=(N, D))


@pytest.mark.parametrize("H", [1, 7, 300])
@pytest.mark.parametrize("D", [1, 2, 16])
def test_the_index_finds_the_nearest_in_order(rng, route, D, H):
    Z, X = points(rng, D=D)
    found = NeighborIndex(Z).query(X, H)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, oracle.nearest(X, Z, H))


@pytest.mark.parametrize("H", [1, 7, 300])
@pytest.mark.parametrize("D", [1, 2, 16])
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


def test_one_index_answers_for_several_counts(rng):
    Z, X = points(rng, D=16)
    index = NeighborIndex(Z)
    for H in (3, 20, 3):
        np.testing.assert_array_equal(index.query(X, H), oracle.nearest(X, Z, H))


def test_the_faster_route_is_measured_in_many_columns_only(rng, monkeypatch):
    clock = iter([0.0, 1.0, 1.0, 3.0])  # the tree takes 1 s, all distances 2 s
    monkeypatch.setattr("gpflow_sparse.numerics.neighbors.time.perf_counter", lambda: next(clock))
    index = NeighborIndex(rng.normal(size=(50, 13)))
    assert index._tree_is_faster(3)
    assert NeighborIndex(rng.normal(size=(50, 8)))._tree_is_faster(3)  # asks no clock
    clock = iter([0.0, 2.0, 2.0, 3.0])
    assert not index._tree_is_faster(3)


def test_coinciding_places_come_before_others(rng, route):
    """The order among equals is free, the sets are not."""
    Z, X = points(rng, M=30)
    twice = np.concatenate([Z, Z])
    found = NeighborIndex(twice).query(X, 6)
    np.testing.assert_array_equal(np.sort(found % 30)[:, ::2], np.sort(oracle.nearest(X, Z, 3)))
    assert all(len(set(row)) == 6 for row in found)


def test_parts_of_the_points_are_searched_as_all_of_them(rng, monkeypatch):
    X, Z, before = rng.normal(size=(9, 2)), rng.normal(size=(70, 2)), tf.range(0, 72, 8)
    expected = nearest(X, Z, 4), nearest(X, Z, 4, before)
    monkeypatch.setattr("gpflow_sparse.numerics.neighbors._MOST_AT_ONCE", 16)  # the last part has 6
    compiled = tf.function(lambda: (nearest(X, Z, 4), nearest(X, Z, 4, before)), autograph=False)
    np.testing.assert_array_equal(compiled(), expected)


@pytest.mark.parametrize("num_places", [20, 2000])
def test_the_largest_prefer_the_lower_index_where_equal(num_places):
    scores = np.zeros((2, num_places))
    scores[0, [3, 11]], scores[1, 7] = 1.0, -1.0
    np.testing.assert_array_equal(largest(scores, 4), [[3, 11, 0, 1], [0, 1, 2, 3]])


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


def test_the_graph_prefers_the_lower_index_where_equal():
    """Whole numbers, so that equal distances are equal to the last digit; 2,304 and 36 places."""
    for side in (48, 6):
        grid = np.stack(np.meshgrid(range(side), range(side)), -1).reshape(-1, 2).astype(float)
        X = np.array([[2.0, 3.0], [1.5, 2.5]])
        np.testing.assert_array_equal(nearest(X, grid, 9), oracle.nearest(X, grid, 9))


@pytest.mark.parametrize("offset", [1e6, 1e9])
def test_an_offset_of_the_inputs_does_no_harm(rng, route, offset):
    """Such as seconds since 1970: the squares of 1e9 would swallow distances of 1."""
    Z, X = (part + offset for part in points(rng))
    np.testing.assert_array_equal(NeighborIndex(Z).query(X, 8), oracle.nearest(X, Z, 8))


@pytest.mark.parametrize("offset", [1e6, 1e9])
def test_an_offset_of_the_inputs_does_no_harm_in_a_graph(rng, offset):
    Z, X = (part + offset for part in points(rng))
    np.testing.assert_array_equal(nearest(X, Z, 8), oracle.nearest(X, Z, 8))


def test_distances_are_taken_in_double_precision(rng):
    """Two places whose distances differ by a part in 1e10."""
    Z = np.array([[1.0 + 1e-10], [1.0], [5.0]])
    np.testing.assert_array_equal(nearest(np.zeros((1, 1)), Z, 2), [[1, 0]])
    X = tf.zeros([1, 1], tf.float32)
    np.testing.assert_array_equal(nearest(X, tf.constant(Z), 2), [[1, 0]])


def test_no_gradient_passes_through_a_choice(rng):
    Z, X = (tf.Variable(part) for part in points(rng, M=20))
    with tf.GradientTape() as tape:
        places = tf.gather(tf.stop_gradient(Z), nearest(X, Z, 3))
        total = tf.reduce_sum(tf.square(places))
    assert tape.gradient(total, [X, Z]) == [None, None]


@pytest.fixture
def built(monkeypatch):
    """How often an index was made."""
    made = []
    plain = NeighborIndex.__init__
    monkeypatch.setattr(NeighborIndex, "__init__", lambda *args: made.append(1) or plain(*args))
    return made


def test_a_search_lasts_until_places_or_units_change(rng, built):
    Z, X = points(rng)
    search, units = HostSearch(), np.array([1.0, 3.0])
    for _ in range(2):
        found = search.find(X / units, Z, units, 4)
        np.testing.assert_array_equal(found, oracle.nearest(X / units, Z / units, 4))
    assert len(built) == 1
    units[1] = 0.2  # in place, and still noticed
    found = search.find(X / units, Z, units, 4)
    np.testing.assert_array_equal(found, oracle.nearest(X / units, Z / units, 4))
    Z[:50] += 1.0
    found = search.find(X / units, Z, units, 4)
    np.testing.assert_array_equal(found, oracle.nearest(X / units, Z / units, 4))
    assert len(built) == 3


def test_what_was_found_ahead_is_used_once_and_only_for_its_rows(rng, monkeypatch):
    Z, X = points(rng)
    asked, query = [], NeighborIndex.query
    monkeypatch.setattr(
        NeighborIndex, "query", lambda self, X, n: asked.append(len(X)) or query(self, X, n)
    )
    search, units, expected = HostSearch(0), np.ones(2), oracle.nearest(X, Z, 5)
    search.find_ahead(X[:9], Z, units, 4)
    again = search.find(X[:9], Z, units, 4, keep=True)
    np.testing.assert_array_equal(again, expected[:9, :4])
    assert asked == [9]
    again = search.find(X[:9], Z, units, 4, keep=True)
    np.testing.assert_array_equal(again, expected[:9, :4])
    assert asked == [9, 9]
    for rows, count, keep in [(X[1:9], 4, True), (X[:8], 5, False)]:
        search.find_ahead(X[:8], Z, units, 4)
        found = search.find(rows, Z, units, count, keep=keep)
        np.testing.assert_array_equal(found, oracle.nearest(rows, Z, count))


@pytest.mark.parametrize("num_remembered", [0, 15, 1000, None])
def test_rows_that_come_again_have_the_neighbors_of_the_places_as_they_are(rng, num_remembered):
    Z, X = points(rng)
    search, units = HostSearch(num_remembered), np.ones(2)
    for places in (Z, -Z, Z):
        search.find_ahead(X[:20], places, units, 4)
        for rows, count in [(X[:20], 4), (X[10:30], 4), (X[5:25], 6), (X, 4)]:
            found = search.find(rows, places, units, count, keep=count == 4)
            np.testing.assert_array_equal(found, oracle.nearest(rows, places, count))
        search.find_ahead(X[:20], places, units, 4)  # not to be used among other places


def test_a_row_is_searched_once_while_places_and_units_stay(rng, monkeypatch):
    """As far as there is memory for it."""
    Z, X = points(rng)
    asked, query = [], NeighborIndex.query
    monkeypatch.setattr(
        NeighborIndex, "query", lambda self, X, n: asked.append(len(X)) or query(self, X, n)
    )
    monkeypatch.setattr("gpflow_sparse.numerics.neighbors._MEMORY", 30 * (8 * 2 + 4 * 5 + 16))
    search, units = HostSearch(), np.ones(2)
    for rows, expected in [(X[:20], 20), (X[10:25], 5), (X, 15), (X, 10), (X[:30], 0)]:
        del asked[:]
        found = search.find(rows, Z, units, 5, keep=True)
        np.testing.assert_array_equal(found, oracle.nearest(rows, Z, 5))
        assert sum(asked) == expected
        assert search.knows_rows == (expected == 0)
    for _ in range(2):
        search.find(X[:9], Z, 2.0 * units, 5, keep=False)  # other units
        assert not search.knows_rows
    del asked[:]
    search.find(X[:9], Z, 2.0 * units, 5, keep=True)
    assert asked == [9]


def test_many_rows_at_once_are_searched_as_one_by_one(rng):
    """By several threads."""
    Z, X = points(rng, N=300)
    index = NeighborIndex(Z)
    one_by_one = np.concatenate([index.query(row[None], 4) for row in X])
    np.testing.assert_array_equal(index.query(X, 4), one_by_one)
