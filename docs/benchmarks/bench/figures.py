"""Empty figures for the pictures of benchmarks."""

from typing import Any


def new_figure(width: float, height: float) -> Any:
    """
    An empty figure of a size in inches.

    :raises ImportError: if matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
