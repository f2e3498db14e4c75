"""SoftKI on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.steps import Batches

# Least number of rows from which some are taken to validate training.
_MIN_VALIDATED = 500


@dataclass(frozen=True)
class SoftKI(Batches, options.Points):
    """Options of soft kernel interpolation, :class:`gpflow_sparse.models.SoftKI`."""

    name = "softki"
    title = "SoftKI"
    idea = "regression by softmax interpolation between learned points, in any number of columns"
    for_classes = "basis_svgp --basis soft"

    temperature: float = options.temperature()

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        (Z,) = self.take_sets(given, data[0], kernel)
        noise_variance = likelihood.variance.numpy()
        given = {"temperature": self.temperature, "num_data": len(data[0])} | given
        return gs.models.SoftKI(kernel, Z, noise_variance=noise_variance, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Steps that keep the best points by rows that the model holds out; q of all rows after."""
        best = None
        if model.held_out and len(rows[0]) >= _MIN_VALIDATED:
            # points and temperature can memorize rows of many columns
            every = self.evaluation_interval()
            best = gs.training.KeepBest(lambda m: m.held_out_density(rows), every=every)
            options = {**options, "callbacks": [*options.get("callbacks", ()), best]}
        try:
            return super().train(model, rows, until=until, **options)
        finally:
            if best is not None:
                best.update(model)
                best.restore(model)
            model.fit_posterior(rows)
