"""Joint predictions of several rows, against those of an exact GP."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse import initialization
from gpflow_sparse.bench.papers.budget import Training
from gpflow_sparse.bench.papers.curves_runner import train
from gpflow_sparse.bench.papers.spec import Record
from gpflow_sparse.bench.papers.swsgp_models import (
    Start,
    assemble,
    make_optimizer,
    seen_from,
)
from gpflow_sparse.data import Dataset, load, metrics
from gpflow_sparse.models import SWSGP
from gpflow_sparse.runs.build import scaler_of

_NUM_ROWS = 2000

Joint = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From places of test rows ``[B, n]`` to means ``[B, n, 1]`` and covariances of f ``[B, n, n]``."""


def read(name: str, split: int) -> Dataset:
    """A published split with 2,000 of its training rows, at random, standardized by those."""
    dataset = load(name, split)
    X, Y = dataset.train
    rows = np.random.default_rng(split).permutation(len(X))[:_NUM_ROWS]
    return dataclasses.replace(dataset, train=(X[rows], Y[rows])).standardized()


@dataclass(frozen=True)
class Together:
    """A joint prediction of all test rows, of which batches are parts."""

    mean: np.ndarray
    """``[N, 1]``"""
    covariance: np.ndarray
    """Of f, ``[N, N]``."""

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.mean[rows], self.covariance[rows[:, :, None], rows[:, None, :]]


@dataclass(frozen=True)
class Exact:
    """An exact GP."""

    start: Start
    """Its hyperparameters."""
    joint: Together
    iterations: int
    seconds: float


@functools.lru_cache(maxsize=1)
def find_exact(dataset: Dataset, seed: int, iterations: int) -> Exact:
    """Train it; kept for the next row on the same data."""
    begin = time.perf_counter()
    X, Y = dataset.train
    lengthscales = initialization.median_lengthscales(X, seed=seed)
    kernel = gpflow.kernels.Matern52(lengthscales=lengthscales)
    gp = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1)
    found = gpflow.optimizers.Scipy().minimize(
        gp.training_loss, gp.trainable_variables, options={"maxiter": iterations}
    )
    noise = float(gp.likelihood.variance.numpy())
    start = Start(float(kernel.variance.numpy()), kernel.lengthscales.numpy(), noise)
    seconds = time.perf_counter() - begin
    return Exact(start, _together(gp, dataset.test[0]), int(found.nit), seconds)


def fit_jointly(dataset: Dataset, plan: Training, options: Mapping[str, Any]) -> Record:
    """
    Train and score a row.

    :param dataset: from :func:`read`.
    :param options: of the row, see ``papers/swsgp.py``.
    """
    exact = find_exact(dataset, plan.seed, options["exact_iterations"])
    scored = functools.partial(score, exact, dataset, options["batches"], plan.seed)
    common = {"curve": [], "curve_of": "RMSE (standardized) of test rows on the way"}
    if options["model"] == "exact":
        return (
            common
            | scored(exact.joint, exact.start.noise_variance)
            | {
                "milliseconds_per_step": 1e3 * exact.seconds / exact.iterations,
                "training_seconds": exact.seconds,
            }
        )
    tf.random.set_seed(plan.seed)
    model = _build(dataset, exact.start, plan.seed, options)
    X, Y = dataset.test
    results = train(
        model,
        dataset.train,
        plan,
        optimizer=make_optimizer(plan.steps, options),
        batch_size=options["batch_size"],
        score=lambda model: metrics.rmse(Y, model.predict_f(X)[0].numpy()),
    )
    noise = float(model.likelihood.variance.numpy())
    if options["model"] == "svgp":  # that of SWSGP has no set of its own for several rows
        results |= scored(_together(model, X), noise)
    lines = [
        {"title": f"... from {H} neighbors", **scored(_apart(seen_from(model, H), X), noise)}
        for H in options["predicted_from"]
    ]
    return common | results | {"also": lines}


def score(
    exact: Exact, dataset: Dataset, sizes: Sequence[int], seed: int, joint: Joint, noise: float
) -> Record:
    """
    Joint predictions of f at random batches of test rows.

    :param sizes: rows of a batch; those that do not fill one are left out.
    :param noise: variance.
    :return: for each size n covariance_n, the mean squared difference of covariances to the exact
        ones, of standardized outputs; rmse_n and nlpd_n, of single rows in the units of the file.
    """
    scaler, Y, found = scaler_of(dataset), dataset.test[1], {}
    for n in sizes:
        order = np.random.default_rng([seed, n]).permutation(len(Y))
        rows = order[: len(Y) - len(Y) % n].reshape(-1, n)
        mean, covariance = joint(rows)
        y, mean = (part.reshape(-1, 1) for part in (Y[rows], mean))
        variance = noise + np.diagonal(covariance, axis1=1, axis2=2).reshape(-1, 1)
        found[f"covariance_{n}"] = float(np.mean((covariance - exact.joint(rows)[1]) ** 2))
        found[f"rmse_{n}"] = metrics.rmse(*map(scaler.inverse_outputs, (y, mean)))
        found[f"nlpd_{n}"] = metrics.nlpd(y, mean, variance) - scaler.log_density_offset
    return found


def _together(model: gpflow.models.GPModel, X: np.ndarray) -> Together:
    mean, covariance = model.predict_f(X, full_cov=True)
    return Together(mean.numpy(), covariance.numpy()[0])


def _apart(posterior: Any, X: np.ndarray) -> Joint:
    """Each batch on its own, for posteriors whose predictions depend on the company of a row."""

    together = functools.partial(posterior.predict_f, full_cov=True)
    predict = tf.function(together, autograph=False, reduce_retracing=True)

    def joint(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, covariance = predict(tf.constant(X[rows]))
        return mean.numpy(), covariance.numpy()[:, 0]

    return joint


def _build(
    dataset: Dataset, start: Start, seed: int, options: Mapping[str, Any]
) -> gpflow.models.GPModel:
    kernel = gpflow.kernels.Matern52(start.variance, start.lengthscales)
    likelihood = gpflow.likelihoods.Gaussian(start.noise_variance)
    for part in (kernel, likelihood):
        gpflow.set_trainable(part, options["learn_hyperparameters"])
    model = assemble(dataset.train[0], kernel, likelihood, seed, options)
    if isinstance(model, SWSGP):
        model.start_from_sites(*dataset.train)
    return model
