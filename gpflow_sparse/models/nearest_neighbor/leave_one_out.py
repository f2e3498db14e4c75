"""What regression and classification on nearest rows share: neighbors, and the objective's rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models.base import compiled
from gpflow_sparse.validation import checks, component_checks


def neighbors_among(places: tf.Tensor, num_neighbors: Any) -> NeighborInducingPoints:
    """
    The neighbors among distinct rows ``[M, D]``, which are not copied.

    :param num_neighbors: of fewer rows all are neighbors.
    :raises ValueError: unless it is a positive integer.
    """
    count = checks.require_count(num_neighbors, "num_neighbors")
    neighbors = NeighborInducingPoints(places, min(count, len(places)))
    neighbors.Z = places
    return neighbors


def objective_rows(num_rows: int, most: int) -> tf.Tensor:
    """
    Numbers of the rows that are left out one by one, int32 ``[n]``: at most ``most``, drawn at
    random once for each number of rows.

    :raises ValueError: for a single row.
    """
    if num_rows < 2:
        raise ValueError("data must have at least 2 rows to leave one out, got 1.")
    order = np.random.default_rng(0).permutation(num_rows)
    return tf.constant(np.sort(order[:most]), tf.int32)


def loss_closure(
    model: Any,
    left_out: Callable[[], Any],
    objective: Callable[[Any], tf.Tensor],
    compile: bool,
) -> Callable[[], tf.Tensor]:
    """
    The training loss of a model, with the neighbors at the time of this call.

    :param left_out: returns the rows of the objective and their neighbors.
    :param objective: of these.
    """
    checks.require_flag(compile, "compile")
    component_checks.validate_components(model)
    with component_checks.explain_failures(model):
        parts = left_out()
    return compiled(lambda: -objective(parts) - model.log_prior_density(), compile)


def no_elbo(model: Any) -> ValueError:
    """The error of a model without a lower bound on the evidence."""
    return ValueError(
        f"{type(model).__name__} has no elbo: the neighbors of every row have a posterior of their "
        "own. Its objective is leave_one_out_log_density()."
    )
