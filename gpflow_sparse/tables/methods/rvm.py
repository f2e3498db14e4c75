"""The relevance vector machine on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options, points, qsgp, steps
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.rows import random_rows


@dataclass(frozen=True)
class RVM(Recipe):
    """Options of the sub-sampled relevance vector machine, :class:`gpflow_sparse.models.RVM`."""

    name = "rvm"
    title = "RVM"
    idea = (
        "sub-sampled relevance vector machine: kernel functions around training rows, most unused"
    )

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_basis: int = options.num_basis()
    basis_batch_size: int = options.basis_batch_size()
    covariance: str | None = options.sampled_covariance()
    num_dense_columns: int | None = options.num_dense_columns()
    variance_reduction: str = options.variance_reduction()
    num_control_rows: int = options.num_control_rows()
    num_steps: int = options.num_steps()
    batch_size: int = options.batch_size(500)
    # Larger rates lead away from the mean in closed form at which the steps start.
    learning_rate: float = options.learning_rate(0.01, "Peak rate of Adagrad.")
    schedule: str = options.schedule()

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        import gpflow

        kernel.variance.assign(1.0)  # precisions are relative to the functions' size
        gpflow.utilities.set_trainable(kernel.variance, False)
        centers = random_rows(data[0], self.num_basis, self.seed)
        most = len(centers) + 1 - (self.num_dense_columns or 0)
        size = min(self.basis_batch_size, most)
        given = points.variational(likelihood, data, **{**qsgp.sampled(self), **given})
        return gs.models.RVM(centers, kernel, likelihood, basis_batch_size=size, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Steps between the mean in closed form and, after them, a refinement of it."""
        from gpflow.likelihoods import Gaussian

        from gpflow_sparse.inference.chevron import MAX_DENSE

        few = model.basis.num_basis <= MAX_DENSE and isinstance(model.likelihood, Gaussian)
        if few:
            model.update_mean(rows)
        try:
            return steps.fit_steps(self, model, rows, until, options, qsgp.adagrad(self))
        finally:
            if few:  # steps alone take thousands to the weights of overlapping functions
                model.refine(rows)
