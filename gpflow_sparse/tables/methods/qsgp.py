"""QSGP on tables: steps on some rows and some basis functions."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import finite_basis, options, points, steps

# Adam's rate for hyperparameters beside Adagrad on weights: their gradients are noisier.
_DENSE_RATE = 0.002
SAMPLED = ("covariance", "num_dense_columns", "variance_reduction", "num_control_rows")
"""Options of models whose steps sample basis functions, that have the names of their arguments."""


@dataclass(frozen=True)
class QSGP(finite_basis.BasisRecipe):
    """Options of the quadruply stochastic GP, :class:`gpflow_sparse.models.QSGP`."""

    name = "qsgp"
    title = "QSGP"
    idea = "steps on some rows and some basis functions, at a cost that depends on neither number"

    num_basis: int = options.num_basis(10_000)
    # With random features alone, a mean-field q leads to hyperparameters with too much noise.
    basis: str = options.basis("hybrid")
    basis_batch_size: int = options.basis_batch_size()
    covariance: str | None = options.sampled_covariance()
    num_dense_columns: int | None = options.num_dense_columns()
    variance_reduction: str = options.variance_reduction()
    num_control_rows: int = options.num_control_rows()
    num_steps: int = options.num_steps()
    batch_size: int = options.batch_size(500)
    learning_rate: float = options.learning_rate(0.1, "Peak rate of Adagrad.")
    schedule: str = options.schedule()

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, basis: Any = None, **given: Any
    ) -> Any:
        from gpflow.likelihoods import Gaussian

        basis, X = basis or finite_basis.make_basis(self, data[0], kernel), data[0]
        given = points.variational(likelihood, data, **{**sampled(self), **given})
        is_whole = self.basis == "dictionary" and basis.num_basis == len(X)
        if is_whole and isinstance(likelihood, Gaussian):
            given = {"augmentation": X, **given}  # else there is no variance far from the rows
        dense = 0 if self.covariance == "diag" else self.num_dense_columns or basis.num_leading
        size = max(1, min(self.basis_batch_size, basis.num_basis - dense))
        return gs.models.QSGP(basis, likelihood, basis_batch_size=size, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Adagrad on weights, and Adam on hyperparameters."""
        return steps.fit_steps(self, model, rows, until, options, adagrad(self))


def sampled(recipe: Any) -> dict[str, Any]:
    """Arguments of models whose steps sample basis functions."""
    return {name: getattr(recipe, name) for name in SAMPLED}


def adagrad(recipe: Any) -> Any:
    """Adagrad on the weights that a step draws, and Adam on hyperparameters."""
    constant = recipe.schedule == "constant"
    dense = None if constant else gs.training.adam(_DENSE_RATE, decay_steps=recipe.num_steps)
    return gs.training.SparseAdagrad(steps.rate(recipe), dense=dense)
