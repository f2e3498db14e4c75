"""The sums over rows of a basis that does not move, kept in the place of the data."""

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.collapsed import RowSums
from gpflow_sparse.rotation import Rotation, rotate

# What a parameter may move on its way out of its transform and back, in float32.
_ROUNDING = 1e-5


class FixedStatistics(tf.Module):
    """
    Sums over rows, as variables, and the parameters that they were computed with.

    Whatever the parameters of the given modules become afterwards, the sums do not follow: see
    :meth:`require_current`.
    """

    def __init__(
        self, sums: RowSums, *, rotated: bool, fixed: Sequence[gpflow.base.Module]
    ) -> None:
        """
        :param rotated: also keep the rotation that makes the functions orthogonal on the data.
        :param fixed: modules whose parameters the sums depend on; set to be not trainable.
        """
        super().__init__()
        self._sums = tuple(_variable(part) for part in sums)
        self._rotation = tuple(_variable(part) for part in rotate(sums)) if rotated else None
        self._fix(fixed)

    @property
    def sums(self) -> RowSums:
        """As they were computed."""
        return RowSums(*(tf.convert_to_tensor(part) for part in self._sums))

    @property
    def rotation(self) -> Rotation:
        """Of the sums; only if asked for when made."""
        return Rotation(*(tf.convert_to_tensor(part) for part in self._rotation or ()))

    @property
    def is_rotated(self) -> bool:
        """Whether there is a :attr:`rotation`."""
        return self._rotation is not None

    def update(self, sums: RowSums, fixed: Sequence[gpflow.base.Module]) -> None:
        """New sums, for the modules and their parameters as they are now."""
        _assign(self._sums, sums)
        if self._rotation is not None:
            _assign(self._rotation, rotate(sums))
        self._fix(fixed)

    def is_current(self, fixed: Sequence[gpflow.base.Module]) -> bool:
        """
        Whether these are the modules of the sums, and their parameters as they were then, but for
        the rounding of a transform.
        """
        same = all(mine is given for mine, given in zip(self._fixed, fixed, strict=True))
        return same and np.allclose(self._current_values(), self._values.numpy(), rtol=_ROUNDING)

    def require_current(self, fixed: Sequence[gpflow.base.Module]) -> None:
        """
        Looks at the values of now, while tracing too.

        :raises ValueError: unless :meth:`is_current`.
        """
        with tf.init_scope():
            if tf.executing_eagerly() and not self.is_current(fixed):
                raise ValueError(
                    "kernel or mean_function has other parameters than when the data were read: "
                    "call refresh_basis(), or leave them as they are while reweighted is on."
                )

    def _fix(self, fixed: Sequence[gpflow.base.Module]) -> None:
        for module in fixed:
            gpflow.set_trainable(module, False)
        self._fixed = tuple(fixed)
        self._values = _variable(self._current_values())

    def _current_values(self) -> np.ndarray:
        parameters = [p for module in self._fixed for p in module.parameters]
        values = [np.ravel(p.unconstrained_variable.numpy()) for p in parameters]
        return np.concatenate([np.zeros(0), *values]).astype(np.float64)


def _variable(value: tf.Tensor | np.ndarray) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _assign(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
