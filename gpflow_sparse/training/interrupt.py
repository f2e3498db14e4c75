"""Handling of Ctrl-C, which is held back until a step is complete."""

import signal
import sys
import threading
from types import FrameType
from typing import Any


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a run; the message says after which step, and how to resume."""


class InterruptGuard:
    """
    A context that holds the first Ctrl-C back until the step is done; a second acts at once.

    It does nothing outside of the main thread, where Python delivers no signals; nor where SIGINT
    is ignored, as in the background of a shell script, or handled by other code than Python.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> "InterruptGuard":
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
                return self
            self._previous = signal.signal(signal.SIGINT, self._hold)
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGINT, self._previous)
        print("stopping after this step; Ctrl-C again to stop at once", file=sys.stderr)
