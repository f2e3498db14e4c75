"""The doors of bases, of their kernels, and of the models over them."""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import functions, kernels, likelihoods

from gpflow_sparse import bases
from gpflow_sparse import kernels as own
from gpflow_sparse.inducing_variables import BasisFeatures
from gpflow_sparse.models import GRIEF, BasisGPR, BasisSVGP
from gpflow_sparse.training import fit_with_basis_refresh
from tests.hostile.judging import (
    CHECKS,
    Argument,
    Door,
    Spoil,
    X,
    Y,
    captured,
    chosen,
    count,
    drift,
    float32_kernel,
    from_sources,
    given,
    nan_mean,
    never,
    quiet,
    seeded,
    swap,
    swaps,
    takes,
    traced,
    two,
)
from tests.hostile.orthogonal import SCALER

GRID = [np.linspace(-2.0, 2.0, 4), np.linspace(-1.5, 1.5, 3)]
M = 5


def kernel():
    return kernels.SquaredExponential(variance=1.3, lengthscales=[0.8, 1.2])


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


def fourier_after(rows):
    """Features that have seen these rows."""
    basis = bases.RandomFourier(kernels.Matern32(), 4)
    basis(rows)
    return basis


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
        "GRIEF rotated.predict_f full": lambda v: ROTATED.predict_f(v, True, True),
        "GRIEF corrected.predict_f": MODELS["GRIEF corrected"].predict_f,
        "BasisGPR.predict_f": MODELS["BasisGPR"].predict_f,
        "BasisSVGP.predict_f": SVGP.predict_f,
        "BasisSVGP.predict_f_samples": seeded(lambda v: SVGP.predict_f_samples(v, 2)),
        "BasisPosterior.predict_f": CACHED.predict_f,
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
    grief_kernel = quietly(lambda v: own.GRIEF(kernel(), v, M, 3)(X))
    yield "kernels.GRIEF X", Door(grief_kernel, X, "alone", ("X", "kernel.lengthscales"))
    yield "interpolated_covariance X", Door(lambda v: interpolated(X=v), X, "alone", ("X",))
    second = lambda v: interpolated(X2=given(v))  # noqa: E731
    yield "interpolated_covariance X2", Door(second, X, "alone", ("X2",))


def _vectors():
    column = X[:, 0]
    nodes = lambda v: bases.percentile_grid(v, 4)  # noqa: E731
    yield "percentile_grid", Door(nodes, column, "free", ("column",))
    own_grid = lambda v: grid_basis(grid=[v, GRID[1]])(X)  # noqa: E731
    yield "GridEigenfunctions grid[0]", Door(own_grid, GRID[0], "free", ("grid[0]", "grid"))
    onto = lambda v: interpolated([v, GRID[1]])  # noqa: E731
    yield "interpolated_covariance grid[0]", Door(onto, GRID[0], "free", ("grid[0]",))
    weigh = lambda v: bases.ReweightedBasis(grid_basis(), v)(X)  # noqa: E731
    many = np.linspace(0.5, 2.0, M)
    yield "ReweightedBasis weights", Door(weigh, many, "free", ("weights",))
    yield "product_of lengthscales", Door(factors, np.array([0.8, 1.2]), "free", ("lengthscales",))
    turn = lambda v: bases.ReweightedBasis(grid_basis(), many, given(v))(X)  # noqa: E731
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(M, M)))[0]
    yield "ReweightedBasis rotation", Door(turn, rotation, "free", ("rotation",))
    q = lambda v: variational(q_mu=given(v)).elbo(two)  # noqa: E731
    yield "BasisSVGP q_mu", Door(q, np.full((M, 1), 0.2), "exact", ("q_mu",))
    factor = lambda v: variational(q_sqrt=given(v)).elbo(two)  # noqa: E731
    yield "BasisSVGP q_sqrt", Door(factor, 0.5 * np.eye(M)[None], "exact", ("q_sqrt",))


def _slow():
    yield "traced: BasisSVGP.predict_f", traced(SVGP.predict_f)
    yield "traced: GRIEF rotated.predict_y", traced(ROTATED.predict_y)
    yield "traced: MixturePosterior.predict_f", traced(MIXTURES["quadrature"].predict_f)
    elbo = lambda v: SVGP.elbo((X, v))  # noqa: E731
    yield "traced: BasisSVGP.elbo | Y", traced(elbo, "Y", unseen=True)
    density = lambda v: MIXTURES["quadrature"].predict_log_density((X, v))  # noqa: E731
    yield "traced: MixturePosterior.predict_log_density | Y", traced(density, "Y")
    by_x = captured(SVGP.elbo)
    yield "captured: BasisSVGP.elbo | X", Door(lambda v: by_x((v, Y)), X, "x", ("X",), slow=True)
    held = {"GRIEF": lambda d: grief(d).elbo(), "BasisGPR": lambda d: regression(d).elbo()}
    yield from from_sources(held, wide=True, names=("grid",))


DOORS: dict[str, Door] = {**dict(_pairs()), **dict(_inputs()), **dict(_vectors()), **dict(_slow())}


# ------------------------------------------------------------------ arguments that are not arrays
def sampled(**options):
    options = {"num_samples": 2, "num_burnin": 2, **options}
    return ROTATED.sample_posterior(options.pop("num_samples"), **options).predict_f(X)


def rounds(model=None, **options):
    model = grief() if model is None else model
    options = {"num_rounds": 1, "num_iterations": 1, "progress": False, **options}
    return quietly(fit_with_basis_refresh)(model, **options).elbo


PRODUCT = partial(own.product_of, kernels.Matern32, [1.0, 2.0])
WEIGH = partial(bases.ReweightedBasis, basis=BASIS, weights=np.ones(M))
ARGUMENTS = {
    "GridEigenfunctions kernel": Argument(
        lambda v: bases.GridEigenfunctions(v, X, M), "kernel", never
    ),
    **takes(
        "GridEigenfunctions",
        lambda num_eigenfunctions: grid_basis(p=num_eigenfunctions),
        count="num_eigenfunctions",
    ),
    **takes(
        "GridEigenfunctions",
        partial(grid_basis, X, grid=None),
        count="points_per_dimension",
        also=("num_points",),
    ),
    **takes(
        "GridEigenfunctions", grid_basis, never="grid", also=("X", "grid[0]", "kernel.lengthscales")
    ),
    **takes("GridEigenfunctions", partial(BASIS, X), indices=chosen),
    **takes("KernelDictionary.prior_precision", RELEVANCE.prior_precision, i=chosen),
    **takes("KernelDictionary.prior_precision", partial(DICTIONARY.prior_precision, [0]), j=chosen),
    "KernelDictionary.precision_diagonal": Argument(
        RELEVANCE.precision_diagonal, "indices", chosen
    ),
    **takes("Hybrid", partial(HYBRID, X), indices=chosen),
    **takes("ReweightedBasis", WEIGH, never="basis", none="rotation"),
    "BasisFeatures": Argument(BasisFeatures, "basis", never),
    "kernels.Basis": Argument(own.Basis, "basis", never),
    "kernels.Corrected": Argument(own.Corrected, "basis", never),
    "kernels.GRIEF kernel": Argument(lambda v: own.GRIEF(v, X), "kernel", never),
    "product_of kind": Argument(
        lambda v: own.product_of(v, [1.0]), "kind", lambda v: v is kernels.Matern52
    ),
    **takes("product_of", PRODUCT, variance="variance"),
    **takes("percentile_grid", partial(bases.percentile_grid, X[:, 0]), count="num_points"),
    **takes("interpolated_covariance", interpolated, never="kernel"),
    **takes("interpolated_covariance", interpolated, never="grid", also=("X", "grid[0]")),
    **takes("GRIEF", partial(GRIEF, two), never="kernel"),
    **takes("GRIEF", grief, never="data objective", none="reweighted mean_function"),
    **takes("GRIEF", grief, count="num_eigenfunctions", noise="noise_variance"),
    **takes("GRIEF", grief, count="points_per_dimension", also=("num_points",)),
    **takes("GRIEF.to_svgp", ROTATED.to_svgp, num_data="num_data"),
    **takes("GRIEF.posterior", ROTATED.posterior, none="precompute_cache"),
    **takes("GRIEF.training_loss_closure", ROTATED.training_loss_closure, flag="compile"),
    **takes("GRIEF.predict_f", partial(ROTATED.predict_f, X), flag="full_cov"),
    **takes("sample_posterior", sampled, some="num_samples num_burnin num_chains", seed="seed"),
    **takes("sample_posterior", sampled, never="method"),
    **takes("sample_posterior", sampled, never="weight_prior", also=("mode", "variance")),
    **takes("sample_posterior", sampled, none="noise_prior", also=("mode", "variance")),
    "sample_posterior variance of weight_prior": Argument(
        lambda v: sampled(weight_prior=(1.0, v)), "weight_prior", CHECKS["variance"], ("variance",)
    ),
    **takes("BasisGPR", regression, never="data", none="mean_function", noise="noise_variance"),
    **takes("BasisGPR", partial(BasisGPR, two), never="basis"),
    **takes("BasisGPR.to_svgp", MODELS["BasisGPR"].to_svgp, num_data="num_data"),
    **takes("BasisSVGP", partial(BasisSVGP, likelihood=likelihoods.Gaussian()), never="basis"),
    **takes("BasisSVGP", partial(BasisSVGP, BASIS), never="likelihood"),
    **takes("BasisSVGP", variational, none="mean_function q_mu q_sqrt", num_data="num_data"),
    **takes("BasisSVGP", variational, flag_or_none="keep_residual", latents="num_latent_gps"),
    **takes("BasisSVGP.elbo", SVGP.elbo, never="data"),
    **takes("MixturePosterior", MIXTURES["samples"].predict_log_density, never="data"),
    **takes(
        "fit_with_basis_refresh",
        partial(fit_with_basis_refresh, num_rounds=1, progress=False),
        never="model",
    ),
    **takes("fit_with_basis_refresh", rounds, some="num_iterations", flag="progress"),
    **takes("fit_with_basis_refresh", rounds, variance_or_none="seconds"),
    **takes("fit_with_basis_refresh", rounds, num_rounds=lambda v: count(v) and v < 3),
}


# ------------------------------------------------------------------ parts that were exchanged
def other_kernel():
    return kernels.SquaredExponential(lengthscales=[0.8, 1.2])


def parameter(*shape, value=1.0):
    return lambda: gpflow.Parameter(np.full(shape, value))


KERNEL, NOISE, MEAN = ("kernel",), ("likelihood", "likelihood.variance"), ("mean_function",)
SETS = ("inducing_variable", "kernel", "q_mu")
STALE = ("kernel", "mean_function")
OF_GRIEF = ("GRIEF", "GRIEF corrected", "GRIEF rotated", "GRIEF original")
OF_WEIGHTS = ("GRIEF rotated", "GRIEF original")
OF_Q = ("BasisSVGP",)
OF_DATA = (*OF_GRIEF, "BasisGPR")
NOT_ROTATED = ("GRIEF", "GRIEF corrected", "GRIEF original")
SPOILS = {
    **swaps(
        "kernel",
        KERNEL,
        {
            "another kernel": other_kernel,
            "kernel no product": kernels.Matern52,
            "kernel float32": float32_kernel,
            "kernel of another basis": lambda: own.Basis(grid_basis()),
        },
    ),
    "the basis' kernel no product": swap("basis.kernel", kernels.Matern52, KERNEL),
    "another basis": swap("basis", grid_basis, ("kernel", "basis"), of=OF_DATA),
    "basis None": swap("basis", None, ("kernel", "basis"), of=OF_DATA),
    **swaps(
        "inducing_variable",
        SETS,
        {
            "features of another basis": lambda: BasisFeatures(grid_basis()),
            "inducing points": lambda: gpflow.inducing_variables.InducingPoints(X),
            "inducing variable None": None,
        },
        of=OF_Q,
    ),
    "q_mu of another length": swap("q_mu", parameter(M + 1, 1), ("q_mu",), of=OF_Q),
    "q_mu of more outputs": swap("q_mu", parameter(M, 2), ("q_mu",), of=OF_Q),
    "q_sqrt of another length": swap("q_sqrt", parameter(1, M + 1, M + 1), ("q_sqrt",), of=OF_Q),
    "q_mu None": swap("q_mu", None, ("q_mu",), of=OF_Q),
    "q_mu nan": drift("q_mu", np.nan, ("q_mu",), values=True, of=OF_Q),
    "q_sqrt nan": drift("q_sqrt", np.nan, ("q_sqrt",), values=True, of=OF_Q),
    "num_data negative": swap("num_data", -3, ("num_data",), of=OF_Q),
    "objective text": swap("objective", "x", ("objective",), of=OF_GRIEF),
    "objective corrected": swap("objective", "corrected", ("objective",), of=OF_WEIGHTS),
    "reweighted text": swap("reweighted", "x", ("reweighted",), of=OF_GRIEF),
    "reweighted None": swap("reweighted", None, ("reweighted",), of=OF_WEIGHTS),
    "reweighted after": swap("reweighted", "rotated", ("reweighted",), of=NOT_ROTATED),
    "weights None": swap("weights", None, ("weights",), of=OF_WEIGHTS),
    "weights of another length": swap("weights", parameter(M + 1), ("weights",), of=OF_WEIGHTS),
    "weights nan": drift("weights", np.nan, ("weights",), values=True, of=OF_WEIGHTS),
    "weights underflow": drift(
        "weights", -1e4, ("weights",), values=True, harmless=True, of=OF_WEIGHTS
    ),
    "weights negative": swap(
        "weights", parameter(M, value=-1.0), ("weights",), values=True, of=OF_WEIGHTS
    ),
    "lengthscales changed": drift("kernel.lengthscales", 0.5, STALE, of=OF_WEIGHTS),
    "another mean function": swap(
        "mean_function", lambda: functions.Constant([3.0]), STALE, of=OF_WEIGHTS
    ),
    "likelihood Student": swap("likelihood", likelihoods.StudentT, NOISE, of=OF_DATA),
    "noise that varies": swap(
        "likelihood", lambda: likelihoods.Gaussian(functions.Constant(0.3)), NOISE, of=OF_DATA
    ),
    "noise nan": drift("likelihood.variance", np.nan, NOISE, values=True),
    "mean function nan": Spoil(nan_mean, MEAN, values=True),
    "data None": swap("data", None, ("data",), of=OF_DATA),
    "data of one part": swap("data", (X,), ("data",), of=OF_DATA),
    "data with more columns": swap(
        "data", (np.hstack([X, X]), Y), ("data", "X", "Xnew", "kernel.lengthscales"), of=OF_DATA
    ),
    "data with more outputs": swap("data", (X, np.hstack([Y, Y])), ("data", "Y"), of=OF_DATA),
    "jitter nan": swap("jitter", float("nan"), ("jitter",), harmless=True),
    "lengthscales nan": drift("basis.kernel.lengthscales", np.nan, STALE, values=True),
    "lengthscales underflow": drift("basis.kernel.lengthscales", -1e4, STALE, values=True),
    "kernel variance nan": drift("basis.kernel.variance", np.nan, STALE, values=True),
    "kernel variance inf": drift("basis.kernel.variance", np.inf, STALE, values=True),
}


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
    "posterior.predict_f": lambda m: m.posterior().predict_f(X),
}
LATE = {"likelihood", "num_data", "mean_function", "kernel"}


endless = tf.data.Dataset.from_tensors(two).repeat()
TOGETHER = {
    "a residual of random features": (
        lambda: variational(fourier_basis(), keep_residual=True),
        "keep_residual",
    ),
    "more features than before": (lambda: fourier_after(X)(np.hstack([X, X])), "X"),
    "a regression on rows without end": (lambda: regression(endless).elbo(), "data"),
    "a regression on no rows": (lambda: regression(endless.take(0)).elbo(), "data"),
    "a regression on rows in no batches": (
        lambda: regression(tf.data.Dataset.from_tensor_slices(two)).elbo(),
        "data",
    ),
    "a corrected kernel of other weights": (
        lambda: grief(objective="corrected", reweighted="rotated"),
        "objective",
    ),
    "nodes of one of two columns": (lambda: grief(grid=GRID[:1]), "grid"),
    "a kernel that is not a product": (lambda: grief(k=kernels.Matern32()), "kernel"),
    "quadrature of weights that are not rotated": (
        lambda: grief(reweighted="original").sample_posterior(method="quadrature"),
        "method",
    ),
    "a posterior of no weights": (lambda: grief().sample_posterior(2), "reweighted"),
    "an option of former samplers": (lambda: sampled(thin=5), "argument 'thin'"),
}


def spared(spoil, name, door):
    """f needs neither noise nor num_data."""
    return name == "BasisSVGP" and door != "objective" and bool(LATE & set(spoil.names))


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
