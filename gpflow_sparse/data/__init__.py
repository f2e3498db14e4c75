"""Data sets, a user's own tables, standardization, and metrics.

Only :class:`Standardizer` needs TensorFlow, so it is imported on first use (PEP 562).
"""

from typing import TYPE_CHECKING, Any

from gpflow_sparse._names import attribute
from gpflow_sparse.data import metrics
from gpflow_sparse.data.datasets import Dataset, DatasetInfo, list_datasets, load
from gpflow_sparse.data.robot_arm import robot_arm
from gpflow_sparse.data.tables import Table, read_table

if TYPE_CHECKING:
    from gpflow_sparse.data.standardize import Standardizer

__all__ = [
    "Dataset",
    "DatasetInfo",
    "Standardizer",
    "Table",
    "list_datasets",
    "load",
    "metrics",
    "read_table",
    "robot_arm",
]


def __getattr__(name: str) -> Any:
    return attribute(__name__, {"Standardizer": "gpflow_sparse.data.standardize"}, name)


def __dir__() -> list[str]:
    return sorted(__all__)
