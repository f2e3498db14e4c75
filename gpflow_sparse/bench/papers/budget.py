"""What fits into the time that is left."""

import time
from pathlib import Path
from typing import NamedTuple


class DoesNotFitError(Exception):
    """A task would take longer than the time that is left; the message says how long."""

    def __init__(self, pace: float, detail: str) -> None:
        super().__init__(f"no time left ({detail if pace else 'not measured'})")
        self.pace = pace
        """Of tasks of its kind; 0 if it is not known."""


class Training(NamedTuple):
    """How long a row is trained, and where it is kept meanwhile."""

    steps: int
    seed: int
    folder: Path
    """Of the checkpoints; there only while a row is under way."""
    deadline: float
    """Of ``time.perf_counter``: a row that would end later is given up after a few steps."""


class TimedTraining(NamedTuple):
    """How long a row is trained, and where it is kept meanwhile."""

    seconds: float
    """Of training; looks on the way are not counted."""
    most_steps: int | None
    """Where it ends before its time; None for no such end."""
    seed: int
    folder: Path
    """Of the checkpoints; there only while a row is under way."""


def require_time(seconds: float, deadline: float, pace: float, detail: str) -> None:
    """
    :param seconds: what is expected; 0 if that is not known.
    :param deadline: of ``time.perf_counter``.
    :param pace: what the expectation is from.
    :param detail: how long, in words.
    :raises DoesNotFitError: if that is too long, or no time is left at all.
    """
    left = deadline - time.perf_counter()
    if left <= 0.0 or seconds > left:
        raise DoesNotFitError(pace, detail)


def duration(seconds: float) -> str:
    """How long that is, in minutes, or in hours if more than two."""
    minutes = seconds / 60.0
    return f"{minutes:.0f} min" if minutes <= 120.0 else f"{minutes / 60.0:.1f} h"
