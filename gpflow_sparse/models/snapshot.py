"""Numbers that were right for the parameters of their time, and the question whether they are."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# What a parameter may move on its way out of its transform and back, in float32.
_ROUNDING = 1e-5


class Snapshot(tf.Module):
    """
    The kinds and settings of some modules, and the values that their variables had at one time.

    :meth:`require_current` looks at the values of now; :meth:`guarded` checks them when a graph
    runs.
    """

    def __init__(self, stale: str) -> None:
        """
        :param stale: the error for modules or values that have changed.
        """
        super().__init__()
        self._stale = stale
        self._signature: tuple[str, ...] = ()
        self._values = tf.Variable(tf.zeros([0], tf.float64), trainable=False, shape=[None])

    def take(self, modules: Sequence[tf.Module]) -> None:
        """Of these modules, as their variables are now."""
        self._signature = _signature(modules)
        values = _values(modules)
        if not self._values.shape.is_compatible_with(values.shape):  # a deep copy: of a fixed shape
            self._values = tf.Variable(values, trainable=False, shape=[None])
        self._values.assign(values)

    @property
    def is_taken(self) -> bool:
        """Whether there is anything to compare with."""
        return bool(self._signature)

    def is_current(self, modules: Sequence[tf.Module]) -> bool:
        """
        Whether these modules are what was there then, their variables but for the rounding of a
        transform.
        """
        return _signature(modules) == self._signature and bool(self._unchanged(modules).numpy())

    def require_current(self, modules: Sequence[tf.Module]) -> None:
        """
        Looks at the values of now, while tracing too.

        :raises ValueError: unless :meth:`is_current`.
        """
        with tf.init_scope():
            if tf.executing_eagerly() and not self.is_current(modules):
                raise ValueError(self._stale)

    def guarded(
        self, variables: Sequence[tf.Variable], modules: Sequence[tf.Module]
    ) -> list[tf.Tensor]:
        """Their values; in a graph, together with a look at the modules whenever it runs."""
        if tf.executing_eagerly():
            return [tf.convert_to_tensor(variable) for variable in variables]
        check = tf.debugging.assert_equal(self._unchanged(modules), True, message=self._stale)
        with tf.control_dependencies([check]):
            return [tf.identity(variable) for variable in variables]

    def _unchanged(self, modules: Sequence[tf.Module]) -> tf.Tensor:
        now, then = _values(modules), tf.convert_to_tensor(self._values)
        if now.shape != then.shape and tf.executing_eagerly():
            return tf.constant(False)
        return tf.reduce_all(tf.abs(now - then) <= _ROUNDING * (1e-3 + tf.abs(then)))


def _signature(modules: Sequence[tf.Module]) -> tuple[str, ...]:
    """Classes and plain settings of the modules and of all modules in them."""
    everything = (m for module in modules for m in (module, *module.submodules))
    return tuple(f"{type(m).__qualname__}{_settings(m)}" for m in everything)


def _settings(module: tf.Module) -> list[tuple[str, Any]]:
    """Public attributes that are flags, numbers or names."""
    found = ((name, value) for name, value in vars(module).items() if name[0] != "_")
    return sorted(pair for pair in found if isinstance(pair[1], bool | int | float | str))


def _values(modules: Sequence[tf.Module]) -> tf.Tensor:
    """All numbers of the modules, ``[n]``."""
    variables = [v for module in modules for v in module.variables]
    parts = [tf.reshape(tf.cast(v, tf.float64), [-1]) for v in variables]
    return tf.concat([tf.zeros([0], tf.float64), *parts], axis=0)
