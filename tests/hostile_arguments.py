"""Arguments that are no arrays: counts, flags, seeds, objects of GPflow."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import kernels, likelihoods

from gpflow_sparse import initialization
from gpflow_sparse.bases import Hybrid, KernelDictionary, RandomFourier
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.initialization.hyperparameters import subset_hyperparameters
from gpflow_sparse.models import ODVGP, SOLVEGP, SOLVEGPR
from gpflow_sparse.training import EarlyStopping, adam, fit
from tests.hostile import Verdict, judge
from tests.hostile_doors import CACHED, MODEL, REGRESSION, SCALER, N, O, X, Y, Z, model, regression
from tests.hostile_kinds import OPTIONS


class Argument(NamedTuple):
    """One argument that is no array."""

    call: Callable[[Any], Any]
    name: str
    fits: Callable[[Any], bool]
    """Which values are right."""
    also: tuple[str, ...] = ()
    """Other names an error may use."""


def count(v):
    return isinstance(v, int | np.integer) and not isinstance(v, bool) and 1 <= v < 2**63


def count_or_none(v):
    return v is None or count(v)


def num_data(v):  # a tensor or variable is not looked at, so that it can be set later
    return count_or_none(v) or tf.is_tensor(v)


def seed(v):
    return isinstance(v, int | np.integer) and not isinstance(v, bool) and 0 <= v < 2**32


def flag(v):
    return isinstance(v, bool | np.bool_)


def never(v):
    return False


def none(v):
    return v is None


def positive(v):
    return isinstance(v, int | float | np.number) and 0.0 < v < np.inf


def noise(v):
    number = np.asarray(v) if not isinstance(v, str | bytes | dict | set) else np.array("")
    return (
        number.dtype.kind in "fiub"
        and number.size == 1
        and bool(number.item() > 1e-6)
        and bool(np.isfinite(number.item()))
    )


RBF = kernels.SquaredExponential()
SETS = OrthogonalInducingVariables(Z, O)
init = initialization
two = (X, Y)

ARGUMENTS = {
    "SOLVEGP kernel": Argument(lambda v: SOLVEGP(v, likelihoods.Gaussian(), SETS), "kernel", never),
    "SOLVEGP likelihood": Argument(lambda v: SOLVEGP(RBF, v, SETS), "likelihood", never),
    "SOLVEGP inducing_variable": Argument(
        lambda v: SOLVEGP(RBF, likelihoods.Gaussian(), v), "inducing_variable", never
    ),
    "SOLVEGP mean_function": Argument(lambda v: model(mean_function=v), "mean_function", none),
    "SOLVEGP num_latent_gps": Argument(
        lambda v: model(num_latent_gps=v),
        "num_latent_gps",
        lambda v: count_or_none(v) and v != 10**9,
    ),
    "ODVGP num_columns": Argument(
        lambda v: ODVGP(RBF, likelihoods.Gaussian(), SETS, num_columns=v),
        "num_columns",
        lambda v: v is None or (count(v) and v <= 3),
    ),
    "ODVGP q_mu": Argument(
        lambda v: ODVGP(RBF, likelihoods.Gaussian(), SETS, q_mu=v), "q_mu", none
    ),
    "with_sets": Argument(MODEL.with_sets, "orthogonal", never),
    "sample_functions num_samples": Argument(
        lambda v: CACHED.sample_functions(v, num_features=2),
        "num_samples",
        lambda v: count(v) and v < 10**6,
    ),
    "sample_functions num_features": Argument(
        lambda v: CACHED.sample_functions(1, num_features=v),
        "num_features",
        lambda v: count(v) and v < 10**6 and v % 2 == 0,
    ),
    "sample_functions seed": Argument(
        lambda v: CACHED.sample_functions(1, seed=v), "seed", lambda v: v is None or seed(v)
    ),
    "RandomFourier kernel": Argument(lambda v: RandomFourier(v, 4), "kernel", never),
    "RandomFourier num_features": Argument(
        lambda v: RandomFourier(RBF, v), "num_features", lambda v: count(v) and v % 2 == 0
    ),
    "RandomFourier orthogonal": Argument(
        lambda v: RandomFourier(RBF, 4, orthogonal=v), "orthogonal", flag
    ),
    "RandomFourier seed": Argument(lambda v: RandomFourier(RBF, 4, seed=v), "seed", seed),
    "Hybrid kernel": Argument(lambda v: Hybrid(v, Z, 4), "kernel", never),
    "Hybrid Z": Argument(lambda v: Hybrid(RBF, v, 4), "Z", never),
    "Hybrid num_features": Argument(
        lambda v: Hybrid(RBF, Z, v), "num_features", lambda v: count(v) and v % 2 == 0
    ),
    "Hybrid orthogonal": Argument(lambda v: Hybrid(RBF, Z, 4, orthogonal=v), "orthogonal", flag),
    "Hybrid seed": Argument(lambda v: Hybrid(RBF, Z, 4, seed=v), "seed", seed),
    "KernelDictionary kernel": Argument(
        lambda v: KernelDictionary(v, Z), "kernel", lambda v: v is RBF
    ),
    "KernelDictionary centers": Argument(lambda v: KernelDictionary(RBF, v), "centers", never),
    "KernelDictionary precision": Argument(
        lambda v: KernelDictionary(RBF, Z, precision=v), "precision", never
    ),
    "KernelDictionary constant": Argument(
        lambda v: KernelDictionary(RBF, Z, precision="diagonal", constant=v), "constant", flag
    ),
    "KernelDictionary initial_precision": Argument(
        lambda v: KernelDictionary(RBF, Z, precision="diagonal", initial_precision=v),
        "initial_precision",
        lambda v: v is None or (noise(v) and np.ndim(v) == 0),
    ),
    "SOLVEGP num_data": Argument(lambda v: model(num_data=v), "num_data", num_data),
    "SOLVEGP whiten": Argument(lambda v: model(whiten=v), "whiten", flag),
    "SOLVEGP q_mu": Argument(lambda v: model(q_mu=v), "q_mu", none),
    "SOLVEGP q_sqrt": Argument(lambda v: model(q_sqrt=v), "q_sqrt", none),
    "SOLVEGPR data": Argument(lambda v: SOLVEGPR(v, RBF, SETS), "data", never),
    "SOLVEGPR kernel": Argument(lambda v: SOLVEGPR(two, v, SETS), "kernel", never),
    "SOLVEGPR inducing_variable": Argument(
        lambda v: SOLVEGPR(two, RBF, v), "inducing_variable", never
    ),
    "SOLVEGPR mean_function": Argument(
        lambda v: regression(mean_function=v), "mean_function", none
    ),
    "SOLVEGPR noise_variance": Argument(
        lambda v: regression(noise_variance=v), "noise_variance", noise
    ),
    "SOLVEGPR bound": Argument(lambda v: regression(bound=v), "bound", never),
    "SOLVEGPR.to_solvegp num_data": Argument(REGRESSION.to_solvegp, "num_data", num_data),
    "SOLVEGPR.training_loss_closure compile": Argument(
        lambda v: REGRESSION.training_loss_closure(compile=v), "compile", flag
    ),
    "SOLVEGPR.posterior precompute_cache": Argument(REGRESSION.posterior, "precompute_cache", none),
    "elbo data": Argument(MODEL.elbo, "data", never),
    "predict_log_density data": Argument(MODEL.predict_log_density, "data", never),
    "training_loss_closure data": Argument(MODEL.training_loss_closure, "data", never),
    "training_loss_closure compile": Argument(
        lambda v: MODEL.training_loss_closure(two, compile=v), "compile", flag
    ),
    "predict_f full_cov": Argument(lambda v: MODEL.predict_f(X, v), "full_cov", flag),
    "predict_f full_output_cov": Argument(
        lambda v: MODEL.predict_f(X, False, v), "full_output_cov", flag
    ),
    "predict_y full_cov": Argument(lambda v: MODEL.predict_y(X, v), "full_cov", flag),
    "predict_log_density full_cov": Argument(
        lambda v: MODEL.predict_log_density(two, v), "full_cov", flag
    ),
    "predict_f_samples num_samples": Argument(
        lambda v: MODEL.predict_f_samples(X, v), "num_samples", count_or_none
    ),
    "predict_f_samples full_cov": Argument(
        lambda v: MODEL.predict_f_samples(X, 2, v, True), "full_cov", flag
    ),
    "posterior precompute_cache": Argument(MODEL.posterior, "precompute_cache", none),
    "posterior.update_cache": Argument(model().posterior().update_cache, "precompute_cache", none),
    "posterior.predict_f full_cov": Argument(lambda v: CACHED.predict_f(X, v), "full_cov", flag),
    "kmeans M": Argument(lambda v: init.kmeans(X, v), "M", count),
    "kmeans kernel": Argument(lambda v: init.kmeans(X, 2, v), "kernel", none),
    "kmeans seed": Argument(lambda v: init.kmeans(X, 2, seed=v), "seed", seed),
    "random_subset M": Argument(lambda v: init.random_subset(X, v), "M", count),
    "random_subset seed": Argument(lambda v: init.random_subset(X, 2, seed=v), "seed", seed),
    "greedy_variance M": Argument(lambda v: init.greedy_variance(X, v, RBF), "M", count),
    "greedy_variance kernel": Argument(lambda v: init.greedy_variance(X, 2, v), "kernel", never),
    "greedy_variance seed": Argument(
        lambda v: init.greedy_variance(X, 2, RBF, seed=v), "seed", seed
    ),
    "greedy_variance max_candidates": Argument(
        lambda v: init.greedy_variance(X, 1, RBF, max_candidates=v), "max_candidates", count
    ),
    "greedy_orthogonal M2": Argument(lambda v: init.greedy_orthogonal(X, Z, v, RBF), "M2", count),
    "greedy_orthogonal kernel": Argument(
        lambda v: init.greedy_orthogonal(X, Z, 2, v), "kernel", never
    ),
    "split_orthogonal M": Argument(lambda v: init.split_orthogonal(X, v, 2), "M", count),
    "split_orthogonal num_orthogonal": Argument(
        lambda v: init.split_orthogonal(X, 2, v), "num_orthogonal", count
    ),
    "split_orthogonal method": Argument(
        lambda v: init.split_orthogonal(X, 2, 2, method=v), "method", never
    ),
    "median_lengthscales max_rows": Argument(
        lambda v: init.median_lengthscales(X, max_rows=v), "max_rows", count
    ),
    "median_lengthscales seed": Argument(
        lambda v: init.median_lengthscales(X, seed=v), "seed", seed
    ),
    "subset_hyperparameters kernel": Argument(
        lambda v: subset_hyperparameters(X, Y, v), "kernel", never
    ),
    "subset_hyperparameters num_rows": Argument(
        lambda v: subset_hyperparameters(X, Y, kernels.RBF(), num_rows=v, max_iterations=1),
        "num_rows",
        count,
    ),
    "subset_hyperparameters noise_variance": Argument(
        lambda v: subset_hyperparameters(X, Y, kernels.RBF(), noise_variance=v, max_iterations=1),
        "noise_variance",
        positive,
    ),
    "subset_hyperparameters max_iterations": Argument(
        lambda v: subset_hyperparameters(X, Y, kernels.RBF(), max_iterations=v),
        "max_iterations",
        count,
    ),
    "Standardizer.predict_y model": Argument(lambda v: SCALER.predict_y(v, X), "model", never),
    "Standardizer.predict_y batch_size": Argument(
        lambda v: SCALER.predict_y(MODEL, X, v), "batch_size", lambda v: count(v) or v == 10**30
    ),
}


def trained(m=None, data=two, **options):
    options = {"num_steps": 1, "progress": False, **options}
    return fit(model(num_data=N) if m is None else m, data, **options).elbo


# The doors of training.
TRAINING = {
    "fit model": Argument(lambda v: fit(v, two, num_steps=1), "model", never),
    "fit data": Argument(lambda v: trained(data=v), "data", never),
    "fit num_steps": Argument(
        lambda v: trained(num_steps=v), "num_steps", lambda v: count(v) and v < 10**6
    ),
    "fit num_epochs": Argument(
        # 10**30 epochs are legal, and long
        lambda v: trained(
            num_steps=None, num_epochs=2 if isinstance(v, int) and v == 10**30 else v
        ),
        "num_epochs",
        positive,
        ("num_steps",),
    ),
    "fit batch_size": Argument(lambda v: trained(batch_size=v), "batch_size", count_or_none),
    "fit natural_gradients": Argument(
        lambda v: trained(natural_gradients=v),
        "natural_gradients",
        lambda v: flag(v) or v == 0 or positive(v),
    ),
    "fit optimizer": Argument(lambda v: trained(optimizer=v), "optimizer", none),
    "fit callbacks": Argument(
        lambda v: trained(callbacks=v), "callbacks", lambda v: v == () or v == [2], ("callback",)
    ),
    # NumPy's sine is a function like any other; what it says of its argument is its own
    "fit callback": Argument(
        lambda v: trained(callbacks=[v]), "callbacks", never, ("callable sin method",)
    ),
    "fit seed": Argument(lambda v: trained(batch_size=3, seed=v), "seed", seed),
    "fit progress": Argument(lambda v: trained(progress=v), "progress", flag),
    "adam learning_rate": Argument(adam, "learning_rate", lambda v: positive(v) or v == 0),
    "adam decay_steps": Argument(lambda v: adam(decay_steps=v), "decay_steps", count_or_none),
    "EarlyStopping every": Argument(lambda v: EarlyStopping(every=v), "every", count),
    "EarlyStopping patience": Argument(lambda v: EarlyStopping(patience=v), "patience", count),
    "EarlyStopping min_delta": Argument(
        lambda v: EarlyStopping(min_delta=v), "min_delta", lambda v: positive(v) or v == 0
    ),
    "EarlyStopping validation": Argument(
        lambda v: trained(callbacks=[EarlyStopping(validation=v, every=1)]),
        "data",
        none,
        ("validation",),
    ),
}


def arguments(table=ARGUMENTS, kinds=OPTIONS) -> Iterator[tuple[str, str, Verdict]]:
    """A value that fits may be taken or refused; one that does not must be refused."""
    for kind, value in kinds.items():
        for door, argument in table.items():
            verdict = judge(argument.call, value, names=(argument.name, *argument.also))
            if verdict == Verdict("BAD", "accepted") and argument.fits(value):
                verdict = Verdict("o")
            yield kind, door, verdict
