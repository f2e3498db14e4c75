"""The sums over rows of a basis that does not move, kept in the place of the data."""

from collections.abc import Sequence

import gpflow
import tensorflow as tf

from gpflow_sparse.inference.collapsed import RowSums
from gpflow_sparse.inference.rotation import Rotation, rotate
from gpflow_sparse.models.held_data import HeldData, are_same, fingerprint
from gpflow_sparse.models.snapshot import Snapshot

_STALE = (
    "kernel or mean_function has other parameters than when the data were read, or the basis other "
    "functions: call refresh_basis(), or leave them as they are while reweighted is on."
)
_STALE_DATA = (
    "data have been assigned since they were read: call refresh_basis(), which reads them again "
    "and starts the weights at 1."
)


class FixedStatistics(tf.Module):
    """
    Sums over rows, as variables, and the parameters that they were computed with.

    Whatever becomes of the given modules afterwards, the sums do not follow:
    :meth:`require_current` looks at the values of now, and reading the sums in a graph checks them
    when it runs.
    """

    def __init__(
        self, sums: RowSums, *, rotated: bool, fixed: Sequence[tf.Module], data: HeldData
    ) -> None:
        """
        :param rotated: also keep the rotation that makes the functions orthogonal on the data.
        :param fixed: modules on whose variables the sums depend; set to be not trainable.
        :param data: the rows that were summed.
        """
        super().__init__()
        self._sums = tuple(_variable(part) for part in sums)
        self._rotation = tuple(_variable(part) for part in rotate(sums)) if rotated else None
        self._snapshot = Snapshot(_STALE)
        self._fingerprint = tf.Variable(fingerprint(data), trainable=False, shape=[None])
        self._fix(fixed, data)

    @property
    def sums(self) -> RowSums:
        """As they were computed."""
        return RowSums(*self._guarded(self._sums))

    @property
    def rotation(self) -> Rotation:
        """Of the sums; only if asked for when made."""
        return Rotation(*self._guarded(self._rotation or ()))

    @property
    def is_rotated(self) -> bool:
        """Whether there is a :attr:`rotation`."""
        return self._rotation is not None

    def update(self, sums: RowSums, fixed: Sequence[tf.Module], data: HeldData) -> None:
        """New sums, for the modules, their variables and the data as they are now."""
        _assign(self._sums, sums)
        if self._rotation is not None:
            _assign(self._rotation, rotate(sums))
        self._fix(fixed, data)

    def is_current(self, fixed: Sequence[tf.Module], data: HeldData) -> bool:
        """
        Whether these are the modules and the data of the sums, and their variables as they were
        then; see :meth:`Snapshot.is_current`.
        """
        same = all(mine is given for mine, given in zip(self._fixed, fixed, strict=True))
        return same and self._has_same_rows(data) and self._snapshot.is_current(fixed)

    def require_current(self, fixed: Sequence[tf.Module], data: HeldData) -> None:
        """:raises ValueError: unless :meth:`is_current`, while tracing too."""
        if not all(mine is given for mine, given in zip(self._fixed, fixed, strict=True)):
            raise ValueError(_STALE)
        with tf.init_scope():
            if tf.executing_eagerly() and not self._has_same_rows(data):
                raise ValueError(_STALE_DATA)
        self._snapshot.require_current(fixed)

    def _has_same_rows(self, data: HeldData) -> bool:
        return are_same(self._data, data) and bool(self._is_unassigned())

    def _is_unassigned(self) -> tf.Tensor:
        return tf.reduce_all(tf.equal(fingerprint(self._data), self._fingerprint))

    def _guarded(self, variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
        """Their values; in a graph, all that they depend on is checked whenever it runs."""
        if not tf.executing_eagerly():
            tf.debugging.assert_equal(self._is_unassigned(), True, message=_STALE_DATA)
        return self._snapshot.guarded(variables, self._fixed)

    def _fix(self, fixed: Sequence[tf.Module], data: HeldData) -> None:
        for module in fixed:
            gpflow.set_trainable(module, False)
        self._fixed, self._data = tuple(fixed), data
        self._fingerprint.assign(fingerprint(data))
        self._snapshot.take(fixed)


def _variable(value: tf.Tensor) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _assign(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
