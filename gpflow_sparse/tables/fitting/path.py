"""The one path from rows to a trained model: a method is chosen, trained and calibrated."""

import time
from collections.abc import Callable
from typing import Any

from gpflow.models import GPModel

from gpflow_sparse.tables.fitting.attempts import Choice
from gpflow_sparse.tables.fitting.choice import choose
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.training import train
from gpflow_sparse.tables.methods.registry import AUTO


def fit_task(
    task: Task,
    method: str,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
    start: GPModel | None = None,
    checkpoint_dir: Any = None,
) -> tuple[Choice, GPModel]:
    """
    Choose a method unless one is given, and train its model on all rows.

    :param seconds: time for both; None for numbers of steps.
    :param start: a trained model of the method, the start where the choice has none.
    :param checkpoint_dir: folder of checkpoints of a method that is given, without a time; training
        continues from the newest in it.
    :return: the choice, which says whether Ctrl-C has ended the training, and the model.
    :raises ValueError: for checkpoints of a choice or of a time, which do not repeat.
    """
    if checkpoint_dir is not None and (method == AUTO or seconds is not None):
        raise ValueError(
            "checkpoint_dir must be None for method='auto' and within a time, whose steps differ "
            "each time; give a method, and its number of steps."
        )
    begin = time.perf_counter()
    choice = choose(task, method, seconds=seconds, report=report)
    if choice.start is None:
        choice = choice._replace(start=start)
    left = None if seconds is None else seconds - (time.perf_counter() - begin)
    return train(task, choice, seconds=left, report=report, checkpoint_dir=checkpoint_dir)
