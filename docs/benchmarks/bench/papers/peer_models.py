"""Other libraries' sparse and exact GPs, in the time of a row, from the starting values of ours."""

import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import gpflow
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.neighbors import NearestNeighbors

from bench import peers
from bench.papers.agreement import compare_libraries
from bench.papers.boosting_models import fit_gpboost, fit_trees
from bench.papers.choices import fit_choice, most_points, score, score_moments
from bench.papers.comparison import AGREEMENT
from bench.papers.models import random_rows
from bench.papers.spec import Record
from bench.papers.training import Budget
from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting.building import MIN_NOISE, attach_units
from gpflow_sparse.tables.fitting.starts import Hyperparameters, InitialHyperparameters
from gpflow_sparse.tables.methods.svgp import SVGP


def fit_evidence(options: Mapping[str, Any], dataset: Dataset, budget: Budget) -> Record:
    """
    Train and score a row of the evidence within the time of the budget.

    :param options: ``method``: "agreement", a key of ``PEERS``, or as for ``fit_choice``; peers
        take ``num_inducing`` or ``num_rows``.
    """
    method = options["method"]
    if method == AGREEMENT:
        return compare_libraries(dataset, budget.seed)
    if method not in PEERS:
        return fit_choice(options, dataset, budget)
    given = {name: value for name, value in options.items() if name != "method"}
    return PEERS[method](dataset, budget, **given)


def fit_sgpr(dataset: Dataset, budget: Budget, num_inducing: int) -> Record:
    """GPflow's SGPR by L-BFGS, which ends when the time is over."""
    begin = time.perf_counter()
    start, Z, _ = _start(dataset, budget, num_inducing)
    model = gpflow.models.SGPR(dataset.train, start.kernel, Z, noise_variance=start.noise_variance)

    def stop_in_time(*_: Any) -> None:
        if budget.seconds and time.perf_counter() - begin > budget.seconds:
            raise StopIteration

    found = gpflow.optimizers.Scipy().minimize(
        model.training_loss,
        model.trainable_variables,
        step_callback=stop_in_time,
        options={"maxiter": budget.steps or 1000},
        tf_fun_args={"autograph": False},
    )
    seconds = time.perf_counter() - begin
    scores = score(attach_units(model, dataset), dataset)
    return scores | _made("gpflow", seconds) | {"steps": int(found.nit)}


def fit_gpytorch(dataset: Dataset, budget: Budget, num_inducing: int) -> Record:
    """
    GPyTorch's SVGP by Adam, in its default precision, float32, with our batch size, rate and
    schedule.

    :raises ValueError: where GPyTorch is not installed.
    """
    begin = time.perf_counter()
    start, Z, recipe = _start(dataset, budget, num_inducing)
    model = peers.StochasticGP(
        start.kernel, Z, start.noise_variance, num_data=len(dataset.train[0])
    )

    def used(step: int) -> float:
        spent = (time.perf_counter() - begin) / budget.seconds if budget.seconds else 0.0
        return max(spent, step / budget.steps) if budget.steps else spent

    size, rate = min(recipe.batch_size, len(dataset.train[0])), recipe.learning_rate
    steps = model.train(dataset.train, size, rate, used, seed=budget.seed)
    seconds = time.perf_counter() - begin
    scores = score_moments(dataset.test[1], *model.predict_y(dataset.test[0]))
    return scores | _made("gpytorch", seconds) | {"steps": steps}


def fit_sklearn(dataset: Dataset, budget: Budget, num_rows: int) -> Record:
    """scikit-learn's exact GP on some random rows, by its own optimizer, in unlimited time."""
    begin = time.perf_counter()
    start, _, _ = _start(dataset, budget, 1)
    X, Y = random_rows(dataset.train, num_rows, budget.seed)
    kernel = peers.sklearn_kernel(start.kernel, start.noise_variance)
    model = GaussianProcessRegressor(kernel, random_state=budget.seed).fit(X, Y[:, 0])
    mean, std = model.predict(dataset.test[0], return_std=True)
    seconds = time.perf_counter() - begin
    scores = score_moments(dataset.test[1], mean[:, None], std[:, None] ** 2)
    return scores | _made("scikit-learn", seconds)


def fit_sklearn_neighbors(
    dataset: Dataset, budget: Budget, num_rows: int, num_neighbors: int
) -> Record:
    """
    A nearest-neighbor GP of scikit-learn's classes, in unlimited time: hyperparameters of
    ``num_rows`` random rows, as ``fit_sklearn``, then one GP of ``num_neighbors`` rows for every
    test row. Variances are multiplied by the mean squared standardized error of the same number of
    random training rows, each left out of its own neighbors.
    """
    begin = time.perf_counter()
    start, _, _ = _start(dataset, budget, 1)
    kernel = peers.sklearn_kernel(start.kernel, start.noise_variance)
    rows = random_rows(dataset.train, num_rows, budget.seed)
    kernel = GaussianProcessRegressor(kernel, random_state=budget.seed).fit(*rows).kernel_
    scales, (X, Y) = kernel.k1.k2.length_scale, dataset.train
    search = NearestNeighbors(n_neighbors=min(num_neighbors + 1, len(X))).fit(X / scales)

    def predict(X_new: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Moments [B, 1] from neighbors after the ``first`` nearest ones."""
        near = search.kneighbors(X_new / scales, return_distance=False)[:, first:]
        gps = (GaussianProcessRegressor(kernel, optimizer=None).fit(X[n], Y[n, 0]) for n in near)
        found = [gp.predict(x[None], return_std=True) for gp, x in zip(gps, X_new, strict=True)]
        mean, std = np.array(found)[..., 0].T
        return mean[:, None], std[:, None] ** 2

    mean, variance = predict(rows[0], 1)
    scale = np.mean((rows[1] - mean) ** 2 / variance)
    mean, variance = predict(dataset.test[0], 0)
    seconds = time.perf_counter() - begin
    return score_moments(dataset.test[1], mean, scale * variance) | _made("scikit-learn", seconds)


PEERS: Mapping[str, Callable[..., Record]] = {
    "sgpr": fit_sgpr,
    "gpytorch": fit_gpytorch,
    "sklearn": fit_sklearn,
    "sklearn_neighbors": fit_sklearn_neighbors,
    "stopped_trees": fit_trees,
    "gpboost": fit_gpboost,
}
"""Functions of a data set, a budget and options, that train and score another library's model."""


def _start(
    dataset: Dataset, budget: Budget, num_inducing: int
) -> tuple[Hyperparameters, np.ndarray, SVGP]:
    """Hyperparameters, points by k-means, and the options of the method "svgp"."""
    num_inducing = min(num_inducing, most_points(dataset))
    recipe = SVGP.create(num_inducing=num_inducing, seed=budget.seed)
    start = InitialHyperparameters(dataset).find(recipe)
    start = start._replace(noise_variance=max(start.noise_variance, MIN_NOISE))
    Z = initialization.kmeans(dataset.train[0], num_inducing, start.kernel, seed=budget.seed)
    return start, Z, recipe


def _made(library: str, seconds: float) -> Record:
    return {"chosen": f"{library} {version(library)}", "training_seconds": seconds}
