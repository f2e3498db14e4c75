"""GP-GRIEF on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.steps import Rounds


@dataclass(frozen=True)
class GRIEF(Rounds, options.Kernel):
    """Options of grid-structured eigenfunctions, :class:`gpflow_sparse.models.GRIEF`."""

    name = "grief"
    title = "GP-GRIEF"
    idea = "regression with the leading eigenfunctions of a product kernel on a grid of any size"
    for_classes = "basis_svgp"

    kernel: str = "squared_exponential"
    num_basis: int = options.num_basis()
    points_per_dimension: int = options.points_per_dimension()
    bound: str = options.bound()
    weights: str = option(
        "optimize",
        "integrate over weights and noise, or optimize hyperparameters alone.",
        choices=["optimize", "integrate"],
    )

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        given = {
            "num_eigenfunctions": self.num_basis,
            "points_per_dimension": self.points_per_dimension,
            "noise_variance": likelihood.variance.numpy(),
            "bound": self.bound,
            **given,
        }
        return gs.models.GRIEF(data, kernel, **given)

    def finish(self, model: Any, seconds: float = math.inf) -> Any:
        """The model; for type-I inference, a model of rotated weights with its hyperparameters."""
        if self.weights == "optimize":
            return model
        parts = model.data, model.kernel, model.likelihood
        given = {"reweighted": "rotated", "grid": model.basis.grid, "bound": "standard"}
        return self.build(*parts, **given)

    def predictor(self, model: Any) -> Any:
        """An object that integrates over weights and noise by quadrature."""
        if self.weights == "optimize":
            return super().predictor(model)
        return model.sample_posterior(method="quadrature")
