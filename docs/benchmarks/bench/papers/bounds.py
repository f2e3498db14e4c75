"""Bounds of sparse GP regression by what is learned with them: noise, errors and time."""

import time
from collections.abc import Mapping
from typing import Any

import gpflow

from bench.papers.models import score_test_rows, subset_start
from bench.papers.spec import Record
from bench.papers.training import Budget
from gpflow_sparse import initialization, models
from gpflow_sparse.data import Dataset
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.tables.fitting.starts import KERNELS


def fit_bounds(options: Mapping[str, Any], dataset: Dataset, budget: Budget) -> Record:
    """
    Train all parameters by L-BFGS, from the hyperparameters of an exact GP on 1,000 rows.

    :param options: num_inducing, kernel, bound and block_size of ``SOLVEGPR``.
    """
    X, Y = dataset.train
    start = subset_start(dataset, budget.seed, options["kernel"])
    kernel = KERNELS[options["kernel"]](start.variance, start.lengthscales)
    iv = OrthogonalInducingVariables(
        initialization.kmeans(X, options["num_inducing"], seed=budget.seed)
    )
    bound = {name: options[name] for name in ("bound", "block_size") if name in options}
    model = models.SOLVEGPR((X, Y), kernel, iv, noise_variance=start.noise_variance, **bound)
    begin = time.perf_counter()
    found = gpflow.optimizers.Scipy().minimize(
        model.training_loss,
        model.trainable_variables,
        options={"maxiter": budget.steps},
        tf_fun_args={"autograph": False},
    )
    seconds = time.perf_counter() - begin
    scores = score_test_rows(model, dataset)
    return {
        "rmse": scores["rmse_standardized"],
        "nlpd": scores["nlpd_standardized"],
        "coverage": scores["coverage_95"],
        "elbo": -float(found.fun),
        "noise_variance": float(model.likelihood.variance.numpy()),
        "training_seconds": seconds,
        "milliseconds_per_step": 1e3 * seconds / found.nfev,
    }
