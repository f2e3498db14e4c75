"""Nearest-neighbor Gaussian process regression, a baseline without training steps."""

import functools
import time

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse import initialization
from gpflow_sparse.bench.papers.models import Options, precision, score_test_rows
from gpflow_sparse.bench.papers.spec import Record
from gpflow_sparse.bench.papers.training import Budget
from gpflow_sparse.data import Dataset
from gpflow_sparse.inference.nearest_rows import nearest_rows_moments
from gpflow_sparse.numerics.neighbors import NeighborIndex
from gpflow_sparse.runs.build import KERNELS
from gpflow_sparse.runs.rows import Pair

# Rows held out for the calibration, as in the authors' program, at most a fifth.
_CALIBRATION_ROWS = 1000
# Entries of the covariances of one block of predicted rows: 64 MiB of float64.
_BLOCK_ENTRIES = 2**23


class NearestNeighborGP:
    """
    Prediction of each row by an exact GP on its H nearest training rows: GPnn of Allison,
    Stephenson, Samuel F and Pyzer-Knapp, "Leveraging Locality and Robustness to Achieve Massively
    Scalable Gaussian Process Regression" (NeurIPS 2023).

    A prediction takes O(H^3) time a row, and there is no training. Neighbors are the nearest in
    lengthscales; the authors' program takes them among inputs of unit scale.
    """

    def __init__(
        self, data: Pair, kernel: gpflow.kernels.Stationary, noise_variance: float, count: int
    ) -> None:
        """
        :param data: training rows ``(X [N, D], Y [N, 1])``, of which some are kept for the
            calibration, and used for prediction afterwards.
        :param kernel: reads all columns.
        :param count: H.
        """
        X, Y = data
        rows = max(1, min(_CALIBRATION_ROWS, len(X) // 5))
        self._kernel, self._count = kernel, count
        self.likelihood = gpflow.likelihoods.Gaussian(noise_variance)
        self._hold((X[rows:], Y[rows:]))
        mean, variance = (part.numpy() for part in self.predict_y(tf.constant(X[:rows])))
        self.scale = float(np.mean((Y[:rows] - mean) ** 2 / variance))
        """
        Mean squared standardized error of the held-out rows, by which the variances of kernel and
        noise are multiplied: the maximum of their likelihood, which leaves all means as they were.
        """
        kernel.variance.assign(self.scale * kernel.variance)
        self.likelihood = gpflow.likelihoods.Gaussian(self.scale * noise_variance)
        self._hold(data)

    def predict_f(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance ``[n, 1]`` of f at ``X [n, D]``."""
        size = max(1, _BLOCK_ENTRIES // self._count**2)
        parts = [self._moments(X[i : i + size]) for i in range(0, len(X), size)]
        mean, variance = (tf.concat(part, axis=0) for part in zip(*parts, strict=True))
        return mean, variance[:, None]

    def predict_y(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations, ``[n, 1]``."""
        return self.likelihood.predict_mean_and_var(X, *self.predict_f(X))

    def predict_log_density(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Log density of each observation, ``[n]``."""
        X, Y = data
        return self.likelihood.predict_log_density(X, *self.predict_f(X), Y)

    def _hold(self, data: Pair) -> None:
        self._X, self._Y = data
        self._index = NeighborIndex(self._X / self._kernel.lengthscales.numpy())

    def _moments(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scaled = np.asarray(X) / self._kernel.lengthscales.numpy()
        around = self._index.query(scaled, min(self._count, len(self._X)))  # [n, H]
        places, values = tf.constant(self._X[around]), tf.constant(self._Y[around])
        noise = tf.convert_to_tensor(self.likelihood.variance)
        return self._compiled(noise, X, places, values)

    @functools.cached_property
    def _compiled(self) -> tf.types.experimental.GenericFunction:
        moments = functools.partial(nearest_rows_moments, self._kernel)
        return tf.function(moments, autograph=False, reduce_retracing=True)


def fit_nearest(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """A row of the tables of SWSGP: hyperparameters from local subsets, and the calibration."""
    begin, order = time.perf_counter(), np.random.default_rng(budget.seed).permutation
    X, Y = dataset.train
    rows = order(len(X))
    with precision(np.float64):
        scales = initialization.median_lengthscales(X, seed=budget.seed)
        kernel = KERNELS[options["kernel"]](lengthscales=scales)
        noise = initialization.local_hyperparameters(X, Y, kernel, seed=budget.seed)
        model = NearestNeighborGP((X[rows], Y[rows]), kernel, noise, options["num_neighbors"])
        seconds = time.perf_counter() - begin
        found = {
            "kernel_variance": float(kernel.variance.numpy()),
            "lengthscales": kernel.lengthscales.numpy().tolist(),
            "noise_variance": model.scale * noise,
            "calibration": model.scale,
            "training_seconds": seconds,
            "curve": [],
        }
        return found | score_test_rows(model, dataset)
