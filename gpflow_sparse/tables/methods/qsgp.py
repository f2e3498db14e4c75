"""QSGP on tables: steps on some rows and some basis functions."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import finite_basis
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.rows import variational
from gpflow_sparse.tables.methods.steps import Batches

# Adam's rate for hyperparameters beside Adagrad on weights: their gradients are noisier.
_DENSE_RATE = 0.002


@dataclass(frozen=True)
class SampledSteps(Batches):
    """Options of models whose steps sample basis functions."""

    basis_batch_size: int = option(1000, "Functions in each of the two draws of a step.", least=1)
    covariance: str | None = option(
        None, "Shape of the covariance of q.", choices=["diag", "block", "chevron"]
    )
    num_dense_columns: int | None = option(None, "Dense columns of the covariance.", least=0)
    variance_reduction: str = option(
        "anchored", "Variance reduction of gradients.", choices=["anchored", "none"]
    )
    num_control_rows: int = option(
        500, "Rows of the control variate, where the mean is known exactly.", least=1
    )
    batch_size: int = 500
    learning_rate: float = option(0.1, "Peak rate of Adagrad.", positive=True)

    def model_options(self) -> dict[str, Any]:
        """The options that have the names of arguments of the models."""
        names = "covariance", "num_dense_columns", "variance_reduction", "num_control_rows"
        return {name: getattr(self, name) for name in names}

    def optimizer(self) -> Any:
        """Adagrad on the weights that a step draws, and Adam on hyperparameters."""
        constant = self.schedule == "constant"
        dense = None if constant else gs.training.adam(_DENSE_RATE, decay_steps=self.num_steps)
        return gs.training.SparseAdagrad(self.rate(), dense=dense)


@dataclass(frozen=True)
class QSGP(SampledSteps, finite_basis.BasisRecipe):
    """Options of the quadruply stochastic GP, :class:`gpflow_sparse.models.QSGP`."""

    name = "qsgp"
    title = "QSGP"
    idea = "steps on some rows and some basis functions, at a cost that depends on neither number"

    num_basis: int = 10_000
    # With random features alone, a mean-field q leads to hyperparameters with too much noise.
    basis: str = "hybrid"

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        from gpflow.likelihoods import Gaussian

        X = data[0]
        basis = given.pop("basis", None) or self.make_basis(X, kernel)
        given = variational(likelihood, data, **{**self.model_options(), **given})
        is_whole = self.basis == "dictionary" and basis.num_basis == len(X)
        if is_whole and isinstance(likelihood, Gaussian):
            given = {"augmentation": X, **given}  # without it the variance vanishes far from rows
        dense = 0 if self.covariance == "diag" else self.num_dense_columns or basis.num_leading
        size = max(1, min(self.basis_batch_size, basis.num_basis - dense))
        return gs.models.QSGP(basis, likelihood, basis_batch_size=size, **given)
