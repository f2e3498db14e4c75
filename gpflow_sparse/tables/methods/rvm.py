"""The relevance vector machine on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.qsgp import SampledSteps
from gpflow_sparse.tables.methods.rows import random_rows, variational


@dataclass(frozen=True)
class RVM(SampledSteps, options.Kernel):
    """Options of the sub-sampled relevance vector machine, :class:`gpflow_sparse.models.RVM`."""

    name = "rvm"
    title = "RVM"
    idea = (
        "sub-sampled relevance vector machine: kernel functions around training rows, most unused"
    )

    num_basis: int = options.num_basis()
    # Larger rates lead away from the mean in closed form at which the steps start.
    learning_rate: float = 0.01

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        import gpflow

        kernel.variance.assign(1.0)  # precisions are relative to the functions' size
        gpflow.utilities.set_trainable(kernel.variance, False)
        centers = random_rows(data[0], self.num_basis, self.seed)
        most = len(centers) + 1 - (self.num_dense_columns or 0)
        size = min(self.basis_batch_size, most)
        given = variational(likelihood, data, **{**self.model_options(), **given})
        return gs.models.RVM(centers, kernel, likelihood, basis_batch_size=size, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Steps between the mean in closed form and, after them, a refinement of it."""
        from gpflow.likelihoods import Gaussian

        from gpflow_sparse.inference.chevron import MAX_DENSE

        few = model.basis.num_basis <= MAX_DENSE and isinstance(model.likelihood, Gaussian)
        if few:
            model.update_mean(rows)
        try:
            return super().train(model, rows, until=until, **options)
        finally:
            if few:  # steps alone take thousands to the weights of overlapping functions
                model.refine(rows)
