"""Deep GPs on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.steps import NaturalSteps

# Largest number of points of each hidden layer, which has a q for each column: on validation rows
# of kin8nm NLPD was 0.052 with 128 and 0.086 with 64.
_MAX_HIDDEN = 128


@dataclass(frozen=True)
class Deep(NaturalSteps, options.Inducing):
    """Options of a deep GP of a table, :func:`gpflow_sparse.models.deep`."""

    name = "deep"
    title = "Deep GP"
    idea = (
        "rows pass through hidden layers of GPs before the last one, SOLVE-GP; starts near one "
        "layer"
    )

    num_orthogonal: int = options.num_orthogonal(
        "M2, points of the orthogonal set of the last layer; by default none with neighbors."
    )
    num_neighbors: int | None = option(
        None, "Points of each layer that a row uses; by default all.", least=1
    )
    num_layers: int = options.num_layers(2, "Layers, 1 to 3.")
    bound: str = options.bound()
    num_steps: int = 2000
    batch_size: int = 512

    @classmethod
    def create(cls, **chosen: Any) -> "Deep":
        if chosen.get("num_neighbors") is not None:  # q of points with neighbors has no such step
            chosen = {"num_orthogonal": 0, "natural_gradients": 0.0, **chosen}
        return super().create(**chosen)

    @property
    def num_hidden_inducing(self) -> int:
        """Number of points of each hidden layer."""
        return min(self.num_inducing, _MAX_HIDDEN)

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        hidden = self.num_layers - 1
        given = {
            "num_inducing": [self.num_hidden_inducing] * hidden + [self.num_inducing],
            "num_orthogonal": [0] * hidden + [self.num_orthogonal],
            "num_layers": self.num_layers,
            "num_neighbors": self.num_neighbors,
            "kernel": kernel,
            "bound": self.bound,
            "seed": self.seed,
            **given,
        }
        return gs.models.deep(data[0], likelihood, **given)
