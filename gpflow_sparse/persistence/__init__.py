"""Models in files: :func:`save`, :func:`load`, and :func:`export` for TensorFlow alone.

Only :func:`read_header` does without TensorFlow, so the others are imported on first use (PEP 562).
"""

from typing import Any

from gpflow_sparse._names import attribute
from gpflow_sparse.persistence.files import read_header

_LAZY = {
    "export": "gpflow_sparse.persistence.exporting",
    "load": "gpflow_sparse.persistence.saving",
    "save": "gpflow_sparse.persistence.saving",
}

__all__ = ["export", "load", "read_header", "save"]


def __getattr__(name: str) -> Any:
    return attribute(__name__, _LAZY, name)


def __dir__() -> list[str]:
    return sorted(__all__)
