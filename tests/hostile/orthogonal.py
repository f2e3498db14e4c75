"""SOLVE-GP, ODVGP and their posteriors; starting values, standardization, and training."""

from functools import partial
from typing import Any

import gpflow
import numpy as np
from gpflow import functions, kernels, likelihoods
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables

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
    N,
    Spoil,
    X,
    Y,
    amount,
    captured,
    count,
    drift,
    flag,
    flags,
    float32_kernel,
    from_sources,
    nan_mean,
    never,
    none,
    positive,
    seeded,
    swap,
    swaps,
    takes,
    traced,
    two,
)

Z, O = X[:3] + 0.1, X[3:] - 0.2
Q_MU = np.array([[0.3], [-0.2], [0.1]])
Q_SQRT = np.tril(np.full((1, 3, 3), 0.1)) + 0.5 * np.eye(3)


def model(**options):
    return SOLVEGP(
        options.pop("kernel", None)
        or gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.8, 1.2]),
        options.pop("likelihood", None) or gpflow.likelihoods.Gaussian(0.2),
        options.pop("inducing", None) or OrthogonalInducingVariables(Z, O),
        **options,
    )


def odvgp(*sets, **options):
    inducing = OrthogonalInducingVariables(*sets)
    return ODVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), inducing, **options)


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
    "training_loss": MODEL.training_loss,
    "training_loss_closure": lambda d: MODEL.training_loss_closure(d, compile=False)(),
    "predict_log_density": MODEL.predict_log_density,
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
    "predict_y": MODEL.predict_y,
    "SOLVEGPR.predict_f": REGRESSION.predict_f,
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
    yield "traced: elbo | X", traced(lambda v: MODEL.elbo((v, Y)), "X", unseen=True)
    yield "traced: elbo | Y", traced(lambda v: MODEL.elbo((X, v)), "Y", unseen=True)
    density = lambda v: MODEL.predict_log_density((X, v))  # noqa: E731
    yield "traced: predict_log_density | Y", traced(density, "Y")
    yield "traced: predict_f", traced(MODEL.predict_f)
    yield "traced: posterior.predict_f", traced(CACHED.predict_f)


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


DOORS: dict[str, Door] = {
    **dict(_of_pairs(PAIRS, False)),
    **dict(_of_pairs(SLOW_PAIRS, True)),
    **dict(_traced()),
    **dict(_others()),
    **dict(from_sources({"fit": trained_elbo})),
}


# ------------------------------------------------------------------ arguments that are not arrays
RBF = kernels.SquaredExponential()
TWO_SETS = OrthogonalInducingVariables(Z, O)
init = initialization

SETS_OF = {"kernel": RBF, "inducing_variable": TWO_SETS}
BUILD = partial(SOLVEGP, likelihood=likelihoods.Gaussian(), **SETS_OF)
ODVGP_OF = partial(ODVGP, likelihood=likelihoods.Gaussian(), **SETS_OF)
DIAGONAL = partial(KernelDictionary, RBF, Z, precision="diagonal")
CONSISTENT = partial(init.greedy_variance, X=X, M=2, kernel=RBF)
SUBSET = partial(subset_hyperparameters, X=X, Y=Y, kernel=RBF)

ARGUMENTS = {
    **takes("SOLVEGP", BUILD, never="kernel likelihood inducing_variable"),
    **takes("SOLVEGP", model, none="mean_function q_mu q_sqrt", flag="whiten"),
    **takes("SOLVEGP", model, num_data="num_data", latents="num_latent_gps"),
    **takes("ODVGP", ODVGP_OF, none="q_mu"),
    **takes("ODVGP", ODVGP_OF, num_penalty_samples=lambda v: v is None or (count(v) and v <= 3)),
    "SOLVEGP.with_sets": Argument(MODEL.with_sets, "orthogonal", never),
    **takes(
        "sample_functions", partial(CACHED.sample_functions, num_features=2), some="num_samples"
    ),
    **takes("sample_functions", partial(CACHED.sample_functions, 1), even="num_features"),
    **takes("sample_functions", partial(CACHED.sample_functions, 1), seed_or_none="seed"),
    **takes("RandomFourier", partial(RandomFourier, num_features=4), never="kernel"),
    **takes("RandomFourier", partial(RandomFourier, RBF), even="num_features"),
    **takes("RandomFourier", partial(RandomFourier, RBF, 4), flag="orthogonal", seed="seed"),
    **takes("Hybrid", partial(Hybrid, kernel=RBF, Z=Z, num_features=4), never="kernel Z"),
    **takes("Hybrid", partial(Hybrid, RBF, Z), even="num_features"),
    **takes("Hybrid", partial(Hybrid, RBF, Z, 4), flag="orthogonal", seed="seed"),
    **takes("KernelDictionary", partial(KernelDictionary, centers=Z), kernel=lambda v: v is RBF),
    **takes("KernelDictionary", partial(KernelDictionary, RBF), never="centers"),
    **takes("KernelDictionary", partial(KernelDictionary, RBF, Z), never="precision"),
    **takes("KernelDictionary", DIAGONAL, flag="constant", variance_or_none="initial_precision"),
    **takes("SOLVEGPR", partial(SOLVEGPR, data=two, **SETS_OF), never="data kernel bound"),
    **takes("SOLVEGPR", partial(SOLVEGPR, two, RBF), never="inducing_variable"),
    **takes("SOLVEGPR", regression, none="mean_function", noise="noise_variance"),
    **takes("SOLVEGPR.to_solvegp", REGRESSION.to_solvegp, num_data="num_data"),
    **takes("SOLVEGPR.training_loss_closure", REGRESSION.training_loss_closure, flag="compile"),
    **takes("SOLVEGPR.posterior", REGRESSION.posterior, none="precompute_cache"),
    **takes("elbo", MODEL.elbo, never="data"),
    **takes("predict_log_density", MODEL.predict_log_density, never="data"),
    **takes("predict_log_density", partial(MODEL.predict_log_density, two), flag="full_cov"),
    **takes("training_loss_closure", MODEL.training_loss_closure, never="data"),
    **takes("training_loss_closure", partial(MODEL.training_loss_closure, two), flag="compile"),
    **takes("predict_f", partial(MODEL.predict_f, X), flag="full_cov full_output_cov"),
    **takes("predict_y", partial(MODEL.predict_y, X), flag="full_cov"),
    **takes("predict_f_samples", partial(MODEL.predict_f_samples, X), count_or_none="num_samples"),
    **takes("posterior", MODEL.posterior, none="precompute_cache"),
    "posterior.update_cache": Argument(model().posterior().update_cache, "precompute_cache", none),
    **takes("posterior.predict_f", partial(CACHED.predict_f, X), flag="full_cov"),
    **takes("kmeans", partial(init.kmeans, X, M=2), count="M", none="kernel", seed="seed"),
    **takes("random_subset", partial(init.random_subset, X, M=2), count="M", seed="seed"),
    **takes("greedy_variance", CONSISTENT, count="M", never="kernel", seed="seed"),
    **takes("greedy_variance", partial(init.greedy_variance, X, 1, RBF), count="max_candidates"),
    **takes(
        "greedy_orthogonal",
        partial(init.greedy_orthogonal, X, Z, M2=2, kernel=RBF),
        count="M2",
        never="kernel",
    ),
    "split_orthogonal M": Argument(lambda v: init.split_orthogonal(X, v, 2), "M", count),
    "split_orthogonal num_orthogonal": Argument(
        lambda v: init.split_orthogonal(X, 2, v), "num_orthogonal", count
    ),
    **takes("split_orthogonal", partial(init.split_orthogonal, X, 2, 2), never="method"),
    **takes(
        "median_lengthscales", partial(init.median_lengthscales, X), count="max_rows", seed="seed"
    ),
    **takes("subset_hyperparameters", SUBSET, never="kernel", count="max_iterations"),
    **takes(
        "subset_hyperparameters",
        lambda **o: subset_hyperparameters(X, Y, kernels.RBF(), max_iterations=1, **o),
        count="num_rows",
        noise="noise_variance",
    ),
    **takes("Standardizer.predict_y", partial(SCALER.predict_y, X=X), never="model"),
    **takes("Standardizer.predict_y", partial(SCALER.predict_y, MODEL, X), many="batch_size"),
}


def trained(m=None, data=two, **options):
    options = {"num_steps": 1, "progress": False, **options}
    return fit(model(num_data=N) if m is None else m, data, **options).elbo


# The doors of training.
TRAINING = {
    **takes("fit", partial(fit, data=two, num_steps=1), never="model"),
    **takes("fit", trained, never="data", some="num_steps", count_or_none="batch_size"),
    **takes("fit", trained, none="optimizer", flag="progress"),
    **takes("fit", partial(trained, batch_size=3), seed="seed"),
    **takes("fit", trained, natural_gradients=lambda v: flag(v) or v == 0 or positive(v)),
    "fit num_epochs": Argument(
        # 10**30 epochs are legal, and long
        lambda v: trained(num_steps=None, num_epochs=2 if type(v) is int and v == 10**30 else v),
        "num_epochs",
        positive,
        ("num_steps",),
    ),
    **takes("fit", trained, callbacks=lambda v: v == () or v == [2], also=("callback",)),
    # NumPy's sine is a function like any other; what it says of its argument is its own
    "fit callback": Argument(
        lambda v: trained(callbacks=[v]), "callbacks", never, ("callable sin method",)
    ),
    **takes("adam", adam, learning_rate=amount, count_or_none="decay_steps"),
    **takes("EarlyStopping", EarlyStopping, count="every patience", min_delta=amount),
    **takes(
        "EarlyStopping",
        lambda **o: trained(callbacks=[EarlyStopping(every=1, **o)]),
        none="validation",
        also=("data",),
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
    "lengthscales 0 (number)": swap("kernel.lengthscales", 0.0, KERNEL, **VALUES),
    "lengthscales underflow to 0": drift("kernel.lengthscales", -1e4, KERNEL, **VALUES),
    "lengthscales nan": drift("kernel.lengthscales", np.nan, KERNEL, **VALUES),
    "lengthscales 1e300": swap("kernel.lengthscales", 1e300, KERNEL, values=True, harmless=True),
    "kernel variance 0": swap("kernel.variance", np.float64(0.0), KERNEL, **VALUES),
    "kernel variance negative": swap("kernel.variance", np.float64(-1.0), KERNEL, **VALUES),
    "kernel variance nan": drift("kernel.variance", np.nan, KERNEL, **VALUES),
    "kernel variance a number": swap("kernel.variance", 2.0, KERNEL),
    "one variance of a sum 0": swap("kernel", sum_with_zero_variance, KERNEL, harmless=True),
    "noise nan": drift("likelihood.variance", np.nan, NOISE, **VALUES),
    "noise tiny": drift("likelihood.variance", -1e4, NOISE, harmless=True),
    "q_mu nan": drift("q_mu[0]", np.nan, ("q_mu[0]", "q_mu.0"), **VALUES),
    "q_mu inf": drift("q_mu[1]", np.inf, ("q_mu[1]", "q_mu.1"), **VALUES),
    "q_sqrt nan": drift("q_sqrt[0]", np.nan, ("q_sqrt[0]", "q_sqrt.0"), **VALUES),
    "q_sqrt 0": drift("q_sqrt[0]", 0.0, ("q_sqrt[0]", "q_sqrt.0"), values=True, harmless=True),
    "Z nan": drift("inducing_variable.sets[0].Z", np.nan, (*SETS, "Z"), **VALUES),
    "Z all equal": drift("inducing_variable.sets[0].Z", 1.0, ("Kuu",), values=True, harmless=True),
    "mean function nan": Spoil(nan_mean, MEAN, **VALUES),
    "mean function None": swap("mean_function", None, MEAN, harmless=True),
    "num_data negative": swap("num_data", -3, ("num_data",)),
    "num_data text": swap("num_data", "6", ("num_data",)),
    "jitter nan": swap("jitter", float("nan"), ("jitter",)),
    **swaps(
        "inducing_variable",
        SETS,
        {
            "sets of other sizes": lambda: OrthogonalInducingVariables(X, O),
            "one set fewer": lambda: OrthogonalInducingVariables(Z),
            "plain inducing points": lambda: gpflow.inducing_variables.InducingPoints(Z),
        },
    ),
    **swaps(
        "mean_function",
        MEAN,
        {
            "default linear mean function": functions.Linear,
            "sum of means": lambda: functions.Zero() + functions.Constant(np.zeros(3)),
            "polynomial mean of 1 column": lambda: functions.Polynomial(2, input_dim=1),
            "mean function a NumPy function": lambda: np.sin,
        },
    ),
    **swaps(
        "kernel",
        KERNEL,
        {
            "ARD of a wrong length": lambda: kernels.Matern52(lengthscales=np.ones(D + 1)),
            "ARD in a sum": lambda: kernels.RBF() + kernels.RBF() * kernels.RBF(1.0, np.ones(5)),
            "ARD of a periodic base": lambda: kernels.Periodic(kernels.RBF(1.0, np.ones(3))),
            "ARD of a linear kernel": lambda: kernels.RBF() + kernels.Linear(np.ones(3)),
            "active_dims beyond D": lambda: kernels.Matern52(active_dims=[0, D]),
            "active_dims negative": lambda: kernels.Matern52(active_dims=[-1]),
            "active_dims empty": lambda: kernels.Matern52(active_dims=slice(D, None)),
            "coregion over two columns": lambda: kernels.RBF() * kernels.Coregion(2, 1),
            "other images": lambda: kernels.Convolutional(kernels.RBF(), [3, 3], [2, 2]),
            "kernel float32": float32_kernel,
        },
    ),
}
LATE = {"likelihood", "num_data"}
# what a regression model does not have: its q follows from the rest, also for other sets
NOT_OF_REGRESSION = {"num_data", "q_mu", "q_mu[0]", "q_mu[1]", "q_sqrt[0]"}


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
    "training_loss_closure": lambda m: m.training_loss_closure((X, Y), compile=False)(),
    "predict_f": lambda m: m.predict_f(X),
    "predict_f full": lambda m: m.predict_f(X, full_cov=True, full_output_cov=True),
    "predict_f_samples": seeded(lambda m: m.predict_f_samples(X, 2)),
    "predict_y": lambda m: m.predict_y(X),
    "predict_log_density": lambda m: m.predict_log_density((X, Y)),
    "prior_kl": lambda m: m.prior_kl(),
    "posterior.predict_f": lambda m: m.posterior().predict_f(X),
}
BUILDERS = {"SOLVEGP": model}
TOGETHER = {
    "random features of a sum": (lambda: RandomFourier(RBF + kernels.Linear(), 4), "kernel"),
    "a function drawn under a sum": (
        lambda: model(kernel=RBF + kernels.Linear()).posterior().sample_functions(2),
        "kernel",
    ),
    "functions drawn in a graph": (
        lambda: captured(lambda v: CACHED.sample_functions(2))(None),
        "sample_functions",
    ),
    "sets within sets": (lambda: OrthogonalInducingVariables(TWO_SETS), "base"),
    "sets within an orthogonal set": (
        lambda: OrthogonalInducingVariables(Z, TWO_SETS),
        "orthogonal[0]",
    ),
    "a set of several outputs": (
        lambda: OrthogonalInducingVariables(SharedIndependentInducingVariables(InducingPoints(Z))),
        "base",
    ),
    "sets of other columns": (lambda: OrthogonalInducingVariables(Z, O[:, :1]), "inducing sets"),
    "sets added in a graph": (lambda: captured(MODEL.with_sets)(O + 1.0), "with_sets"),
    "a bound over no sets": (lambda: SOLVEGPR(two, RBF, InducingPoints(Z)), "inducing_variable"),
    "ODVGP of one set": (lambda: odvgp(Z), "inducing_variable"),
    "ODVGP of three sets": (lambda: odvgp(Z, O, O + 1.0), "inducing_variable"),
    "ODVGP of more columns than there are": (
        lambda: odvgp(Z, O, num_penalty_samples=len(O) + 1),
        "num_penalty_samples",
    ),
    "ODVGP with a covariance of its weights": (
        lambda: odvgp(Z, O, q_sqrt=[np.eye(3)[None], np.eye(3)[None]]),
        "q_sqrt",
    ),
}


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
