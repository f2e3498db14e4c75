"""GPflow's SVGP on tables, the baseline of all other methods."""

from dataclasses import dataclass
from typing import Any

from gpflow_sparse.tables.methods import options, points
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.rows import choose_points


@dataclass(frozen=True)
class SVGP(Recipe):
    """Options of GPflow's SVGP, :class:`gpflow.models.SVGP`."""

    name = "svgp"
    title = "SVGP"
    idea = "GPflow's own, the baseline"
    takes_weights = True

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_inducing: int = options.num_inducing()
    whiten: bool = options.whiten()
    initialization: str = options.initialization()
    num_steps: int = options.num_steps()
    batch_size: int = options.batch_size()
    learning_rate: float = options.learning_rate()
    schedule: str = options.schedule()
    natural_gradients: float = options.natural_gradients()

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, sets: Any = None, **given: Any
    ) -> Any:
        import gpflow

        (Z,) = sets or choose_points(self, data[0], kernel, *self.sizes)
        given = points.variational(likelihood, data, **{"whiten": self.whiten, **given})
        return gpflow.models.SVGP(kernel, likelihood, Z, **given)
