"""Replicas of a training step: each computes its part of the batch, and the parts are averaged.

Variables are plain variables of one process, not copies in the scope of a ``tf.distribute``
strategy. Every process applies the same averaged gradients to its own variables, once, whatever
optimizer it uses: only what is computed from the rows of a batch is done in replicas. The devices
of a process are filled by a loop while the step is traced, in the same thread and graph, so that
the replicas of a process read one set of variables. The strategy sums over the replicas of all
processes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics import linalg, random_draws
from gpflow_sparse.numerics.tracing import compiled

Data = tuple[tf.Tensor, tf.Tensor]


class Replicas:
    """
    The replicas of a synchronous strategy of ``tf.distribute``; without a strategy one, here.

    Replica r of R has rows ``[n r / R]`` to ``[n (r + 1) / R] - 1`` of a batch of n rows.
    """

    count = 1
    """R, the number of replicas in all processes."""
    num_workers = 1
    """Number of processes."""
    is_chief = True
    """Whether this process is the one that writes files."""
    _first = 0  # number of the first replica of this process

    def __init__(self, strategy: Any = None, timeout: float = 600.0) -> None:
        """
        :param strategy: ``tf.distribute.MirroredStrategy``, ``MultiWorkerMirroredStrategy`` or
            ``OneDeviceStrategy``.
        :param timeout: seconds after which a sum that a replica does not contribute to fails.
        :raises ValueError: for another strategy.
        """
        if strategy is None:
            return
        known = (
            tf.distribute.MirroredStrategy,
            tf.distribute.MultiWorkerMirroredStrategy,
            tf.distribute.OneDeviceStrategy,
        )
        if not isinstance(strategy, known):
            names = ", ".join(kind.__name__ for kind in known)
            raise ValueError(f"strategy must be None or one of {names}, got {strategy!r}.")
        self._strategy = strategy
        self._options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout)
        self._devices = strategy.extended.worker_devices  # of this process
        self.count = strategy.num_replicas_in_sync
        self.num_workers = self.count // len(self._devices)
        self._first = self._first_replica()
        self.is_chief = self._first == 0
        self._total = compiled(self._sum_over_workers)

    def mean(
        self, compute: Callable[[Data | None], Sequence[Any]], data: Data | None
    ) -> Sequence[Any]:
        """
        Results of ``compute(data)`` for results that are means over rows.

        With several replicas, the mean of each one's results, weighted by its number of rows. That
        is exact for ``N / n sum_n l_n - KL``, its gradients, and means over rows. Inside of
        ``compute``, random draws of rows are as for the whole batch, and a factorization that fails
        gives NaN: an error of one process would leave the others waiting.

        :param compute: returns tensors, and ``tf.IndexedSlices`` whose indices may differ between
            replicas; slices of all replicas are then joined. It is called once per device.
        :param data: the whole batch ``(X [n, D], Y [n, P])``; None for a model that holds its data,
            which every process then evaluates as a whole.
        """
        if self.count == 1 or data is None:
            return compute(data)
        size = data[0].shape[0]
        n = tf.shape(data[0])[0] if size is None else size
        results = []
        for place, device in enumerate(self._devices):
            start, end = (n * (self._first + place + i) // self.count for i in (0, 1))
            own = data[0][start:end], data[1][start:end]
            with tf.device(device), random_draws.of_rows(start, n), linalg.unchecked():
                share = tf.cast(end - start, tf.float64) / tf.cast(n, tf.float64)
                results.append([_scaled(value, share) for value in compute(own)])
        return self._sum(results)

    def joined(self, slices: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Different indices and the summed values of slices that :meth:`mean` has returned.

        Indices are in the order of their first occurrence.
        """
        if self.count == 1:
            return slices.indices, slices.values
        indices, places = tf.unique(slices.indices)
        return indices, tf.math.unsorted_segment_sum(slices.values, places, tf.size(indices))

    def over_workers(self, values: Any) -> np.ndarray:
        """Sum of an array over all processes, outside of compiled code."""
        array = np.asarray(values, dtype=np.float64)
        if self.num_workers == 1:
            return array
        return np.asarray(self.total([tf.constant(array)])[0])

    def total(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums of tensors over all processes, which have the same bits in all; also in a graph."""
        if self.num_workers == 1:
            return list(values)
        add = self._total if tf.executing_eagerly() else self._sum_over_workers
        return list(add(*values))

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """Whether each flag is true in any process."""
        return [bool(total) for total in self.over_workers(np.array(flags, dtype=np.float64))]

    def of_each_worker(self, values: Sequence[float]) -> np.ndarray:
        """These values of every process, ``[num_workers, len(values)]``."""
        table = np.zeros((self.num_workers, len(values)))
        table[self._first * self.num_workers // self.count] = values
        return self.over_workers(table)

    def _first_replica(self) -> int:
        """Number of the first replica of this process."""

        def number() -> tf.Tensor:
            return tf.distribute.get_replica_context().replica_id_in_sync_group

        numbers = compiled(lambda: self._strategy.run(number))()
        return int(self._strategy.experimental_local_results(numbers)[0])

    def _sum(self, results: Sequence[Sequence[Any]]) -> list[Any]:
        """Sum over all replicas of the results that this process's replicas give."""

        def summed() -> list[Any]:
            context = tf.distribute.get_replica_context()
            number = int(tf.get_static_value(context.replica_id_in_sync_group))
            mine = list(results[number - self._first])
            return context.all_reduce("SUM", mine, options=self._options)  # type: ignore[no-any-return]

        found = list(self._strategy.experimental_local_results(self._strategy.run(summed))[0])
        for total, mine in zip(found, results[0], strict=True):  # static shapes are lost
            if isinstance(total, tf.IndexedSlices):
                total.values.set_shape([None, *mine.values.shape[1:]])
            else:
                total.set_shape(mine.shape)
        return found

    def _sum_over_workers(self, *values: tf.Tensor) -> list[tf.Tensor]:
        parts: list[list[tf.Tensor]] = []
        for device in self._devices:
            with tf.device(device):
                parts.append([tf.zeros_like(v) if parts else tf.identity(v) for v in values])
        return self._sum(parts)


ONE = Replicas()
"""One replica: no strategy."""


def _scaled(value: Any, factor: tf.Tensor) -> Any:
    if isinstance(value, tf.IndexedSlices):
        values = value.values * tf.cast(factor, value.dtype)
        return tf.IndexedSlices(values, value.indices, value.dense_shape)
    return value * tf.cast(factor, value.dtype)
