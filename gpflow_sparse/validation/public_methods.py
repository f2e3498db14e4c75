"""Validation of public methods, and the lock that keeps them from running during a training step.

:func:`public_method` is the one decorator of the public methods of models and posteriors. The body
of such a method contains no checks: its arguments are valid tensors, the components of the
object fit each other, and no training step changes the parameters while it runs.
"""

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.validation import checks, component_checks

Method = TypeVar("Method", bound=Callable[..., Any])
_FLAGS = ("full_cov", "full_output_cov", "compile")
_THREAD = threading.local()  # `.inside` while a public method runs in this thread


def public_method(
    result: str | None = None, *, prediction: bool = False
) -> Callable[[Method], Method]:
    """
    Decorator of a public method of a model or posterior: validate, lock, run, check the result.

    Arguments are recognized by their names: ``Xnew`` and ``X`` are inputs, ``data`` is a pair
    ``(X, Y)``, ``num_samples`` a count or None, ``precompute_cache`` a kind of GPflow cache,
    and ``full_cov``, ``full_output_cov`` and ``compile`` are flags. The method receives the
    converted values. The owner provides ``_require_parts(num_columns, dtype)``, which refuses
    components that do not fit each other, ``input_dim`` and ``dtype``; and
    ``_require_inputs(X, name)`` and ``_require_data(data)`` where a method takes them.

    When one public method calls another, only the outer one is validated.

    :param result: name of the returned tensors in errors. Eagerly, a result that is not finite
        raises if a parameter is at fault; None leaves the result unchecked.
    :param prediction: whether to check, also in a graph, the parameters when it is traced, and the
        inputs for NaN and infinity when it runs. Objectives are not checked: ``fit`` checks their
        value.
    :raises ValueError: from the decorated method, for arguments and components as above, and for a
        failed factorization, naming the invalid parameter.
    """

    def decorate(method: Method) -> Method:
        parameters = inspect.signature(method).parameters
        names = tuple(parameters)[1:]
        optional = {name for name in names if parameters[name].default is None}

        # AutoGraph would convert all that a method calls, which nothing here needs, and say so
        # where it cannot
        @tf.autograph.experimental.do_not_convert
        @functools.wraps(method)
        def validated(self: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(_THREAD, "inside", False) or len(args) > len(names):
                return method(self, *args, **kwargs)
            with _lock_of(self):
                _THREAD.inside = True
                try:
                    values = dict(zip(names, args, strict=False)) | kwargs
                    values = _validate(self, values, optional)
                    if prediction and not tf.executing_eagerly():
                        values = _watch(self, values)
                    with component_checks.explain_failures(self):
                        returned = method(self, **values)
                    if result is not None:
                        found = tf.nest.flatten(returned)
                        component_checks.require_finite_result(self, result, *found)
                    return returned
                finally:
                    _THREAD.inside = False

        return cast(Method, validated)

    return decorate


def explain_arguments(
    usage: str | None = None, instead: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Method], Method]:
    """
    Decorator of a public function or constructor, which answers other arguments than it has.

    :param usage: a call to it; None, for a constructor, for the names of its arguments.
    :param instead: for names of arguments that users may expect, those to be written instead.
    :raises ValueError: from the decorated function, for arguments that it does not have, and for
        missing ones.
    """

    def decorate(function: Method) -> Method:
        signature = inspect.signature(function)
        by_name = [key for key, one in signature.parameters.items() if one.kind is one.KEYWORD_ONLY]
        others = [key for key in signature.parameters if key not in {*by_name, "self"}]
        names = f"({', '.join(others)}) and, by name, {', '.join(by_name)}"

        @functools.wraps(function)
        def explained(*args: Any, **kwargs: Any) -> Any:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                hints = [f"{instead[key]} in place of {key}" for key in kwargs if key in instead]
                told = ", with ".join([usage or type(args[0]).__name__ + names, *hints])
                name = told.partition("(")[0]
                raise ValueError(f"{name}: {error}; write {told}.") from None
            return function(*args, **kwargs)

        return cast(Method, explained)

    return decorate


def _validate(owner: Any, values: dict[str, Any], optional: Container[str]) -> dict[str, Any]:
    """
    The arguments of a public method of ``owner``, by name, as tensors and plain values.

    :param optional: names of the arguments that may be None.
    """
    num_columns = owner.input_dim
    for name in ("Xnew", "X"):
        if name in values and not (name in optional and values[name] is None):
            values[name] = owner._require_inputs(values[name], name)
            num_columns = values[name].shape[-1] if values[name].shape.rank else None
    owner._require_parts(num_columns, owner.dtype)
    if "data" in values:
        values["data"] = owner._require_data(values["data"])
        if num_columns is None:
            owner._require_parts(values["data"][0].shape[-1], owner.dtype)
    for name in _FLAGS:
        if name in values:
            checks.require_flag(values[name], name)
    if values.get("num_samples") is not None:
        checks.require_count(values["num_samples"], "num_samples")
    if values.get("precompute_cache") is not None:
        values["precompute_cache"] = _cache_type(values["precompute_cache"])
    return values


def _watch(owner: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Inputs and data that raise when a graph runs on values that are not finite."""
    component_checks.require_sound(owner)
    for name in ("Xnew", "X"):
        if values.get(name) is not None:
            values[name] = checks.require_finite_in_graph(values[name], name)
    if "data" in values:
        values["data"] = tuple(map(checks.require_finite_in_graph, values["data"], "XY"))
    return values


def _cache_type(value: PrecomputeCacheType | str) -> PrecomputeCacheType:
    """GPflow's ``precompute_cache`` argument, which may be given by its name."""
    names = [kind.value for kind in PrecomputeCacheType]
    if isinstance(value, PrecomputeCacheType):
        return value
    if isinstance(value, str) and value.lower() in names:
        return PrecomputeCacheType(value.lower())
    raise ValueError(f"precompute_cache must be one of {', '.join(names)} or None; got {value!r}.")


class _FairLock:
    """
    A reentrant lock that threads acquire in the order of their requests.

    With an ordinary lock, a training loop that releases it and acquires it again at once would make
    another thread wait for many steps.
    """

    def __init__(self) -> None:
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            with self._turn:  # held while waiting, so that later threads wait for this one
                self._lock.acquire()
            self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()


_LOCKS: weakref.WeakKeyDictionary[Any, _FairLock] = weakref.WeakKeyDictionary()
_NEW_LOCK = threading.Lock()


def _lock_of(model: Any) -> _FairLock:
    with _NEW_LOCK:
        lock = _LOCKS.get(model)
        return _LOCKS.setdefault(model, _FairLock()) if lock is None else lock


@contextlib.contextmanager
def between_steps(model: Any) -> Iterator[None]:
    """
    Keep the parameters of a model constant during a block of code, also if another thread trains
    it.

    ``gpflow_sparse.training.fit`` takes no step while the block runs, and the block waits until a
    step in progress is done. The models of this package do so themselves in ``predict_*``,
    ``posterior`` and ``elbo`` where these are called eagerly. A block is needed for GPflow's own
    models, for compiled functions, and for a copy of the model that does not change while
    training continues::

        with gs.training.between_steps(model):
            posterior = gpflow.utilities.deepcopy(model).posterior()

    :param model: the model that is given to ``fit``, in the same process.
    """
    with _lock_of(model):
        yield
