"""Variational inference at all rows, for classes on few rows."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.rows import EXACT_SUBSET, shuffled
from gpflow_sparse.tables.methods.steps import finished_at_once

MAX_ROWS = 2000
"""Rows of the largest table: each of some hundred factorizations takes 2 P N^3 / 3 operations."""
# Likelihoods of classes that are log-concave; None for the usual one.
_CONCAVE = (None, "bernoulli", "bernoulli_logit", "softmax", "one_versus_rest")
# Largest product of latent functions and cubed rows in the automatic choice: with 10 classes and
# 1,300 rows it took 74 s of a minute.
_MAX_CUBES = 1e10
# Fraction of the time left in which hyperparameters are fitted.
_FRACTION = 0.8


@dataclass(frozen=True)
class SiteVGP(options.OneKernel):
    """Options of variational inference at all rows, :class:`gpflow_sparse.models.SiteVGP`."""

    name = "site_vgp"
    title = "Site VGP"
    idea = "classes on at most 2,000 rows: a Gaussian q at all rows in closed form, no steps"

    @classmethod
    def reason_against(cls, task: Any) -> str:
        if not task.has_labels or task.has_images:
            return "it is tried for classes"
        if task.num_rows > MAX_ROWS:
            return f"it takes at most {MAX_ROWS} rows"
        count = task.dataset.num_classes
        if (1 if count == 2 else count) * task.num_rows**3 > _MAX_CUBES:
            return f"its factorizations of {count} classes take too long"
        given = task.likelihood or task.options.get("likelihood")
        if isinstance(given, str | None) and given not in _CONCAVE:
            return f"its sites may not converge with {given}"
        return ""

    def usual_likelihood(self, num_classes: int | None) -> str | None:
        if num_classes is None:
            return None
        return "bernoulli_logit" if num_classes == 2 else "one_versus_rest"

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        from gpflow_sparse.kernels import table_kernel
        from gpflow_sparse.tables.fitting.starts import KERNELS

        X, _ = data
        if len(X) > MAX_ROWS:
            raise ValueError(
                f"method site_vgp takes at most {MAX_ROWS} rows, got {len(X)}; take solvegp."
            )
        if kernel is None:
            profile = KERNELS[self.kernel]
            kernel = table_kernel(profile, X.shape[1], ard=self.ard, for_classes=True)
        return gs.models.SiteVGP(data, kernel, likelihood, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Hyperparameters of at most 1,000 rows, then q of all."""
        from gpflow_sparse.inference.calibration import has_classes

        begin = time.perf_counter()
        seconds = None if math.isinf(until) else _FRACTION * max(0.0, until - begin)
        X, Y = rows
        if len(X) <= EXACT_SUBSET:
            bound = model.fit_hyperparameters(seconds=seconds)
        else:
            some = np.sort(shuffled(len(X), self.seed)[:EXACT_SUBSET])
            shared = {"mean_function": model.mean_function, "num_latent_gps": model.num_latent_gps}
            if model.row_weights is not None:
                shared["row_weights"] = model.row_weights.numpy()[some]
            fitted = gs.models.SiteVGP((X[some], Y[some]), model.kernel, model.likelihood, **shared)
            fitted.fit_hyperparameters(seconds=seconds)
            model.fit_sites()
            bound = float(model.elbo())
        if self.can_calibrate and has_classes(model.likelihood):
            model.fit_temperature()
        return finished_at_once(bound, begin)
