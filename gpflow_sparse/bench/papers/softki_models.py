"""The models of the tables of SoftKI, trained and scored."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse import initialization, training
from gpflow_sparse.bases import SoftInterpolation
from gpflow_sparse.bench.papers.budget import Training
from gpflow_sparse.bench.papers.curves_runner import train
from gpflow_sparse.bench.papers.spec import Record
from gpflow_sparse.data import Dataset, load, metrics, robot_arm
from gpflow_sparse.kernels import Filled
from gpflow_sparse.models import BasisSVGP, SoftKI
from gpflow_sparse.runs.build import original_units, scaler_of
from gpflow_sparse.runs.evaluation import evaluate

# Held-out rows of the learning curve.
_WATCHED = 1000
# Rows of a robot arm, the last tenth of which is for testing.
_ARM_ROWS = 10_000


def read(name: str, split: int) -> Dataset:
    """A published split, standardized; "robot_arm_K" is an arm of K links, with seed ``split``."""
    if not name.startswith("robot_arm_"):
        return load(name, split).standardized()
    num_links = int(name.removeprefix("robot_arm_"))
    X, Y = robot_arm(_ARM_ROWS, num_links, seed=split)
    kept = _ARM_ROWS - _ARM_ROWS // 10
    joints = tuple(f"joint_{i}_radians" for i in range(num_links))
    train, test = (X[:kept], Y[:kept]), (X[kept:], Y[kept:])
    return Dataset(name, train, test, joints, "distance_meters", None).standardized()


def read_validation(name: str, split: int) -> Dataset:
    """
    The training rows alone, as :func:`read` would have them if there were no others: a random tenth
    of them, rounded down, takes the place of the test rows.
    """
    dataset = load(name, split)
    X, Y = dataset.train
    order = np.random.default_rng(split).permutation(len(X))
    kept, held_out = np.split(order, [len(X) - len(X) // 10])
    train, test = ((X[rows], Y[rows]) for rows in (kept, held_out))
    return dataclasses.replace(dataset, train=train, test=test).standardized()


def fit_softki(dataset: Dataset, plan: Training, options: Mapping[str, Any]) -> Record:
    """
    Train and score a row.

    :param dataset: from :func:`read` or :func:`read_validation`.
    :param options: of the row, see ``papers/softki.py``.
    """
    kind = np.float32 if options["float32"] else np.float64
    precision = gpflow.config.Config(float=kind, jitter=gpflow.config.default_jitter())
    with gpflow.config.as_context(precision):
        X, Y = (part.astype(kind) for part in dataset.train)
        tf.random.set_seed(plan.seed)
        model = build_model(X, Y, plan.seed, options)
        rows = np.random.default_rng(plan.seed).permutation(len(dataset.test[0]))[:_WATCHED]
        watched = dataset.test[0][rows].astype(kind), dataset.test[1][rows]
        decay = plan.steps if options["decay"] else None
        results = train(
            model,
            None if options["model"] == "sgpr" else (X, Y),
            plan,
            optimizer=training.adam(options["learning_rate"], decay_steps=decay),
            batch_size=options["batch_size"],
            score=lambda model: _watch(model, (X, Y), watched),
            natural_gradients=options.get("natural_gradients", 0.0),
        )
        results["curve_of"] = f"RMSE (standardized) on {len(rows)} held-out rows on the way"
        if isinstance(model, SoftKI):
            scores = _score_softki(model, dataset, (X, Y), options["refit_noise"])
        else:
            scores = _score(model, dataset)
        return results | scores | _hyperparameters(model)


def build_model(
    X: np.ndarray, Y: np.ndarray, seed: int, options: Mapping[str, Any]
) -> gpflow.models.GPModel:
    """The model of a row at its start."""
    kernel = _kernel(X, seed, options)
    num_inducing, noise = options["num_inducing"], options["noise_variance"]
    Z = initialization.kmeans(X, num_inducing, kernel, seed=seed).astype(X.dtype)
    if options["model"] == "sgpr":
        return gpflow.models.SGPR((X, Y), kernel, Z, noise_variance=noise)
    likelihood = gpflow.likelihoods.Gaussian(noise)
    if options["model"] == "svgp":
        return gpflow.models.SVGP(kernel, likelihood, Z, num_data=len(X))
    weights = {"temperature": options["temperature"], "tied": options["tied"]}
    if options["model"] == "uncollapsed":
        return BasisSVGP(SoftInterpolation(kernel, Z, **weights), likelihood, num_data=len(X))
    model = SoftKI(
        kernel,
        Z,
        noise_variance=noise,
        objective=options["objective"],
        num_data=len(X),
        held_out=0.0,
        **weights,
    )
    gpflow.set_trainable(model.basis.temperature, options["learn_temperature"])
    gpflow.set_trainable(model.likelihood.variance, options["learn_noise"])
    return model


def _kernel(X: np.ndarray, seed: int, options: Mapping[str, Any]) -> gpflow.kernels.Kernel:
    """Variance 1; lengthscales of a number, or in proportion to the spread of the columns."""
    if options["lengthscale"] == "median":
        scales = initialization.median_lengthscales(X, seed=seed)
    else:
        scales = np.full(X.shape[1], options["lengthscale"])
    lengthscales = scales if options["ard"] else np.mean(scales)
    return gpflow.kernels.SquaredExponential(lengthscales=lengthscales)


def _watch(
    model: gpflow.models.GPModel,
    data: tuple[np.ndarray, np.ndarray],
    watched: tuple[np.ndarray, np.ndarray],
) -> float:
    """RMSE; the model of SoftKI first needs its posterior."""
    if isinstance(model, SoftKI):
        model.fit_posterior(*data, refit_noise=False)
    return metrics.rmse(watched[1], model.predict_f(watched[0])[0].numpy().astype(np.float64))


def _score_softki(
    model: SoftKI, dataset: Dataset, data: tuple[np.ndarray, np.ndarray], refit_noise: bool
) -> Record:
    """
    With the noise as it was trained, or re-fitted; and in standardized units both ways, and with
    the re-fitted noise and the prior variance filled up to the kernel's.
    """
    start = time.perf_counter()
    model.fit_posterior(*data, refit_noise=False)
    seconds = time.perf_counter() - start
    as_trained = _score(model, dataset)
    model.fit_posterior(*data, refit_noise=True)
    refitted = _score(model, dataset)
    own, model.kernel = model.kernel, Filled(model.basis)
    filled = _score(model, dataset)
    model.kernel = own
    return (refitted if refit_noise else as_trained) | {
        "nlpd_as_trained": as_trained["nlpd_standardized"],
        "rmse_refitted": refitted["rmse_standardized"],
        "nlpd_refitted": refitted["nlpd_standardized"],
        "nlpd_filled": filled["nlpd_standardized"],
        "noise_refitted": float(model.likelihood.variance.numpy()),
        "posterior_seconds": seconds,
    }


def _score(model: gpflow.models.GPModel, dataset: Dataset) -> Record:
    """Of the test rows, in the units of the file and standardized."""
    scores, _ = evaluate(model, scaler_of(dataset), *original_units(dataset, dataset.test))
    scores["coverage_95"] = scores.pop("coverage")
    return scores | {"noise_variance": float(model.likelihood.variance.numpy())}


def _hyperparameters(model: gpflow.models.GPModel) -> Record:
    basis = getattr(model, "basis", None)
    kernel = model.kernel if basis is None else basis.kernel
    found: Record = {
        "kernel_variance": float(kernel.variance.numpy()),
        "lengthscales": kernel.lengthscales.numpy().tolist(),
    }
    return found if basis is None else found | {"temperature": float(basis.temperature.numpy())}
