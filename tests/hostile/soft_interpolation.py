"""The doors of soft interpolation: its model, basis and kernels."""

from functools import partial

import numpy as np
import tensorflow as tf
from gpflow import functions, kernels, likelihoods

from gpflow_sparse import kernels as own
from gpflow_sparse.bases import SoftInterpolation
from gpflow_sparse.models import BasisSVGP, SoftKI
from gpflow_sparse.training import EarlyStopping, fit
from tests.hostile.judging import (
    Argument,
    Door,
    N,
    Spoil,
    X,
    Y,
    below_one,
    captured,
    chosen,
    drift,
    float32_kernel,
    from_sources,
    nan_mean,
    never,
    pairs,
    seeded,
    swap,
    takes,
    traced,
    two,
)

Z = X[:4] + 0.1
M = len(Z)


def kernel():
    return kernels.Matern32(variance=1.3, lengthscales=[0.8, 1.2])


def basis(points=Z, k=None, **options):
    options = {"temperature": 0.4, **options}
    return SoftInterpolation(kernel() if k is None else k, points, **options)


def softki(points=Z, k=None, **options):
    options = {"noise_variance": 0.2, "temperature": 0.4, **options}
    return SoftKI(kernel() if k is None else k, points, **options)


def fitted(data=two, refit_noise=False, **options):
    model = softki(**options)
    model.fit_posterior(data, refit_noise=refit_noise)
    return model


def predicted(data=two, **options):
    """What a posterior of these rows predicts."""
    return fitted(data, **options).predict_f(X)


def trained(model=None, data=two, **options):
    options = {"num_steps": 1, "progress": False, **options}
    return fit(softki(num_data=N) if model is None else model, data, **options).elbo


def pseudo():
    return softki(objective="pseudo")


MODEL, FILLED = fitted(), fitted(tied=True)
BASIS, CACHED = basis(temperature=[0.4, 0.6]), MODEL.posterior()
POINTS = ("Z", "kernel.lengthscales")


# ------------------------------------------------------------------ arrays
def _pairs():
    tables = {
        "SoftKI.elbo": MODEL.elbo,
        "SoftKI.elbo pseudo": seeded(pseudo().elbo),
        "SoftKI.maximum_log_likelihood_objective": MODEL.maximum_log_likelihood_objective,
        "SoftKI.training_loss": MODEL.training_loss,
        "SoftKI.training_loss_closure": lambda d: MODEL.training_loss_closure(d, compile=False)(),
        "SoftKI.predict_log_density": FILLED.predict_log_density,
        "SoftKI.fit_posterior": predicted,
        "SoftKI.fit_posterior refit": lambda d: predicted(d, refit_noise=True),
    }
    return pairs(tables)


def _inputs():
    names = ("X", "Xnew")
    calls = {
        "SoftInterpolation()": BASIS,
        "SoftInterpolation(indices)": lambda v: BASIS(v, [3, 1]),
        "SoftInterpolation.weights": BASIS.weights,
        "SoftInterpolation.features": BASIS.features,
        "SoftKI.predict_f": MODEL.predict_f,
        "SoftKI.predict_f full": lambda v: FILLED.predict_f(v, True, True),
        "SoftKI.predict_f_samples": seeded(lambda v: MODEL.predict_f_samples(v, 2, full_cov=False)),
        "SoftKI.predict_y": FILLED.predict_y,
        "SoftKI posterior.predict_f": CACHED.predict_f,
        "SoftKI draws": CACHED.sample_functions(2, seed=0),
    }
    for name, call in calls.items():
        yield name, Door(call, X, "alone", names)
    weights = lambda v: basis(v).weights(X)  # noqa: E731
    yield "SoftInterpolation Z", Door(weights, Z, "alone", POINTS)
    yield "SoftKI Z", Door(lambda v: softki(v).elbo(two), Z, "alone", (*POINTS, "Kzz"))
    yield "kernels.SoftKI Z", Door(lambda v: own.SoftKI(kernel(), v)(X), Z, "alone", POINTS)
    columns = np.array([0.4, 0.6])
    names = ("temperature",)
    of = lambda v: basis(temperature=v).weights(X)  # noqa: E731
    yield "SoftInterpolation temperature", Door(of, columns, "scale", names)
    tied = lambda v: softki(temperature=v, tied=True).elbo(two)  # noqa: E731
    yield "SoftKI temperature", Door(tied, columns, "scale", names)


def _slow():
    yield "traced: SoftKI.elbo | Y", traced(lambda v: MODEL.elbo((X, v)), "Y", unseen=True)
    yield "traced: SoftKI.predict_f", traced(FILLED.predict_f)
    density = lambda v: MODEL.predict_log_density((X, v))  # noqa: E731
    yield "traced: SoftKI.predict_log_density | Y", traced(density, "Y")
    held = captured(MODEL.elbo)
    yield "captured: SoftKI.elbo | X", Door(lambda v: held((v, Y)), X, "x", ("X",), slow=True)
    by_fit = lambda v: trained(data=(X, v), batch_size=3)  # noqa: E731
    yield "fit SoftKI | Y", Door(by_fit, Y, "y", ("Y", "data"), slow=True)
    fitted_to = lambda d: predicted(d if isinstance(d, tuple) else (d,))  # noqa: E731
    yield from from_sources({"SoftKI.fit_posterior": fitted_to})


DOORS: dict[str, Door] = {**dict(_pairs()), **dict(_inputs()), **dict(_slow())}


# ------------------------------------------------------------------ arguments that are not arrays
def heat(v):
    """A temperature, of any type that NumPy takes for a number."""
    number = np.asarray(v) if not isinstance(v, str | bytes | dict | set) else np.array("")
    return number.dtype.kind in "fiub" and number.ndim == 0 and 0.0 < number.item() < np.inf


ARGUMENTS = {
    **takes("SoftInterpolation", partial(SoftInterpolation, Z=Z), never="kernel"),
    **takes("SoftInterpolation", lambda Z: basis(Z), never="Z"),
    **takes("SoftInterpolation", basis, temperature=heat, flag="tied"),
    **takes("SoftInterpolation", partial(BASIS, X), indices=chosen),
    **takes("kernels.SoftKI", partial(own.SoftKI, kernel=kernel(), Z=Z), never="kernel Z"),
    **takes("kernels.SoftKI", partial(own.SoftKI, kernel(), Z), temperature=heat),
    "kernels.WithMissingVariance": Argument(own.WithMissingVariance, "basis", never),
    **takes("SoftKI", partial(SoftKI, kernel=kernel(), Z=Z), never="kernel Z"),
    **takes("SoftKI", softki, never="objective", none="mean_function", num_data="num_data"),
    **takes("SoftKI", softki, noise="noise_variance", flag_or_none="tied"),
    **takes("SoftKI", softki, latents="num_latent_gps", temperature=heat, held_out=below_one),
    **takes("SoftKI.elbo", MODEL.elbo, never="data"),
    **takes("SoftKI.held_out_density", FILLED.held_out_density, never="data"),
    **takes("SoftKI.training_loss_closure", MODEL.training_loss_closure, never="data"),
    **takes(
        "SoftKI.training_loss_closure", partial(MODEL.training_loss_closure, two), flag="compile"
    ),
    **takes("SoftKI.fit_posterior", softki().fit_posterior, never="data"),
    **takes(
        "SoftKI.fit_posterior",
        lambda **o: softki().fit_posterior(two, **o),
        flag_or_none="refit_noise",
    ),
    **takes("SoftKI.posterior", MODEL.posterior, none="precompute_cache"),
    **takes("SoftKI.predict_f", partial(FILLED.predict_f, X), flag="full_cov"),
    **takes("SoftKI.predict_y", partial(FILLED.predict_y, X), no="full_cov"),
    **takes(
        "SoftKI.predict_f_samples",
        partial(MODEL.predict_f_samples, X, full_cov=False),
        count_or_none="num_samples",
    ),
    **takes("fit SoftKI", trained, zero="natural_gradients"),
}


# ------------------------------------------------------------------ what does not go together
TOGETHER = {
    "tied to lengthscales that there are not": (
        lambda: basis(k=kernels.Linear(), tied=True),
        "tied",
    ),
    "tied to the lengthscales of a sum": (
        lambda: softki(k=kernel() + kernels.Linear(), tied=True),
        "tied",
    ),
    "a temperature for columns that the kernel does not read": (
        lambda: basis(k=kernels.Matern32(active_dims=[1]), temperature=[0.3, 0.4]),
        "temperature",
    ),
    "one temperature in an array": (lambda: softki(temperature=[0.3]), "temperature"),
    "weights of the nearest points": (lambda: softki(num_nearest=2), "argument 'num_nearest'"),
    "the law of the probes": (lambda: softki(probes="gaussian"), "argument 'probes'"),
    "a prior deficit": (lambda: softki(prior_deficit=True), "argument 'prior_deficit'"),
    "points of more columns than the lengthscales": (
        lambda: softki(np.hstack([Z, Z])),
        "kernel.lengthscales",
    ),
    "points without columns that the kernel reads": (
        lambda: basis(k=kernels.Matern32(active_dims=[0, 2])),
        "kernel",
    ),
    "a kernel of two outputs": (lambda: softki(k=kernels.SharedIndependent(kernel(), 2)), "kernel"),
    "a float32 kernel": (lambda: softki(k=float32_kernel()), "kernel"),
    "a data set of X alone": (
        lambda: softki().fit_posterior(tf.data.Dataset.from_tensors(X)),
        "data",
    ),
    "a data set without end": (
        lambda: softki().fit_posterior(tf.data.Dataset.from_tensors(two).repeat()),
        "data",
    ),
    "outputs of another number": (
        lambda: softki(num_latent_gps=2).fit_posterior((X, Y)),
        "num_latent_gps",
    ),
    "a mean of two outputs": (
        lambda: softki(mean_function=functions.Constant(np.zeros(2))),
        "mean_function",
    ),
    "natural gradients": (lambda: trained(natural_gradients=0.1), "natural_gradients"),
    "batches of data whose number is not known": (
        lambda: trained(softki(), batch_size=3),
        "num_data",
    ),
    "held-out rows before there is a posterior": (
        lambda: trained(callbacks=[EarlyStopping(validation=two, every=1)]),
        "fit_posterior",
    ),
    "a prediction without a posterior": (lambda: softki().predict_f(X), "fit_posterior"),
    "a prediction of other parameters": (lambda: stale().predict_y(X), "fit_posterior"),
    "a bound over a basis of more columns": (
        lambda: BasisSVGP(basis(), likelihoods.Gaussian()).elbo((np.hstack([X, X]), Y)),
        "X",
    ),
}


def stale():
    model = fitted()
    model.basis.temperature.assign(0.5)
    return model


# ------------------------------------------------------------------ parts that were exchanged
KERNEL, MEAN = ("kernel",), ("mean_function",)
NOISE, STALE = ("likelihood", "likelihood.variance"), ("fit_posterior",)
SPOILS = {
    "kernel a plain one": swap("kernel", kernel, KERNEL),
    "kernel of another basis": swap("kernel", lambda: own.Basis(basis()), KERNEL),
    "kernel of the basis another": Spoil(
        lambda m: setattr(m.basis, "kernel", kernels.Matern52(lengthscales=np.ones(3))),
        (*KERNEL, *STALE, "kernel.lengthscales"),
    ),
    "basis another": swap("basis", basis, KERNEL),
    "likelihood Student": swap("likelihood", likelihoods.StudentT, NOISE),
    "likelihood Bernoulli": swap("likelihood", likelihoods.Bernoulli, NOISE),
    "noise that varies": swap(
        "likelihood", lambda: likelihoods.Gaussian(functions.Constant(0.3)), NOISE
    ),
    "noise nan": drift("likelihood.variance", np.nan, (*NOISE, *STALE)),
    "mean function nan": Spoil(nan_mean, (*MEAN, *STALE, "mean_function.c")),
    "lengthscales nan": drift("basis.kernel.lengthscales", np.nan, (*KERNEL, *STALE)),
    "variance nan": drift("basis.kernel.variance", np.nan, (*KERNEL, *STALE)),
    "temperature nan": drift("basis.temperature", np.nan, (*KERNEL, *STALE, "basis.temperature")),
    "Z nan": drift("basis.Z", np.nan, (*KERNEL, *STALE, "basis.Z")),
    "num_data negative": swap("num_data", -3, ("num_data",)),
    "objective text": swap("objective", "x", ("objective",)),
}
SPOILED_DOORS = {
    "elbo": lambda m: m.elbo(two),
    "fit_posterior": lambda m: m.fit_posterior((X, Y)),
    "predict_y": lambda m: m.predict_y(X),
}


BUILDERS = {"SoftKI": lambda: fitted(num_data=N)}


def spared(spoil, name, door):
    """Predictions need no num_data, and neither does the posterior."""
    return "num_data" in spoil.names and door != "elbo"


# ------------------------------------------------------------------ what the tests take
EAGER = tuple(name for name, door in DOORS.items() if not door.slow)
CORE = (
    *("SoftKI.elbo | X", "SoftKI.fit_posterior | Y", "SoftKI.predict_f"),
    *("SoftInterpolation Z", "SoftInterpolation temperature"),
)
COMPILED = (
    *("traced: SoftKI.predict_f", "traced: SoftKI.elbo | Y"),
    *("SoftKI.fit_posterior tf.data | X", "SoftKI.fit_posterior on disk | Y"),
)
TAKING = COMPILED
