"""SoftKI on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options, steps
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.rows import choose_points

# Least number of rows of which some validate training.
_MIN_VALIDATED = 500


@dataclass(frozen=True)
class SoftKI(Recipe):
    """Options of soft kernel interpolation, :class:`gpflow_sparse.models.SoftKI`."""

    name = "softki"
    title = "SoftKI"
    idea = "regression by softmax interpolation between learned points, in any number of columns"
    for_classes = "basis_svgp --basis soft"

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_inducing: int = options.num_inducing()
    temperature: float = options.temperature()
    initialization: str = options.initialization()
    num_steps: int = options.num_steps()
    batch_size: int = options.batch_size()
    learning_rate: float = options.learning_rate()
    schedule: str = options.schedule()

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, sets: Any = None, **given: Any
    ) -> Any:
        (Z,) = sets or choose_points(self, data[0], kernel, *self.sizes)
        noise_variance = likelihood.variance.numpy()
        given = {"temperature": self.temperature, "num_data": len(data[0])} | given
        return gs.models.SoftKI(kernel, Z, noise_variance=noise_variance, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Steps that keep the best points by rows that the model holds out; q of all rows after."""
        best = None
        if model.held_out and len(rows[0]) >= _MIN_VALIDATED:
            # points and temperature can memorize rows of many columns
            every = steps.evaluation_interval(self.num_steps)
            best = gs.training.KeepBest(lambda m: m.held_out_density(rows), every=every)
            options = {**options, "callbacks": [*options.get("callbacks", ()), best]}
        try:
            return super().train(model, rows, until=until, **options)
        finally:
            if best is not None:
                best.update(model)
                best.restore(model)
            model.fit_posterior(rows)
