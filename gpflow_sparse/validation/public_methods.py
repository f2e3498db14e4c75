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
from typing import Any, NamedTuple, TypeVar, cast

import gpflow
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.numerics.linalg import FactorizationError
from gpflow_sparse.numerics.tracing import is_bookkeeping
from gpflow_sparse.validation import checks, component_checks

Method = TypeVar("Method", bound=Callable[..., Any])
_FLAGS = ("full_cov", "full_output_cov", "compile")


class _Thread(threading.local):
    """State of a thread."""

    inside = False
    """Whether a public method runs in it."""


THREAD = _Thread()


def public_method(
    result: str | None = None, *, prediction: bool = False
) -> Callable[[Method], Method]:
    """
    Decorator of a public method of a model or posterior: validate, lock, run, check the result.

    Arguments are recognized by their names: ``Xnew`` and ``X`` are inputs, ``data`` is a pair ``(X,
    Y)``, ``num_samples`` a count or None, ``precompute_cache`` a kind of GPflow cache, and
    ``full_cov``, ``full_output_cov`` and ``compile`` are flags. The method receives the converted
    values. The owner provides ``_require_parts(num_columns, dtype)``, which refuses components that
    do not fit each other and is called again once one of them has been replaced, ``input_dim`` and
    ``dtype``; and, where a method takes data for a likelihood, ``likelihood`` and ``num_outputs``.

    When one public method calls another, only the outer one is validated.

    :param result: name of the returned tensors in errors. Eagerly, a result that is not finite
        raises if a parameter is at fault; None leaves the result unchecked.
    :param prediction: whether to check, also in a graph, the parameters when it is traced, and the
        inputs for NaN and infinity when it runs. Objectives are not: ``fit`` checks their value.
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
            if THREAD.inside or len(args) > len(names):
                return method(self, *args, **kwargs)
            known = _lock_of(self)
            with known.lock:
                THREAD.inside = True
                try:
                    values = dict(zip(names, args, strict=False)) | kwargs
                    values = _validate(self, known, values, optional)
                    if prediction and not tf.executing_eagerly():
                        values = _watch(self, values)
                    returned = method(self, **values)
                    found = [] if result is None else tf.nest.flatten(returned)
                    if (
                        result is not None
                        and tf.executing_eagerly()
                        and not all(tf.reduce_all(tf.math.is_finite(part)) for part in found)
                    ):
                        component_checks.require_finite_result(self, result, *found)
                    return returned
                except FactorizationError as error:
                    raise component_checks.explained(self, error) from None
                finally:
                    THREAD.inside = False

        return cast(Method, validated)

    return decorate


def explain_arguments(
    usage: str | None = None, instead: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Method], Method]:
    """
    Decorator of a public function or constructor that explains unknown and missing arguments.

    :param usage: a call to it; None, for a constructor, for the names of its arguments.
    :param instead: present names of arguments, by names that users may expect.
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


def _validate(
    owner: Any, known: "_Lock", values: dict[str, Any], optional: Container[str]
) -> dict[str, Any]:
    """
    The arguments of a public method of ``owner``, by name, as tensors and plain values.

    :param optional: names of the arguments that may be None.
    """
    checked = known.checked
    state, parts = _state_of(owner)
    if checked is None or state != checked.state or any(part() is None for part in checked.parts):
        checked = _Checked(state, parts, owner.input_dim, owner.dtype, set())
        known.checked = None
    num_columns = checked.input_dim
    for name in ("Xnew", "X"):
        if name in values and not (name in optional and values[name] is None):
            X = checks.require_inputs(values[name], checked.input_dim, checked.dtype, name)
            values[name], num_columns = X, X.shape[-1]
    if num_columns not in checked.columns:
        owner._require_parts(num_columns, checked.dtype)
    checked.columns.add(num_columns)
    if "data" in values:
        values["data"] = X, _ = checks.require_data(
            values["data"],
            input_dim=checked.input_dim,
            likelihood=getattr(owner, "likelihood", None),
            num_latent_gps=getattr(owner, "num_outputs", None),
            dtype=checked.dtype,
        )
        if X.shape[-1] not in checked.columns:
            owner._require_parts(X.shape[-1], checked.dtype)
        checked.columns.add(X.shape[-1])
    if state is not None:
        known.checked = checked
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
    component_checks.validate_components(owner)
    for name in ("Xnew", "X"):
        if values.get(name) is not None:
            values[name] = checks.require_finite_in_graph(values[name], name)
    if "data" in values:
        X, Y = values["data"]
        if not getattr(getattr(owner, "likelihood", None), "takes_missing", False):
            Y = checks.require_finite_in_graph(Y, "Y")
        values["data"] = checks.require_finite_in_graph(X, "X"), Y
    return values


def _cache_type(value: PrecomputeCacheType | str) -> PrecomputeCacheType:
    """GPflow's ``precompute_cache`` argument, which may be given by its name."""
    names = [kind.value for kind in PrecomputeCacheType]
    if isinstance(value, PrecomputeCacheType):
        return value
    if isinstance(value, str) and value.lower() in names:
        return PrecomputeCacheType(value.lower())
    raise ValueError(f"precompute_cache must be one of {', '.join(names)} or None; got {value!r}.")


class _Checked(NamedTuple):
    """Components that have been found to fit each other."""

    state: list[Any] | None
    parts: list[weakref.ref[Any]]
    """The components whose ids ``state`` has; once one is gone, another may have its id."""
    input_dim: int | None
    dtype: tf.DType
    columns: set[int | None]
    """Numbers of columns of X that they fit."""


def _state_of(owner: Any) -> tuple[list[Any] | None, list[weakref.ref[Any]]]:
    """
    State that checks of components depend on: ids of the parts of ``owner``, whether they are
    trained, and plain values. Parts are replaced by assignment; shapes of variables are fixed.

    :return: None in place of a list if a variable has no fixed shape, as variables with data or
        with results computed from data: their checks read values, and are made in every call.
    """
    state: list[Any] = [gpflow.default_float()]
    parts: list[weakref.ref[Any]] = []
    todo, known = list(vars(owner).values()), set()
    while todo:
        part = todo.pop()
        if part is None or isinstance(part, int | float | str | slice):
            state += [type(part), part]
            continue
        state.append(id(part))
        if id(part) in known:
            continue
        known.add(id(part))
        if isinstance(part, list | tuple):
            todo.extend(part)
        elif isinstance(part, tf.Variable | gpflow.Parameter):
            if not part.shape.is_fully_defined():
                return None, []
            state.append(part.trainable)
        elif isinstance(part, tf.Module):
            # TensorFlow's own attributes hold the same parts again
            todo.extend(value for name, value in vars(part).items() if not is_bookkeeping(name))
        if type(part).__weakrefoffset__:
            parts.append(weakref.ref(part))
    return state, parts


class _Lock:
    """The lock of a model or posterior, which a thread may acquire more than once."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.checked: _Checked | None = None
        """Components of the owner of the lock when they were last checked."""


_LOCKS: weakref.WeakKeyDictionary[Any, _Lock] = weakref.WeakKeyDictionary()
_NEW_LOCK = threading.Lock()


def _lock_of(owner: Any) -> _Lock:
    with _NEW_LOCK:
        return _LOCKS.setdefault(owner, _Lock())


@contextlib.contextmanager
def between_steps(model: Any) -> Iterator[None]:
    """
    Keep the parameters of a model constant during a block, also if another thread trains it.

    ``gpflow_sparse.training.fit`` takes no step while the block runs, and the block waits until a
    step in progress is done. The models of this package do so themselves in ``predict_*``,
    ``posterior`` and ``elbo`` where these are called eagerly. A block is needed for GPflow's own
    models, for compiled functions, and for a copy of the model that does not change while
    training continues::

        with gs.training.between_steps(model):
            posterior = gpflow.utilities.deepcopy(model).posterior()

    :param model: the model that is given to ``fit``, in the same process.
    """
    with _lock_of(model).lock:
        yield
