"""The sums over rows of a basis that does not move, kept in the place of the data."""

from collections.abc import Sequence

import gpflow
import tensorflow as tf

from gpflow_sparse.collapsed import RowSums
from gpflow_sparse.rotation import Rotation, rotate

# What a parameter may move on its way out of its transform and back, in float32.
_ROUNDING = 1e-5


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
        self._fix(fixed)
        self._values = tf.Variable(self._current(), trainable=False, shape=[None])

    @property
    def sums(self) -> RowSums:
        """As they were computed."""
        return RowSums(*self._read(self._sums))

    @property
    def rotation(self) -> Rotation:
        """Of the sums; only if asked for when made."""
        return Rotation(*self._read(self._rotation or ()))

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
        self._values.assign(self._current())

    def is_current(self, fixed: Sequence[tf.Module]) -> bool:
        """
        Whether these are the modules of the sums, and their variables as they were then, but for
        the rounding of a transform.
        """
        same = all(mine is given for mine, given in zip(self._fixed, fixed, strict=True))
        return same and bool(self._unchanged().numpy())

    def require_current(self, fixed: Sequence[tf.Module]) -> None:
        """
        Looks at the values of now, while tracing too.

        :raises ValueError: unless :meth:`is_current`.
        """
        with tf.init_scope():
            if tf.executing_eagerly() and not self.is_current(fixed):
                raise ValueError(_STALE)

    def _read(self, parts: Sequence[tf.Variable]) -> list[tf.Tensor]:
        """In a graph, together with a look at the parameters whenever it runs."""
        if tf.executing_eagerly():
            return [tf.convert_to_tensor(part) for part in parts]
        check = tf.debugging.assert_equal(self._unchanged(), True, message=_STALE)
        with tf.control_dependencies([check]):
            return [tf.identity(part) for part in parts]

    def _fix(self, fixed: Sequence[tf.Module]) -> None:
        for module in fixed:
            gpflow.set_trainable(module, False)
        self._fixed = tuple(fixed)

    def _unchanged(self) -> tf.Tensor:
        now, then = self._current(), tf.convert_to_tensor(self._values)
        if now.shape != then.shape and tf.executing_eagerly():
            return tf.constant(False)
        return tf.reduce_all(tf.abs(now - then) <= _ROUNDING * (1e-3 + tf.abs(then)))

    def _current(self) -> tf.Tensor:
        """All numbers that the sums depend on, ``[n]``."""
        variables = [v for module in self._fixed for v in module.variables]
        parts = [tf.reshape(tf.cast(v, tf.float64), [-1]) for v in variables]
        return tf.concat([tf.zeros([0], tf.float64), *parts], axis=0)


def _variable(value: tf.Tensor) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _assign(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
