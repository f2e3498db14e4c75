"""Libraries at the same hyperparameters, which must agree before they are compared in accuracy."""

import importlib.util
from collections.abc import Mapping
from typing import Any

import gpflow
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor

from bench import peers
from bench.papers.models import random_rows
from bench.papers.spec import Record
from gpflow_sparse import models
from gpflow_sparse.data import Dataset
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.tables.methods.rows import Pair
from gpflow_sparse.training import TrainingError

MOST = 1e-6
"""Largest relative difference."""
_NUM_ROWS, _NUM_INDUCING = 500, 50
# Hyperparameters that no library has as defaults. The kernel variance is 1, since the jitter of
# gpflow_sparse is relative to it.
_LENGTHSCALES, _NOISE = (0.8, 1.7), 0.13

Found = Mapping[str, np.ndarray]
"""Objective, and mean and variance of test rows."""


def compare_libraries(dataset: Dataset, seed: int) -> Record:
    """
    Exact GPs, SVGP and SGPR of several libraries with the same parameters, in float64.

    :return: ``differences`` to GPflow: quantity, library, and the largest difference relative to
        the largest absolute value; ``num_rows``.
    :raises TrainingError: if one is larger than 1e-6.
    """
    rows = random_rows(dataset.train, _NUM_ROWS, seed)
    X = random_rows(dataset.test, _NUM_ROWS, seed)[0]
    compared = {
        "exact GP": _exact(rows, X),
        "SVGP at a random q": _svgp(rows, X, seed),
        "SGPR": _sgpr(rows, X),
    }
    if importlib.util.find_spec("gpytorch"):
        compared["SVGP at a random q, jitter 1e-7"] = _little_jitter(rows, X, seed)
    differences: list[dict[str, Any]] = [
        {"quantity": f"{title}: {name}", "library": library, "difference": _difference(found, own)}
        for title, (reference, others) in compared.items()
        for library, values in others.items()
        for name, own, found in ((name, reference[name], values[name]) for name in reference)
    ]
    largest = max(differences, key=lambda line: line["difference"])
    if not largest["difference"] <= MOST:
        raise TrainingError(f"libraries differ at the same hyperparameters: {largest}")
    return {"differences": differences, "num_rows": len(rows[0])}


def _difference(found: np.ndarray, reference: np.ndarray) -> float:
    return float(np.max(np.abs(found - reference)) / np.max(np.abs(reference)))


def _kernel(D: int) -> gpflow.kernels.Matern52:
    return gpflow.kernels.Matern52(lengthscales=np.linspace(*_LENGTHSCALES, D) * np.sqrt(D))


def _of_model(model: Any, objective: Any, X: np.ndarray) -> Found:
    mean, variance = (np.asarray(part) for part in model.predict_y(X))
    return {"objective": np.asarray(objective), "mean": mean, "variance": variance}


def _exact(rows: Pair, X: np.ndarray) -> tuple[Found, Mapping[str, Found]]:
    kernel = _kernel(X.shape[1])
    own = gpflow.models.GPR(rows, kernel, noise_variance=_NOISE)
    reference = _of_model(own, own.log_marginal_likelihood(), X)
    theirs = GaussianProcessRegressor(peers.sklearn_kernel(kernel, _NOISE), optimizer=None)
    theirs.fit(rows[0], rows[1][:, 0])
    mean, std = theirs.predict(X, return_std=True)
    objective = theirs.log_marginal_likelihood_value_
    found = {"objective": np.asarray(objective), "mean": mean[:, None]}
    return reference, {"scikit-learn": found | {"variance": std[:, None] ** 2}}


def _svgp(rows: Pair, X: np.ndarray, seed: int) -> tuple[Found, Mapping[str, Found]]:
    sets, q = _some_q(rows, seed)
    parts = _kernel(X.shape[1]), gpflow.likelihoods.Gaussian(_NOISE)
    own = gpflow.models.SVGP(*parts, sets.sets[0], **q)
    ours = models.SOLVEGP(*parts, sets, **q | {"q_mu": [q["q_mu"]], "q_sqrt": [q["q_sqrt"]]})
    return _of_model(own, own.elbo(rows), X), {"gpflow_sparse": _of_model(ours, ours.elbo(rows), X)}


def _little_jitter(rows: Pair, X: np.ndarray, seed: int) -> tuple[Found, Mapping[str, Found]]:
    """SVGP of GPyTorch, which adds its jitter to variances of f too; so both have a tenth of it."""
    sets, q = _some_q(rows, seed)
    (points,) = sets.sets
    kernel, jitter = _kernel(X.shape[1]), 0.1 * gpflow.config.default_jitter()
    theirs = peers.StochasticGP(
        kernel, points.Z.numpy(), _NOISE, num_data=len(rows[0]), dtype="float64", jitter=jitter
    )
    theirs.set_q(q["q_mu"], q["q_sqrt"])
    with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)):
        own = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(_NOISE), points, **q)
        reference = _of_model(own, own.elbo(rows), X)
    return reference, {"GPyTorch": _of_model(theirs, theirs.elbo(rows), X)}


def _some_q(rows: Pair, seed: int) -> tuple[OrthogonalInducingVariables, dict[str, Any]]:
    """Points, and arguments of a model with a random q of their whitened values."""
    rng, M = np.random.default_rng(seed), _NUM_INDUCING
    q_sqrt = np.tril(0.1 * rng.normal(size=(1, M, M)) + 0.5 * np.eye(M))
    q = {"q_mu": rng.normal(size=(M, 1)), "q_sqrt": q_sqrt, "num_data": len(rows[0])}
    return OrthogonalInducingVariables(rows[0][:M].copy()), q


def _sgpr(rows: Pair, X: np.ndarray) -> tuple[Found, Mapping[str, Found]]:
    kernel, Z = _kernel(X.shape[1]), rows[0][:_NUM_INDUCING].copy()
    own = gpflow.models.SGPR(rows, kernel, Z, noise_variance=_NOISE)
    sets = OrthogonalInducingVariables(Z)
    ours = models.SOLVEGPR(rows, kernel, sets, noise_variance=_NOISE)
    reference = _of_model(own, own.elbo(), X)
    return reference, {"gpflow_sparse": _of_model(ours, ours.elbo(), X)}
