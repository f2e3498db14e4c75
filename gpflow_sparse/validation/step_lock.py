"""A lock for each model that a training step holds while it changes the parameters."""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


class _FairLock:
    """
    A reentrant lock that threads get in the order in which they asked for it.

    With an ordinary lock, a training loop that releases it and takes it again at once would leave
    a waiting thread without a turn for many steps.
    """

    def __init__(self) -> None:
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            with self._turn:  # held while waiting: whoever comes later waits for this one
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


@contextlib.contextmanager
def between_steps(model: Any) -> Iterator[None]:
    """
    Keep the parameters of a model as they are during a block of code, whatever thread trains it.

    ``gpflow_sparse.training.fit`` takes no step while the block runs, and the block waits until a
    step in progress is done. The models of this package do so themselves in ``predict_*``,
    ``posterior`` and ``elbo`` where these are called eagerly. A block is needed for GPflow's own
    models, for functions that have been compiled, and for a copy that stays as it is while
    training goes on::

        with gs.training.between_steps(model):
            posterior = gpflow.utilities.deepcopy(model).posterior()

    :param model: the model that is given to ``fit``, in the same process.
    """
    with _NEW_LOCK:
        lock = _LOCKS.setdefault(model, _FairLock())
    with lock:
        yield


def reads_parameters(method: Method) -> Method:
    """Decorator of a model's method that must not see parameters in the middle of a step."""

    @functools.wraps(method)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with between_steps(self):
            return method(self, *args, **kwargs)

    return cast(Method, locked)
