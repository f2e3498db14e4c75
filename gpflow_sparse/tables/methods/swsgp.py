"""SWSGP on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options, points, steps
from gpflow_sparse.tables.methods.base import Recipe, option
from gpflow_sparse.tables.methods.rows import choose_points

# Largest number of points of the SVGP that is the baseline: its steps take all of them.
_MAX_BASELINE = 512
# Columns up to which the automatic choice tries neighbors among inducing points: of 60,000 images
# of 784 pixels the search before the first step took 50 s on a core.
_MAX_COLUMNS = 100


@dataclass(frozen=True)
class SWSGP(Recipe):
    """Options of sparse within sparse GPs, :class:`gpflow_sparse.models.SWSGP`."""

    name = "swsgp"
    title = "SWSGP"
    idea = "each row uses its nearest of up to 100,000 points: steps cost the same for any number"
    takes_weights = True
    streams = True

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_inducing: int = options.num_inducing(10_000)
    num_neighbors: int = option(32, "H, inducing points that a row uses.", least=1)
    kl_weighting: str = options.kl_weighting()
    covariance: str = option("diag", "Covariance of q.", choices=["diag", "dense"])
    initialization: str = options.initialization("random")
    num_steps: int = options.num_steps(3000)
    batch_size: int = options.batch_size(128)
    learning_rate: float = options.learning_rate()
    schedule: str = options.schedule()

    @classmethod
    def suits(cls, task: Any) -> str:
        if task.has_images:
            return "rows are images"
        if not task.is_long:
            return f"a table of at most {task.few_rows} rows has room for all rows as points"
        if task.num_columns > _MAX_COLUMNS:
            return f"nearest points are slow to find in more than {_MAX_COLUMNS} columns"
        return ""

    def baseline_options(self) -> dict[str, Any]:
        few = min(self.num_inducing, _MAX_BASELINE)
        return super().baseline_options() | {"num_inducing": few, "initialization": "kmeans"}

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, sets: Any = None, **given: Any
    ) -> Any:
        (Z,) = sets or choose_points(self, data[0], kernel, *self.sizes)
        H = min(self.num_neighbors, len(Z))
        variables = gs.inducing_variables.NeighborInducingPoints(Z, H)
        given = {"covariance": self.covariance, "kl_weighting": self.kl_weighting, **given}
        given = points.variational(likelihood, data, **given)
        return gs.models.SWSGP(kernel, likelihood, variables, **given)

    def optimizer(self) -> Any:
        """Adam on the rows of q that a batch uses, and on hyperparameters."""
        return gs.training.SparseAdam(steps.rate(self), dense=steps.adam(self))

    def num_elements(self, num_rows: int, input_dim: int, num_latent_gps: int) -> int:
        """
        Tensor elements: data, two values and their slots for each point, and about fifteen tensors
        H x H for each row of a batch.
        """
        M, H = self.num_inducing, min(self.num_neighbors, self.num_inducing)
        held = M * (input_dim + 8 * num_latent_gps)
        return num_rows * (input_dim + 1) + held + min(self.batch_size, num_rows) * 15 * H**2
