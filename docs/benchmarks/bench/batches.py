"""Which batch size predicts held-out rows best after a given time of training."""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from bench.qsgp_variance import benchmark_rows
from bench.steps import Row, Tables
from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting.evaluation import held_out_scores
from gpflow_sparse.tables.fitting.starts import InitialHyperparameters
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.training import Candidate
from gpflow_sparse.tables.methods.cached_model import CachedModel

_METHODS = ("solvegp", "softki", "swsgp", "qsgp")
_HELD_OUT = 2000


def batches(batch_size: Sequence[int], seconds: int, repeats: int) -> Tables:
    """
    NLPD of 2,000 held-out rows of kin40k, or generated ones, after so many seconds of training.

    Of methods with their defaults but for the batch size. All batch sizes of a method start at the
    same hyperparameters, whose fit is not counted; the first trace is. In each round every method
    is trained with every size once, from another seed; reported are the means over rounds.

    :param batch_size: sizes to compare.
    :param seconds: time of each training.
    :param repeats: rounds.
    """
    _, X, Y = benchmark_rows()
    order = np.random.default_rng(0).permutation(len(X))
    new, rest = ((X[rows], Y[rows]) for rows in np.split(order, [_HELD_OUT]))
    task = Task(Dataset("rows", rest, new, tuple(map(str, range(X.shape[1]))), "y", None))
    starts = InitialHyperparameters(task.dataset)
    found: dict[tuple[str, int], list[tuple[float, float, int]]] = {}
    for seed in range(repeats):
        for method in _METHODS:
            for size in batch_size:
                chosen = dataclasses.replace(task, options={"batch_size": size, "seed": seed})
                recipe = chosen.recipe(method)
                start = starts.find(dataclasses.replace(recipe, seed=0))
                begin = time.perf_counter()
                candidate = Candidate(task, recipe, hyperparameters=start[:2])
                candidate.train_until(begin + seconds)
                scores = held_out_scores(CachedModel(candidate.model), new, None)
                found.setdefault((method, size), []).append((*scores, candidate.num_steps))
    rows: list[Row] = []
    for (method, size), values in found.items():
        nlpd, rmse, steps = np.mean(values, axis=0)
        row = {"method": method, "batch_size": size, "num_steps": int(steps)}
        rows.append(row | {"nlpd": float(nlpd), "rmse": float(rmse)})
    return {"rows": rows}
