"""GPflow's SVGP on tables, the baseline of all other methods."""

from dataclasses import dataclass
from typing import Any

from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.rows import variational
from gpflow_sparse.tables.methods.steps import NaturalSteps


@dataclass(frozen=True)
class SVGP(NaturalSteps, options.Points):
    """Options of GPflow's SVGP, :class:`gpflow.models.SVGP`."""

    name = "svgp"
    title = "SVGP"
    idea = "GPflow's own, the baseline"
    takes_weights = True

    whiten: bool = options.whiten()

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        import gpflow

        (Z,) = self.take_sets(given, data[0], kernel)
        given = variational(likelihood, data, **{"whiten": self.whiten, **given})
        return gpflow.models.SVGP(kernel, likelihood, Z, **given)
