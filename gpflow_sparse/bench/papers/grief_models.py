"""GRIEF as in the paper's regression table: start, type II, type I, scores."""

import functools
import time
import warnings
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.models import GRIEF
from gpflow_sparse.runs.build import original_units, scaler_of
from gpflow_sparse.runs.evaluation import CachedModel
from gpflow_sparse.training import TrainingError, fit_in_rounds

_POINTS_PER_DIMENSION = 10
_SUBSET_ROWS = 1000
# The exact GP of the start may explain its rows almost without noise; a truncated kernel cannot.
_NOISE_FLOOR = 1e-3


class Start(NamedTuple):
    """What all rows of the table start from."""

    variance: float
    lengthscales: np.ndarray
    noise_variance: float
    seconds: float


def fit_grief(
    dataset: Dataset, *, seed: int, inference: str, **options: Any
) -> dict[str, float | int]:
    """
    Train and score one row of the table on one split.

    :param dataset: standardized.
    :param seed: of the rows of the exact GP, and of the samples.
    :param inference: "type-II", or a ``method`` of :meth:`GRIEF.sample_posterior`.
    :param options: of ``_type_two`` or ``_type_one``.
    :return: rmse, nlpd and coverage_95 in the units of the file; num_basis, explained_variance;
        noise_variance, of standardized outputs; seconds of training, those of the start included,
        and start_seconds.
    :raises TrainingError: if the exact GP cannot be fitted.
    """
    start = find_start(dataset, seed)
    begin = time.perf_counter()
    kernel = gpflow.kernels.SquaredExponential(start.variance, start.lengthscales)
    with warnings.catch_warnings():
        # the table has the share of every row
        warnings.filterwarnings("ignore", message=".* of the kernel's prior variance")
        if inference == "type-II":
            model, predictor, noise = _type_two(dataset, kernel, start, **options)
        else:
            model, predictor, noise = _type_one(dataset, kernel, start, inference, seed, **options)
    seconds = time.perf_counter() - begin
    return {
        **score(predictor, dataset),
        "num_basis": int(model.basis.num_basis),
        "num_columns": dataset.train[0].shape[1],
        "explained_variance": model.basis.explained_variance(),
        "noise_variance": noise,
        "start_noise_variance": start.noise_variance,
        "seconds": start.seconds + seconds,
        "start_seconds": start.seconds,
    }


@functools.lru_cache(maxsize=1)
def find_start(dataset: Dataset, seed: int) -> Start:
    """
    An exact GP on at most 1000 random training rows; kept for the next row on the same split.

    :raises TrainingError: if it cannot be fitted.
    """
    begin = time.perf_counter()
    X, Y = dataset.train
    lengthscales = initialization.median_lengthscales(X, seed=seed)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscales)
    try:
        noise = initialization.subset_hyperparameters(
            X, Y, kernel, num_rows=_SUBSET_ROWS, seed=seed
        )
    except ValueError as error:
        raise TrainingError(f"the exact GP of the start: {error}") from error
    return Start(
        float(kernel.variance.numpy()),
        kernel.lengthscales.numpy(),
        max(noise, _NOISE_FLOOR),
        time.perf_counter() - begin,
    )


def paper_size(num_rows: int) -> int:
    """``min(1000, 10^floor(log10 n))``: p of type II, from all rows, test rows included."""
    return int(min(1000, 10 ** (len(str(num_rows)) - 1)))


def score(predictor: Any, dataset: Dataset) -> dict[str, float]:
    """
    RMSE, NLPD and coverage of the central 95 % on the test rows, in the units of the file.

    :param predictor: has ``predict_y`` and ``predict_log_density``.
    """
    scaler = scaler_of(dataset)
    X, Y = original_units(dataset, dataset.test)
    mean, variance = scaler.predict_y(predictor, X)
    return {
        "rmse": float(metrics.rmse(Y, mean)),
        "nlpd": float(-np.mean(scaler.predict_log_density(predictor, X, Y))),
        "coverage_95": float(metrics.coverage(Y, mean, variance)),
    }


def _type_two(
    dataset: Dataset,
    kernel: gpflow.kernels.Kernel,
    start: Start,
    objective: str,
    num_rounds: int,
    num_iterations: int,
) -> tuple[GRIEF, CachedModel, float]:
    model = GRIEF(
        dataset.train,
        kernel,
        num_eigenfunctions=paper_size(len(dataset.train[0]) + len(dataset.test[0])),
        points_per_dimension=_POINTS_PER_DIMENSION,
        objective=objective,
        noise_variance=start.noise_variance,
    )
    fit_in_rounds(model, num_rounds=num_rounds, num_iterations=num_iterations)
    return model, CachedModel(model), float(model.likelihood.variance.numpy())


def _type_one(
    dataset: Dataset,
    kernel: gpflow.kernels.Kernel,
    start: Start,
    method: str,
    seed: int,
    reweighted: str,
    num_eigenfunctions: int,
) -> tuple[GRIEF, Any, float]:
    model = GRIEF(
        dataset.train,
        kernel,
        num_eigenfunctions=num_eigenfunctions,
        points_per_dimension=_POINTS_PER_DIMENSION,
        reweighted=reweighted,
        noise_variance=start.noise_variance,
    )
    mixture = model.sample_posterior(method=method, seed=seed)
    noise = np.sum(np.exp(mixture.log_weights) * mixture.noise_variance)
    return model, mixture, float(noise)
