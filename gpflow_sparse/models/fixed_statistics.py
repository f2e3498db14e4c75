"""The sums over rows of a basis that does not move, kept in the place of the data."""

from collections.abc import Sequence

import gpflow
import tensorflow as tf

from gpflow_sparse.collapsed import RowSums
from gpflow_sparse.models.snapshot import Snapshot
from gpflow_sparse.rotation import Rotation, rotate

_STALE = (
    "kernel or mean_function has other parameters than when the data were read, or the basis other "
    "functions: call refresh_basis(), or leave them as they are while reweighted is on."
)


class FixedStatistics(tf.Module):
    """
    Sums over rows, as variables, and the parameters that they were computed with.

    Whatever becomes of the given modules afterwards, the sums do not follow:
    :meth:`require_current` looks at the values of now, and reading the sums in a graph checks them
    when it runs.
    """

    def __init__(self, sums: RowSums, *, rotated: bool, fixed: Sequence[tf.Module]) -> None:
        """
        :param rotated: also keep the rotation that makes the functions orthogonal on the data.
        :param fixed: modules on whose variables the sums depend; set to be not trainable.
        """
        super().__init__()
        self._sums = tuple(_variable(part) for part in sums)
        self._rotation = tuple(_variable(part) for part in rotate(sums)) if rotated else None
        self._snapshot = Snapshot(_STALE)
        self._fix(fixed)

    @property
    def sums(self) -> RowSums:
        """As they were computed."""
        return RowSums(*self._snapshot.guarded(self._sums, self._fixed))

    @property
    def rotation(self) -> Rotation:
        """Of the sums; only if asked for when made."""
        return Rotation(*self._snapshot.guarded(self._rotation or (), self._fixed))

    @property
    def is_rotated(self) -> bool:
        """Whether there is a :attr:`rotation`."""
        return self._rotation is not None

    def update(self, sums: RowSums, fixed: Sequence[tf.Module]) -> None:
        """New sums, for the modules and their variables as they are now."""
        _assign(self._sums, sums)
        if self._rotation is not None:
            _assign(self._rotation, rotate(sums))
        self._fix(fixed)

    def is_current(self, fixed: Sequence[tf.Module]) -> bool:
        """
        Whether these are the modules of the sums, and their variables as they were then; see
        :meth:`Snapshot.is_current`.
        """
        same = all(mine is given for mine, given in zip(self._fixed, fixed, strict=True))
        return same and self._snapshot.is_current(fixed)

    def require_current(self, fixed: Sequence[tf.Module]) -> None:
        """:raises ValueError: unless :meth:`is_current`, while tracing too."""
        if not all(mine is given for mine, given in zip(self._fixed, fixed, strict=True)):
            raise ValueError(_STALE)
        self._snapshot.require_current(fixed)

    def _fix(self, fixed: Sequence[tf.Module]) -> None:
        for module in fixed:
            gpflow.set_trainable(module, False)
        self._fixed = tuple(fixed)
        self._snapshot.take(fixed)


def _variable(value: tf.Tensor) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _assign(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
