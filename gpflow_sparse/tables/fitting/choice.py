"""The method of a table: the one that was asked for, or the one that wins a race."""

from collections.abc import Callable
from typing import Any

from gpflow_sparse.tables.fitting.attempts import Choice
from gpflow_sparse.tables.fitting.building import require_outputs, require_unweighted
from gpflow_sparse.tables.fitting.race import Race
from gpflow_sparse.tables.fitting.task import Task, candidates
from gpflow_sparse.tables.fitting.tree_mean import takes_trees
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.registry import AUTO, kind_of, recipe_of
from gpflow_sparse.tables.methods.rows import sized
from gpflow_sparse.tables.methods.simple import Simple


def choose(
    task: Task,
    method: str = AUTO,
    *,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
) -> Choice:
    """
    The method that was asked for, or the model that predicts held-out rows best.

    A constant, a linear model and boosted trees are fitted to nine tenths of the rows first: each
    is an answer, to which the choice falls back. The kind of table leaves one to three candidates,
    see :func:`~gpflow_sparse.tables.fitting.task.candidates`; each is built from the first start
    that is found for it. Then the start of the best one is improved, in stages that fit into the
    time that is left, until two stages have gained less than 0.005 nats each. The model with the
    highest mean log density of the held-out rows is chosen.

    Where the model will be calibrated, the rows for that are left out of all this, and log
    densities of the held-out rows are calibrated by cross-validation. A model that fails, or whose
    log density is NaN, is left out; the reason of the choice names it. Tables of at most 1,000 rows
    with one candidate have no choice, and all rows are for its training.

    :param method: "auto", or a method of ``gpflow-sparse methods``.
    :param seconds: time for the choice and the training on all rows; None for numbers of steps.
    :param report: called with a line of progress.
    :raises ValueError: for an unknown method, or one that does not fit the table, or if every
        candidate fails.
    """
    require_outputs(task.dataset, task.likelihood)
    if method != AUTO:
        return Choice(_asked_for(method, task), f"{method} was asked for.")
    recipe_of(AUTO, **task.options)  # refuses options that no method has
    names = candidates(task)
    if len(names) == 1 and (task.has_images or not task.is_long):
        kind = "images" if task.has_images else f"tables of this kind with {task.num_rows} rows"
        return Choice(task.recipe(names[0]), f"{names[0]} is the method for {kind}.")
    race = Race(task, seconds, report)
    try:
        race.run(names)
    except KeyboardInterrupt:
        if race.best is None:
            raise
        return race.choice(interrupted=True)
    return race.choice()


def _asked_for(method: str, task: Task) -> Recipe:
    """
    :raises ValueError: for an unknown method, one that does not take the likelihood, or trees of a
        target that has none.
    """
    kind = kind_of(method)
    if kind.for_classes and not task.is_gaussian:
        raise ValueError(f"method {method} is for Gaussian noise; take auto, or solvegp.")
    recipe = sized(recipe_of(method, **task.options), task.dataset.train[0], task.options)
    require_unweighted(recipe, task.dataset)
    if isinstance(recipe, Simple) and recipe.has_tree_mean and not takes_trees(task):
        raise ValueError(
            "mean must be constant or linear for this target: boosted trees are fitted to one "
            "output that may be negative, or to classes of ten rows or more. Take linear, or auto."
        )
    return recipe
