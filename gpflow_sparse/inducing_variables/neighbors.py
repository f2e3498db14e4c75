"""Inducing points; each row of the data uses only its nearest neighbors among them."""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import IsotropicStationary, Kernel

from gpflow_sparse.covariances.stationary import covariance, local_covariances, unmapped
from gpflow_sparse.inducing_variables.covariances import refuse_joint_covariances
from gpflow_sparse.numerics import devices
from gpflow_sparse.numerics.neighbors import MAX_AT_ONCE, HostSearch, largest, nearest, rounded
from gpflow_sparse.numerics.tracing import numpy_function
from gpflow_sparse.validation import checks

# Number of points up to which distances to all, in the graph, are as fast as a tree outside of it.
_MAX_IN_GRAPH = 4096
# Ratios of lengthscales are rounded to steps of ten per cent, so that trees are rebuilt rarely.
_METRIC_STEP = 0.1
# Trees by points and kernel; not a part of models, since they can be rebuilt.
_SEARCHES: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[Any, HostSearch]]
_SEARCHES = weakref.WeakKeyDictionary()


class NeighborInducingPoints(InducingVariables):
    """
    M inducing points Z. Every row of the data has H neighbors in them: the nearest in the kernel's
    own metric, and some global points that are neighbors of all rows.

    Tran, Milios, Michiardi and Filippone, "Sparse within Sparse Gaussian Processes using Neighbor
    Information", section 3. For isotropic stationary kernels distances are taken in lengthscales,
    whose ratios are rounded in steps of ten per cent; for others the neighbors of x are the points
    with the largest ``k(x, z)^2 / k(z, z)``, the reduction of the variance at x by each alone. The
    paper's two rules for such kernels disagree with each other.

    Z is not trainable unless it is made so, since neighbors of all rows would have to be found at
    every step. Up to 4,096 points, if Z is trained, or if TensorFlow has a GPU, that search
    takes O(M D) a row and is part of the graph; otherwise a tree outside of the graph is searched,
    which XLA cannot compile.
    """

    def __init__(
        self,
        Z: Any,
        num_neighbors: int,
        *,
        global_indices: Sequence[int] = (),
        num_remembered: int | None = None,
        name: str | None = None,
    ) -> None:
        """
        :param Z: inducing points ``[M, D]``.
        :param num_neighbors: H, at most M, the global ones among them.
        :param global_indices: rows of Z that are neighbors of every row, fewer than H.
        :param num_remembered: number of training rows whose neighbors, found outside of the graph,
            are stored for later steps, ``4 H + 8 D + 16`` bytes each; None for as many as take 512
            MiB, for each kernel. 0, and rows beyond the number, finds neighbors at every step.
        :raises ValueError: for Z that is not a matrix, or counts and indices that do not fit it.
        """
        super().__init__(name=name)
        if isinstance(Z, InducingVariables):
            raise ValueError(
                "Z must be a matrix [M, D] of points, since which patches are nearest depends on "
                f"the patch of the image and not on the image; got {type(Z).__name__}. Give the "
                "points as an array, or take OrthogonalInducingVariables for patches."
            )
        self.Z = Parameter(checks.require_matrix(Z, "Z"), trainable=False)
        self.num_neighbors = checks.require_count(num_neighbors, "num_neighbors")
        self.global_indices = _as_indices(global_indices)
        if num_remembered is not None:
            num_remembered = checks.require_whole(num_remembered, "num_remembered")
        self.num_remembered = num_remembered
        self.validate_neighbors()

    def validate_neighbors(self) -> None:
        """:raises ValueError: for counts and indices that do not fit Z; they can be assigned."""
        M, H = int(self.Z.shape[0]), checks.require_count(self.num_neighbors, "num_neighbors")
        if H > M:
            raise ValueError(
                f"num_neighbors must be at most {M}, the number of rows of Z; got {H}."
            )
        indices = self.global_indices
        inside = all(0 <= index < M for index in indices)
        if not inside or len(set(indices)) < len(indices) or len(indices) >= H:
            raise ValueError(
                f"global_indices must be fewer than num_neighbors = {H} different rows of Z, from "
                f"0 to {M - 1}; got {tuple(indices)}."
            )
        if self.num_remembered is not None and self.num_remembered < 0:
            raise ValueError(f"num_remembered must be at least 0, got {self.num_remembered}.")

    @property
    def num_inducing(self) -> tf.Tensor:
        """M."""
        return tf.shape(self.Z)[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(M, D, 1)``."""
        return (*self.Z.shape, 1)

    def neighbors(self, X: tf.Tensor, kernel: Kernel) -> tf.Tensor:
        """
        The neighbors of each row: the global points, then the nearest, nearest first.

        No gradient passes through the choice.

        :param X: ``[N, D]``.
        :return: int32 ``[N, H]``.
        """
        return self._neighbors(X, kernel, keep=False)

    def training_neighbors(self, X: tf.Tensor, kernel: Kernel) -> tf.Tensor:
        """:meth:`neighbors` of training rows, which come again: see :attr:`num_remembered`."""
        return self._neighbors(X, kernel, keep=True)

    def _neighbors(self, X: tf.Tensor, kernel: Kernel, *, keep: bool) -> tf.Tensor:
        if self.num_neighbors == self.Z.shape[0]:
            return tf.tile(tf.range(self.num_neighbors)[None], [tf.shape(X)[0], 1])
        found = self.closest(X, kernel, self.num_neighbors, keep=keep)
        if not self.global_indices:
            return found
        fixed = tf.constant(self.global_indices, tf.int32)
        repeated = tf.reduce_any(found[:, :, None] == fixed, axis=2)  # [N, H]
        order = tf.argsort(tf.cast(repeated, tf.int32), axis=1, stable=True)
        others = tf.gather(found, order, batch_dims=1)[:, : self.num_neighbors - fixed.shape[0]]
        return tf.concat([tf.tile(fixed[None], [tf.shape(found)[0], 1]), others], axis=1)

    def ranked(self, X: tf.Tensor, kernel: Kernel, count: int) -> tf.Tensor:
        """
        One set of points for all rows, the first ``count`` by rank: a point's rank is its best
        position in the list of nearest points of any row, and among equals the one closer to its
        row is first. Global points come before all others.

        Without global points the set contains the union of the rows' H nearest for the largest H
        for which that has at most ``count`` points; the set of any larger ``count`` contains it.

        :param X: ``[N, D]``.
        :param count: at most M.
        :return: int32 ``[count]``, none twice.
        """
        lists = self.closest(X, kernel, count)  # [N, count]
        places = tf.tile(tf.range(count)[None], [tf.shape(X)[0], 1])
        flat = tf.reshape(lists, [-1])
        Z = tf.gather(tf.convert_to_tensor(self.Z), flat)[:, None]
        own, cross, _ = local_covariances(kernel, tf.repeat(X, count, axis=0), Z)
        # k(x, z)^2 / k(z, z): how much f(z) alone reduces Var f(x)
        closeness = tf.math.divide_no_nan(tf.square(cross[:, 0]), own[:, 0, 0])
        closeness = tf.stop_gradient(closeness)
        by_closeness = tf.argsort(closeness, direction="DESCENDING", stable=True)
        by_place = tf.argsort(tf.gather(tf.reshape(places, [-1]), by_closeness), stable=True)
        ordered = tf.gather(flat, tf.gather(by_closeness, by_place))
        fixed = tf.constant(self.global_indices, tf.int32)
        return tf.ensure_shape(tf.unique(tf.concat([fixed, ordered], axis=0)).y[:count], [count])

    def predecessors(self, drawn: tf.Tensor, kernel: Kernel) -> tf.Tensor:
        """
        The H nearest of the points that precede each drawn point, global or not.

        O(n M D) in the graph: no table of all points is kept.

        :param drawn: int32 ``[n]``.
        :return: int32 ``[n, H]``; -1 where there are no more.
        """
        Z = tf.gather(tf.convert_to_tensor(self.Z), drawn)
        return self.closest(Z, kernel, self.num_neighbors, before=drawn)

    def links(self, drawn: tf.Tensor, kernel: Kernel) -> tf.Tensor:
        """
        Each point drawn and its :meth:`predecessors`, int32 ``[n, 1 + H]``: the point itself also
        stands where there are no more.
        """
        before = self.predecessors(drawn, kernel)
        before = tf.where(before >= 0, before, drawn[:, None])
        return tf.concat([drawn[:, None], before], axis=1)

    @staticmethod
    def metric(kernel: Kernel) -> tf.Tensor | None:
        """
        The units of the columns that the kernel reads in which distances are taken: lengthscales
        relative to the first, ``[D']`` or a scalar, rounded. None for kernels whose value does not
        fall with a distance. For a :class:`~gpflow_sparse.kernels.LinearMap`: of mapped inputs.
        """
        (kernel,) = unmapped(kernel)
        if not isinstance(kernel, IsotropicStationary):
            return None
        lengthscales = tf.stop_gradient(tf.convert_to_tensor(kernel.lengthscales))
        lengthscales = tf.cast(lengthscales, tf.float64)
        if lengthscales.shape.rank == 0:
            return tf.ones_like(lengthscales)
        ratios = tf.math.log(lengthscales / lengthscales[0])
        return tf.exp(_METRIC_STEP * tf.round(ratios / _METRIC_STEP))

    def closest(
        self,
        X: tf.Tensor,
        kernel: Kernel,
        count: int,
        before: tf.Tensor | None = None,
        *,
        keep: bool = False,
    ) -> tf.Tensor:
        """
        The ``count`` closest points to each row, whatever is global.

        The place of the paper's p(w), eq. (10): a subclass that overrides this chooses points by
        another rule, at random for example, and returns False from :meth:`searches_outside`.
        Objective, predictions and ``count_neighbors`` call it for their rows: with the KL weights
        "counts" a row must have the same points in every call, and "chain" needs ``before``.

        :param before: int32 ``[N]``: only points ``0 ... before - 1`` count for a row.
        :param keep: use and extend results kept by :attr:`num_remembered` and :meth:`look_ahead`.
        :return: int32 ``[N, count]``; -1 where there are no more.
        """
        search, metric = _search_of(self, kernel), self.metric(kernel)
        kernel, X, Z = unmapped(kernel, X, self.Z)
        if metric is None:
            own = kernel(Z, full_cov=False)
            # a point where f is known explains nothing
            scores = tf.math.divide_no_nan(tf.square(covariance(kernel, X, Z)), own)
            return largest(rounded(tf.cast(scores, tf.float64)), count, before)
        X = _scaled(X, kernel, metric)
        if self._in_graph or before is not None:
            return nearest(X, _scaled(Z, kernel, metric), count, before)
        columns = kernel.active_dims

        def outside(X: np.ndarray, Z: np.ndarray, metric: np.ndarray) -> np.ndarray:
            return search.find(X, Z, metric, count, columns, keep=keep)

        found = numpy_function(outside, [X, Z, metric], tf.int32, stateful=False)
        return tf.ensure_shape(found, [X.shape[0], count])

    @property
    def _in_graph(self) -> bool:
        """Whether neighbors are found by operations of the graph."""
        trainable = getattr(self.Z, "trainable", False)  # a frozen model has a tensor
        return bool(trainable) or self.Z.shape[0] <= _MAX_IN_GRAPH or devices.sees_gpu()

    @property
    def entries_of_search(self) -> int:
        """Distances that a search by operations of a GPU forms at once for each row; else 0."""
        return min(int(self.Z.shape[0]), MAX_AT_ONCE) if devices.sees_gpu() else 0

    def searches_outside(self, kernel: Kernel) -> bool:
        """Whether neighbors under this kernel are found outside of the graph."""
        few = self.num_neighbors == self.Z.shape[0] or self._in_graph
        return not few and self.metric(kernel) is not None

    def knows_rows(self, kernel: Kernel) -> bool:
        """Whether the neighbors of all rows of the last search had been stored."""
        return _search_of(self, kernel).knows_rows

    def look_ahead(self, X: tf.Tensor, kernel: Kernel) -> tf.Tensor:
        """
        Find neighbors that :meth:`neighbors` will return later, where :meth:`searches_outside`.

        :return: zero, so that a graph runs it.
        """
        search, metric = _search_of(self, kernel), self.metric(kernel)
        kernel, X, Z = unmapped(kernel, X, self.Z)
        columns = kernel.active_dims

        def outside(X: np.ndarray, Z: np.ndarray, metric: np.ndarray) -> np.int32:
            search.find_ahead(X, Z, metric, self.num_neighbors, columns)
            return np.int32(0)

        arguments = [_scaled(X, kernel, metric), Z, metric]
        return numpy_function(outside, arguments, tf.int32)


refuse_joint_covariances(NeighborInducingPoints, "gs.models.SWSGP")


def _as_indices(value: Any) -> tuple[int, ...]:
    if isinstance(value, str) or np.ndim(value) != 1:
        raise ValueError(f"global_indices must be a list of rows of Z, got {value!r}.")
    return tuple(checks.require_whole(index, "global_indices") for index in value)


def _scaled(X: tf.Tensor, kernel: Kernel, metric: tf.Tensor) -> tf.Tensor:
    """The columns that the kernel reads, in units of the metric."""
    return tf.cast(kernel.slice(X, None)[0], tf.float64) / metric


def _search_of(inducing_variable: NeighborInducingPoints, kernel: Kernel) -> HostSearch:
    searches = _SEARCHES.setdefault(inducing_variable, weakref.WeakKeyDictionary())
    if kernel not in searches:
        searches[kernel] = HostSearch(inducing_variable.num_remembered)
    return searches[kernel]
