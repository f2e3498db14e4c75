"""The models of the table of Evans and Nair (2020), trained and scored."""

import functools
from collections.abc import Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_sparse import initialization, training
from gpflow_sparse.bases import FiniteBasis, Hybrid, KernelDictionary, RandomFourier
from gpflow_sparse.bench.papers.binary import read_parity
from gpflow_sparse.bench.papers.budget import Training
from gpflow_sparse.bench.papers.curves_runner import precision, train
from gpflow_sparse.bench.papers.spec import Record
from gpflow_sparse.data import Dataset, load, metrics
from gpflow_sparse.likelihoods import BernoulliLogit
from gpflow_sparse.models import QSGP
from gpflow_sparse.runs.build import scaler_of

_SUBSET, _ITERATIONS = 1000, 200
# Test rows of the learning curve, and of one call of a model.
_WATCHED, _CHUNK = 1000, 4096
# Training rows that the covariance is fitted to on the way.
_REFITTED = 4000


def read(name: str, split: int) -> Dataset:
    """A published split, standardized; for "mnist_parity" see :func:`.binary.read_parity`."""
    return read_parity(split) if name == "mnist_parity" else load(name, split).standardized()


def fit_qsgp(dataset: Dataset, plan: Training, options: Mapping[str, Any]) -> Record:
    """
    Train and score a row.

    :param dataset: from :func:`read`.
    :param options: of the row, see ``papers/qsgp.py``.
    """
    start = None if dataset.num_classes else start_hyperparameters(dataset, plan.seed)
    double = options["basis"] == "svgp"
    with precision(np.float64 if double else np.float32):
        X, Y = _in_precision(dataset.train)
        tf.random.set_seed(plan.seed)
        kernel, likelihood = _parts(start, options)
        if double:
            model, optimizer = _svgp(kernel, likelihood, X, plan, options)
        else:
            model, optimizer = _qsgp(kernel, likelihood, X, plan, options)
        watched = _subset(dataset, _WATCHED, plan.seed)
        refit = X[np.random.default_rng(plan.seed).permutation(len(X))[:_REFITTED]]
        if options.get("dense_rate"):
            model.update_covariance(refit)
        results = train(
            model,
            (X, Y),
            plan,
            optimizer=optimizer,
            batch_size=options["batch_size"],
            score=lambda model: _follow(model, watched, dataset.num_classes, refit, options),
        )
        which = "Error rate" if dataset.num_classes else "RMSE (standardized)"
        results["curve_of"] = f"{which} on {len(watched[0])} test rows on the way"
        return results | _score(model, dataset, X, plan, options)


@functools.lru_cache(maxsize=1)
def start_hyperparameters(dataset: Dataset, seed: int) -> tuple[float, np.ndarray, float]:
    """Variance, lengthscales ``[D]`` and noise variance of an exact GP on 1,000 training rows."""
    X, Y = dataset.train
    rows = np.random.default_rng(seed).permutation(len(X))[:_SUBSET]
    with precision(np.float64):
        scales = initialization.median_lengthscales(X[rows], seed=seed)
        kernel = gpflow.kernels.SquaredExponential(lengthscales=scales)
        model = gpflow.models.GPR((X[rows], Y[rows]), kernel, noise_variance=0.1)
        gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, options={"maxiter": _ITERATIONS}
        )
    variance, noise = float(kernel.variance.numpy()), float(model.likelihood.variance.numpy())
    return variance, kernel.lengthscales.numpy(), noise


class FrozenFirst(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A rate of 0 for the first steps, then one that falls from a peak to 0 as a cosine."""

    def __init__(self, peak: float, total: int, frozen: int) -> None:
        self.peak, self.total, self.frozen = peak, total, frozen

    def __call__(self, step: Any) -> tf.Tensor:
        done = tf.cast(step, tf.float32) - float(self.frozen)
        share = tf.clip_by_value(done / max(1.0, self.total - self.frozen), 0.0, 1.0)
        return tf.where(done < 0.0, 0.0, 0.5 * self.peak * (1.0 + tf.cos(np.pi * share)))

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "total": self.total, "frozen": self.frozen}


def _in_precision(pair: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    kind = gpflow.default_float()
    return pair[0].astype(kind), pair[1].astype(kind)


def _parts(start: Any, options: Mapping[str, Any]) -> tuple[Any, Any]:
    if start is None:
        kernel = gpflow.kernels.SquaredExponential(options["variance"], options["lengthscale"])
        return kernel, BernoulliLogit()
    variance, lengthscales, noise = start
    kernel = gpflow.kernels.SquaredExponential(variance, lengthscales)
    return kernel, gpflow.likelihoods.Gaussian(noise)


def _qsgp(
    kernel: Any, likelihood: Any, X: np.ndarray, plan: Training, options: Mapping[str, Any]
) -> tuple[QSGP, Any]:
    """The model at its start, and its optimizer."""
    basis = _basis(kernel, X, plan.seed, options)
    names = ("num_dense_columns", "covariance", "site_estimator")
    model = QSGP(
        basis,
        likelihood,
        num_data=len(X),
        basis_batch_size=min(options["basis_batch_size"], basis.num_basis - basis.num_leading),
        num_support=options["num_support"],
        augmentation=X if options["basis"] == "dictionary" else None,
        **{name: options[name] for name in names if name in options},
    )
    dense = None
    if options["dense_rate"]:
        schedule = FrozenFirst(options["dense_rate"], plan.steps, plan.steps // 10)
        dense = tf_keras.optimizers.Adam(schedule)
    else:
        gpflow.utilities.set_trainable(basis, False)
        gpflow.utilities.set_trainable(likelihood, False)
    rate = tf_keras.optimizers.schedules.CosineDecay(options["learning_rate"], plan.steps)
    return model, training.SparseAdagrad(rate, dense=dense)


def _basis(kernel: Any, X: np.ndarray, seed: int, options: Mapping[str, Any]) -> FiniteBasis:
    if options["basis"] == "dictionary":
        return KernelDictionary(kernel, X)
    if options["basis"] == "hybrid":
        k = options["num_leading"]
        Z = initialization.kmeans(X, k, kernel, seed=seed).astype(X.dtype)
        return Hybrid(kernel, Z, options["num_basis"] - k, seed=seed)
    return RandomFourier(kernel, options["num_basis"], seed=seed)


def _svgp(
    kernel: Any, likelihood: Any, X: np.ndarray, plan: Training, options: Mapping[str, Any]
) -> tuple[gpflow.models.SVGP, Any]:
    Z = initialization.kmeans(X, options["num_inducing"], kernel, seed=plan.seed)
    model = gpflow.models.SVGP(kernel, likelihood, Z, num_data=len(X))
    return model, training.adam(options["learning_rate"])


def _subset(dataset: Dataset, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """So many random test rows, or all."""
    X, Y = dataset.test
    if count >= len(X):
        return X, Y
    rows = np.random.default_rng(seed).permutation(len(X))[:count]
    return X[rows], Y[rows]


def _follow(
    model: Any,
    watched: tuple[np.ndarray, np.ndarray],
    num_classes: int | None,
    rows: np.ndarray,
    options: Mapping[str, Any],
) -> float:
    """On the way: bring C up to learned hyperparameters, by its closed form on some rows."""
    if options.get("dense_rate"):
        model.update_covariance(rows)
    return _watch(model, watched, num_classes)


def _watch(model: Any, data: tuple[np.ndarray, np.ndarray], num_classes: int | None) -> float:
    """RMSE, or error rate, of latent means."""
    X, Y = _in_precision(data)
    mean = model.predict_f(X)[0].numpy()
    if num_classes:
        return float(np.mean((mean > 0.0) != (Y > 0.5)))
    return metrics.rmse(Y, mean)


def _score(
    model: Any, dataset: Dataset, X: np.ndarray, plan: Training, options: Mapping[str, Any]
) -> Record:
    """Of the test rows, before and after the closed forms of the covariance."""
    test = _subset(dataset, options.get("num_test", len(dataset.test[0])), plan.seed)
    if dataset.num_classes:
        log_density, mean, _ = _predict(model, test)
        wrong = (mean > 0.5) != (test[1] > 0.5)
        return {"error_rate": float(np.mean(wrong)), "nlpd": float(-np.mean(log_density))}
    more: Record = {}
    if options.get("covariance") in ("diag", "block"):
        more["nlpd_as_trained"] = float(-np.mean(_predict(model, test)[0]))
        model.update_covariance(X)
    log_density, mean, variance = _predict(model, test)
    scaler, nlpd = scaler_of(dataset), float(-np.mean(log_density))
    rmse = metrics.rmse(test[1], mean)
    kernel = model.kernel.basis.kernel if isinstance(model, QSGP) else model.kernel
    return more | {
        "rmse": metrics.rmse(*map(scaler.inverse_outputs, (test[1], mean))),
        "nlpd": nlpd - scaler.log_density_offset,
        "rmse_standardized": rmse,
        "nlpd_standardized": nlpd,
        "coverage_95": metrics.coverage(test[1], mean, variance),
        "noise_variance": float(model.likelihood.variance.numpy()),
        "kernel_variance": float(kernel.variance.numpy()),
        "lengthscales": kernel.lengthscales.numpy().tolist(),
    }


def _predict(
    model: Any, data: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log density of each row, and mean and variance of observations; one pass over functions."""
    posterior, likelihood, found = model.posterior(), model.likelihood, []
    for start in range(0, len(data[0]), _CHUNK):
        X, Y = (tf.constant(p[start : start + _CHUNK], gpflow.default_float()) for p in data)
        mean, variance = posterior.predict_f(X)
        density = likelihood.predict_log_density(X, mean, variance, Y)
        found.append([density, *likelihood.predict_mean_and_var(X, mean, variance)])
    parts = (
        np.concatenate([np.asarray(part) for part in column]) for column in zip(*found, strict=True)
    )
    log_density, mean, variance = (part.astype(np.float64) for part in parts)
    return log_density, mean, variance
