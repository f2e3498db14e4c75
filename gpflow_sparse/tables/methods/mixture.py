"""Mixtures of exact GPs on small tables."""

import math
import time
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.steps import finished_at_once

MAX_ROWS = 5000
"""Rows of the largest mixture: a component takes some 100 evaluations of N^3 operations."""
# Profiles, whether each column has a lengthscale, and transforms of the outputs: in the order in
# which they are taken where the time is short.
_COMPONENTS = (
    ("Matern32", False, "none"),
    ("Matern32", True, "none"),
    ("Matern52", False, "none"),
    ("Matern52", True, "none"),
    ("Matern32", False, "yeo-johnson"),
    ("Matern32", True, "yeo-johnson"),
    ("Matern12", False, "none"),
    ("Matern12", True, "none"),
    # for smooth functions without noise: Matern 5/2 alone has 25 to 50 times the error of 60 rows
    ("SquaredExponential", True, "none"),
)


@dataclass(frozen=True)
class Mixture(options.KnownNoise):
    """Options of :class:`gpflow_sparse.models.GPMixture`."""

    name = "mixture"
    title = "GP mixture"
    idea = "exact GPs of nine kernels, integrated over their hyperparameters; at most 5,000 rows"
    takes_weights = True
    for_classes = "site_vgp"
    holds_data = True
    takes_conformal = False
    makes_kernel = True

    num_components: int = option(
        len(_COMPONENTS),
        "Kernels that are averaged: Matern 3/2, 5/2 and 1/2 with one lengthscale and with one of "
        "each column, 3/2 also on transformed outputs, and the squared exponential.",
        between=(1, len(_COMPONENTS)),
    )
    num_draws: int = option(32, "Draws of the hyperparameters of each kernel.", least=1)

    @classmethod
    def reason_against(cls, task: Any) -> str:
        if task.is_long:
            return f"it is tried on at most {task.few_rows} rows"
        if task.has_labels:
            return "it is for regression"
        if task.kernel is not None or {"kernel", "ard"} & set(task.options):
            return "its kernels are its own, and one was given"
        if task.options.get("conformal"):
            return "its intervals are quantiles of the mixture"
        return ""

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        import gpflow

        num_rows, num_columns = data[0].shape
        if num_rows > MAX_ROWS:
            raise ValueError(
                f"method mixture takes at most {MAX_ROWS} rows, got {num_rows}; take auto."
            )
        chosen = _COMPONENTS[: self.num_components]
        if "known_variance" in given:  # which is of the outputs themselves
            chosen = tuple(component for component in chosen if component[2] == "none")
            given["noise_variance"] = likelihood.variance.numpy()
        kernels = [
            gs.kernels.table_kernel(getattr(gpflow.kernels, profile), num_columns, ard=ard)
            for profile, ard, _ in chosen
        ]
        data = tuple(map(gpflow.utilities.to_default_float, data))
        settings = {"transforms": [transform for *_, transform in chosen], **given}
        settings = {"num_draws": self.num_draws, "seed": self.seed, **settings}
        return gs.models.GPMixture(data, [kernel] if kernel is not None else kernels, **settings)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        start = time.perf_counter()
        model.integrate(seconds=None if until == math.inf else until - start)
        return finished_at_once(-model.log_evidence, start)
