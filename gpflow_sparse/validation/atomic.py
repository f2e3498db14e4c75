"""Methods that change an object as a whole or not at all."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def atomic(method: Method) -> Method:
    """
    Decorator of a method that sets attributes and returns the object, as ``fit`` of scikit-learn.

    The method sets attributes of a shallow copy, and one assignment at its end makes them the
    attributes of the object: a method that raises, or is interrupted, leaves the object as it was.
    Attributes must be replaced, not changed in place.
    """

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        copied = object.__new__(type(self))
        copied.__dict__.update(vars(self))
        method(copied, *args, **kwargs)
        self.__dict__ = vars(copied)
        return self

    return cast(Method, whole)
