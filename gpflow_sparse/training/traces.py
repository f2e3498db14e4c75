"""Traces of training steps, kept for later runs of models with the same structure."""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.training.optimizers import settings_of
from gpflow_sparse.training.state import structure_of
from gpflow_sparse.training.step import draws_statefully

# Number of traces that are kept, each with the values of the variables it was traced with.
_MOST_KEPT = 8
# Modules of optimizers whose settings say all that their steps depend on.
_KNOWN_OPTIMIZERS = ("tf_keras.", "keras.")


class _Trace(NamedTuple):
    """A traced step, and for each captured input the name of its variable, or the input itself."""

    function: Any
    captured: list[Any]


_KEPT: OrderedDict[str, _Trace] = OrderedDict()


class SharedStep:
    """
    A compiled step, which is not traced if a model with the same structure has been trained before,
    by batches of the same shape and an optimizer with the same settings. Tracing takes as long as
    tens of steps.

    A trace refers to variables by its captured inputs alone: the variables of another model are
    passed in their place. Scalars that it captures, such as the bound of a bijector, belong to the
    structure. A step that captures other tensors, or draws by stateful operations, whose seed is in
    the trace, is not shared.
    """

    def __init__(
        self, step: Any, variables: Mapping[str, tf.Variable], optimizer: Any, key: str
    ) -> None:
        """
        :param step: a ``tf.function`` whose arguments are tensors.
        :param variables: those of the model, and slots of the optimizer, by names.
        :param key: the same for steps that differ in the values of variables alone.
        """
        self._step, self._key = step, key
        own = {name: v for name, v in vars(optimizer).items() if isinstance(v, tf.Variable)}
        self._variables = {**own, **variables}  # Keras has a variable for the current rate
        self._concrete: Any = None
        self._handles: list[tf.Tensor] = []

    def __call__(self, *inputs: tf.Tensor) -> Any:
        """The result of the step, for inputs of the same shapes in every call."""
        return self.get_concrete_function(*inputs)._call_flat(list(inputs), self._handles)

    def get_concrete_function(self, *inputs: tf.Tensor) -> Any:
        """The traced step, which may be that of another model."""
        if self._concrete is None:
            self._concrete, self._handles = self._opened(inputs)
        return self._concrete

    def _opened(self, inputs: Sequence[tf.Tensor]) -> tuple[Any, list[tf.Tensor]]:
        """The traced step, and its captured inputs for these variables."""
        key = json.dumps([self._key, [(list(x.shape), x.dtype.name) for x in inputs]])
        if key in _KEPT:
            _KEPT.move_to_end(key)
            trace = _KEPT[key]
            return trace.function, [
                self._variables[part].handle if isinstance(part, str) else part
                for part in trace.captured
            ]
        concrete = self._step.get_concrete_function(*inputs)
        names = {id(v.handle): name for name, v in self._variables.items()}
        captured = [names.get(id(value), value) for value in concrete.captured_inputs]
        others = [part for part in captured if not isinstance(part, str)]
        plain = all(part.dtype != tf.resource and part.shape.rank == 0 for part in others)
        if plain and not draws_statefully(concrete):
            _KEPT[key] = _Trace(concrete, captured)
            while len(_KEPT) > _MOST_KEPT:
                _KEPT.popitem(last=False)
        return concrete, concrete.captured_inputs


def key_of(model: gpflow.models.GPModel, optimizer: Any, settings: Sequence[Any]) -> str | None:
    """
    The key of a training step; None for one that is not shared.

    :param settings: plain values that the trace depends on, beside model and optimizer.
    """
    structure = structure_of(model)
    known = type(optimizer).__module__.startswith(_KNOWN_OPTIMIZERS)
    if not known or structure is None or structure.has_own_classes:
        return None
    try:
        parts = [
            structure.digest,
            getattr(model, "jitter", None),
            settings_of(optimizer),
            [gpflow.default_float().__name__, gpflow.config.default_jitter()],
            *settings,
        ]
        return json.dumps(parts, default=np.generic.item)
    except TypeError:  # a setting that is no number or text, such as a function
        return None
