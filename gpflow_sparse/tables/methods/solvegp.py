"""SOLVE-GP on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import TREES, ZERO, option
from gpflow_sparse.tables.methods.rows import variational
from gpflow_sparse.tables.methods.site_vgp import SiteVGP
from gpflow_sparse.tables.methods.steps import NaturalSteps


@dataclass(frozen=True)
class SolveGP(NaturalSteps, options.Points):
    """Options of SOLVE-GP, :class:`gpflow_sparse.models.SOLVEGP`."""

    name = "solvegp"
    title = "SOLVE-GP"
    idea = "orthogonal inducing sets: M + M2 points, two small covariances in place of a large one"
    takes_weights = True

    num_orthogonal: int = options.num_orthogonal()
    bound: str | None = option(
        None,
        "The objective: standard; or log, which is tighter, for Gaussian noise and rows without "
        "weights, the default there if the model is calibrated.",
        choices=["standard", "log"],
    )
    whiten: bool = options.whiten()
    precision: str = option(
        "full",
        "mixed computes products with a batch in float32 in training.",
        choices=["full", "mixed"],
    )
    mean: str = option(
        ZERO,
        "Prior mean of classes: zero, or trees, boosted trees of the log odds. auto tries both.",
        choices=[ZERO, TREES],
    )

    @classmethod
    def reason_against(cls, task: Any) -> str:
        if task.has_images:
            return "rows are images"
        if task.is_gaussian:
            return "nearest neighbors and exact GPs are for Gaussian noise"
        if not (task.is_long or SiteVGP.reason_against(task)):
            return f"a table of at most {task.few_rows} rows has q at all rows"
        return ""

    @classmethod
    def variants(cls, task: Any) -> dict[str, dict[str, Any]]:
        from gpflow_sparse.tables.fitting.tree_mean import has_rare_classes

        is_open = task.likelihood is None and not {"likelihood", "mean"} & set(task.options)
        labels, count = task.dataset.train[1], task.dataset.num_classes
        if task.has_labels and is_open and not has_rare_classes(labels, count):
            return {TREES: {"mean": TREES}}
        return {"": {}}

    def usual_likelihood(self, num_classes: int | None) -> str | None:
        # the mean of trees is one of log odds
        return "bernoulli_logit" if self.has_tree_mean and num_classes == 2 else None

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        sets = self.take_sets(given, data[0], kernel)
        variables = gs.inducing_variables.OrthogonalInducingVariables(*sets)
        given = {"whiten": self.whiten, "bound": self.bound or "standard", **given}
        given = variational(likelihood, data, **given)
        return gs.models.SOLVEGP(kernel, likelihood, variables, **given)
