"""Nearest-neighbor GPs on tables with classes."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.steps import finished_at_once

# Columns beyond which a lengthscale for each is not tried: pixels of images have one in common.
_MAX_COLUMNS = 100
# Starting variance of the latent functions, and fraction of the median distances of rows that is
# the start of the lengthscales.
_VARIANCE, _FRACTION = 10.0, 0.5
# Entries of the covariances of the rows of the objective, 64 MiB of float64; most and fewest rows.
_ENTRIES, _MOST, _FEWEST = 2**23, 1000, 100


@dataclass(frozen=True)
class DirichletGPnn(options.OneKernel):
    """Options of nearest neighbors, :class:`gpflow_sparse.models.NearestNeighborClassifier`."""

    name = "dirichlet_gpnn"
    title = "GPnn for classes"
    idea = "classes as regression of their log odds, predicted from the nearest training rows"
    takes_conformal = False

    num_neighbors: int = option(64, "Nearest training rows from which a row is predicted.", least=1)

    @classmethod
    def reason_against(cls, task: Any) -> str:
        if not task.has_labels:
            return "it is for classes"
        if task.has_images and task.has_many_classes:
            return "rows are images of many classes"
        if not task.is_long:
            return f"a table of at most {task.few_rows} rows has q at all rows"
        if (task.likelihood or task.options.get("likelihood")) not in (None, "softmax"):
            return "its likelihood is softmax"
        return ""

    @classmethod
    def create(cls, **chosen: Any) -> "DirichletGPnn":
        if chosen.get("likelihood", "softmax") != "softmax":
            raise ValueError("likelihood is for dirichlet_gpnn always softmax; leave it out.")
        return super().create(**chosen)

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        from gpflow_sparse.tables.fitting.starts import KERNELS

        X, _ = data
        count = getattr(likelihood, "num_classes", 2)
        if kernel is None:
            distances = gs.initialization.median_lengthscales(X, seed=self.seed)
            ard = self.ard and len(distances) <= _MAX_COLUMNS
            scales = _FRACTION * (distances if ard else float(np.median(distances)))
            kernel = KERNELS[self.kernel](variance=_VARIANCE, lengthscales=scales)
        rows = _ENTRIES // (count * (self.num_neighbors + 1) ** 2)
        given = {"num_neighbors": self.num_neighbors, **given}
        return gs.models.NearestNeighborClassifier(
            data, kernel, count, num_objective_rows=min(max(rows, _FEWEST), _MOST), **given
        )

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        begin = time.perf_counter()
        seconds = None if math.isinf(until) else max(0.0, until - begin)
        objective = model.fit_hyperparameters(seconds=seconds)
        return finished_at_once(objective, begin)
