"""Temporary: the lock alone, for models that do not use :func:`public_method` yet."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from gpflow_sparse.validation.public_methods import between_steps

Method = TypeVar("Method", bound=Callable[..., Any])


def reads_parameters(method: Method) -> Method:
    """Decorator of a model's method that must not see parameters in the middle of a step."""

    @functools.wraps(method)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with between_steps(self):
            return method(self, *args, **kwargs)

    return cast(Method, locked)
