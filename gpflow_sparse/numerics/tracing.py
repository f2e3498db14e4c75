"""Compiled functions whose traces are freed together with the last reference to them.

This is the one file of the package that uses private parts of TensorFlow and TensorFlow
Probability, which any version of them may change:

- TensorFlow's registry of gradients, ``gradient_registry._registry``. Each call of a function with
  a custom gradient leaves an entry there while it is traced, which would keep the graph, and the
  arrays in it, until the process ends. The variables in the closure of an entry
  (``tape_grad_fn``, ``result``) tell which graph it belongs to, and the name of a graph that a tape
  makes begins with ``__backward_``.
- TensorFlow Probability's cache of bijectors, ``Bijector._cache.storage``, where each constrained
  parameter that is read while tracing leaves an entry that would keep the graph too.
- Names of attributes that ``tf.Module`` keeps for itself, which belong in no file, and its method
  ``_flatten``, the only one that gives variables with their paths, the names in checkpoints.

TensorFlow also keeps the Python functions that graphs call; :func:`numpy_function` needs no private
name to free them.
"""

import contextlib
import functools
import gc
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow_probability import bijectors

Function = TypeVar("Function", bound=Callable[..., Any])
# From the name of a gradient to a dictionary with its function.
_GRADIENTS: dict[str, dict[str, Any]] = ops.gradient_registry._registry
_FUNCTION = "type"
# Attribute of a graph with the gradients that were registered while it was traced, by names.
_HELD = "_gpflow_sparse_gradients"
# Attribute of a graph with the Python functions that it calls.
_CALLED = "_gpflow_sparse_called"
# Names of the graphs that tapes make of the gradients of a function begin so.
_BACKWARD = "__backward_"


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """
    ``tf.function`` without AutoGraph, which nothing in this package needs.

    A trace lasts as long as anything refers to it, such as this function or a tape; gradients
    through it, of any order, can be computed until then. A function that is called within another
    trace belongs to that one, whatever compiled it.

    :param options: options of ``tf.function``.
    """
    return tf.function(_Traced(function), autograph=False, **options)


def with_gradients(
    loss: Callable[[], tf.Tensor], variables: Sequence[tf.Variable]
) -> Callable[[], tf.Tensor]:
    """
    A loss that one compiled function evaluates together with its gradients, for optimizers that
    call it within a tape and outside of compiled functions. First derivatives only. To be called
    outside of any tape, since the loss is traced at once.
    """

    @compiled
    def evaluate() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        found = tape.gradient(value, variables, unconnected_gradients="zero")
        # sums over workers cannot be differentiated by a tape outside of this function
        return tf.stop_gradient(value), [tf.stop_gradient(gradient) for gradient in found]

    # traced here: if it were traced within the tape of an optimizer, TensorFlow would make it
    # differentiable a second time, and each call would keep the features of all rows
    evaluate.get_concrete_function()

    def closure() -> tf.Tensor:
        value, gradients = evaluate()

        @tf.custom_gradient
        def known(*_: tf.Tensor) -> Any:
            return value, lambda upstream: [upstream * gradient for gradient in gradients]

        return known(*variables)

    return closure


def frees_graphs(function: Function) -> Function:
    """
    Decorator of a function that compiles others: once it has returned, graphs are freed that it
    traced and that nothing refers to.

    They are cycles of up to 20 MiB, which Python frees only when it searches all objects. In a
    process with many objects it does so rarely, after some ten to a hundred graphs.
    """

    @functools.wraps(function)
    def freeing(*args: Any, **kwargs: Any) -> Any:
        returned = function(*args, **kwargs)
        if _Traced.any_since_collection:  # of such functions that call each other, one collects
            _Traced.any_since_collection = False
            gc.collect()
        return returned

    return cast(Function, freeing)


def numpy_function(
    function: Callable[..., Any], inputs: Sequence[Any], types: Any, *, stateful: bool = True
) -> Any:
    """
    ``tf.numpy_function`` whose Python function lasts as long as the graph that calls it, with all
    that the function refers to; TensorFlow would keep it until the process ends.
    """
    if tf.executing_eagerly():
        return tf.numpy_function(function, inputs, types, stateful=stateful)
    graph, reference = _outermost(tf.compat.v1.get_default_graph()), weakref.ref(function)
    setattr(graph, _CALLED, [*getattr(graph, _CALLED, []), function])

    def call(*values: Any) -> Any:
        return reference()(*values)  # type: ignore[misc]

    return tf.numpy_function(call, inputs, types, stateful=stateful)


class _Traced:
    """
    A function that frees its traces from the tables of the process.

    An object, since TensorFlow counts the traces of all functions with the same code together, and
    warns of retracing where each is a new function, of another model, that is traced once.
    """

    any_since_collection = False
    """Whether one has been traced since :func:`frees_graphs` collected."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__signature__ = inspect.signature(function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        _Traced.any_since_collection = True
        with _owned(graph) if graph is _outermost(graph) else contextlib.nullcontext():
            return self._function(*arguments, **named)


@contextlib.contextmanager
def _owned(graph: Any) -> Iterator[None]:
    """Keep entries that a trace adds to tables of the process only as long as its graph."""
    before = set(_GRADIENTS)
    try:
        yield
    finally:  # a trace that fails has entries too
        if hasattr(graph, "outer_graph"):
            _hold_gradients(graph, _GRADIENTS.keys() - before)
            _forget_bijectors(graph)


def _hold_gradients(graph: Any, names: Iterable[str]) -> None:
    """
    Let a graph hold the gradients that were registered while it was traced.

    The registry, which must find them as long as the graph lives, then refers to the graph weakly.

    :param names: names of these gradients, and perhaps of gradients of other threads.
    """
    found = {name: _GRADIENTS[name][_FUNCTION] for name in names}
    held = {name: f for name, f in found.items() if _is_within(_graph_of(f), graph)}
    setattr(graph, _HELD, getattr(graph, _HELD, {}) | held)
    reference = weakref.ref(graph)
    for name in held:
        _GRADIENTS[name] = {**_GRADIENTS[name], _FUNCTION: _looked_up(reference, name)}
    weakref.finalize(graph, _forget_gradients, tuple(held)).atexit = False


def _looked_up(graph: Callable[[], Any], name: str) -> Callable[..., Any]:
    """A function for the registry that calls the gradient which a graph holds."""

    def gradient(op: Any, *upstream: Any) -> Any:
        # a tape outside of our trace makes a graph of its gradient, which leaves entries too
        outermost = _outermost(tf.compat.v1.get_default_graph())
        is_ours = getattr(outermost, "name", "").startswith(_BACKWARD)
        with _owned(outermost) if is_ours else contextlib.nullcontext():
            return getattr(graph(), _HELD)[name](op, *upstream)

    return gradient


def _forget_gradients(names: Iterable[str]) -> None:
    for name in names:
        _GRADIENTS.pop(name, None)


def _graph_of(gradient: Any) -> Any:
    """The graph that ``tf.custom_gradient`` registered a gradient for; None if another did."""
    for name in ("tape_grad_fn", "result"):
        code = getattr(gradient, "__code__", None)
        if code is None or name not in code.co_freevars:
            return None
        gradient = gradient.__closure__[code.co_freevars.index(name)].cell_contents
    tensors = filter(tf.is_symbolic_tensor, tf.nest.flatten(gradient))
    return next((tensor.graph for tensor in tensors), None)


def _forget_bijectors(graph: Any) -> None:
    """Delete what bijectors have cached in a graph; no later trace can use it."""
    storage = bijectors.Bijector._cache.storage
    for key in list(storage):
        symbolic = filter(tf.is_symbolic_tensor, tf.nest.flatten(key()))
        if any(_is_within(tensor.graph, graph) for tensor in symbolic):
            edge = storage.pop(key, None)
            for end in (key, getattr(edge, "output_ref", None)):
                if end is not None:
                    end.cancel()  # else it would be deleted again at the end of its tensor
                    storage.pop(end, None)


def _outermost(graph: Any) -> Any:
    """The graph that a graph is nested in, as the bodies of loops are, and in no other."""
    while hasattr(getattr(graph, "outer_graph", None), "outer_graph"):
        graph = graph.outer_graph
    return graph


def _is_within(graph: Any, outer: Any) -> bool:
    """Whether a graph is another one or nested in it; the outermost graph has no outer graph."""
    while graph is not outer and hasattr(graph, "outer_graph"):
        graph = graph.outer_graph
    return graph is outer


def is_bookkeeping(name: str) -> bool:
    """Whether tf.Module itself keeps an attribute of that name."""
    return name.startswith("_self_") or name in ("_name", "_name_scope")


def variables_with_paths(module: tf.Module) -> list[tuple[tuple[Any, ...], tf.Variable]]:
    """All variables of a module, each with the attributes, keys and positions that lead to it."""
    found = module._flatten(predicate=lambda part: isinstance(part, tf.Variable), with_path=True)
    return list(found)
