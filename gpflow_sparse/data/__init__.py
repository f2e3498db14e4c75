"""Data sets, a user's own tables, standardization, and metrics.

:class:`Standardizer` and :class:`Shards` need TensorFlow, and :func:`read_table` needs the extra
``tables``; they are imported on first use (PEP 562).
"""

from typing import TYPE_CHECKING, Any

from gpflow_sparse._names import attribute
from gpflow_sparse.data import metrics
from gpflow_sparse.data.datasets import Dataset, DatasetInfo, list_datasets, load
from gpflow_sparse.data.moments import RunningMoments
from gpflow_sparse.data.robot_arm import robot_arm

if TYPE_CHECKING:
    from gpflow_sparse.data.shards import Shards, open_shards
    from gpflow_sparse.data.standardize import Standardizer
    from gpflow_sparse.tables.reading.cells import ReadingOptions
    from gpflow_sparse.tables.reading.tables import Table, read_frame, read_table

__all__ = [
    "Dataset",
    "DatasetInfo",
    "ReadingOptions",
    "RunningMoments",
    "Shards",
    "Standardizer",
    "Table",
    "list_datasets",
    "load",
    "metrics",
    "open_shards",
    "read_frame",
    "read_table",
    "robot_arm",
]

_LAZY = {
    "Table": "gpflow_sparse.tables.reading.tables",
    "ReadingOptions": "gpflow_sparse.tables.reading.cells",
    "read_frame": "gpflow_sparse.tables.reading.tables",
    "read_table": "gpflow_sparse.tables.reading.tables",
    "Shards": "gpflow_sparse.data.shards",
    "Standardizer": "gpflow_sparse.data.standardize",
    "open_shards": "gpflow_sparse.data.shards",
}


def __getattr__(name: str) -> Any:
    return attribute(__name__, _LAZY, name)


def __dir__() -> list[str]:
    return sorted(__all__)
