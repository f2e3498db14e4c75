"""Nearest-neighbor Gaussian process regression, a baseline without training steps."""

import time
from typing import Any

import gpflow
import numpy as np

from bench.papers.models import Options, precision, score_test_rows
from bench.papers.spec import Record
from bench.papers.training import Budget
from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset
from gpflow_sparse.models import NearestNeighborGP
from gpflow_sparse.tables.fitting.starts import KERNELS
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.rows import Pair

# Rows held out for the calibration, as in the authors' program, at most a fifth.
_CALIBRATION_ROWS = 1000
# Rows of one call of a model.
_CHUNK = 1024


def rescaled_model(
    data: Pair, kernel: gpflow.kernels.Stationary, noise_variance: float, count: int
) -> tuple[NearestNeighborGP, float]:
    """
    GPnn with the calibration of its authors: kernel and noise variance are multiplied by the mean
    squared standardized error of held-out rows, the maximum of their likelihood, which leaves all
    means as they were.

    :param data: training rows ``(X [N, D], Y [N, 1])``, the first of which are held out for the
        calibration, and used for prediction afterwards.
    :param kernel: its variance is changed.
    :param count: H.
    :return: the model of all rows, and the factor.
    """
    X, Y = data
    rows = max(1, min(_CALIBRATION_ROWS, len(X) // 5))
    options: dict[str, Any] = {"num_neighbors": count, "noise_variance": noise_variance}
    model = NearestNeighborGP((X[rows:], Y[rows:]), kernel, **options)
    mean, variance = (part.numpy() for part in model.predict_y(X[:rows]))
    scale = float(np.mean((Y[:rows] - mean) ** 2 / variance))
    kernel.variance.assign(scale * kernel.variance)
    options["noise_variance"] = scale * noise_variance
    return NearestNeighborGP(data, kernel, **options), scale


def fit_nearest(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """A row of the tables of SWSGP: hyperparameters from local subsets, and the calibration."""
    begin, order = time.perf_counter(), np.random.default_rng(budget.seed).permutation
    X, Y = dataset.train
    rows = order(len(X))
    with precision(np.float64):
        scales = initialization.median_lengthscales(X, seed=budget.seed)
        kernel = KERNELS[options["kernel"]](lengthscales=scales)
        noise = initialization.local_hyperparameters(X, Y, kernel, seed=budget.seed)
        model, scale = rescaled_model((X[rows], Y[rows]), kernel, noise, options["num_neighbors"])
        seconds = time.perf_counter() - begin
        found = {
            "kernel_variance": float(kernel.variance.numpy()),
            "lengthscales": kernel.lengthscales.numpy().tolist(),
            "noise_variance": scale * noise,
            "calibration": scale,
            "training_seconds": seconds,
            "curve": [],
        }
        return found | score_test_rows(CachedModel(model), dataset, _CHUNK)
