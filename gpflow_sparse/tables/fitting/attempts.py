"""The candidates of a choice: their scores, the one that was taken, and why."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from gpflow.models import GPModel

from gpflow_sparse.tables.methods.base import Recipe


class Attempt(NamedTuple):
    """Scores of one method on held-out rows, and its cost."""

    method: str
    nlpd: float
    """Mean negative log density of a held-out row, in nats, for standardized outputs."""
    error: float
    """Root mean squared error of standardized outputs, or the fraction of wrong labels."""
    num_steps: int
    seconds: float
    """Time of the clock, from the search for starting hyperparameters to the scores."""


class Choice(NamedTuple):
    """A method, and how it is trained on all rows."""

    recipe: Recipe
    reason: str
    attempts: tuple[Attempt, ...] = ()
    start: GPModel | None = None
    """A trained candidate; None to build the model."""
    interrupted: bool = False
    """Whether Ctrl-C ended the choice or the training."""
    finish_seconds: float = math.inf
    """Time for :meth:`~gpflow_sparse.tables.methods.base.Recipe.finish`."""
    is_model: bool = False
    """Whether ``start`` is the model to keep: after Ctrl-C, or without time for another."""


def reason_of(method: str, attempts: Mapping[str, Attempt], failures: Mapping[str, str]) -> str:
    """Why a candidate was chosen, which others have a lower error, and why some were left out."""
    best = attempts[method]
    reason = f"{method} has the lowest NLPD on held-out rows, {best.nlpd:.3f}"
    for name, other in attempts.items():
        if other.error < best.error:
            reason += f"; {name} has the lower error, {other.error:.3f} beside {best.error:.3f}"
    left_out = [f"{name} was left out: {why}" for name, why in failures.items()]
    return " ".join(f"{sentence}." for sentence in [reason, *left_out])
