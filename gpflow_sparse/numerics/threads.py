"""The number of threads of the linear algebra of NumPy and SciPy."""

import contextlib
import functools
from typing import Any

from threadpoolctl import ThreadpoolController

_FEW_ROWS = 1000


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # finds the loaded libraries, which takes 5 ms


def one_thread() -> contextlib.AbstractContextManager[Any]:
    """
    One thread for the linear algebra of NumPy and SciPy in this block.

    Threads of OpenBLAS wait in loops: on two cores beside another process a value and a gradient of
    an exact GP of 500 rows took 655 ms of processor time with two threads, and 15 with one.
    """
    limit: contextlib.AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


def threads_for(num_rows: int) -> contextlib.AbstractContextManager[Any]:
    """:func:`one_thread` for matrices of at most 1,000 rows; for larger ones several gain time."""
    return one_thread() if num_rows <= _FEW_ROWS else contextlib.nullcontext()
