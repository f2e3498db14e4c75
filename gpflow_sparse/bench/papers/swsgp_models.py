"""The models of the tables of SWSGP, trained and scored."""

import functools
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuu
from gpflow.keras import tf_keras
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse import initialization, training
from gpflow_sparse.bench.papers.binary import read_delays, read_parity
from gpflow_sparse.bench.papers.budget import Training
from gpflow_sparse.bench.papers.curves_runner import precision, train
from gpflow_sparse.bench.papers.spec import Record
from gpflow_sparse.data import Dataset, load, metrics
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import SWSGP
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors import NeighborPosterior
from gpflow_sparse.runs.build import original_units, scaler_of
from gpflow_sparse.runs.evaluation import CachedModel, evaluate

# Test rows of the learning curve, and of one call of a model.
_WATCHED, _CHUNK = 1000, 1024
_KERNELS = {"matern32": gpflow.kernels.Matern32, "matern52": gpflow.kernels.Matern52}


def read(name: str, split: int) -> Dataset:
    """A published split, standardized; for tasks of two classes see :mod:`.binary`."""
    readers = {"mnist_parity": read_parity, "flights2013": read_delays}
    return readers[name](split) if name in readers else load(name, split).standardized()


def fit_swsgp(dataset: Dataset, plan: Training, options: Mapping[str, Any]) -> Record:
    """
    Train and score a row.

    :param dataset: from :func:`read`.
    :param options: of the row, see ``papers/swsgp.py``.
    """
    if options["model"] == "boosting":
        return _fit_boosting(dataset, plan)
    with precision(np.float32 if options["float32"] else np.float64):
        kind: Any = gpflow.default_float()
        X, Y = (part.astype(kind) for part in dataset.train)
        tf.random.set_seed(plan.seed)
        model = assemble(X, *_parts(dataset, plan.seed, options), plan.seed, options)
        if isinstance(model, SWSGP):
            model.start_from_sites(X, Y)
        rows = np.random.default_rng(plan.seed).permutation(len(dataset.test[0]))[:_WATCHED]
        watched = tuple(part[rows] for part in dataset.test)
        results = train(
            model,
            (X, Y),
            plan,
            optimizer=make_optimizer(plan.steps, options),
            batch_size=options["batch_size"],
            score=lambda model: _watch(model, watched, dataset.num_classes),
        )
        which = "Error rate" if dataset.num_classes else "RMSE (standardized)"
        results["curve_of"] = f"{which} on {len(rows)} test rows on the way"
        results |= score(CachedModel(model), dataset) | _hyperparameters(model)
        return results | {"also": _more(model, dataset, (X, Y), options)}


def assemble(
    X: np.ndarray, kernel: Any, likelihood: Any, seed: int, options: Mapping[str, Any]
) -> gpflow.models.GPModel:
    """
    The model of a row at its start.

    :param X: training inputs, in the precision of the model.
    """
    M = min(options["num_inducing"], len(X))
    choose = {"kmeans": initialization.kmeans, "random": initialization.random_subset}
    Z = choose[options["points"]](X, M, kernel, seed=seed).astype(X.dtype)
    if options["model"] == "svgp":
        return gpflow.models.SVGP(kernel, likelihood, Z, num_data=len(X))
    points = NeighborInducingPoints(Z, min(options["num_neighbors"], M))
    gpflow.set_trainable(points.Z, options["train_points"])
    names = ("covariance", "kl_weighting", "union")
    chosen = {name: options[name] for name in names if name in options}
    return SWSGP(kernel, likelihood, points, num_data=len(X), **chosen)


def make_optimizer(steps: int, options: Mapping[str, Any]) -> Any:
    """Adam; for SWSGP the one that moves the rows of q that a batch touches."""
    rate: Any = options["learning_rate"]
    if options["decay"]:
        rate = tf_keras.optimizers.schedules.CosineDecay(rate, steps)
    dense = tf_keras.optimizers.Adam(rate)
    return dense if options["model"] == "svgp" else training.SparseAdam(rate, dense=dense)


class Start(NamedTuple):
    """Hyperparameters of an exact GP on some training rows."""

    variance: float
    lengthscales: np.ndarray
    noise_variance: float


@functools.lru_cache(maxsize=1)
def find_start(dataset: Dataset, seed: int, num_rows: int, kernel: str) -> Start:
    """From so many random training rows; kept for the next row on the same data."""
    X, Y = dataset.train
    with precision(np.float64):
        lengthscales = initialization.median_lengthscales(X, seed=seed)
        found = _KERNELS[kernel](lengthscales=lengthscales)
        noise = initialization.subset_hyperparameters(X, Y, found, num_rows=num_rows, seed=seed)
    return Start(float(found.variance.numpy()), found.lengthscales.numpy(), noise)


def _parts(dataset: Dataset, seed: int, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Kernel and likelihood at their start, in the precision of now."""
    kind = _KERNELS[options["kernel"]]
    if dataset.num_classes is None:
        start = find_start(dataset, seed, options["num_subset"], options["kernel"])
        likelihood = gpflow.likelihoods.Gaussian(start.noise_variance)
        return kind(start.variance, start.lengthscales), likelihood
    lengthscales = options["lengthscale"]
    if options["ard"]:
        lengthscales = np.full(dataset.train[0].shape[1], lengthscales)
    return kind(options["variance"], lengthscales), gpflow.likelihoods.Bernoulli()


def _watch(
    model: gpflow.models.GPModel, data: tuple[np.ndarray, ...], num_classes: int | None
) -> float:
    """RMSE, or error rate, of latent means."""
    mean = model.predict_f(data[0].astype(gpflow.default_float()))[0].numpy()
    if num_classes:
        return float(np.mean((mean > 0.0) != (data[1] > 0.5)))
    return metrics.rmse(data[1], mean.astype(np.float64))


def score(predictor: Any, dataset: Dataset) -> Record:
    """Of the test rows, in the units of the file and, for regression, standardized."""
    X, Y = original_units(dataset, dataset.test)
    classes = dataset.num_classes
    scores, _ = evaluate(predictor, scaler_of(dataset), X, Y, classes, chunk_size=_CHUNK)
    if "coverage" in scores:
        scores["coverage_95"] = scores.pop("coverage")
    return scores


def _hyperparameters(model: Any) -> Record:
    found: Record = {
        "kernel_variance": float(model.kernel.variance.numpy()),
        "lengthscales": model.kernel.lengthscales.numpy().tolist(),
    }
    noise = getattr(model.likelihood, "variance", None)
    return found if noise is None else found | {"noise_variance": float(noise.numpy())}


def _more(
    model: gpflow.models.GPModel,
    dataset: Dataset,
    data: tuple[np.ndarray, np.ndarray],
    options: Mapping[str, Any],
) -> list[Record]:
    """What the same training gives in other ways, as lines of the table."""
    found = []
    for H in options.get("predicted_from", ()):
        predictor = Predictor(model, seen_from(model, H))
        title = f"SVGP-{options['num_inducing']}-{H}, from {H} neighbors"
        found.append({"title": title, **score(predictor, dataset)})
    if options.get("refit"):
        start = time.perf_counter()
        model.update_posterior(*data)
        seconds = {"training_seconds": time.perf_counter() - start}
        scores = score(CachedModel(model), dataset)
        found.append({"title": "the row above, then its best q", **scores, **seconds})
    return found


class Predictor(CachedModel):
    """The likelihood of a model over another posterior."""

    def __init__(self, model: gpflow.models.GPModel, posterior: Any) -> None:
        self._likelihood, self._num_latent_gps = model.likelihood, model.num_latent_gps
        self._posterior = posterior


def seen_from(model: Any, num_neighbors: int) -> NeighborPosterior:
    """
    The q of SWSGP, or of GPflow's whitened SVGP, of which each row sees so many neighbors.

    The latter is the SVGP-M-H of the paper.
    """
    points, q_mu, q_sqrt = model.inducing_variable, model.q_mu, model.q_sqrt
    if isinstance(model, gpflow.models.SVGP):
        covariance = Kuu(points, model.kernel, jitter=gpflow.config.default_jitter())
        L = linalg.cholesky(covariance, "Kuu")
        q_mu, q_sqrt = (tf.linalg.matmul(L, tf.convert_to_tensor(part)) for part in (q_mu, q_sqrt))
    Z = points.Z.numpy()
    seen = NeighborInducingPoints(Z, min(num_neighbors, len(Z)))
    cache = PrecomputeCacheType.TENSOR
    return NeighborPosterior(model.kernel, seen, q_mu, q_sqrt, precompute_cache=cache)


def _fit_boosting(dataset: Dataset, plan: Training) -> Record:
    """Gradient-boosted trees of scikit-learn; the steps of the plan are its iterations."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, Y = dataset.train
    start = time.perf_counter()
    trees = HistGradientBoostingClassifier(max_iter=plan.steps, random_state=plan.seed)
    trees.fit(X, Y[:, 0])
    seconds = time.perf_counter() - start
    labels, P = dataset.test[1], trees.predict_proba(dataset.test[0])
    return {
        "error_rate": float(metrics.error_rate(labels, P)),
        "nlpd": float(-np.mean(np.log(np.take_along_axis(P, labels.astype(int), axis=1)))),
        "milliseconds_per_step": 1e3 * seconds / plan.steps,
        "training_seconds": seconds,
        "curve": [],
        "curve_of": "Error rate on the way",
    }
