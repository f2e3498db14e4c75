"""SoftKI on tables."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options, steps
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.rows import Pair, choose_points

# Least number of rows of which some validate training.
_MIN_VALIDATED = 500


@dataclass(frozen=True)
class SoftKI(Recipe):
    """Options of soft kernel interpolation, :class:`gpflow_sparse.models.SoftKI`."""

    name = "softki"
    title = "SoftKI"
    idea = "regression by softmax interpolation between learned points, in any number of columns"
    for_classes = "basis_svgp --basis soft"
    streams = True
    holds_out = True
    caveat = (
        "Its standard deviations do not grow far from the training rows: take gpnn or solvegp to "
        "predict rows there."
    )

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

    @classmethod
    def suits(cls, task: Any) -> str:
        if not task.is_long:
            return f"a table of at most {task.few_rows} rows has an exact GP"
        return ""

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, sets: Any = None, **given: Any
    ) -> Any:
        (Z,) = sets or choose_points(self, data[0], kernel, *self.sizes)
        noise_variance = likelihood.variance.numpy()
        given = {"temperature": self.temperature, "tied": True, "num_data": len(data[0])} | given
        return gs.models.SoftKI(kernel, Z, noise_variance=noise_variance, **given)

    @contextlib.contextmanager
    def closed_forms(self, model: Any, rows: Pair) -> Iterator[list[Any]]:
        """Keep the best points by rows that the model holds out; then the posterior of all rows."""
        callbacks = []
        if model.held_out and len(rows[0]) >= _MIN_VALIDATED:
            # points and temperature can memorize rows of many columns
            every = steps.evaluation_interval(self.num_steps)
            score = gs.training.KeepBest(lambda m: m.held_out_density(rows), every=every)
            callbacks = [score]
        try:
            yield callbacks
        finally:
            for best in callbacks:
                best.update(model)
                best.restore(model)
            model.fit_posterior(rows)

    def after_files(self, model: Any, rows: Any) -> None:
        model.fit_posterior(rows.batches())
