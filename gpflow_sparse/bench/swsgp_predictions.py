"""What a prediction of SWSGP costs, beside GPflow's SVGP with as many points."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.bench.steps import alternate
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.inference.neighborhoods import Products
from gpflow_sparse.posteriors import NeighborPosterior
from gpflow_sparse.posteriors.neighbor import as_rows
from gpflow_sparse.posteriors.neighbor_terms import NeighborTerms


@dataclass(frozen=True)
class PredictionTime:
    """Median wall time of mean and variance, compiled, a row."""

    title: str
    microseconds: float
    ratio: float
    """To GPflow's SVGP."""


def prediction_times(
    *,
    num_inducing: int = 1024,
    num_neighbors: int = 4,
    num_rows: int = 1000,
    input_dim: int = 8,
    repeats: int = 20,
    seed: int = 0,
) -> list[PredictionTime]:
    """
    Alternate the cached predictions of several posteriors for the same rows in one process.

    The posteriors: GPflow's of a whitened SVGP with a dense covariance; SWSGP's with a diagonal and
    with a dense one, which first finds the neighbors of every row, and once more with neighbors
    that are given. Squared exponential with one lengthscale per column; normal inputs.

    :param repeats: timed rounds, after three that are not.
    """
    rng = np.random.default_rng(seed)
    kind: Any = gpflow.default_float()
    X, Z = (rng.normal(size=(n, input_dim)).astype(kind) for n in (num_rows, num_inducing))
    mean = rng.normal(size=(num_inducing, 1)).astype(kind)
    factor = (0.1 * np.tril(rng.normal(size=(1, num_inducing, num_inducing)))).astype(kind)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(input_dim, input_dim**0.5))
    svgp = gpflow.models.SVGP(
        kernel, gpflow.likelihoods.Gaussian(0.1), Z, q_mu=mean, q_sqrt=factor
    ).posterior()
    points = NeighborInducingPoints(Z, num_neighbors)
    steps = {f"GPflow SVGP({num_inducing})": _compiled(svgp.predict_f, X)}
    found = points.neighbors(tf.constant(X), kernel)
    for covariance, q_sqrt in (("diag", np.abs(mean) + kind(0.1)), ("dense", factor)):
        title = f"SWSGP({num_inducing}, H = {num_neighbors}), {covariance}"
        posterior = NeighborPosterior(
            kernel, points, mean, q_sqrt, precompute_cache=PrecomputeCacheType.TENSOR
        )
        steps[title] = _compiled(posterior.predict_f, X)
        terms, q = NeighborTerms(kernel, points, None), as_rows(mean, q_sqrt)
        known = Products.of(q) if covariance == "dense" else q  # as a posterior caches it
        moments = functools.partial(terms.moments, neighbors=found, q=known, rows=found)
        steps[f"{title}, neighbors given"] = _compiled(moments, X)
    seconds = alternate(list(steps.values()), repeats)
    return [
        PredictionTime(title, 1e6 * value / num_rows, value / seconds[0])
        for title, value in zip(steps, seconds, strict=True)
    ]


def _compiled(predict: Callable[[tf.Tensor], Any], X: np.ndarray) -> Callable[[], Any]:
    rows, function = tf.constant(X), tf.function(predict, autograph=False)
    return lambda: function(rows)
