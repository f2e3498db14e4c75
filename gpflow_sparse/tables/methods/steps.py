"""Options of training by steps and by rounds of L-BFGS, and both ways of training."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpflow_sparse as gs
from gpflow_sparse.tables.methods.base import Recipe, option

# Least number of steps between two evaluations on validation rows, and evaluations in a run.
_MIN_BETWEEN, _NUM_EVALUATIONS = 20, 10
_WARMUP = 20
# Iterations of L-BFGS in a round, which is an entry of the history.
_ROUND = 10
# Seconds of a search that has no time left: it evaluates the objective once.
_SHORTEST = 1e-3


@dataclass(frozen=True)
class Steps(Recipe):
    """Options of training by steps."""

    num_steps: int = option(600, "Training steps.", least=1)
    learning_rate: float = option(0.02, "Peak rate of Adam.", positive=True)
    schedule: str = option(
        "cosine",
        "Decay of the rate to zero over the run; a quarter after each sixth of the run; constant.",
        choices=["cosine", "staircase", "constant"],
    )

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        from gpflow.models import InternalDataTrainingLossMixin

        given: dict[str, Any] = {
            "optimizer": self.optimizer(),
            "num_steps": self.num_steps,
            "precision": getattr(self, "precision", "full"),
            "seed": self.seed,
        }
        if not isinstance(
            model, InternalDataTrainingLossMixin
        ):  # others take all rows in each step
            given |= {
                "data": rows,
                "batch_size": min(getattr(self, "batch_size", len(rows[0])), len(rows[0])),
                "natural_gradients": getattr(self, "natural_gradients", False),
            }
        callbacks = [*options.get("callbacks", ()), lambda state: time.perf_counter() > until]
        return gs.training.fit(model, **given, **{**options, "callbacks": callbacks})

    def optimizer(self) -> Any:
        """The optimizer of the steps."""
        return self.adam()

    def adam(self) -> Any:
        """Adam with the rate and the schedule; a cosine begins after a short warm-up."""
        from gpflow.keras import tf_keras

        if self.schedule != "cosine":
            return tf_keras.optimizers.Adam(self.rate())
        steps = self.num_steps
        warmup = min(_WARMUP, steps - 1)
        return gs.training.adam(self.learning_rate, decay_steps=steps, warmup_steps=warmup)

    def rate(self) -> Any:
        """The rate, as a number or as a schedule."""
        if self.schedule == "constant":
            return self.learning_rate
        from gpflow.keras import tf_keras

        schedules, rate, steps = tf_keras.optimizers.schedules, self.learning_rate, self.num_steps
        if self.schedule == "staircase":
            return schedules.ExponentialDecay(rate, max(1, steps // 6), 0.25, staircase=True)
        return schedules.CosineDecay(rate, steps)

    def evaluation_interval(self) -> int:
        """Steps between two evaluations on validation rows."""
        return max(_MIN_BETWEEN, self.num_steps // _NUM_EVALUATIONS)


@dataclass(frozen=True)
class Batches(Steps):
    """Options of training by steps, each on some of the rows."""

    batch_size: int = option(1024, "Rows per step.", least=1)


@dataclass(frozen=True)
class NaturalSteps(Batches):
    """Options of training by steps on some of the rows, with natural gradients on q."""

    natural_gradients: float = option(
        0.1, "Step size of natural gradients on q; 0 leaves q to Adam.", between=(0, 1)
    )


@dataclass(frozen=True)
class Rounds(Recipe):
    """Options of training by L-BFGS, in rounds between which basis functions are chosen again."""

    holds_data = True

    num_steps: int = option(600, "Iterations of L-BFGS.", least=1)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Maximize the objective of a model that holds its data by L-BFGS."""
        left = None if math.isinf(until) else max(_SHORTEST, until - time.perf_counter())
        return gs.training.fit_with_basis_refresh(
            model,
            num_rounds=-(-self.num_steps // _ROUND),
            num_iterations=_ROUND,
            seconds=left,
            progress=options.get("progress", True),
        )


def evaluate_once(model: Any) -> Any:
    """A history of one entry, the objective at the start, which is the end."""
    import gpflow

    from gpflow_sparse.posteriors.exact import log_marginal_likelihood

    start = time.perf_counter()
    if type(model) is gpflow.models.GPR:
        objective = log_marginal_likelihood(model) + float(model.log_prior_density())
    else:
        objective = -float(model.training_loss())
    return finished_at_once(objective, start)


def finished_at_once(objective: float, begin: float) -> Any:
    """
    The history of a training without steps.

    :param begin: value of ``time.perf_counter`` when it began.
    """
    seconds = np.array([time.perf_counter() - begin])
    return gs.training.History(np.array([objective]), seconds, False)
