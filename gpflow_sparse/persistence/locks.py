"""Locks on open files, which end with their process; without TensorFlow."""

import contextlib
import errno
import warnings
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows, where a second run in the same folder is not detected
    fcntl = None  # type: ignore[assignment]

# Error numbers of a lock that is held; any other means that this file system has no locks.
_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def take(file: IO[Any], what: str, stacklevel: int = 1) -> bool:
    """
    Lock a file until it is closed; a file system without locks is warned of.

    :param what: the name of the place that the lock protects, for the warning.
    :param stacklevel: stack level of the warning, counted from the caller.
    :return: false if the file is locked already.
    """
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        warnings.warn(
            f"{what} cannot be locked ({error}): do not start a second run in it before this one "
            "has ended.",
            stacklevel=stacklevel + 1,
        )
    return True


def mark(file: IO[Any], path: Path) -> bool:
    """
    Lock a new file until it is closed, where the file system has locks.

    :return: false if :func:`remove_if_free` of another process was faster.
    """
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in _HELD
    return path.exists()


def remove_if_free(path: Path) -> None:
    """
    Remove a file that :func:`mark` has locked in a process which no longer runs.

    On a file system without locks the file stays.
    """
    if fcntl is not None:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
