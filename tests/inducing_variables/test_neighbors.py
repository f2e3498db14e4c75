"""Which inducing points a row sees, against sorts of all distances."""

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Linear, Matern32, Matern52, SquaredExponential, White

from gpflow_sparse.inducing_variables import neighbors
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.numerics.neighbors import NeighborIndex
from tests.oracles import swsgp as oracle

M, N, H = 60, 25, 7
STEP = 0.1  # of the logarithm of a ratio of lengthscales


@pytest.fixture(params=[4096, 10], ids=["in the graph", "outside"])
def route(request, monkeypatch):
    """Both ways to search: few points, and many."""
    monkeypatch.setattr(neighbors, "_MAX_IN_GRAPH", request.param)


@pytest.fixture
def outside(monkeypatch):
    """The way of many points, and how often a tree was built."""
    monkeypatch.setattr(neighbors, "_MAX_IN_GRAPH", 10)
    built = []

    class Counted(NeighborIndex):
        def __init__(self, Z):
            built.append(len(Z))
            super().__init__(Z)

    monkeypatch.setattr("gpflow_sparse.numerics.neighbors.NeighborIndex", Counted)
    return built


def points(rng, D=2):
    return rng.normal(size=(M, D)), rng.normal(size=(N, D))


def rounded(lengthscales):
    """Relative to the first."""
    ratios = np.log(np.asarray(lengthscales) / lengthscales[0])
    return np.exp(STEP * np.round(ratios / STEP))


@pytest.mark.parametrize("lengthscales", [[1.0, 5.0], [0.3, 0.01], [2.0, 2.9]])
def test_distances_are_taken_in_lengthscales(rng, route, lengthscales):
    Z, X = points(rng)
    found = NeighborInducingPoints(Z, H).neighbors(X, Matern52(lengthscales=lengthscales))
    metric = rounded(lengthscales)
    np.testing.assert_array_equal(found, oracle.nearest(X / metric, Z / metric, H))
    assert not np.array_equal(np.sort(found), np.sort(oracle.nearest(X, Z, H)))


def test_a_common_factor_and_small_drifts_build_no_new_tree(rng, outside):
    Z, X = points(rng)
    kernel, inducing = Matern32(lengthscales=[1.0, 2.0]), NeighborInducingPoints(Z, H)
    before = inducing.neighbors(X, kernel)
    for moved in ([3.0, 6.0], [1.0, 2.0 * np.exp(0.3 * STEP)]):
        kernel.lengthscales.assign(moved)
        assert np.allclose(rounded(moved), rounded([1.0, 2.0]))
        np.testing.assert_array_equal(inducing.neighbors(X, kernel), before)
    assert outside == [M]


def test_a_ratio_that_moved_builds_a_new_tree(rng, outside):
    Z, X = points(rng)
    kernel, inducing = Matern32(lengthscales=[1.0, 2.0]), NeighborInducingPoints(Z, H)
    inducing.neighbors(X, kernel)
    kernel.lengthscales.assign([1.0, 8.0])
    metric = rounded([1.0, 8.0])
    expected = oracle.nearest(X / metric, Z / metric, H)
    np.testing.assert_array_equal(inducing.neighbors(X, kernel), expected)
    assert outside == [M, M]


def test_points_that_moved_are_noticed(rng, route):
    Z, X = points(rng)
    kernel, inducing = Matern32(), NeighborInducingPoints(Z, H)
    search = tf.function(lambda: inducing.neighbors(tf.constant(X), kernel), autograph=False)
    np.testing.assert_array_equal(search(), oracle.nearest(X, Z, H))
    Z[3] = X[0]
    inducing.Z.assign(Z)
    np.testing.assert_array_equal(search(), oracle.nearest(X, Z, H))
    assert search()[0, 0] == 3


NON_STATIONARY = {
    "linear": Linear(0.5),
    "airline": Matern32() + Linear(0.5),
    "product": Matern32() * Linear(0.5),
    "noise": SquaredExponential() + White(0.1),
}


@pytest.mark.parametrize("kernel", NON_STATIONARY.values(), ids=list(NON_STATIONARY))
def test_other_kernels_take_what_explains_most(rng, route, kernel):
    Z, X = points(rng)
    found = NeighborInducingPoints(Z, H).neighbors(X, kernel)
    expected = oracle.most_explaining(lambda A, B: kernel(A, B).numpy(), X, Z, H)
    if isinstance(kernel, Linear):  # in one dimension of features all of a sign are equal
        drops = kernel(X, Z) ** 2 / kernel(Z, full_cov=False)
        ours, theirs = (np.take_along_axis(drops.numpy(), i, 1) for i in (found.numpy(), expected))
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    else:
        np.testing.assert_array_equal(np.sort(found), np.sort(expected))


@pytest.mark.parametrize("kernel", [Matern32(), Matern32() + Linear()], ids=["near", "explaining"])
def test_global_points_come_first_and_once(rng, route, kernel):
    Z, X = points(rng)
    without = NeighborInducingPoints(Z, H).neighbors(X, kernel).numpy()
    fixed = [*without[0, [2, 0]], 50]
    found = NeighborInducingPoints(Z, H, global_indices=fixed).neighbors(X, kernel)
    np.testing.assert_array_equal(found, oracle.with_global(without, fixed))
    assert all(len(set(row)) == H for row in found.numpy())


@pytest.mark.parametrize(
    ("size", "lengthscales"),
    [*((size, [1.0, np.exp(1.5)]) for size in (1, 9, 20, M)), (9, [1.0, 1.0])],
)
def test_active_points_are_ranked_by_their_places_in_the_lists_of_rows(
    rng, route, size, lengthscales
):
    Z, X = points(rng)
    found = NeighborInducingPoints(Z, H).ranked(X[:4], Matern32(lengthscales=lengthscales), size)
    expected = oracle.active_set(X[:4] / lengthscales, Z / lengthscales, size)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kernel", [Matern32(), SquaredExponential(1.7, [1.0, np.exp(1.5)])])
def test_predecessors_are_the_nearest_of_those_before(rng, route, kernel):
    Z, _ = points(rng)
    drawn = np.array([0, 59, 3, 7, 8, 30], np.int32)
    found = NeighborInducingPoints(Z, H, global_indices=[50, 2]).predecessors(drawn, kernel)
    everyone = oracle.predecessors(Z / kernel.lengthscales.numpy(), H)
    for j, row in zip(drawn, found.numpy(), strict=True):
        missing = H - len(everyone[j])
        np.testing.assert_array_equal(row, [*everyone[j], *[-1] * missing])
