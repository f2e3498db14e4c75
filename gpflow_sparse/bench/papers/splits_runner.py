"""One row of a paper on one split, run within a budget of time."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpflow_sparse.bench.papers.budget import duration, require_time
from gpflow_sparse.bench.papers.spec import Record, Task
from gpflow_sparse.data import Dataset
from gpflow_sparse.runs.training import print_progress
from gpflow_sparse.training import TrainingError


def run_task(
    fit: Callable[[Mapping[str, Any], Dataset, int], Record],
    task: Task,
    dataset: Dataset,
    seconds: float,
    deadline: float,
) -> Record:
    """
    :param fit: see :class:`.splits.SplitsPaper`.
    :param seconds: what the row took on another split; 0 if that is not known.
    :param deadline: of ``time.perf_counter``.
    :return: what ``fit`` returned, and task_seconds, the wall time of all of it.
    :raises DoesNotFitError: if it would end too late.
    :raises TrainingError: if training fails, or numbers are not finite.
    """
    require_time(seconds, deadline, seconds, f"{duration(seconds)} for a split")
    start = time.perf_counter()
    results = fit(task.row.options, dataset, task.split)
    numbers = [value for value in results.values() if isinstance(value, int | float)]
    if not np.isfinite(numbers).all():
        raise TrainingError(f"the results are not finite: {results}")
    print_progress(
        f"{task.row.title} on {task.dataset}, split {task.split}: RMSE {results['rmse']:.4g}, "
        f"NLPD {results['nlpd']:.4g}, {results['seconds']:.1f} s"
    )
    return results | {"task_seconds": time.perf_counter() - start}
