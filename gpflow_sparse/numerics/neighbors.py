"""Exact nearest neighbors, by a tree or by all distances, whichever is faster.

Measured in ms for 64 queries among M normal points, 16 neighbors, two cores otherwise idle:

=======  ==========================  ==============================
columns  tree, M = 1e4 | 1e5 | 1e6   all distances, by scikit-learn
=======  ==========================  ==============================
2        0.09 | 0.1 | 0.12
8        1 | 2 | 12                  0.9 | 6 | 56
16       4 | 27                      1 | 7
32       6 | 134                     1 | 10
=======  ==========================  ==============================

Where the points lie near a surface of 3 dimensions the tree takes at most 1 ms in 16 columns. So it
is always built, in 50 ms for 1e5 points, and always used up to 8 columns; above, both are timed on
a few of the points. An inverted file is not faster: the triangle inequality leaves cells with a
third of 1e5 normal points in 8 columns, and with almost all in 16.
"""

import functools
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree

from gpflow_sparse.numerics.row_table import RowTable

# Points in a leaf: of 8 to 128 the fastest from 64 on, by up to 2.6 against 8 (normal points).
_LEAF = 64
# Columns up to which the tree is used without timing, and number of points that are timed.
_MAX_TREE_COLUMNS, _NUM_TIMED = 8, 32
# Rows from which the tree is searched by all cores: starting threads takes as long as a few rows.
_PARALLEL = 256
# Bytes of the neighbors that are stored if their number is not given.
_MEMORY = 2**29
# Points in a block of a search by all distances, and points whose distances are formed at once.
_BLOCK, _MOST_AT_ONCE = 64, 65_536


class NeighborIndex:
    """Index of points ``Z [M, D]`` for exact searches of the nearest."""

    def __init__(self, Z: np.ndarray) -> None:
        """
        :param Z: ``[M, D]``, finite, in units in which distances are to be measured.
        """
        self._center = np.mean(Z, axis=0, dtype=np.float64)  # distances come from squares
        Z = np.ascontiguousarray(Z - self._center, np.float64)
        # points near in space are stored near in memory: 10 to 25 per cent faster without caches
        self._order = cKDTree(Z, leafsize=_LEAF).indices.astype(np.int32)
        self._tree = cKDTree(Z[self._order], leafsize=_LEAF)
        self._by_tree: dict[int, bool] = {}

    def query(self, X: np.ndarray, count: int) -> np.ndarray:
        """
        The ``count`` points nearest to each row, nearest first.

        :param X: ``[N, D]``, finite, in the units of Z.
        :param count: H, at most M.
        :return: int32 ``[N, H]``.
        """
        if count not in self._by_tree:
            self._by_tree[count] = self._tree_is_faster(count)
        search = self._from_tree if self._by_tree[count] else self._by_distances
        return search(np.asarray(X, np.float64) - self._center, count)

    def _from_tree(self, X: np.ndarray, count: int) -> np.ndarray:
        found = self._tree.query(X, count, workers=1 if len(X) < _PARALLEL else -1)[1]
        return self._order[found.reshape(len(X), count)]

    def _by_distances(self, X: np.ndarray, count: int) -> np.ndarray:
        found = self._exhaustive.kneighbors(X, count, return_distance=False)
        return self._order[found]

    @functools.cached_property
    def _exhaustive(self) -> Any:
        from sklearn.neighbors import NearestNeighbors  # slow to import, and rarely needed

        return NearestNeighbors(algorithm="brute").fit(self._tree.data)

    def _tree_is_faster(self, count: int) -> bool:
        Z = self._tree.data
        if Z.shape[1] <= _MAX_TREE_COLUMNS:
            return True
        rows = Z[:: max(1, len(Z) // _NUM_TIMED)][:_NUM_TIMED]
        seconds = []
        for search in (self._from_tree, self._by_distances):
            start = time.perf_counter()
            search(rows, count)
            seconds.append(time.perf_counter() - start)
        return seconds[0] < seconds[1]


class HostSearch:
    """
    Searches among points that may change: the index is built again only when they have.

    Results for some rows are stored, so that each is searched once for one state of the points;
    and those of :meth:`find_ahead` for the next search. What was found for another state of the
    points is never used: it is thrown away, and every row is searched anew when it comes.
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
        """Store a result for :meth:`find` with ``keep``; of earlier ones only the last stays."""
        known = self._cached_search(Z, units, columns)
        found = known.find(X, count, self._most)
        last = list(known.prefetched.items())[-1:]  # of a step that may not have used it yet
        known.prefetched = dict([*last, ((count, X.tobytes()), found)])

    @property
    def knows_rows(self) -> bool:
        """Whether the results of all rows that were asked for last had been stored."""
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
        self._tables: dict[int, RowTable] = {}
        self._lock = threading.Lock()
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
        """Stored results, and for other rows those of the index."""
        with self._lock:
            if count not in self._tables:  # one at a time, so that the memory is bounded
                rows = _MEMORY // RowTable.bytes_per_row(X.shape[1], count)
                self._tables = {count: RowTable(X.shape[1], count, rows if most is None else most)}
            table = self._tables[count]
            found, known = table.find(X)
        self.knows_rows = bool(known.all())
        if not self.knows_rows:
            new = X[~known]
            found[~known] = self.index.query(new, count)
            with self._lock:
                table.add(new, found[~known])
        return found


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def nearest(X: tf.Tensor, Z: tf.Tensor, count: int, before: tf.Tensor | None = None) -> tf.Tensor:
    """
    As :meth:`NeighborIndex.query`, by operations of the graph: O(N M D) time, and memory for the
    distances to at most 65,536 points at a time. No gradient passes through the choice.

    :param before: int32 ``[N]``: only points ``0 ... before - 1`` count for a row.
    :return: int32 ``[N, count]``; -1 where there are no more.
    """
    X, Z = (tf.stop_gradient(tf.cast(part, tf.float64)) for part in (X, Z))
    center = tf.reduce_mean(Z, axis=0)  # distances come from squares
    X, Z = X - center, Z - center
    if Z.shape[0] is None or Z.shape[0] <= max(_MOST_AT_ONCE, count):
        return largest(_closeness(X, Z), count, before)
    found = _nearest_in_parts(X, Z, count, Z.shape[0] if before is None else before[:, None])
    return found if before is None else tf.where(tf.range(count) < before[:, None], found, -1)


def _closeness(X: tf.Tensor, Z: tf.Tensor) -> tf.Tensor:
    """``|x|^2 - |x - z|^2 [N, M]``: larger for points closer to a row."""
    return tf.linalg.matmul(X, 2.0 * Z, transpose_b=True) - tf.reduce_sum(tf.square(Z), axis=1)


def _nearest_in_parts(X: tf.Tensor, Z: tf.Tensor, count: int, before: Any) -> tf.Tensor:
    """
    :func:`nearest` as the best of the best of each part of the points.

    :param before: only points ``0 ... before - 1`` count for a row.
    :return: int32 ``[N, count]``; anything where there are no more.
    """
    size = max(_MOST_AT_ONCE, count)
    num_parts = -(-Z.shape[0] // size)
    padded = tf.pad(Z, [[0, num_parts * size - Z.shape[0]], [0, 0]])

    def best(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scores = _closeness(X, padded[start : start + size])
        least = tf.constant(scores.dtype.min, scores.dtype)
        scores = tf.where(start + tf.range(size) < before, scores, least)
        found = largest(tf.ensure_shape(scores, [X.shape[0], size]), count)
        return tf.gather(scores, found, batch_dims=1), start + found

    kinds = tf.float64, tf.int32
    starts = size * tf.range(num_parts)
    parts = tf.map_fn(best, starts, fn_output_signature=kinds, parallel_iterations=1)
    shape = [tf.shape(X)[0], num_parts * count]  # of [num_parts, N, count]
    scores, found = (tf.reshape(tf.transpose(part, [1, 0, 2]), shape) for part in parts)
    return tf.gather(found, largest(scores, count), batch_dims=1)


def largest(scores: tf.Tensor, count: int, before: tf.Tensor | None = None) -> tf.Tensor:
    """
    Columns of the ``count`` largest of ``scores [N, M]`` in each row, largest first; of equal ones
    the lower index first.

    :param before: int32 ``[N]``: only columns ``0 ... before - 1`` count for a row.
    :return: int32 ``[N, count]``; -1 where there are no more.
    """
    scores = tf.stop_gradient(scores)
    least = tf.constant(scores.dtype.min, scores.dtype)
    if before is not None:
        scores = tf.where(tf.range(tf.shape(scores)[1]) < before[:, None], scores, least)
    num_columns = scores.shape[1]
    if num_columns is None or num_columns < _BLOCK * count:
        found = tf.math.top_k(scores, count).indices
    else:
        found = _largest_in_blocks(scores, count, least)
    return found if before is None else tf.where(tf.range(count) < before[:, None], found, -1)


def _largest_in_blocks(scores: tf.Tensor, count: int, least: tf.Tensor) -> tf.Tensor:
    """
    :func:`largest` of many columns: all results lie in the ``count`` blocks with the largest
    maxima, since each of these has a column that is larger than any in another block.
    """
    padded = tf.pad(scores, [[0, 0], [0, -scores.shape[1] % _BLOCK]], constant_values=least)
    blocks = tf.reshape(padded, [tf.shape(scores)[0], -1, _BLOCK])
    # in order, so that lower indices come first where scores are equal
    best = tf.sort(tf.math.top_k(tf.reduce_max(blocks, axis=2), count).indices, axis=1)
    candidates = tf.gather(blocks, best, batch_dims=1)  # [N, count, _BLOCK]
    chosen = tf.math.top_k(tf.reshape(candidates, [tf.shape(scores)[0], -1]), count).indices
    return tf.gather(best, chosen // _BLOCK, batch_dims=1) * _BLOCK + chosen % _BLOCK
