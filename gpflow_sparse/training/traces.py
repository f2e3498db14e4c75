"""Traces of training steps, kept for later runs of models with the same structure."""

import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics.streaming import has_all_rows
from gpflow_sparse.training.state import named_variables, structure_of
from gpflow_sparse.training.step import calls_python, draws_statefully

# Number of traces that are kept, each with the values of the variables it was traced with.
_MAX_KEPT = 8
# Classes of both Keras packages whose objects have all they depend on in their attributes.
_KERAS = ("tf_keras", "keras")
_OPTIMIZERS = (
    *("SGD", "Adam", "AdamW", "Adamax", "Nadam"),
    *("Adagrad", "Adadelta", "RMSprop", "Ftrl", "Lion"),
)
_SCHEDULES = (
    *("CosineDecay", "CosineDecayRestarts", "ExponentialDecay"),
    *("InverseTimeDecay", "PiecewiseConstantDecay", "PolynomialDecay"),
)
# Their attributes that depend on the order of the variables alone, or are in no step.
_BOOKKEEPING = (
    *("name", "_distribution_strategy", "_index_dict", "_sharded_variable_builders"),
    *("_tracker", "_trainable_variables", "_trainable_variables_indices"),
)


class _Trace(NamedTuple):
    """A traced step, and for each captured input the name of its variable, or the input itself."""

    function: Any
    captured: list[Any]


_KEPT: OrderedDict[str, _Trace] = OrderedDict()
_LOCK = threading.Lock()


class SharedStep:
    """
    A compiled step, which is not traced if a model with the same structure has been trained before,
    by batches of the same shape and an optimizer with the same settings. Tracing takes as long as
    tens of steps.

    A trace refers to variables by its captured inputs alone: the variables of another model are
    passed in their place. Scalars that it captures, such as the bound of a bijector, belong to the
    structure. A step is not shared if it captures other tensors, draws by stateful operations,
    whose seed is in the trace, or calls Python, whose function is.
    """

    def __init__(
        self,
        step: Any,
        variables: Mapping[str, tf.Variable],
        optimizer: Any,
        key: Callable[[], str | None],
    ) -> None:
        """
        :param step: a ``tf.function`` whose arguments are tensors.
        :param variables: variables of the model and slots of the optimizer, by names.
        :param key: called when the step is, just before it would be traced; see :func:`key_of`.
        """
        self._step, self._key = step, key
        self._optimizer, self._variables = optimizer, variables
        self._concrete: Any = None
        self._handles: list[tf.Tensor] = []

    def __call__(self, *inputs: tf.Tensor) -> Any:
        """The result of the step, for inputs of the same shapes in every call."""
        function = self.get_concrete_function(*inputs)
        with tf.init_scope():  # a tape around a run would look for the variables of the first model
            return function._call_flat(list(inputs), self._handles)

    def get_concrete_function(self, *inputs: tf.Tensor) -> Any:
        """The traced step, which may be the trace of another model."""
        if self._concrete is None:
            self._concrete, self._handles = self._opened(inputs)
        return self._concrete

    def _opened(self, inputs: Sequence[tf.Tensor]) -> tuple[Any, list[tf.Tensor]]:
        """The traced step, and its captured inputs for these variables."""
        key = self._key()
        if key is None:
            concrete = self._step.get_concrete_function(*inputs)
            return concrete, concrete.captured_inputs
        key = json.dumps([key, [(list(x.shape), x.dtype.name) for x in inputs]])
        rates = {name: v for name, v in vars(self._optimizer).items() if isinstance(v, tf.Variable)}
        handles = {name: v.handle for name, v in {**rates, **self._variables}.items()}
        with _LOCK:
            trace = _KEPT.get(key)
            if trace is not None:
                _KEPT.move_to_end(key)
        if trace is not None:
            captured = [handles[p] if isinstance(p, str) else p for p in trace.captured]
            return trace.function, captured
        concrete = self._step.get_concrete_function(*inputs)
        _keep(key, concrete, handles)
        return concrete, concrete.captured_inputs


def _keep(key: str, concrete: Any, handles: Mapping[str, tf.Tensor]) -> None:
    """Keep a trace for later runs if its key says all that is in it."""
    names = {id(handle): name for name, handle in handles.items()}
    captured = [names.get(id(value), value) for value in concrete.captured_inputs]
    others = [part for part in captured if not isinstance(part, str)]
    plain = all(part.dtype != tf.resource and part.shape.rank == 0 for part in others)
    if not plain or draws_statefully(concrete) or calls_python(concrete):
        return
    with _LOCK:
        _KEPT[key] = _Trace(concrete, captured)
        while len(_KEPT) > _MAX_KEPT:
            _KEPT.popitem(last=False)


def key_of(model: gpflow.models.GPModel, optimizer: Any, settings: Sequence[Any]) -> str | None:
    """
    The key of a training step: everything that its trace freezes. None for a step that is not
    shared, because something in it cannot be compared.

    :param settings: plain values that the trace depends on, beside model and optimizer.
    """
    structure = structure_of(model, compare_jitter=True)
    if structure is None or structure.has_own_classes or not has_all_rows():
        return None
    # Keras applies the constraint of a variable, which is a function
    if any(variable.constraint is not None for variable in named_variables(model).values()):
        return None
    try:
        parts = [structure.digest, _frozen(optimizer), repr(gpflow.config.config()), *settings]
    except _NotComparableError:
        return None
    return json.dumps(parts, default=np.generic.item)


class _NotComparableError(ValueError):
    """A value in an optimizer cannot be compared: two that look alike may act differently."""


def _frozen(value: Any) -> Any:
    """
    Values that an optimizer, or a part of it, freezes into a trace; variables are inputs of it.

    Attributes are compared, not ``get_config``, which has no attributes that are set later, methods
    included, and may be missing or incomplete in a learning-rate schedule.

    :raises _NotComparableError: for functions, objects of unlisted classes, and variables without
        weight decay, which are chosen by names.
    """
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return value
    if isinstance(value, list | tuple):
        return [_frozen(item) for item in value]
    if isinstance(getattr(value, "handle", None), tf.Tensor):  # Keras 3 has variables of its own
        return [str(value.dtype), str(value.shape)]
    kind = type(value)
    package = sys.modules.get(kind.__module__.partition(".")[0])
    if getattr(package, "__name__", "") not in _KERAS or kind not in _known(package):
        raise _NotComparableError
    found = {}
    for name, part in sorted(vars(value).items()):
        if name.startswith("_exclude_from_weight_decay"):
            raise _NotComparableError
        if not name.startswith("_self_") and name not in _BOOKKEEPING:
            found[name] = _frozen(part)
    return [kind.__module__, kind.__name__, found]


def _known(package: Any) -> list[Any]:
    """The optimizers and learning-rate schedules of a Keras package that can be compared."""
    optimizers = package.optimizers
    found = [getattr(optimizers, name, None) for name in _OPTIMIZERS]
    return [*found, *(getattr(optimizers.schedules, name, None) for name in _SCHEDULES)]
