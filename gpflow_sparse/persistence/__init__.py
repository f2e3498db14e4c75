"""Models in files: :func:`save`, :func:`load`, and :func:`export` for TensorFlow alone.

Only :func:`read_header` does without TensorFlow, so the others are imported on first use (PEP 562).
"""

import importlib
from typing import Any

from gpflow_sparse.persistence.files import read_header

_ROOMS = {"export": "exporting", "load": "loading", "save": "saving"}

__all__ = ["export", "load", "read_header", "save"]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
    raise AttributeError(f"module 'gpflow_sparse.persistence' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
