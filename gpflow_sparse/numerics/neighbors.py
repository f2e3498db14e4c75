"""Exact nearest neighbors, by a tree or by all distances; equal distances in order of the index.

Measured in ms for 64 queries among M normal points, 16 neighbors, two cores otherwise idle:

=======  ==========================  ==============================
columns  tree, M = 1e4 | 1e5 | 1e6   all distances, by scikit-learn
=======  ==========================  ==============================
2        0.09 | 0.1 | 0.12
8        1 | 2 | 12                  0.9 | 6 | 56
16       4 | 27                      1 | 7
32       6 | 134                     1 | 10
=======  ==========================  ==============================

So the tree is always built, in 50 ms for 1e5 points, and searched up to 12 columns, where both take
as long for 1e5 points. An inverted file is not faster: the triangle inequality leaves cells with a
third of 1e5 normal points in 8 columns, and with almost all in 16.

Every search orders points by :func:`_squares` and then by their index, so that all of them return
the same where distances are equal, as among whole numbers. Rows whose nearest points are farther
apart than the rounding of any search are left as they were found.
"""

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree

from gpflow_sparse.numerics.row_groups import row_keys

# Points in a leaf: of 8 to 128 the fastest from 64 on, by up to 2.6 against 8 (normal points).
_LEAF = 64
# Columns up to which the tree is searched. By sizes alone: a race would depend on other work.
_MAX_TREE_COLUMNS = 12
# Rows from which the tree is searched by all cores: starting threads takes as long as a few rows.
_PARALLEL = 256
# Bytes of the neighbors that are stored if their number is not given, and of Python's objects for
# each row.
_MEMORY, _OBJECTS = 2**29, 200
# Points in a block of a search by all distances, and points whose distances are formed at once.
_BLOCK, MAX_AT_ONCE = 64, 65_536
# Points beyond the nearest that show where equal distances end.
_SPARE = 8
# Significant bits of distances that are compared.
_BITS = 40
# Squared distances below this are zero: processors may round products as small to zero.
_TINY = 1e-290
# Pairs of rows and points whose distances are compared at once where some are equal.
_PAIRS = 2**18


class NeighborIndex:
    """Index of points ``Z [M, D]`` for exact searches of the nearest."""

    def __init__(self, Z: np.ndarray) -> None:
        """
        :param Z: ``[M, D]``, finite, in units in which distances are to be measured.
        """
        Z = np.ascontiguousarray(Z, np.float64)
        # points near in space are stored near in memory: 10 to 25 per cent faster without caches
        self._order = cKDTree(Z, leafsize=_LEAF).indices.astype(np.int32)
        self._tree = cKDTree(Z[self._order], leafsize=_LEAF)
        self._center = np.mean(Z, axis=0)
        self._largest = np.max(np.sum(np.square(Z - self._center), axis=1))

    def query(self, X: np.ndarray, count: int) -> np.ndarray:
        """
        The ``count`` points nearest to each row, nearest first; of equally near ones the lower
        index first.

        :param X: ``[N, D]``, finite, in the units of Z.
        :param count: H, at most M.
        :return: int32 ``[N, H]``.
        """
        X, num_points = np.asarray(X, np.float64), len(self._order)
        if X.shape[1] <= _MAX_TREE_COLUMNS:
            search, within = self._by_tree, self._within_by_tree
        else:
            search, within = self._by_distances, self._within_by_distances
        found, squares = search(X, min(count + 1, num_points))  # one more shows a tie at the end
        sizes = np.sum(np.square(X - self._center), axis=1, keepdims=True) + self._largest
        margins = _rounding(sizes, squares, X.shape[1])
        reach = (squares + margins)[:, count - 1]
        tied = np.flatnonzero((np.diff(squares, axis=1) <= margins[:, :-1]).any(axis=1))
        found = self._order[found[:, :count]]
        for some in np.array_split(tied, -(-len(tied) * num_points // _PAIRS) or 1):
            if len(some):
                found[some] = self._first(X[some], *within(X[some], reach[some]), count)
        return found

    def _first(self, X: np.ndarray, rows: np.ndarray, places: np.ndarray, count: int) -> np.ndarray:
        """
        The ``count`` nearest points of each row by :func:`_squares` and index.

        :param rows: ascending, with ``places`` in the tree: ``count`` pairs or more for each row.
        """
        squares = _squares(X[rows] - self._tree.data[places])
        points = self._order[places]
        ordered = points[np.lexsort((points, squares, rows))]
        first = np.searchsorted(rows, np.arange(len(X)))
        return ordered[first[:, None] + np.arange(count)]

    def _by_tree(self, X: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Places in the tree ``[N, count]`` and their squared distances, nearest first."""
        distances, found = self._tree.query(X, count, workers=_workers(X))
        return found.reshape(len(X), count), np.square(distances).reshape(len(X), count)

    def _by_distances(self, X: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        distances, found = self._exhaustive.kneighbors(X - self._center, count)
        return found, np.square(distances)

    def _within_by_tree(self, X: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows, ascending, and places in the tree of all pairs with squared distances in reach."""
        found = self._tree.query_ball_point(X, np.sqrt(reach), workers=_workers(X))
        return np.repeat(np.arange(len(X)), [len(places) for places in found]), np.hstack(found)

    def _within_by_distances(
        self, X: np.ndarray, reach: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        X, Z = X - self._center, self._centered
        scores = X @ (2.0 * Z.T)
        scores -= self._norms  # |x|^2 - |x - z|^2
        least = np.sum(np.square(X), axis=1) - reach
        return divmod(np.flatnonzero(scores >= least[:, None]), len(Z))

    @functools.cached_property
    def _centered(self) -> np.ndarray:
        return self._tree.data - self._center  # where distances come from squares

    @functools.cached_property
    def _norms(self) -> np.ndarray:
        return np.sum(np.square(self._centered), axis=1)

    @functools.cached_property
    def _exhaustive(self) -> Any:
        from sklearn.neighbors import NearestNeighbors  # slow to import, and rarely needed

        return NearestNeighbors(algorithm="brute").fit(self._centered)


def _workers(X: np.ndarray) -> int:
    return 1 if len(X) < _PARALLEL else -1


def _rounding(sizes: Any, squares: Any, num_columns: int) -> Any:
    """
    Differences of squared distances that may be rounding in some search.

    :param sizes: largest ``|x|^2 + |z|^2``, from the center of the points.
    """
    of_products = 8.0 * np.finfo(np.float64).eps * (num_columns + 8) * sizes
    return of_products + 2.0 ** (2 - _BITS) * squares + _TINY


def _squares(differences: Any) -> Any:
    """
    Sums of squares ``[...]`` over the last axis, :func:`rounded`: halves are added until one number
    is left, which gives the same bits in NumPy and in a graph, for any number of rows.
    """
    total, size = differences * differences, differences.shape[-1]
    concat = tf.concat if tf.is_tensor(total) else np.concatenate
    while size > 1:
        few, half = size // 2, size - size // 2  # of an odd number the middle one is left
        pairs = total[..., :few] + total[..., half:]
        total, size = concat([pairs, total[..., few:half]], axis=-1), half
    total = total[..., 0]
    where = tf.where if tf.is_tensor(total) else np.where
    return rounded(where(total < _TINY, 0.0 * total, total))


def rounded(values: Any) -> Any:
    """
    float64 values to 40 significant bits, so that equal ones stay equal when they come from
    operations in another order, as in columns that are standardized or under XLA.
    """
    half, mask = 1 << (52 - _BITS), -1 << (53 - _BITS)
    if tf.is_tensor(values):
        bits = tf.bitcast(values, tf.int64) + half
        return tf.bitcast(tf.bitwise.bitwise_and(bits, tf.constant(mask, tf.int64)), tf.float64)
    return ((values.view(np.int64) + half) & mask).view(np.float64)


class HostSearch:
    """
    Searches among points that may change: the index is built again only when they have.

    Results for some rows are stored, so that each is searched once for one state of the points, and
    results of :meth:`find_ahead` for the next search. Results for another state of the points are
    never used: they are discarded, and every row is searched again.
    """

    def __init__(self, most: int | None = None) -> None:
        """
        :param most: number of rows whose neighbors are stored; None for as many as take 512 MiB.
        """
        self._most = most
        self._known: _CachedSearch | None = None

    def find(
        self,
        X: np.ndarray,
        Z: np.ndarray,
        units: np.ndarray,
        count: int,
        columns: Any = slice(None),
        *,
        keep: bool = False,
    ) -> np.ndarray:
        """
        :meth:`NeighborIndex.query` of X, in units already, among ``Z[:, columns] / units``.

        :param Z: an array that owns its memory, or a view of a TensorFlow tensor.
        :param units: units of these columns.
        :param keep: use and extend the stored results.
        """
        known = self._cached_search(Z, units, columns)
        if not keep:
            return known.index.query(X, count)
        found = known.prefetched.pop((count, X.tobytes()), None)
        return known.find(X, count, self._most) if found is None else found

    def find_ahead(
        self,
        X: np.ndarray,
        Z: np.ndarray,
        units: np.ndarray,
        count: int,
        columns: Any = slice(None),
    ) -> None:
        """Store a result for :meth:`find` with ``keep``, and of the earlier ones only the last."""
        known = self._cached_search(Z, units, columns)
        found = known.find(X, count, self._most)
        last = list(known.prefetched.items())[-1:]  # of a step that may not have used it yet
        known.prefetched = dict([*last, ((count, X.tobytes()), found)])

    @property
    def knows_rows(self) -> bool:
        """Whether the results of all rows of the last search had been stored."""
        return self._known is not None and self._known.knows_rows

    def _cached_search(self, Z: np.ndarray, units: np.ndarray, columns: Any) -> "_CachedSearch":
        # assigned once, as `find_ahead` may run in another thread
        known = self._known
        if known is None or not known.is_current(Z, units):
            known = self._known = _CachedSearch(Z, units, columns)
        return known


class _CachedSearch:
    """Index and stored results for one state of the points."""

    def __init__(self, Z: np.ndarray, units: np.ndarray, columns: Any) -> None:
        self.index = NeighborIndex(Z[:, columns] / units)
        self.prefetched: dict[tuple[int, bytes], np.ndarray] = {}
        self.knows_rows = False
        self._stored: dict[int, dict[bytes, bytes]] = {}  # by the number of neighbors
        self._units, self._Z, self._last_Z = units.copy(), Z.copy(), Z

    def is_current(self, Z: np.ndarray, units: np.ndarray) -> bool:
        """Whether the points are still the same."""
        if not np.array_equal(self._units, units):
            return False
        # TensorFlow never writes into memory that a view refers to, and `_last_Z` is such a view
        view = not Z.flags.owndata and not self._last_Z.flags.owndata
        if view and Z.shape == self._last_Z.shape and _address(Z) == _address(self._last_Z):
            return True
        same = np.array_equal(self._Z, Z)
        self._last_Z = Z if same else self._last_Z
        return same

    def find(self, X: np.ndarray, count: int, most: int | None) -> np.ndarray:
        """Stored results, and for other rows results of the index."""
        if count not in self._stored:  # one at a time, so that the memory is bounded
            self._stored = {count: {}}
        stored = self._stored[count]
        rows = [stored.get(key) for key in row_keys(X)]
        known = np.array([row is not None for row in rows], bool)
        self.knows_rows = bool(known.all())
        found = np.empty((len(X), count), np.int32)
        of_known = b"".join(row for row in rows if row is not None)
        found[known] = np.frombuffer(of_known, np.int32).reshape(-1, count)
        if not self.knows_rows:
            new = X[~known]
            found[~known] = self.index.query(new, count)
            bytes_per_row = 8 * X.shape[1] + 4 * count + _OBJECTS
            space = (_MEMORY // bytes_per_row if most is None else most) - len(stored)
            keys = row_keys(new)[: max(0, space)]
            stored.update(zip(keys, row_keys(found[~known]), strict=False))
        return found


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def nearest(X: tf.Tensor, Z: tf.Tensor, count: int, before: tf.Tensor | None = None) -> tf.Tensor:
    """
    The result of :meth:`NeighborIndex.query`, by operations of the graph: O(N M D) time, and memory
    for the distances to at most 65,536 points at a time. No gradient passes through the choice.

    :param before: int32 ``[N]``: only points ``0 ... before - 1`` count for a row.
    :return: int32 ``[N, count]``; -1 where there are no more.
    """
    X, Z = (tf.stop_gradient(tf.cast(part, tf.float64)) for part in (X, Z))
    if Z.shape[0] is None or Z.shape[0] <= max(MAX_AT_ONCE, count):
        found = _nearest_at_once(X, Z, count, before)
    else:
        found = _nearest_in_parts(X, Z, count, Z.shape[0] if before is None else before)
    return found if before is None else tf.where(tf.range(count) < before[:, None], found, -1)


def _nearest_at_once(X: tf.Tensor, Z: tf.Tensor, count: int, before: tf.Tensor | None) -> tf.Tensor:
    """:func:`nearest`; anything where there are no more."""
    center = tf.reduce_mean(Z, axis=0)  # distances come from squares
    norms, norms2 = (tf.reduce_sum(tf.square(part - center), axis=1) for part in (X, Z))
    # |x|^2 - |x - z|^2: larger for points closer to a row
    scores = tf.linalg.matmul(X - center, 2.0 * (Z - center), transpose_b=True) - norms2
    scores = _masked(scores, tf.range(tf.shape(Z)[0]), before)
    least_of = tf.minimum if Z.shape[0] is None else min
    found = largest(scores, least_of(count + _SPARE, Z.shape[0] or tf.shape(Z)[0]))
    values = tf.gather(scores, found, batch_dims=1)
    sizes = (norms + tf.reduce_max(norms2))[:, None]
    margins = _rounding(sizes, norms[:, None] - values[:, :-1], X.shape[1])
    apart = (values[:, :-1] - values[:, 1:] > margins) | (values[:, 1:] <= scores.dtype.min)
    return tf.cond(
        tf.reduce_all(apart[:, :count]),
        lambda: found[:, :count],
        lambda: _ranked(X, Z, found, tf.reduce_any(apart[:, count - 1 :], axis=1), count, before),
    )


def _ranked(
    X: tf.Tensor,
    Z: tf.Tensor,
    found: tf.Tensor,
    complete: tf.Tensor,
    count: int,
    before: tf.Tensor | None,
) -> tf.Tensor:
    """
    :func:`nearest` by :func:`_squares` and index.

    :param found: some nearest points, ``[N, K]``; K is M or more than ``count``.
    :param complete: rows for which these are sure to have the ``count`` nearest, ``[N]``.
    """

    def best(x: tf.Tensor, places: tf.Tensor, limit: tf.Tensor | None) -> tf.Tensor:
        scores = -_squares(x[:, None] - tf.gather(Z, places))
        return tf.gather(places, largest(_masked(scores, places, limit), count), batch_dims=1)

    def of_row(row: tuple[tf.Tensor, ...]) -> tf.Tensor:
        complete, ranked, x, *limit = row
        all_places = tf.range(tf.shape(Z)[0])[None]
        rank = functools.partial(best, x[None], all_places, limit[0] if limit else None)
        return tf.cond(complete, lambda: ranked, lambda: rank()[0])

    ranked = best(X, tf.sort(found, axis=1), before)
    rows = [complete, ranked, X, *([] if before is None else [before[:, None]])]
    every = functools.partial(tf.map_fn, of_row, rows, parallel_iterations=1)
    done = tf.reduce_all(complete) | (tf.shape(found)[1] == tf.shape(Z)[0])
    return tf.cond(done, lambda: ranked, lambda: every(fn_output_signature=tf.int32))


def _nearest_in_parts(X: tf.Tensor, Z: tf.Tensor, count: int, before: Any) -> tf.Tensor:
    """
    :func:`nearest` as the best of the best of each part of the points.

    :param before: only points ``0 ... before - 1`` count for a row.
    :return: int32 ``[N, count]``; anything where there are no more.
    """
    size = max(MAX_AT_ONCE, count)
    num_parts = -(-Z.shape[0] // size)
    # by a point again: zeros may be far from all, and would be counted as rounding
    padded = tf.concat([Z, tf.repeat(Z[-1:], num_parts * size - Z.shape[0], axis=0)], axis=0)
    limits = tf.broadcast_to(before, tf.shape(X)[:1])

    def best(start: tf.Tensor) -> tf.Tensor:
        part = tf.ensure_shape(padded[start : start + size], [size, Z.shape[1]])
        return start + _nearest_at_once(X, part, count, limits - start)

    starts = size * tf.range(num_parts)
    parts = tf.map_fn(best, starts, fn_output_signature=tf.int32, parallel_iterations=1)
    # of [num_parts, N, count]; in order of the parts, so that lower indices come first
    found = tf.reshape(tf.transpose(parts, [1, 0, 2]), [tf.shape(X)[0], num_parts * count])
    scores = -_squares(X[:, None] - tf.gather(padded, found))
    scores = _masked(scores, found, limits)
    return tf.gather(found, largest(scores, count), batch_dims=1)


def _masked(scores: tf.Tensor, places: tf.Tensor, before: tf.Tensor | None) -> tf.Tensor:
    """``scores [N, K]``, the least possible for places ``[K]`` or ``[N, K]`` from ``before`` on."""
    if before is None:
        return scores
    return tf.where(places < before[:, None], scores, scores.dtype.min)


def largest(scores: tf.Tensor, count: int, before: tf.Tensor | None = None) -> tf.Tensor:
    """
    Columns of the ``count`` largest of ``scores [N, M]`` in each row, largest first; of equal ones
    the lower index first.

    :param before: int32 ``[N]``: only columns ``0 ... before - 1`` count for a row.
    :return: int32 ``[N, count]``; -1 where there are no more.
    """
    scores = _masked(tf.stop_gradient(scores), tf.range(tf.shape(scores)[1]), before)
    num_columns = scores.shape[1]
    if num_columns is None or num_columns < _BLOCK * count:
        found = tf.math.top_k(scores, count).indices
    else:
        found = _largest_in_blocks(scores, count)
    return found if before is None else tf.where(tf.range(count) < before[:, None], found, -1)


def _largest_in_blocks(scores: tf.Tensor, count: int) -> tf.Tensor:
    """
    :func:`largest` of many columns: all results lie in the ``count`` blocks with the largest
    maxima, since each of these has a column that is larger than any in another block.
    """
    padded = tf.pad(
        scores, [[0, 0], [0, -scores.shape[1] % _BLOCK]], constant_values=scores.dtype.min
    )
    blocks = tf.reshape(padded, [tf.shape(scores)[0], -1, _BLOCK])
    # in order, so that lower indices come first where scores are equal
    best = tf.sort(tf.math.top_k(tf.reduce_max(blocks, axis=2), count).indices, axis=1)
    candidates = tf.gather(blocks, best, batch_dims=1)  # [N, count, _BLOCK]
    chosen = tf.math.top_k(tf.reshape(candidates, [tf.shape(scores)[0], -1]), count).indices
    return tf.gather(best, chosen // _BLOCK, batch_dims=1) * _BLOCK + chosen % _BLOCK
