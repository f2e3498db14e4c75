"""Models of the tables of SWSGP (Tran et al.): built, trained and scored."""

import functools
import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuu
from gpflow.keras import tf_keras
from gpflow.posteriors import PrecomputeCacheType

from bench.papers.models import (
    Options,
    Start,
    error_on_test_rows,
    exact_gp,
    hyperparameters,
    score_test_rows,
    subset_start,
    training_rows,
)
from bench.papers.nearest_rows import fit_nearest
from bench.papers.spec import Record
from bench.papers.training import Budget, Cosine, Monitor, train
from gpflow_sparse import initialization, training
from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import SWSGP
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors import NeighborPosterior
from gpflow_sparse.tables.fitting.starts import KERNELS
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.registry import recipe_of
from gpflow_sparse.tables.methods.rows import Pair

# Test rows of one call of a model.
_CHUNK = 1024

Joint = Callable[[np.ndarray], Pair]
"""From positions of test rows [B, n] to means [B, n, 1] and covariances of f [B, n, n]."""


def fit_swsgp(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """A row of tables 1 to 3: SWSGP, GPflow's SVGP, GPnn, or boosted trees."""
    if options["model"] == "boosting":
        return _fit_boosting(dataset, budget)
    if options["model"] == "gpnn":
        return fit_nearest(options, dataset, budget)
    start = None
    if dataset.num_classes is None:
        start = subset_start(dataset, budget.seed, options["kernel"], options["num_subset"])
    with training_rows(dataset, budget.seed, options["float32"]) as data:
        model = neighbor_model(options, start, data, budget.seed)
        results = _train(model, data, dataset, budget, options)
        results |= score_test_rows(CachedModel(model), dataset, _CHUNK)
        results |= hyperparameters(model, getattr(model.kernel, "kernels", [model.kernel])[0])
        return results | {"also": _other_scores(model, data, dataset, options)}


def fit_union(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """
    A row of figure 5: joint predictions of several test rows against those of an exact GP.

    The other models start from the hyperparameters of the exact GP.
    """
    iterations = options["exact_iterations"]
    exact, start = exact_gp(dataset, budget.seed, "matern52", len(dataset.train[0]), iterations)
    X, truth = dataset.test[0], together(exact, dataset.test[0])
    scored = functools.partial(joint_scores, truth, dataset, options["batches"], budget.seed)
    if options["model"] == "exact":
        milliseconds = 1e3 * start.seconds / iterations
        times = {"milliseconds_per_step": milliseconds, "training_seconds": start.seconds}
        return scored(truth, start.noise_variance) | times | {"curve": []}
    with training_rows(dataset, budget.seed, options["float32"]) as data:
        model = neighbor_model(options, start, data, budget.seed)
        results = _train(model, data, dataset, budget, options)
    noise = float(model.likelihood.variance.numpy())
    if options["model"] == "svgp":  # SWSGP has no joint prediction without a number of neighbors
        results |= scored(together(model, X), noise)
    lines = [
        {"title": f"... from {H} neighbors", **scored(apart(from_neighbors(model, H), X), noise)}
        for H in options["predicted_from"]
    ]
    return results | {"also": lines}


class _NearestOfSum(NeighborInducingPoints):
    """
    Neighbors by the distances of the stationary part of a sum of kernels: for the others no tree
    can be searched, and all 100,000 points would be compared with every row.
    """

    @staticmethod
    def metric(kernel: gpflow.kernels.Sum) -> tf.Tensor:
        return NeighborInducingPoints.metric(kernel.kernels[0])


def neighbor_model(
    options: Options, start: Start | None, data: Pair, seed: int
) -> gpflow.models.GPModel:
    """
    SWSGP, or GPflow's SVGP, at its start.

    :param start: hyperparameters of regression; None for two classes, which take those of options.
    :param data: training rows in the precision of the model.
    """
    X, likelihood = data[0], gpflow.likelihoods.Bernoulli()
    if start is None:
        scales = np.full(X.shape[1] if options["ard"] else (), options["lengthscale"])
        kernel = KERNELS[options["kernel"]](options["variance"], scales)
    else:
        kernel = KERNELS[options["kernel"]](start.variance, start.lengthscales)
        likelihood = gpflow.likelihoods.Gaussian(start.noise_variance)
    if "linear" in options:  # of section 4.3
        kernel += gpflow.kernels.Linear(np.full(X.shape[1], options["linear"]))
    for part in (kernel, likelihood):
        gpflow.set_trainable(part, options.get("learn_hyperparameters", True))
    M = min(options["num_inducing"], len(X))
    choose = {"kmeans": initialization.kmeans, "random": initialization.random_subset}
    Z = choose[options["points"]](X, M, kernel, seed=seed).astype(X.dtype)
    names = ("num_neighbors", "covariance", "kl_weighting")
    chosen = {name: options[name] for name in names if name in options}
    if "linear" in options:
        model = SWSGP(
            kernel,
            likelihood,
            _NearestOfSum(Z, chosen.pop("num_neighbors")),
            num_data=len(X),
            **chosen,
        )
        model.start_from_sites(data)
        return model
    given = {name: options[name] for name in ("union",) if name in options}
    recipe = recipe_of(options["model"], **chosen)
    model = recipe.build(data, kernel, likelihood, sets=(Z,), **given)
    if isinstance(model, SWSGP):
        gpflow.set_trainable(model.inducing_variable.Z, options["train_points"])
        model.start_from_sites(data)
    return model


def _train(model: Any, data: Pair, dataset: Dataset, budget: Budget, options: Options) -> Record:
    """By Adam, for SWSGP by the one that moves the rows of q that a batch uses."""
    monitor = Monitor(budget, error_on_test_rows(dataset, budget.seed))
    rate = (
        Cosine(options["learning_rate"], monitor) if options["decay"] else options["learning_rate"]
    )
    optimizer = tf_keras.optimizers.Adam(rate)
    if isinstance(model, SWSGP):
        optimizer = training.SparseAdam(rate, dense=optimizer)
    return train(model, data, monitor, optimizer, options)


def _other_scores(model: Any, data: Pair, dataset: Dataset, options: Options) -> list[Record]:
    """Scores of the same training used in other ways, as lines of the table."""
    found = []
    for H in options.get("predicted_from", ()):
        predictor = CachedModel(model, from_neighbors(model, H))
        title = f"SVGP-{options['num_inducing']}-{H}, from {H} neighbors"
        found.append({"title": title, **score_test_rows(predictor, dataset, _CHUNK)})
    if options.get("refit"):
        start = time.perf_counter()
        model.update_posterior(data)
        seconds = {"training_seconds": time.perf_counter() - start}
        scores = score_test_rows(CachedModel(model), dataset, _CHUNK)
        found.append({"title": "the row above, then its best q", **scores, **seconds})
    return found


def from_neighbors(model: Any, num_neighbors: int) -> NeighborPosterior:
    """
    A posterior that predicts each row from so many of its nearest inducing points.

    :param model: SWSGP, or GPflow's whitened SVGP, which gives the SVGP-M-H of the paper.
    """
    points, q_mu, q_sqrt = model.inducing_variable, model.q_mu, model.q_sqrt
    if isinstance(model, gpflow.models.SVGP):
        covariance = Kuu(points, model.kernel, jitter=gpflow.config.default_jitter())
        L = linalg.cholesky(covariance, "Kuu")
        q_mu, q_sqrt = (tf.linalg.matmul(L, tf.convert_to_tensor(part)) for part in (q_mu, q_sqrt))
    Z = points.Z.numpy()
    neighbors = NeighborInducingPoints(Z, min(num_neighbors, len(Z)))
    cache = PrecomputeCacheType.TENSOR
    return NeighborPosterior(model.kernel, neighbors, q_mu, q_sqrt, precompute_cache=cache)


def together(model: gpflow.models.GPModel, X: np.ndarray) -> Joint:
    """One joint prediction of all test rows, of which batches are parts."""
    mean, covariance = (part.numpy() for part in model.predict_f(X, full_cov=True))
    return lambda rows: (mean[rows], covariance[0][rows[:, :, None], rows[:, None, :]])


def apart(posterior: Any, X: np.ndarray) -> Joint:
    """Each batch on its own, for posteriors whose prediction of a row depends on the others."""
    predict = tf.function(
        functools.partial(posterior.predict_f, full_cov=True),
        autograph=False,
        reduce_retracing=True,
    )

    def joint(rows: np.ndarray) -> Pair:
        mean, covariance = predict(tf.constant(X[rows]))
        return mean.numpy(), covariance.numpy()[:, 0]

    return joint


def joint_scores(
    truth: Joint, dataset: Dataset, sizes: list[int], seed: int, joint: Joint, noise: float
) -> Record:
    """
    Joint predictions of f at random batches of test rows.

    :param truth: those of the exact GP.
    :param sizes: rows of a batch; those that do not fill one are left out.
    :param noise: variance.
    :return: for each size n covariance_n, the mean squared difference of covariances to the exact
        ones, of standardized outputs; rmse_n and nlpd_n, of single rows in the units of the file.
    """
    scaler, Y, found = dataset.scaler, dataset.test[1], {}
    for n in sizes:
        order = np.random.default_rng([seed, n]).permutation(len(Y))
        rows = order[: len(Y) - len(Y) % n].reshape(-1, n)
        mean, covariance = joint(rows)
        y, mean = (part.reshape(-1, 1) for part in (Y[rows], mean))
        variance = noise + np.diagonal(covariance, axis1=1, axis2=2).reshape(-1, 1)
        found[f"covariance_{n}"] = float(np.mean((covariance - truth(rows)[1]) ** 2))
        found[f"rmse_{n}"] = metrics.rmse(*map(scaler.inverse_outputs, (y, mean)))
        found[f"nlpd_{n}"] = metrics.nlpd(y, mean, variance) - scaler.log_density_offset
    return found


def _fit_boosting(dataset: Dataset, budget: Budget) -> Record:
    """Gradient-boosted trees of scikit-learn; the steps of the budget are its iterations."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    (X, Y), start, steps = dataset.train, time.perf_counter(), budget.steps or 1
    trees = HistGradientBoostingClassifier(max_iter=steps, random_state=budget.seed)
    trees.fit(X, Y[:, 0])
    seconds = time.perf_counter() - start
    labels, P = dataset.test[1], trees.predict_proba(dataset.test[0])
    return {
        "error_rate": float(metrics.error_rate(labels, P)),
        "nlpd": float(-np.mean(np.log(np.take_along_axis(P, labels.astype(int), axis=1)))),
        "milliseconds_per_step": 1e3 * seconds / steps,
        "training_seconds": seconds,
        "curve": [],
    }
