"""A constant, a linear model or boosted trees on tables, with noise around it."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpflow_sparse.tables.methods.base import TREES, Recipe, option
from gpflow_sparse.tables.methods.rows import shuffled
from gpflow_sparse.tables.methods.steps import finished_at_once

CONSTANT, LINEAR = "constant", "linear"
# Variance of the GP beside the mean, not part of the model; iterations of L-BFGS; values of
# the inputs to which a linear model is fitted: logistic regression took 60 s on MNIST.
_VARIANCE, _MAX_ITERATIONS, _MAX_VALUES = 1e-6, 200, 2e6


@dataclass(frozen=True)
class Simple(Recipe):
    """
    Options of a generalized linear model, or of boosted trees, as GPflow's SVGP: a mean function
    and a likelihood, with a GP of next to no variance.
    """

    name = "simple"
    title = "Simple model"
    idea = "a constant, a linear model or boosted trees, as a reference and a first answer"
    takes_weights = True
    is_trained = False
    holds_data = True
    makes_kernel = True

    mean: str = option(
        TREES,
        "The model: constant, linear, with a normal prior of the coefficients, or boosted trees.",
        choices=[CONSTANT, LINEAR, TREES],
    )

    @property
    def full_title(self) -> str:
        """The model."""
        return {CONSTANT: "Constant", LINEAR: "Linear model"}.get(self.mean, "Boosted trees")

    @classmethod
    def variants(cls, task: Any) -> dict[str, dict[str, Any]]:
        """The models that a table can have, from the cheapest to the best."""
        from gpflow_sparse.tables.fitting.tree_mean import takes_trees

        names = [CONSTANT, LINEAR, *([TREES] if takes_trees(task) else [])]
        return {name: {"mean": name} for name in names}

    def usual_likelihood(self, num_classes: int | None) -> str | None:
        return "bernoulli_logit" if num_classes == 2 else None

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        """The model, fitted to the rows: by penalized maximum likelihood."""
        import gpflow

        X, Y = map(gpflow.utilities.to_default_float, data)
        if "mean_function" not in given:
            count = int(likelihood.latent_dim or Y.shape[1])
            shapes = (count,) if self.mean == CONSTANT else (X.shape[1], count), (count,)
            kind = gpflow.functions.Constant if self.mean == CONSTANT else gpflow.functions.Linear
            parts = shapes[:1] if self.mean == CONSTANT else shapes
            given["mean_function"] = kind(*map(np.zeros, parts))
        weights = given.pop("row_weights", None)
        model = gpflow.models.SVGP(
            gpflow.kernels.SquaredExponential(_VARIANCE),
            likelihood,
            X[:1],
            num_latent_gps=int(likelihood.latent_dim or Y.shape[1]),
            num_data=len(X),
            **given,
        )
        for part in (model.kernel, model.inducing_variable, model.q_mu, model.q_sqrt):
            gpflow.set_trainable(part, False)
        self._fit(model, X, Y, weights)
        return model

    def _fit(self, model: Any, X: Any, Y: Any, weights: Any) -> None:
        """
        Fit the mean function and the noise: coefficients of numbers by Bayesian ridge regression,
        of log odds and log rates with a standard normal prior.
        """
        import gpflow
        import tensorflow as tf
        from sklearn.linear_model import BayesianRidge

        from gpflow_sparse.tables.fitting.observations import is_standardized

        mean, variables, penalty = model.mean_function, model.trainable_variables, 0.0
        weights = tf.ones(len(X), X.dtype) if weights is None else tf.cast(weights, X.dtype)
        if self.mean == LINEAR:
            some = np.sort(shuffled(len(X), self.seed)[: max(2, int(_MAX_VALUES / X.shape[1]))])
            X, Y, weights = (tf.gather(part, some) for part in (X, Y, weights))
            if is_standardized(model.likelihood):
                A = mean.A.numpy()
                for column, y in enumerate(Y.numpy().T):
                    A[:, column] = BayesianRidge().fit(X.numpy(), y, weights.numpy()).coef_
                mean.A.assign(A)
                variables = [*mean.b.trainable_variables, *model.likelihood.trainable_variables]
            penalty = 0.5

        def loss() -> tf.Tensor:
            density = model.likelihood.log_prob(X, mean(X), Y)
            value = -tf.reduce_sum(weights * density)
            return value + penalty * tf.reduce_sum(tf.square(mean.A)) if penalty else value

        if variables:
            options = {"maxiter": _MAX_ITERATIONS}
            gpflow.optimizers.Scipy().minimize(loss, variables, compile=False, options=options)

    def train(self, model: Any, rows: Any, **options: Any) -> Any:
        return finished_at_once(np.nan, time.perf_counter())
