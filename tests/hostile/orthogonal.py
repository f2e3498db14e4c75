"""SOLVE-GP, ODVGP and their posteriors; starting values, standardization, and training."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import functions, kernels, likelihoods

import gpflow_sparse as gs
from gpflow_sparse import initialization
from gpflow_sparse.bases import Hybrid, KernelDictionary, RandomFourier
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.initialization.hyperparameters import subset_hyperparameters
from gpflow_sparse.models import ODVGP, SOLVEGP, SOLVEGPR
from gpflow_sparse.training import EarlyStopping, adam, fit
from tests.hostile.judging import (
    Argument,
    D,
    Door,
    FlatMean,
    N,
    Spoil,
    X,
    Y,
    argument,
    as_argument,
    captured,
    count,
    count_or_none,
    flag,
    flags,
    float32_kernel,
    free,
    nan_mean,
    never,
    noise,
    none,
    num_data,
    on_disk,
    positive,
    put,
    seed,
    seeded,
    two,
    unmasked,
)

Z, O = X[:3] + 0.1, X[3:] - 0.2
Q_MU = np.array([[0.3], [-0.2], [0.1]])
Q_SQRT = np.tril(np.full((1, 3, 3), 0.1)) + 0.5 * np.eye(3)


def model(**options):
    return SOLVEGP(
        gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.8, 1.2]),
        options.pop("likelihood", None) or gpflow.likelihoods.Gaussian(0.2),
        options.pop("inducing", None) or OrthogonalInducingVariables(Z, O),
        **options,
    )


def regression(data=(X, Y), **options):
    return SOLVEGPR(
        data,
        options.pop("kernel", None)
        or gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.8, 1.2]),
        options.pop("inducing", None) or OrthogonalInducingVariables(Z, O),
        **{"noise_variance": 0.2, **options},
    )


MODEL = model()
REGRESSION = regression()
CACHED = MODEL.posterior()
SCALER = gs.Standardizer.fit(X, Y)
STOCK = gpflow.models.SVGP(
    gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.2), OrthogonalInducingVariables(Z, O)
)


def trained_elbo(data, **options):
    m = model(num_data=N)
    fit(m, data, num_steps=2, progress=False, **options)
    return m.elbo((X, Y))


def stopping(pair):
    return trained_elbo((X, Y), callbacks=[EarlyStopping(validation=pair, every=1)])


# ------------------------------------------------------------------ a pair (X, Y)
PAIRS = {
    "elbo": MODEL.elbo,
    "maximum_log_likelihood_objective": MODEL.maximum_log_likelihood_objective,
    "training_loss": MODEL.training_loss,
    "training_loss_closure": lambda d: MODEL.training_loss_closure(d, compile=False)(),
    "predict_log_density": MODEL.predict_log_density,
    "list pair: elbo": lambda d: MODEL.elbo(list(d)),
    "SOLVEGPR": lambda d: regression(d).elbo(),
    "SOLVEGPR.predict_log_density": REGRESSION.predict_log_density,
    "Standardizer.fit": lambda d: gs.Standardizer.fit(*d).transform(*d),
    "Standardizer.transform": lambda d: SCALER.transform(*d),
    "Standardizer.predict_log_density": lambda d: SCALER.predict_log_density(MODEL, *d),
    "subset_hyperparameters": lambda d: subset_hyperparameters(
        *d, gpflow.kernels.Matern52(), max_iterations=2
    ),
}
WIDE = ("Standardizer.fit", "subset_hyperparameters")
SLOW_PAIRS = {
    "closure compiled": lambda d: MODEL.training_loss_closure(d)(),
    "captured: elbo": captured(MODEL.elbo),
    "captured: predict_log_density": captured(MODEL.predict_log_density),
    "fit": trained_elbo,
    "fit(batch_size)": lambda d: trained_elbo(d, batch_size=3),
    "EarlyStopping(validation)": stopping,
}
# ------------------------------------------------------------------ inputs for prediction
INPUTS = {
    **{f"predict_f {k}": call for k, call in flags(MODEL.predict_f).items()},
    "predict_f_samples": seeded(lambda v: MODEL.predict_f_samples(v, 2)),
    "predict_f_samples marginal": seeded(lambda v: MODEL.predict_f_samples(v, full_cov=False)),
    "predict_y": MODEL.predict_y,
    "SOLVEGPR.predict_f": REGRESSION.predict_f,
    "SOLVEGPR.predict_y": REGRESSION.predict_y,
    **{f"posterior.predict_f {k}": call for k, call in flags(CACHED.predict_f).items()},
    "posterior.fused_predict_f": CACHED.fused_predict_f,
    "stock SVGP over our sets: predict_f": lambda v: STOCK.posterior().predict_f(v),
}
# ------------------------------------------------------------------ inputs of any shape
FREE = {
    "kmeans": lambda v: initialization.kmeans(v, 2),
    "random_subset": lambda v: initialization.random_subset(v, 2),
    "greedy_variance": lambda v: initialization.greedy_variance(v, 2, gpflow.kernels.Matern52()),
    "greedy_orthogonal X": lambda v: initialization.greedy_orthogonal(
        v, Z, 2, gpflow.kernels.Matern52()
    ),
    "split_orthogonal": lambda v: initialization.split_orthogonal(v, 2, 1),
    "median_lengthscales": initialization.median_lengthscales,
    "Standardizer.fit X": lambda v: gs.Standardizer.fit(v).transform_inputs(v),
}


def sets(base, other):
    return lambda v: model(inducing=OrthogonalInducingVariables(base(v), other(v))).elbo((X, Y))


def with_q(**q):
    return model(**q).elbo((X, Y))


def _of_pairs(table, slow):
    for name, call in table.items():
        wide = name in WIDE
        slow = slow or name == "subset_hyperparameters"
        by_x, by_y = lambda v, c=call: c((v, Y)), lambda v, c=call: c((X, v))
        yield f"{name} | X", Door(by_x, X, "wide" if wide else "x", ("X", "data"), slow=slow)
        # a regression model has as many outputs as Y has columns
        y_role = "wide" if wide or name == "SOLVEGPR" else "y"
        yield f"{name} | Y", Door(by_y, Y, y_role, ("Y", "data"), slow=slow)


def _traced():
    by_x = argument(lambda v: MODEL.elbo((v, Y)))
    by_y = argument(lambda v: MODEL.elbo((X, v)))
    density = argument(lambda v: MODEL.predict_log_density((X, v)))
    options = {"graph": True, "slow": True, "bring": as_argument}
    yield "traced: elbo | X", Door(by_x, X, "x", ("X",), unseen=True, **options)
    yield "traced: elbo | Y", Door(by_y, Y, "y", ("Y",), unseen=True, **options)
    yield "traced: predict_log_density | Y", Door(density, Y, "y", ("Y",), **options)
    for name, method in {
        "predict_f": MODEL.predict_f,
        "predict_y": MODEL.predict_y,
        "posterior.predict_f": CACHED.predict_f,
    }.items():
        yield f"traced: {name}", Door(argument(method), X, "alone", ("Xnew",), **options)


def _others():
    names = ("Xnew",)
    for name, call in INPUTS.items():
        yield name, Door(call, X, "alone", names)
    yield "captured: predict_f", Door(captured(MODEL.predict_f), X, "alone", names, slow=True)
    for name, call in FREE.items():
        yield name, Door(call, X, "free", ("X", "M", "M2", "num_orthogonal", "Z"))
    greedy = initialization.greedy_orthogonal
    kernel = gpflow.kernels.Matern52()
    yield "greedy_orthogonal Z", Door(lambda v: greedy(X, v, 2, kernel), Z, "alone", ("Z", "M2"))
    base, first = sets(lambda v: v, lambda v: O), sets(lambda v: Z, lambda v: v)
    same = sets(lambda v: v, lambda v: v)
    set_names = ("base", "orthogonal[0]", "inducing sets", "X", "Cvv", "Kuu")
    yield "Z of SOLVEGP", Door(base, Z, "alone", set_names)
    yield "O of SOLVEGP", Door(first, O, "orthogonal", set_names)
    yield "Z and O the same", Door(same, Z, "alone", set_names)
    yield "O of with_sets", Door(MODEL.with_sets, O + 1.0, "orthogonal", set_names)
    draws = CACHED.sample_functions(2, num_features=4, seed=0)
    yield "sample_functions, called", Door(draws, X, "alone", ("X",))
    second = np.zeros((3, 1))
    yield "q_mu", Door(lambda v: with_q(q_mu=(v, second)), Q_MU, "exact", ("q_mu[0]",))
    factor = np.eye(3)[None]
    yield "q_sqrt", Door(lambda v: with_q(q_sqrt=(v, factor)), Q_SQRT, "exact", ("q_sqrt[0]",))
    yield "Standardizer.transform_inputs", Door(SCALER.transform_inputs, X, "alone", ("X",))
    predict = lambda v: SCALER.predict_y(MODEL, v)  # noqa: E731
    yield "Standardizer.predict_y", Door(predict, X, "alone", ("X", "Xnew"))
    yield "Standardizer.inverse_outputs", Door(SCALER.inverse_outputs, Y, "alone", ("Y",))
    moments = lambda v: SCALER.inverse_mean_variance(Y, v)  # noqa: E731
    yield "Standardizer.inverse_mean_variance", Door(moments, Y, "y", ("variance",))
    centers = lambda v: gs.Standardizer(v, np.ones(2)).transform_inputs(X)  # noqa: E731
    yield "Standardizer x_mean", Door(centers, X[:1], "vector", ("x_mean", "x_scale"))


def _disk():
    for name, pair in {"X": lambda v: (v, Y), "Y": lambda v: (X, v)}.items():
        good, role = (X, "x") if name == "X" else (Y, "y")
        mapped = lambda v, p=pair: on_disk(p(unmasked(v)))  # noqa: E731
        batch = lambda v, p=pair: tf.data.Dataset.from_tensors(p(unmasked(v)))  # noqa: E731
        for source, bring in {"on disk": mapped, "tf.data": batch}.items():
            call = lambda v, b=bring: trained_elbo(b(v))  # noqa: E731
            door = Door(call, good, role, (name, "data"), slow=True, bring=bring)
            yield f"fit {source} | {name}", door


DOORS: dict[str, Door] = {
    **dict(_of_pairs(PAIRS, False)),
    **dict(_of_pairs(SLOW_PAIRS, True)),
    **dict(_traced()),
    **dict(_others()),
    **dict(_disk()),
}


# ------------------------------------------------------------------ arguments that are no arrays
RBF = kernels.SquaredExponential()
TWO_SETS = OrthogonalInducingVariables(Z, O)
init = initialization

ARGUMENTS = {
    "SOLVEGP kernel": Argument(
        lambda v: SOLVEGP(v, likelihoods.Gaussian(), TWO_SETS), "kernel", never
    ),
    "SOLVEGP likelihood": Argument(lambda v: SOLVEGP(RBF, v, TWO_SETS), "likelihood", never),
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
        lambda v: ODVGP(RBF, likelihoods.Gaussian(), TWO_SETS, num_columns=v),
        "num_columns",
        lambda v: v is None or (count(v) and v <= 3),
    ),
    "ODVGP q_mu": Argument(
        lambda v: ODVGP(RBF, likelihoods.Gaussian(), TWO_SETS, q_mu=v), "q_mu", none
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
    "SOLVEGPR data": Argument(lambda v: SOLVEGPR(v, RBF, TWO_SETS), "data", never),
    "SOLVEGPR kernel": Argument(lambda v: SOLVEGPR(two, v, TWO_SETS), "kernel", never),
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


# ------------------------------------------------------------------ parts that were exchanged
def lengthscales(m: Any) -> gpflow.Parameter:
    return m.kernel.lengthscales


def sum_with_zero_variance() -> kernels.Kernel:
    part = kernels.Linear()
    part.variance = np.float64(0.0)
    return kernels.Matern52() + part


KERNEL, NOISE = ("kernel",), ("likelihood", "likelihood.variance")
MEAN, SETS = ("mean_function",), ("inducing_variable", "q_mu", "inducing_variable.sets[0].Z")
VALUES = {"values": True}
SPOILS = {
    "lengthscales 0 (number)": Spoil(put("kernel", "lengthscales", value=0.0), KERNEL, **VALUES),
    "lengthscales underflow to 0": Spoil(free(lengthscales, -1e4), KERNEL, **VALUES),
    "lengthscales nan": Spoil(free(lengthscales, np.nan), KERNEL, **VALUES),
    "lengthscales inf": Spoil(free(lengthscales, np.inf), KERNEL, values=True, harmless=True),
    "lengthscales 1e-300": Spoil(put("kernel", "lengthscales", value=1e-300), KERNEL, values=True),
    "lengthscales 1e300": Spoil(
        put("kernel", "lengthscales", value=1e300), KERNEL, values=True, harmless=True
    ),
    "kernel variance 0": Spoil(put("kernel", "variance", value=np.float64(0.0)), KERNEL, **VALUES),
    "kernel variance underflows": Spoil(free(lambda m: m.kernel.variance, -1e4), KERNEL, **VALUES),
    "kernel variance negative": Spoil(
        put("kernel", "variance", value=np.float64(-1.0)), KERNEL, **VALUES
    ),
    "kernel variance nan": Spoil(free(lambda m: m.kernel.variance, np.nan), KERNEL, **VALUES),
    "kernel variance inf": Spoil(free(lambda m: m.kernel.variance, np.inf), KERNEL, **VALUES),
    "kernel variance a number": Spoil(put("kernel", "variance", value=2.0), KERNEL),
    "one variance of a sum 0": Spoil(
        put("kernel", value=sum_with_zero_variance), KERNEL, harmless=True
    ),
    "noise nan": Spoil(free(lambda m: m.likelihood.variance, np.nan), NOISE, values=True),
    "noise tiny": Spoil(free(lambda m: m.likelihood.variance, -1e4), NOISE, harmless=True),
    "q_mu nan": Spoil(free(lambda m: m.q_mu[0], np.nan), ("q_mu[0]", "q_mu.0"), **VALUES),
    "q_mu inf": Spoil(free(lambda m: m.q_mu[1], np.inf), ("q_mu[1]", "q_mu.1"), **VALUES),
    "q_sqrt nan": Spoil(free(lambda m: m.q_sqrt[0], np.nan), ("q_sqrt[0]", "q_sqrt.0"), **VALUES),
    "q_sqrt 0": Spoil(
        free(lambda m: m.q_sqrt[0], 0.0), ("q_sqrt[0]", "q_sqrt.0"), values=True, harmless=True
    ),
    "Z nan": Spoil(free(lambda m: m.inducing_variable.sets[0].Z, np.nan), (*SETS, "Z"), **VALUES),
    "Z all equal": Spoil(
        free(lambda m: m.inducing_variable.sets[0].Z, 1.0), ("Kuu",), values=True, harmless=True
    ),
    "Z and O 1e12 away": Spoil(
        lambda m: [s.Z.assign(1e12 + X[:3]) for s in m.inducing_variable.sets],
        ("Kuu",),
        values=True,
        harmless=True,
    ),
    "ARD of a wrong length": Spoil(
        put("kernel", value=lambda: kernels.Matern52(lengthscales=np.ones(D + 1))), KERNEL
    ),
    "ARD in a sum of products": Spoil(
        put(
            "kernel",
            value=lambda: kernels.RBF() + kernels.RBF() * kernels.RBF(lengthscales=np.ones(5)),
        ),
        KERNEL,
    ),
    "ARD of a periodic base": Spoil(
        put("kernel", value=lambda: kernels.Periodic(kernels.RBF(lengthscales=np.ones(3)))), KERNEL
    ),
    "ARD variance of a linear kernel": Spoil(
        put("kernel", value=lambda: kernels.RBF() + kernels.Linear(variance=np.ones(3))), KERNEL
    ),
    "active_dims beyond D": Spoil(
        put("kernel", value=lambda: kernels.Matern52(active_dims=[0, D])), KERNEL
    ),
    "active_dims negative": Spoil(
        put("kernel", value=lambda: kernels.Matern52(active_dims=[-1])), KERNEL
    ),
    "active_dims empty": Spoil(
        put("kernel", value=lambda: kernels.Matern52(active_dims=slice(D, None))), KERNEL
    ),
    "coregion over two columns": Spoil(
        put("kernel", value=lambda: kernels.RBF() * kernels.Coregion(2, 1)), KERNEL
    ),
    "image of another size": Spoil(
        put("kernel", value=lambda: kernels.Convolutional(kernels.RBF(), [3, 3], [2, 2])), KERNEL
    ),
    "multi-output kernel": Spoil(
        put("kernel", value=lambda: kernels.SharedIndependent(kernels.RBF(), 2)), KERNEL
    ),
    "kernel None": Spoil(put("kernel", value=None), KERNEL),
    "kernel float32": Spoil(put("kernel", value=float32_kernel), KERNEL),
    "mean function reads 3 columns": Spoil(
        put("mean_function", value=lambda: functions.Linear(np.ones((3, 1)))), MEAN
    ),
    "default linear mean function": Spoil(put("mean_function", value=functions.Linear), MEAN),
    "mean function of 2 outputs": Spoil(
        put("mean_function", value=lambda: functions.Constant(np.zeros(2))), MEAN
    ),
    "zero mean of 3 outputs": Spoil(put("mean_function", value=lambda: functions.Zero(3)), MEAN),
    "identity mean": Spoil(put("mean_function", value=functions.Identity), MEAN),
    "sum of mean functions": Spoil(
        put("mean_function", value=lambda: functions.Zero() + functions.Constant(np.zeros(3))), MEAN
    ),
    "polynomial mean of 1 column": Spoil(
        put("mean_function", value=lambda: functions.Polynomial(2, input_dim=1)), MEAN
    ),
    "mean function of rank 1": Spoil(put("mean_function", value=FlatMean), MEAN),
    "mean function nan": Spoil(nan_mean, MEAN, values=True),
    "mean function None": Spoil(put("mean_function", value=None), MEAN, harmless=True),
    "mean function a NumPy function": Spoil(put("mean_function", value=lambda: np.sin), MEAN),
    "likelihood None": Spoil(put("likelihood", value=None), ("likelihood",)),
    "likelihood of 3 classes": Spoil(
        put("likelihood", value=lambda: likelihoods.MultiClass(3)), ("num_latent_gps", "likelihood")
    ),
    "sets of other sizes": Spoil(
        put("inducing_variable", value=lambda: OrthogonalInducingVariables(X, O)), SETS
    ),
    "one set fewer": Spoil(
        put("inducing_variable", value=lambda: OrthogonalInducingVariables(Z)), SETS
    ),
    "plain inducing points": Spoil(
        put("inducing_variable", value=lambda: gpflow.inducing_variables.InducingPoints(Z)), SETS
    ),
    "num_data negative": Spoil(put("num_data", value=-3), ("num_data",)),
    "num_data text": Spoil(put("num_data", value="6"), ("num_data",)),
    "jitter nan": Spoil(put("jitter", value=float("nan")), ("jitter",)),
}
LATE = {"likelihood", "num_data"}
# what a regression model does not have: its q follows from the rest, also for other sets
NOT_OF_REGRESSION = {"num_data", "q_mu", "q_mu[0]", "q_mu[1]", "q_sqrt[0]"}


def trained_once(m: Any) -> np.ndarray:
    m.num_data = N if m.num_data is None else m.num_data
    return fit(m, (X, Y), num_steps=1, progress=False).elbo


def regression_of(m: Any) -> Any:
    """A regression model made of the same parts, assigned one by one."""
    r = regression()
    for part in ("kernel", "likelihood", "mean_function", "inducing_variable", "jitter"):
        setattr(r, part, getattr(m, part))
    return r


SPOILED_DOORS = {
    "SOLVEGPR.elbo": lambda m: regression_of(m).elbo(),
    "SOLVEGPR.predict_f": lambda m: regression_of(m).predict_f(X),
    "elbo": lambda m: m.elbo((X, Y)),
    "training_loss": lambda m: m.training_loss((X, Y)),
    "training_loss_closure": lambda m: m.training_loss_closure((X, Y), compile=False)(),
    "predict_f": lambda m: m.predict_f(X),
    "predict_f full": lambda m: m.predict_f(X, full_cov=True, full_output_cov=True),
    "predict_f_samples": seeded(lambda m: m.predict_f_samples(X, 2)),
    "predict_y": lambda m: m.predict_y(X),
    "predict_log_density": lambda m: m.predict_log_density((X, Y)),
    "prior_kl": lambda m: m.prior_kl(),
    "posterior.predict_f": lambda m: m.posterior().predict_f(X),
}
SLOW_SPOILED = {
    "compiled closure": lambda m: m.training_loss_closure((X, Y))(),
    "captured: elbo": captured(lambda m: m.elbo((X, Y))),
    "captured: predict_f": captured(lambda m: m.predict_f(X)),
    "captured: prior_kl": captured(lambda m: m.prior_kl()),
    "fit": trained_once,
}
SPOILED_DOORS |= SLOW_SPOILED


BUILDERS = {"SOLVEGP": model}
TOGETHER: dict[str, Any] = {}
SPOILED_IN_TESTS = tuple(name for name in SPOILED_DOORS if name not in SLOW_SPOILED)


def spared(spoil, name, door):
    """A whitened KL needs neither kernel nor noise, predictions no num_data."""
    if "prior_kl" in door or (LATE & set(spoil.names) and "predict" in door):
        return True
    return "SOLVEGPR" in door and bool(NOT_OF_REGRESSION & set(spoil.names))


# ------------------------------------------------------------------ what the tests take
EAGER = tuple(name for name, door in DOORS.items() if not door.slow)
CORE = (
    *("elbo | X", "elbo | Y", "predict_log_density | Y", "predict_f 00", "predict_f_samples"),
    *("posterior.predict_f 11", "kmeans", "greedy_variance", "median_lengthscales", "q_mu"),
    *("Standardizer.fit | X", "Standardizer.transform_inputs", "Z of SOLVEGP", "O of SOLVEGP"),
)
COMPILED = (
    *("captured: elbo | X", "traced: elbo | Y", "traced: predict_f", "closure compiled | Y"),
    *("fit | X", "fit(batch_size) | Y", "fit tf.data | Y"),
)
TAKING = ("captured: elbo | X", "traced: elbo | Y", "traced: predict_f", "fit | X")
