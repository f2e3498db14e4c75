"""The doors of bases, of their kernels, and of the models over them."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import functions, kernels, likelihoods

from gpflow_sparse import bases
from gpflow_sparse import kernels as own
from gpflow_sparse.inducing_variables import BasisFeatures
from gpflow_sparse.models import GRIEF, BasisGPR, BasisSVGP
from gpflow_sparse.training import fit, fit_in_rounds
from tests.hostile.judging import (
    Argument,
    Door,
    FlatMean,
    Spoil,
    X,
    Y,
    argument,
    as_argument,
    captured,
    count,
    count_or_none,
    flag,
    float32_kernel,
    free,
    nan_mean,
    never,
    noise,
    none,
    num_data,
    on_disk,
    put,
    seed,
    seeded,
    two,
    unmasked,
)
from tests.hostile.orthogonal import SCALER

GRID = [np.linspace(-2.0, 2.0, 4), np.linspace(-1.5, 1.5, 3)]
M = 5


def kernel():
    return kernels.SquaredExponential(variance=1.3, lengthscales=[0.8, 1.2])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hostile data make bases that have lost most of the prior, of which they warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def quietly(function):
    def call(*arguments, **options):
        with quiet():
            return function(*arguments, **options)

    return call


@quietly
def grid_basis(rows=None, p=M, **options):
    return bases.GridEigenfunctions(kernel(), rows, p, **{"grid": GRID, **options})


def from_rows(rows):
    return grid_basis(rows, grid=None, points_per_dimension=3)


def fourier_basis():
    return bases.RandomFourier(kernels.Matern32(lengthscales=[0.8, 1.2]), 4)


@quietly
def grief(data=two, k=None, **options):
    options = {"num_eigenfunctions": M, "points_per_dimension": 3, "noise_variance": 0.2, **options}
    return GRIEF(data, kernel() if k is None else k, **options)


def regression(data=two, basis=None, **options):
    options = {"noise_variance": 0.2, **options}
    return BasisGPR(data, grid_basis() if basis is None else basis, **options)


def variational(basis=None, likelihood=None, **options):
    return BasisSVGP(
        grid_basis() if basis is None else basis,
        likelihoods.Gaussian(0.2) if likelihood is None else likelihood,
        **options,
    )


def relevance_basis(centers=X[:M], **options):
    return bases.KernelDictionary(
        kernels.Matern32(lengthscales=[0.8, 1.2]), centers, precision="diagonal", **options
    )


BASIS = grid_basis()
DICTIONARY = bases.KernelDictionary(kernel(), X[:M])
RELEVANCE = relevance_basis(constant=True)
HYBRID = bases.Hybrid(kernel(), X[:3], 4)
WEIGHTED = bases.ReweightedBasis(grid_basis(), np.linspace(0.5, 2.0, M))
MODELS = {
    "GRIEF": grief(),
    "GRIEF corrected": grief(objective="corrected"),
    "GRIEF rotated": grief(reweighted="rotated"),
    "BasisGPR": regression(basis=fourier_basis()),
    "BasisSVGP": variational(),
}
ROTATED, SVGP = MODELS["GRIEF rotated"], MODELS["BasisSVGP"]
MIXTURES = {
    "quadrature": ROTATED.sample_posterior(method="quadrature"),
    "samples": grief(reweighted="original").sample_posterior(3, num_burnin=3),
}
CACHED = SVGP.posterior()
STOCK = gpflow.models.SVGP(BASIS.kernel, likelihoods.Gaussian(0.2), BasisFeatures(BASIS))


def factors(lengthscales):
    product = own.product_of(kernels.Matern32, lengthscales)
    return [part.lengthscales.numpy() for part in getattr(product, "kernels", [product])]


def given(call):
    """Where None is the default, so that text stands for it."""
    return lambda v: call("none" if v is None else v)


def interpolated(grid=GRID, **options):
    return bases.interpolated_covariance(
        options.pop("kernel", kernel()), grid, **{"X": X, "X2": X, **options}
    )


# ------------------------------------------------------------------ a pair (X, Y)
def _pairs():
    tables: dict[str, Any] = {
        "GRIEF": lambda d: grief(d).elbo(),
        "GRIEF rotated": lambda d: grief(d, reweighted="rotated", grid=GRID).elbo(),
        "BasisGPR": lambda d: regression(d).elbo(),
        "BasisSVGP.elbo": SVGP.elbo,
        "BasisSVGP.predict_log_density": SVGP.predict_log_density,
        "GRIEF.predict_log_density": MODELS["GRIEF"].predict_log_density,
        "MixturePosterior.predict_log_density": MIXTURES["quadrature"].predict_log_density,
        "MixturePosterior with a Standardizer": lambda d: SCALER.predict_log_density(
            MIXTURES["quadrature"], *d
        ),
    }
    for name, call in tables.items():
        holds = name in ("GRIEF", "GRIEF rotated", "BasisGPR")
        by_x, by_y = lambda v, c=call: c((v, Y)), lambda v, c=call: c((X, v))
        names = ("X", "Xnew", "data")
        yield f"{name} | X", Door(by_x, X, "x", names)
        # a regression model has as many outputs as Y has columns
        yield f"{name} | Y", Door(by_y, Y, "wide" if holds else "y", ("Y", "data"))


def _inputs():
    names = ("X", "Xnew")
    calls = {
        "GridEigenfunctions()": BASIS,
        "GridEigenfunctions(indices)": lambda v: BASIS(v, [1, 3]),
        "GridEigenfunctions.features": BASIS.features,
        "GridEigenfunctions.fraction_outside": BASIS.fraction_outside,
        "ReweightedBasis.features": WEIGHTED.features,
        "RandomFourier(indices)": lambda v: fourier_basis()(v, [1, 2]),
        "KernelDictionary()": DICTIONARY,
        "KernelDictionary.features": DICTIONARY.features,
        "KernelDictionary(indices) diagonal": lambda v: RELEVANCE(v, [M, 1]),
        "Hybrid(indices)": lambda v: HYBRID(v, [0, 5]),
        "Hybrid.features": HYBRID.features,
        "GRIEF.predict_f": MODELS["GRIEF"].predict_f,
        "GRIEF.predict_y": MODELS["GRIEF"].predict_y,
        "GRIEF rotated.predict_f full": lambda v: ROTATED.predict_f(v, True, True),
        "GRIEF corrected.predict_f": MODELS["GRIEF corrected"].predict_f,
        "BasisGPR.predict_f": MODELS["BasisGPR"].predict_f,
        "BasisSVGP.predict_f": SVGP.predict_f,
        "BasisSVGP.predict_f_samples": seeded(lambda v: SVGP.predict_f_samples(v, 2)),
        "BasisPosterior.predict_f": CACHED.predict_f,
        "BasisPosterior.predict_f full": lambda v: CACHED.predict_f(v, True),
        "stock SVGP over features": lambda v: STOCK.posterior().predict_f(v),
        "draws": MODELS["BasisGPR"].posterior().sample_functions(2, num_features=4, seed=0),
    }
    for name, call in calls.items():
        yield name, Door(call, X, "alone", names)
    for name, posterior in MIXTURES.items():
        yield f"MixturePosterior {name}.predict_f", Door(posterior.predict_f, X, "alone", names)
    yield "MixturePosterior.predict_y", Door(MIXTURES["samples"].predict_y, X, "alone", names)
    around = lambda v: bases.KernelDictionary(kernel(), v)(X)  # noqa: E731
    names = ("centers", "kernel.lengthscales")
    yield "KernelDictionary centers", Door(around, X[:M], "free", names)
    points = lambda v: bases.Hybrid(kernel(), v, 4)(X)  # noqa: E731
    yield "Hybrid Z", Door(points, X[:3], "free", ("Z", "kernel.lengthscales", "Kuu"))
    names = ("X", "Xnew")
    made = lambda v: from_rows(v)(X)  # noqa: E731
    yield "GridEigenfunctions X", Door(made, X, "alone", ("X", "kernel.lengthscales"))
    shares = lambda v: grid_basis(v, grid_weights="data")(X)  # noqa: E731
    yield "GridEigenfunctions X of weights", Door(shares, X, "alone", ("X", "grid"))
    grief_kernel = quietly(lambda v: own.GRIEF(kernel(), v, M, 3)(X))
    yield "kernels.GRIEF X", Door(grief_kernel, X, "alone", ("X", "kernel.lengthscales"))
    yield "interpolated_covariance X", Door(lambda v: interpolated(X=v), X, "alone", ("X",))
    yield (
        "interpolated_covariance X2",
        Door(given(lambda v: interpolated(X2=v)), X, "alone", ("X2",)),
    )


def _vectors():
    column = X[:, 0]
    nodes = lambda v: bases.percentile_grid(v, 4)  # noqa: E731
    yield "percentile_grid", Door(nodes, column, "free", ("column",))
    own_grid = lambda v: grid_basis(grid=[v, GRID[1]])(X)  # noqa: E731
    yield "GridEigenfunctions grid[0]", Door(own_grid, GRID[0], "free", ("grid[0]", "grid"))
    shares = lambda v: grid_basis(grid_weights=[v, np.ones(3)])(X)  # noqa: E731
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    names = ("grid_weights[0]", "grid_weights")
    yield "GridEigenfunctions grid_weights[0]", Door(shares, weights, "free", names)
    onto = lambda v: interpolated([v, GRID[1]])  # noqa: E731
    yield "interpolated_covariance grid[0]", Door(onto, GRID[0], "free", ("grid[0]",))
    weigh = lambda v: bases.ReweightedBasis(grid_basis(), v)(X)  # noqa: E731
    many = np.linspace(0.5, 2.0, M)
    yield "ReweightedBasis weights", Door(weigh, many, "free", ("weights",))
    yield "product_of lengthscales", Door(factors, np.array([0.8, 1.2]), "free", ("lengthscales",))
    turn = given(lambda v: bases.ReweightedBasis(grid_basis(), many, v)(X))
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(M, M)))[0]
    yield "ReweightedBasis rotation", Door(turn, rotation, "free", ("rotation",))
    q = given(lambda v: variational(q_mu=v).elbo(two))
    yield "BasisSVGP q_mu", Door(q, np.full((M, 1), 0.2), "exact", ("q_mu",))
    factor = given(lambda v: variational(q_sqrt=v).elbo(two))
    yield "BasisSVGP q_sqrt", Door(factor, 0.5 * np.eye(M)[None], "exact", ("q_sqrt",))


def _slow():
    options = {"graph": True, "slow": True, "bring": as_argument}
    for name, call in {
        "BasisSVGP.predict_f": SVGP.predict_f,
        "GRIEF rotated.predict_y": ROTATED.predict_y,
        "MixturePosterior.predict_f": MIXTURES["quadrature"].predict_f,
    }.items():
        yield f"traced: {name}", Door(argument(call), X, "alone", ("Xnew",), **options)
    elbo = argument(lambda v: SVGP.elbo((X, v)))
    yield "traced: BasisSVGP.elbo | Y", Door(elbo, Y, "y", ("Y",), unseen=True, **options)
    density = argument(lambda v: MIXTURES["quadrature"].predict_log_density((X, v)))
    yield (
        "traced: MixturePosterior.predict_log_density | Y",
        Door(density, Y, "y", ("Y",), **options),
    )
    by_x = captured(SVGP.elbo)
    yield "captured: BasisSVGP.elbo | X", Door(lambda v: by_x((v, Y)), X, "x", ("X",), slow=True)
    batch = lambda pair: tf.data.Dataset.from_tensors(tuple(map(unmasked, pair)))  # noqa: E731
    mapped = lambda pair: on_disk(map(unmasked, pair))  # noqa: E731
    for source, bring in {"tf.data": batch, "on disk": mapped}.items():
        for model, make in {"GRIEF": grief, "BasisGPR": regression}.items():
            held_x = lambda v, b=bring, m=make: m(b((v, Y))).elbo()  # noqa: E731
            held_y = lambda v, b=bring, m=make: m(b((X, v))).elbo()  # noqa: E731
            names = ("X", "X of data", "data", "grid")
            with_x = lambda v, b=bring: b((v, Y))  # noqa: E731
            with_y = lambda v, b=bring: b((X, v))  # noqa: E731
            slow = {"slow": True, "graph": True}
            yield f"{model} {source} | X", Door(held_x, X, "x", names, bring=with_x, **slow)
            names = ("Y", "Y of data", "data")
            yield f"{model} {source} | Y", Door(held_y, Y, "wide", names, bring=with_y, **slow)


DOORS: dict[str, Door] = {**dict(_pairs()), **dict(_inputs()), **dict(_vectors()), **dict(_slow())}


# ------------------------------------------------------------------ arguments that are no arrays
def few(v):
    return count(v) and v < 10**6


def chosen(v):
    """Indices, where there are at least three functions."""
    return v is None or str(v) in ("[2]",) or v == ()


def sampled(**options):
    options = {"num_samples": 2, "num_burnin": 2, **options}
    return ROTATED.sample_posterior(options.pop("num_samples"), **options).predict_f(X)


def rounds(model=None, **options):
    model = grief() if model is None else model
    options = {"num_rounds": 1, "num_iterations": 1, "progress": False, **options}
    return quietly(fit_in_rounds)(model, **options).elbo


ARGUMENTS = {
    "GridEigenfunctions kernel": Argument(
        lambda v: bases.GridEigenfunctions(v, X, M), "kernel", never
    ),
    "GridEigenfunctions num_eigenfunctions": Argument(
        lambda v: grid_basis(p=v), "num_eigenfunctions", count
    ),
    "GridEigenfunctions points_per_dimension": Argument(
        lambda v: grid_basis(X, grid=None, points_per_dimension=v),
        "points_per_dimension",
        count,
        ("num_points",),
    ),
    "GridEigenfunctions grid": Argument(
        lambda v: grid_basis(grid=v), "grid", never, ("X", "grid[0]", "kernel.lengthscales")
    ),
    "GridEigenfunctions grid_weights": Argument(
        lambda v: grid_basis(grid_weights=v), "grid_weights", none, ("grid_weights[0]",)
    ),
    "GridEigenfunctions indices": Argument(lambda v: BASIS(X, v), "indices", chosen),
    "KernelDictionary.prior_precision i": Argument(
        lambda v: RELEVANCE.prior_precision(v), "i", chosen
    ),
    "KernelDictionary.prior_precision j": Argument(
        lambda v: DICTIONARY.prior_precision([0], v), "j", chosen
    ),
    "KernelDictionary.precision_diagonal": Argument(
        RELEVANCE.precision_diagonal, "indices", chosen
    ),
    "Hybrid indices": Argument(lambda v: HYBRID(X, v), "indices", chosen),
    "ReweightedBasis basis": Argument(
        lambda v: bases.ReweightedBasis(v, np.ones(M)), "basis", never
    ),
    "ReweightedBasis rotation": Argument(
        lambda v: bases.ReweightedBasis(BASIS, np.ones(M), v), "rotation", none
    ),
    "BasisFeatures": Argument(BasisFeatures, "basis", never),
    "kernels.Basis": Argument(own.Basis, "basis", never),
    "kernels.Corrected": Argument(own.Corrected, "basis", never),
    "kernels.GRIEF kernel": Argument(lambda v: own.GRIEF(v, X), "kernel", never),
    "product_of kind": Argument(
        lambda v: own.product_of(v, [1.0]), "kind", lambda v: v is kernels.Matern52
    ),
    "product_of variance": Argument(
        lambda v: own.product_of(kernels.Matern32, [1.0, 2.0], v),
        "variance",
        lambda v: noise(v) and np.ndim(v) == 0,
    ),
    "percentile_grid num_points": Argument(
        lambda v: bases.percentile_grid(X[:, 0], v), "num_points", count
    ),
    "interpolated_covariance kernel": Argument(lambda v: interpolated(kernel=v), "kernel", never),
    "interpolated_covariance grid": Argument(interpolated, "grid", never, ("X", "grid[0]")),
    "GRIEF data": Argument(grief, "data", never),
    "GRIEF kernel": Argument(lambda v: GRIEF(two, v), "kernel", never),
    "GRIEF num_eigenfunctions": Argument(
        lambda v: grief(num_eigenfunctions=v), "num_eigenfunctions", count
    ),
    "GRIEF points_per_dimension": Argument(
        lambda v: grief(points_per_dimension=v), "points_per_dimension", count, ("num_points",)
    ),
    "GRIEF reweighted": Argument(lambda v: grief(reweighted=v), "reweighted", none),
    "GRIEF objective": Argument(lambda v: grief(objective=v), "objective", never),
    "GRIEF mean_function": Argument(lambda v: grief(mean_function=v), "mean_function", none),
    "GRIEF noise_variance": Argument(lambda v: grief(noise_variance=v), "noise_variance", noise),
    "GRIEF.to_svgp num_data": Argument(ROTATED.to_svgp, "num_data", num_data),
    "GRIEF.posterior precompute_cache": Argument(ROTATED.posterior, "precompute_cache", none),
    "GRIEF.training_loss_closure compile": Argument(
        lambda v: ROTATED.training_loss_closure(compile=v), "compile", flag
    ),
    "GRIEF.predict_f full_cov": Argument(lambda v: ROTATED.predict_f(X, v), "full_cov", flag),
    "sample_posterior num_samples": Argument(lambda v: sampled(num_samples=v), "num_samples", few),
    "sample_posterior method": Argument(lambda v: sampled(method=v), "method", never),
    "sample_posterior weight_prior": Argument(
        lambda v: sampled(weight_prior=v), "weight_prior", never, ("mode", "variance")
    ),
    "sample_posterior weight_prior variance": Argument(
        lambda v: sampled(weight_prior=(1.0, v)),
        "weight_prior",
        lambda v: noise(v) and np.ndim(v) == 0,
        ("variance",),
    ),
    "sample_posterior noise_prior": Argument(
        lambda v: sampled(noise_prior=v), "noise_prior", none, ("mode", "variance")
    ),
    "sample_posterior num_burnin": Argument(lambda v: sampled(num_burnin=v), "num_burnin", few),
    "sample_posterior num_chains": Argument(lambda v: sampled(num_chains=v), "num_chains", few),
    "sample_posterior seed": Argument(lambda v: sampled(seed=v), "seed", seed),
    "BasisGPR data": Argument(regression, "data", never),
    "BasisGPR basis": Argument(lambda v: BasisGPR(two, v), "basis", never),
    "BasisGPR noise_variance": Argument(
        lambda v: regression(noise_variance=v), "noise_variance", noise
    ),
    "BasisGPR mean_function": Argument(
        lambda v: regression(mean_function=v), "mean_function", none
    ),
    "BasisGPR.to_svgp num_data": Argument(MODELS["BasisGPR"].to_svgp, "num_data", num_data),
    "BasisSVGP basis": Argument(lambda v: BasisSVGP(v, likelihoods.Gaussian()), "basis", never),
    "BasisSVGP likelihood": Argument(lambda v: BasisSVGP(BASIS, v), "likelihood", never),
    "BasisSVGP mean_function": Argument(
        lambda v: variational(mean_function=v), "mean_function", none
    ),
    "BasisSVGP num_latent_gps": Argument(
        lambda v: variational(num_latent_gps=v),
        "num_latent_gps",
        lambda v: count_or_none(v) and v != 10**30,
    ),
    "BasisSVGP num_data": Argument(lambda v: variational(num_data=v), "num_data", num_data),
    "BasisSVGP q_mu": Argument(lambda v: variational(q_mu=v), "q_mu", none),
    "BasisSVGP q_sqrt": Argument(lambda v: variational(q_sqrt=v), "q_sqrt", none),
    "BasisSVGP keep_residual": Argument(
        lambda v: variational(keep_residual=v), "keep_residual", lambda v: v is None or flag(v)
    ),
    "BasisSVGP.elbo data": Argument(SVGP.elbo, "data", never),
    "MixturePosterior.predict_log_density data": Argument(
        MIXTURES["samples"].predict_log_density, "data", never
    ),
    "fit_in_rounds model": Argument(
        lambda v: fit_in_rounds(v, num_rounds=1, progress=False), "model", never
    ),
    "fit_in_rounds num_rounds": Argument(
        lambda v: rounds(num_rounds=v), "num_rounds", lambda v: few(v) and v < 3
    ),
    "fit_in_rounds num_iterations": Argument(
        lambda v: rounds(num_iterations=v), "num_iterations", few
    ),
    "fit_in_rounds progress": Argument(lambda v: rounds(progress=v), "progress", flag),
}


# ------------------------------------------------------------------ parts that were exchanged
def other_kernel():
    return kernels.SquaredExponential(lengthscales=[0.8, 1.2])


def parameter(*shape, value=1.0):
    return lambda: gpflow.Parameter(np.full(shape, value))


def weight(value):
    def do(m):
        variable = m.weights.unconstrained_variable
        variable.assign(tf.fill(variable.shape, tf.cast(value, variable.dtype)))

    return do


KERNEL, NOISE, MEAN = ("kernel",), ("likelihood", "likelihood.variance"), ("mean_function",)
SETS = ("inducing_variable", "kernel", "q_mu")
STALE = ("kernel", "mean_function")
OF_GRIEF = ("GRIEF", "GRIEF corrected", "GRIEF rotated", "GRIEF original")
OF_WEIGHTS = ("GRIEF rotated", "GRIEF original")
OF_Q = ("BasisSVGP",)
OF_DATA = (*OF_GRIEF, "BasisGPR")
EVERY = (*OF_DATA, *OF_Q)
SPOILS = {
    "another kernel": (Spoil(put("kernel", value=other_kernel), KERNEL), EVERY),
    "kernel no product": (Spoil(put("kernel", value=kernels.Matern52), KERNEL), EVERY),
    "kernel None": (Spoil(put("kernel", value=None), KERNEL), EVERY),
    "kernel float32": (Spoil(put("kernel", value=float32_kernel), KERNEL), EVERY),
    "multi-output kernel": (
        Spoil(put("kernel", value=lambda: kernels.SharedIndependent(kernel(), 2)), KERNEL),
        EVERY,
    ),
    "kernel of another basis": (
        Spoil(put("kernel", value=lambda: own.Basis(grid_basis())), KERNEL),
        EVERY,
    ),
    "the basis' kernel no product": (
        Spoil(lambda m: setattr(m.basis, "kernel", kernels.Matern52()), KERNEL),
        EVERY,
    ),
    "another basis": (Spoil(put("basis", value=grid_basis), ("kernel", "basis")), OF_DATA),
    "basis None": (Spoil(put("basis", value=None), ("kernel", "basis")), OF_DATA),
    "features of another basis": (
        Spoil(put("inducing_variable", value=lambda: BasisFeatures(grid_basis())), SETS),
        OF_Q,
    ),
    "inducing points": (
        Spoil(
            put("inducing_variable", value=lambda: gpflow.inducing_variables.InducingPoints(X)),
            SETS,
        ),
        OF_Q,
    ),
    "inducing variable None": (Spoil(put("inducing_variable", value=None), SETS), OF_Q),
    "q_mu of another length": (Spoil(put("q_mu", value=parameter(M + 1, 1)), ("q_mu",)), OF_Q),
    "q_mu of more outputs": (Spoil(put("q_mu", value=parameter(M, 2)), ("q_mu",)), OF_Q),
    "q_sqrt of another length": (
        Spoil(put("q_sqrt", value=lambda: gpflow.Parameter(np.eye(M + 1)[None])), ("q_sqrt",)),
        OF_Q,
    ),
    "q_mu None": (Spoil(put("q_mu", value=None), ("q_mu",)), OF_Q),
    "q_mu nan": (Spoil(free(lambda m: m.q_mu, np.nan), ("q_mu",), values=True), OF_Q),
    "q_sqrt nan": (Spoil(free(lambda m: m.q_sqrt, np.nan), ("q_sqrt",), values=True), OF_Q),
    "q_sqrt 0": (
        Spoil(free(lambda m: m.q_sqrt, 0.0), ("q_sqrt",), values=True, harmless=True),
        OF_Q,
    ),
    "num_data negative": (Spoil(put("num_data", value=-3), ("num_data",)), OF_Q),
    "objective text": (Spoil(put("objective", value="x"), ("objective",)), OF_GRIEF),
    "objective None": (Spoil(put("objective", value=None), ("objective",)), OF_GRIEF),
    "objective corrected": (Spoil(put("objective", value="corrected"), ("objective",)), OF_WEIGHTS),
    "reweighted text": (Spoil(put("reweighted", value="x"), ("reweighted",)), OF_GRIEF),
    "reweighted None": (Spoil(put("reweighted", value=None), ("reweighted",)), OF_WEIGHTS),
    "reweighted after": (
        Spoil(put("reweighted", value="rotated"), ("reweighted",)),
        ("GRIEF", "GRIEF corrected", "GRIEF original"),
    ),
    "weights None": (Spoil(put("weights", value=None), ("weights",)), OF_WEIGHTS),
    "weights of another length": (
        Spoil(put("weights", value=parameter(M + 1)), ("weights",)),
        OF_WEIGHTS,
    ),
    "weights nan": (Spoil(weight(np.nan), ("weights",), values=True), OF_WEIGHTS),
    "weights underflow": (
        Spoil(weight(-1e4), ("weights",), values=True, harmless=True),
        OF_WEIGHTS,
    ),
    "weights negative": (
        Spoil(put("weights", value=parameter(M, value=-1.0)), ("weights",), values=True),
        OF_WEIGHTS,
    ),
    "lengthscales changed": (
        Spoil(lambda m: m.kernel.lengthscales.assign([0.5, 0.5]), STALE),
        OF_WEIGHTS,
    ),
    "another mean function": (
        Spoil(put("mean_function", value=lambda: functions.Constant([3.0])), STALE),
        OF_WEIGHTS,
    ),
    "likelihood None": (Spoil(put("likelihood", value=None), NOISE), EVERY),
    "likelihood of 3 classes": (
        Spoil(
            put("likelihood", value=lambda: likelihoods.MultiClass(3)), (*NOISE, "num_latent_gps")
        ),
        EVERY,
    ),
    "likelihood Student": (Spoil(put("likelihood", value=likelihoods.StudentT), NOISE), OF_DATA),
    "noise that varies": (
        Spoil(
            put("likelihood", value=lambda: likelihoods.Gaussian(functions.Constant(0.3))), NOISE
        ),
        OF_DATA,
    ),
    "noise nan": (Spoil(free(lambda m: m.likelihood.variance, np.nan), NOISE, values=True), EVERY),
    "noise tiny": (Spoil(free(lambda m: m.likelihood.variance, -1e4), NOISE, harmless=True), EVERY),
    "mean function of rank 1": (Spoil(put("mean_function", value=FlatMean), MEAN), EVERY),
    "mean function of 2 outputs": (
        Spoil(put("mean_function", value=lambda: functions.Constant(np.zeros(2))), MEAN),
        EVERY,
    ),
    "mean function reads 3 columns": (
        Spoil(put("mean_function", value=lambda: functions.Linear(np.ones((3, 1)))), MEAN),
        EVERY,
    ),
    "mean function nan": (Spoil(nan_mean, MEAN, values=True), EVERY),
    "mean function None": (Spoil(put("mean_function", value=None), MEAN, harmless=True), EVERY),
    "data None": (Spoil(put("data", value=None), ("data",)), OF_DATA),
    "data of one part": (Spoil(put("data", value=(X,)), ("data",)), OF_DATA),
    "data with more columns": (
        Spoil(
            put("data", value=(np.hstack([X, X]), Y)), ("data", "X", "Xnew", "kernel.lengthscales")
        ),
        OF_DATA,
    ),
    "data with more outputs": (
        Spoil(put("data", value=(X, np.hstack([Y, Y]))), ("data", "Y")),
        OF_DATA,
    ),
    "jitter nan": (Spoil(put("jitter", value=float("nan")), ("jitter",), harmless=True), EVERY),
}
for _name, _value in (("0 (number)", 0.0), ("1e-300", 1e-300), ("1e300", 1e300)):
    SPOILS[f"lengthscales {_name}"] = (
        Spoil(
            put("kernel", "lengthscales", value=_value), KERNEL, values=True, harmless=_value != 0.0
        ),
        ("GRIEF", "GRIEF corrected", "BasisSVGP"),
    )
for _value in (np.nan, np.inf, -1e4):
    SPOILS[f"lengthscales {_value}"] = (
        Spoil(
            free(lambda m: m.basis.kernel.lengthscales, _value),
            STALE,
            values=True,
            harmless=_value == np.inf,
        ),
        EVERY,
    )
    SPOILS[f"kernel variance {_value}"] = (
        Spoil(
            free(lambda m: m.basis.kernel.variance, _value),
            STALE,
            values=True,
            harmless=_value == -1e4,  # then f is zero
        ),
        EVERY,
    )


BUILDERS = {
    "GRIEF": grief,
    "GRIEF corrected": lambda: grief(objective="corrected"),
    "GRIEF rotated": lambda: grief(reweighted="rotated"),
    "GRIEF original": lambda: grief(reweighted="original", objective="likelihood"),
    "BasisGPR": regression,
    "BasisSVGP": variational,
}


def objective(m):
    return m.elbo(two) if isinstance(m, BasisSVGP) else m.maximum_log_likelihood_objective()


SPOILED_DOORS = {
    "objective": objective,
    "predict_f": lambda m: m.predict_f(X),
    "predict_y": lambda m: m.predict_y(X),
    "predict_log_density": lambda m: m.predict_log_density(two),
    "posterior.predict_f": lambda m: m.posterior().predict_f(X),
    "kl or qu": lambda m: m.prior_kl() if isinstance(m, BasisSVGP) else m.compute_qu(),
}
SPOILED_DOORS |= {
    "captured: objective": captured(objective),
    "captured: predict_f": captured(lambda m: m.predict_f(X)),
    "fit": lambda m: (
        fit(m, two if isinstance(m, BasisSVGP) else None, num_steps=1, progress=False).elbo
    ),
    "fit_in_rounds": lambda m: None if isinstance(m, BasisSVGP) else rounds(m),
    "to_svgp": lambda m: None if isinstance(m, BasisSVGP) else m.to_svgp().predict_f(X),
    "sample_posterior": lambda m: (
        m.sample_posterior(method="quadrature").predict_f(X)
        if getattr(m, "reweighted", None) == "rotated"
        else None
    ),
    "refresh_basis": lambda m: m.refresh_basis() if isinstance(m, GRIEF) else None,
}
# f and the KL need neither noise nor num_data, predictions no num_data, the KL no mean function
LATE = {"likelihood", "num_data", "mean_function", "kernel"}
F_DOORS = ("kl or qu", "predict_f", "posterior.predict_f", "captured: predict_f")


TOGETHER: dict[str, Any] = {}


def spared(spoil, name, door):
    """f and the KL need neither noise nor num_data, predictions no num_data, the KL no mean."""
    late = LATE & set(spoil.names) if name == "BasisSVGP" else set()
    return bool(late) and (door in F_DOORS or ("num_data" in late and "predict" in door))


# ------------------------------------------------------------------ what the tests take
EAGER = tuple(name for name, door in DOORS.items() if not door.slow)
CORE = (
    *("GRIEF | Y", "BasisSVGP.elbo | X", "GridEigenfunctions()", "ReweightedBasis.features"),
    *("MixturePosterior quadrature.predict_f", "percentile_grid", "GridEigenfunctions grid[0]"),
    *("ReweightedBasis weights", "product_of lengthscales", "interpolated_covariance X"),
    "BasisSVGP q_mu",
)
COMPILED = (
    *("traced: BasisSVGP.predict_f", "traced: MixturePosterior.predict_log_density | Y"),
    *("GRIEF on disk | Y", "BasisGPR tf.data | X"),
)
TAKING = ()
SPOILED_IN_TESTS = ("objective", "posterior.predict_f")
