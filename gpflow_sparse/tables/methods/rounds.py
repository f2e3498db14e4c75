"""Training by L-BFGS in rounds, between which basis functions are chosen anew."""

from typing import Any

import gpflow_sparse as gs

ROUND = 10
"""Iterations of L-BFGS in a round, which is an entry of the history."""


def fit_with_basis_refresh(recipe: Any, model: Any, options: dict[str, Any]) -> Any:
    """Maximize the objective of a model that holds its data by L-BFGS."""
    return gs.training.fit_with_basis_refresh(
        model,
        num_rounds=-(-recipe.num_steps // ROUND),
        num_iterations=ROUND,
        progress=options.get("progress", True),
    )
