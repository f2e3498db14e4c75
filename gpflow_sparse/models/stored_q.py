"""Attributes for a q that is no pair of GPflow parameters: what GPflow's functions say of them.

GPflow's ``NaturalGradient`` and ``set_trainable`` take single parameters. A q of several sets is
in tuples of them, and a q of which a step updates some rows is in row variables. Where these
functions meet one, it says what to call instead.
"""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cache
from typing import Any

import tensorflow as tf
from check_shapes import register_get_shape


class Stored:
    """
    An attribute that is kept as it was set, and marked when it is read. So a copy, a file, and an
    attribute that a user has set need no care of their own.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._name not in vars(instance):
            raise AttributeError(f"{type(instance).__name__} has no {self._name} yet")
        return self._marked(vars(instance)[self._name])

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value

    def __delete__(self, instance: Any) -> None:
        del vars(instance)[self._name]

    @abstractmethod
    def _marked(self, value: Any) -> Any:
        """The value as it is read."""


class PerSet(Stored):
    """Parameters of several sets, read as a tuple."""

    def _marked(self, value: Any) -> Any:
        return _Parameters(value) if isinstance(value, tuple) else value


class LongRows(Stored):
    """A variable of which a training step updates some rows, or None."""

    def _marked(self, value: Any) -> Any:
        if isinstance(value, tf.Variable):
            kind: Any = type(value)
            value.__class__ = _long(kind)
        return value


class _Parameters(tuple[Any, ...]):
    """A tuple that GPflow's ``NaturalGradient`` refuses with an explanation."""

    @property
    def unconstrained_variable(self) -> Any:
        """Raise an error where GPflow reads the variable of a parameter, inside ``tf.function``."""
        raise ValueError(
            "gpflow.optimizers.NaturalGradient takes pairs of parameters, and q_mu and q_sqrt of "
            f"this model are tuples, of {len(self)} set(s): call "
            "gs.training.NaturalGradients(gamma).minimize(loss, model), which updates all sets "
            "from one evaluation of the loss."
        )


@register_get_shape(_Parameters)
def _refused(value: _Parameters, context: Any) -> Any:
    """Raise the same error eagerly, where GPflow reads the shape first."""
    return value.unconstrained_variable


@cache
def _long(kind: type) -> type:
    """The class of a variable whose rows raise an error in GPflow's ``set_trainable``."""
    if issubclass(kind, _Long):
        return kind
    return type(kind.__name__, (_Long, kind), {"__module__": kind.__module__})


class _Long:
    def __iter__(self) -> Iterator[Any]:
        """The rows, as for any variable; GPflow's ``set_trainable`` takes each for a module."""
        for row in super().__iter__():  # type: ignore[misc]
            row.variables = _NoVariables()
            yield row


class _NoVariables:
    """Stand-in for the variables of a module, which raises an error."""

    def __iter__(self) -> Iterator[Any]:
        raise ValueError(
            "gpflow.set_trainable takes parameters and modules, and a row variable of q, such as "
            "q_mu, is a tf.Variable, which training.fit always updates: to train the other "
            "parameters alone, give a Keras optimizer the gradients of model.dense_variables."
        )
