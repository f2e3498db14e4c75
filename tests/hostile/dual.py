"""The doors of exact GP regression by dual blocks."""

from functools import partial

import gpflow
import numpy as np
from gpflow import functions, kernels, likelihoods

from gpflow_sparse.models import DualGPR, DualOptions
from tests.hostile.judging import (
    Door,
    Spoil,
    X,
    captured,
    drift,
    float32_kernel,
    nan_mean,
    pairs,
    swap,
    takes,
    traced,
    two,
)

FEW = {"noise_variance": 0.2, "num_paths": 3, "num_features": 8}


def kernel():
    return kernels.Matern32(variance=1.3, lengthscales=[0.8, 1.2])


def dual(data=two, k=None, **options):
    return DualGPR(data, kernel() if k is None else k, **FEW | options)


def solved(data=two, **options):
    model = dual(data, **options)
    model.solve()
    return model


def held(data):
    """What a model keeps of its data."""
    return dual(data).data


def steps(**options):
    dual().fit_hyperparameters(**{"num_steps": 1, **options})


MODEL = solved()
CACHED = MODEL.posterior()


# ------------------------------------------------------------------ arrays
def _doors():
    for name, door in pairs({"data": held}, "DualGPR "):
        # a regression model has as many outputs as Y has columns
        yield name, door._replace(role="wide") if door.role == "y" else door
    yield from pairs({"predict_log_density": MODEL.predict_log_density}, "DualGPR.")
    calls = {
        "DualGPR.predict_f": MODEL.predict_f,
        "DualGPR.predict_f full": lambda v: MODEL.predict_f(v, True, True),
        "DualGPR.predict_y": MODEL.predict_y,
        "DualGPR posterior.predict_f": CACHED.predict_f,
        "DualGPR draws": CACHED.sample_functions(2, num_features=8, seed=0),
    }
    for name, call in calls.items():
        yield name, Door(call, X, "alone", ("X", "Xnew"))
    by_solve = lambda d: solved(d).predict_f(X)  # noqa: E731
    for name, door in pairs({"solve": by_solve}, "DualGPR."):
        role = "wide" if door.role == "y" else door.role
        yield name, door._replace(role=role, slow=True)
    directly = Door(MODEL.predict_f_directly, X, "alone", ("Xnew",), slow=True)
    yield "DualGPR.predict_f_directly", directly
    yield "traced: DualGPR.predict_f", traced(MODEL.predict_f)


DOORS: dict[str, Door] = dict(_doors())


# ------------------------------------------------------------------ arguments that are no arrays
ARGUMENTS = {
    **takes("DualGPR", partial(DualGPR, two, **FEW), never="kernel"),
    **takes("DualGPR", dual, never="data", none="row_noise mean_function", even="num_features"),
    **takes("DualGPR", dual, noise="noise_variance", seed="seed"),
    **takes("DualGPR.solve", lambda **o: dual().solve(**o), none="options"),
    **takes("DualGPR.estimate_gradients", MODEL.estimate_gradients, never="precision"),
    **takes(
        "DualGPR.fit_hyperparameters",
        partial(steps, num_rows=0),
        never="num_steps",
        also=("num_rows",),
    ),
    **takes(
        "DualGPR.fit_hyperparameters", steps, count_or_none="num_rows", none="optimizer options"
    ),
    **takes("DualGPR.posterior", MODEL.posterior, none="precompute_cache"),
    **takes("DualGPR.predict_f", partial(MODEL.predict_f, X), flag="full_cov"),
    **takes(
        "DualGPR.predict_f_directly",
        partial(MODEL.predict_f_directly, X),
        flag="full_cov",
        none="options",
    ),
    **takes("DualOptions", DualOptions, some="block_size max_passes", seed="seed"),
    **takes("DualOptions", DualOptions, never="partition tolerance precision"),
}


# ------------------------------------------------------------------ what does not go together
def stale():
    model = solved()
    model.kernel.variance.assign(2.0)
    return model


def frozen():
    model = dual()
    gpflow.set_trainable(model, False)
    return model


TOGETHER = {
    "a prediction without weights": (lambda: dual().predict_f(X), "solve"),
    "a prediction of other parameters": (lambda: stale().predict_y(X), "solve"),
    "gradients of other parameters": (lambda: stale().estimate_gradients(), "solve"),
    "gradients without weights": (lambda: dual().estimate_gradients(), "solve"),
    "steps of nothing": (lambda: frozen().fit_hyperparameters(1), "trainable"),
    "noise of other rows": (lambda: dual(row_noise=np.ones(3)), "row_noise"),
    "noise below zero": (lambda: dual(row_noise=-np.ones(len(X))), "row_noise"),
    "a kernel without random features": (lambda: dual(k=kernels.Linear()), "kernel"),
    "a kernel of two outputs": (lambda: dual(k=kernels.SharedIndependent(kernel(), 2)), "kernel"),
    "a float32 kernel": (lambda: dual(k=float32_kernel()), "kernel"),
    "a mean of two outputs": (
        lambda: dual(mean_function=functions.Constant(np.zeros(2))),
        "mean_function",
    ),
}


# ------------------------------------------------------------------ parts that were exchanged
NOISE, MEAN = ("likelihood", "likelihood.variance"), ("mean_function",)
STALE = ("solve",)
SPOILS = {
    "likelihood Student": swap("likelihood", likelihoods.StudentT, NOISE),
    "noise nan": drift("likelihood.variance", np.nan, (*NOISE, *STALE)),
    "lengthscales nan": drift("kernel.lengthscales", np.nan, ("kernel.lengthscales", *STALE)),
    "mean function nan": Spoil(nan_mean, (*MEAN, *STALE, "mean_function.c")),
    "data of one row": Spoil(
        lambda m: setattr(m, "data", tuple(part[:1] for part in m.data)), ("data", *STALE)
    ),
    "row noise below zero": swap("row_noise", lambda: -np.ones(len(X)), ("row_noise",)),
}
SPOILED_DOORS = {
    "predict_f": lambda m: m.predict_f(X),
    "predict_y": lambda m: m.predict_y(X),
    "posterior": lambda m: m.posterior().predict_f(X),
    "captured: predict_f": captured(lambda m: m.predict_f(X)),
    "estimate_gradients": lambda m: m.estimate_gradients()[0][0],
    "solve": lambda m: m.solve().state.weights,
    "fit_hyperparameters": lambda m: m.fit_hyperparameters(1)[0].gradient_norm,
}


BUILDERS = {"DualGPR": solved}


def spared(spoil, name, door):
    """One row is as good as six where weights are solved for anew."""
    return "data" in spoil.names and door in ("solve", "fit_hyperparameters")


# ------------------------------------------------------------------ what the tests take
EAGER = tuple(name for name, door in DOORS.items() if not door.slow)
CORE = ("DualGPR data | X", "DualGPR data | Y", "DualGPR.predict_f")
COMPILED = ("traced: DualGPR.predict_f",)
TAKING = COMPILED
SPOILED_IN_TESTS = ("predict_f", "estimate_gradients", "solve")
