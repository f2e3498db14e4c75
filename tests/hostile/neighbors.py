"""The doors of models with neighbors, their points and posteriors."""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels, likelihoods

from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.models import SWSGP, NearestNeighborGP, ResidualNeighborGP
from gpflow_sparse.posteriors import SitePosterior
from gpflow_sparse.training import fit
from tests.hostile.judging import (
    Argument,
    Door,
    FlatMean,
    N,
    Spoil,
    X,
    Y,
    captured,
    count,
    flag,
    float32_kernel,
    free,
    given,
    nan_mean,
    never,
    noise,
    none,
    num_data,
    on_disk,
    pairs,
    put,
    two,
    unmasked,
)

Z = X[:5] + 0.1
M, H = len(Z), 3


def kernel():
    return kernels.Matern52(variance=1.3, lengthscales=[0.8, 1.2])


def points(Z=Z, number=H, **options):
    return NeighborInducingPoints(Z, number, **options)


def swsgp(Z=Z, number=H, k=None, likelihood=None, inducing=None, **options):
    return SWSGP(
        kernel() if k is None else k,
        likelihoods.Gaussian(0.2) if likelihood is None else likelihood,
        points(Z, number) if inducing is None else inducing,
        **options,
    )


def counted(inputs=X, **options):
    model = swsgp(**options)
    model.update_neighbors(inputs)
    return model


def trained(data=two, **options):
    model = swsgp(num_data=N)
    fit(model, data, num_steps=1, progress=False, **options)
    return model.elbo(two)


def after(method, *arguments):
    """What a model says of its data after one of its methods."""
    model = counted()
    getattr(model, method)(*arguments)
    return model.elbo(two)


def sites(targets=Y[:M], precisions=None, k=None, inducing=None):
    precisions = np.ones((M, 1)) if precisions is None else precisions
    k, inducing = kernel() if k is None else k, points() if inducing is None else inducing
    return SitePosterior(k, inducing, targets, precisions).fused_predict_f(X)


def nearest(data=two, k=None, **options):
    options = {"num_neighbors": H, "noise_variance": 0.2, **options}
    return NearestNeighborGP(data, kernel() if k is None else k, **options)


def residual(**options):
    """A model on the residual of two base points, its users counted."""
    sets = OrthogonalInducingVariables(X[:2], points())
    options = {"num_data": N, **options}
    model = ResidualNeighborGP(kernel(), likelihoods.Gaussian(0.2), sets, **options)
    model.update_neighbors(X)
    return model


def after_residual(method, *arguments):
    model = residual()
    getattr(model, method)(*arguments)
    return model.elbo(two)


NEAREST, RESIDUAL = nearest(), residual()
MODEL, UNION = counted(), swsgp(union=4)
CACHED, SITES = MODEL.posterior(), MODEL.fit_sites((X, Y))


# ------------------------------------------------------------------ arrays
def _pairs():
    tables = {
        "elbo": MODEL.elbo,
        "elbo union": UNION.elbo,
        "training_loss": MODEL.training_loss,
        "predict_log_density": MODEL.predict_log_density,
        "natural_step": lambda d: counted().natural_step(d, 0.5),
        "update_posterior": lambda d: after("update_posterior", *d),
        "start_from_sites": lambda d: after("start_from_sites", *d),
        "fit_sites": lambda d: swsgp().fit_sites(d).fused_predict_f(X),
    }
    yield from pairs(tables, "SWSGP.")
    tables = {
        "elbo": RESIDUAL.elbo,
        "update_base": lambda d: after_residual("update_base", d),
        "start_from_sites": lambda d: after_residual("start_from_sites", d),
    }
    yield from pairs(tables, "ResidualNeighborGP.")
    tables = {
        "training_loss": lambda d: nearest(d).training_loss(),
        "predict_f": lambda d: nearest(d).predict_f(X),
        "predict_log_density": NEAREST.predict_log_density,
    }
    for name, door in pairs(tables, "NearestNeighborGP."):
        holds = door.role == "y" and "density" not in name
        # a regression model has as many outputs as Y has columns
        yield name, door._replace(role="wide") if holds else door


def _inputs():
    calls = {
        "predict_f": MODEL.predict_f,
        "predict_f full": lambda v: MODEL.predict_f(v, True, True),
        "posterior.predict_f": CACHED.predict_f,
        "sites.predict_f": SITES.predict_f,
        "nearest.predict_f": NEAREST.predict_f,
        "residual.predict_f": RESIDUAL.predict_f,
    }
    for name, call in calls.items():
        yield f"SWSGP.{name}", Door(call, X, "alone", ("X", "Xnew"))
    yield "SWSGP.prior_kl", Door(MODEL.prior_kl, X, "alone", ("X", "Xnew"))
    users = lambda v: counted([] if isinstance(v, tf.data.Dataset) else v).usage.numpy()  # noqa: E731
    yield "SWSGP.update_neighbors", Door(users, X, "alone", ("X",))
    yield (
        "NeighborInducingPoints Z",
        Door(lambda v: swsgp(v, 1, kl_weighting="paper").elbo(two), Z, "alone", ("Z", "kernel")),
    )
    q_mu = lambda v: counted(q_mu=given(v)).elbo(two)  # noqa: E731
    yield "SWSGP q_mu", Door(q_mu, Y[:M], "exact", ("q_mu",))
    scales = np.linspace(0.5, 1.5, M)[:, None]
    yield (
        "SWSGP q_sqrt",
        Door(lambda v: counted(q_sqrt=given(v)).elbo(two), scales, "exact", ("q_sqrt",)),
    )
    factor = np.tril(np.full((1, M, M), 0.1)) + 0.5 * np.eye(M)
    dense = lambda v: counted(covariance="dense", q_sqrt=given(v)).elbo(two)  # noqa: E731
    yield "SWSGP q_sqrt dense", Door(dense, factor, "exact", ("q_sqrt", "S_I"))
    yield "SitePosterior targets", Door(sites, Y[:M], "exact", ("targets", "precisions"))
    tau = lambda v: sites(precisions=given(v))  # noqa: E731
    yield "SitePosterior precisions", Door(tau, scales, "exact", ("precisions", "targets"))


def _sources():
    batch = lambda pair: tf.data.Dataset.from_tensors(tuple(map(unmasked, pair)))  # noqa: E731
    of_files = lambda pair: on_disk(map(unmasked, pair))  # noqa: E731
    for name, pair in {"X": lambda v: (v, Y), "Y": lambda v: (X, v)}.items():
        good, role, names = (X if name == "X" else Y), name.lower(), (name, "data")
        options = {"slow": True, "graph": True}
        for source, bring in {"tf.data": batch, "on disk": of_files}.items():
            brought = lambda v, b=bring, p=pair: b(p(v))  # noqa: E731
            for method in ("update_posterior", "start_from_sites"):
                call = lambda v, f=brought, m=method: after(  # noqa: E731
                    m, *(f(v) if isinstance(f(v), tuple) else (f(v),))
                )
                door = Door(call, good, role, names, bring=brought, **options)
                yield f"SWSGP.{method} {source} | {name}", door
    brought = lambda v: tf.data.Dataset.from_tensors(unmasked(v))  # noqa: E731
    users = lambda v: counted(brought(v)).usage.numpy()  # noqa: E731
    yield "update_neighbors tf.data", Door(users, X, "alone", ("X",), bring=brought, **options)


DOORS: dict[str, Door] = {**dict(_pairs()), **dict(_inputs()), **dict(_sources())}


# ------------------------------------------------------------------ arguments that are no arrays
def few(v):
    return count(v) and v <= M


def rows_of_points(v):
    return isinstance(v, list | tuple | np.ndarray) and np.shape(v) in ((0,), (1,))


ARGUMENTS = {
    "SWSGP kernel": Argument(lambda v: SWSGP(v, likelihoods.Gaussian(), points()), "kernel", never),
    "SWSGP likelihood": Argument(lambda v: SWSGP(kernel(), v, points()), "likelihood", never),
    "SWSGP inducing_variable": Argument(
        lambda v: SWSGP(kernel(), likelihoods.Gaussian(), v), "inducing_variable", never
    ),
    "SWSGP covariance": Argument(lambda v: swsgp(covariance=v), "covariance", never),
    "SWSGP start": Argument(lambda v: swsgp(start=v), "start", never),
    "SWSGP kl_weighting": Argument(lambda v: swsgp(kl_weighting=v), "kl_weighting", never),
    "SWSGP union": Argument(lambda v: swsgp(union=v), "union", lambda v: v is None or few(v)),
    "SWSGP mean_function": Argument(lambda v: swsgp(mean_function=v), "mean_function", none),
    "SWSGP num_data": Argument(lambda v: swsgp(num_data=v), "num_data", num_data),
    "SWSGP whiten": Argument(lambda v: swsgp(whiten=v), "whiten", lambda v: flag(v) and not v),
    "SWSGP.natural_step gamma": Argument(
        lambda v: counted().natural_step(two, v),
        "gamma",
        lambda v: isinstance(v, int | float | np.number) and 0.0 < v <= 1.0,
    ),
    "SWSGP.natural_step data": Argument(MODEL.natural_step, "data", never),
    "SWSGP.update_neighbors X": Argument(counted, "X", never),
    "SWSGP.fit_sites X": Argument(lambda v: MODEL.fit_sites(v, Y), "X", never, ("data",)),
    "SWSGP.fit_sites Y": Argument(lambda v: MODEL.fit_sites(X, v), "Y", never, ("data",)),
    "SWSGP.update_posterior Y": Argument(
        lambda v: counted().update_posterior(X, v), "Y", never, ("data",)
    ),
    "SWSGP.prior_kl X": Argument(MODEL.prior_kl, "X", never),
    "SWSGP.training_loss_closure data": Argument(
        swsgp(kl_weighting="chain").training_loss_closure, "data", never
    ),
    "ResidualNeighborGP inducing_variable": Argument(
        lambda v: ResidualNeighborGP(kernel(), likelihoods.Gaussian(), v),
        "inducing_variable",
        never,
    ),
    "ResidualNeighborGP base_q_mu": Argument(lambda v: residual(base_q_mu=v), "base_q_mu", none),
    "ResidualNeighborGP base_q_sqrt": Argument(
        lambda v: residual(base_q_sqrt=v), "base_q_sqrt", none
    ),
    "NeighborInducingPoints Z": Argument(points, "Z", never),
    "NeighborInducingPoints num_neighbors": Argument(
        lambda v: points(number=v), "num_neighbors", few
    ),
    "NeighborInducingPoints global_indices": Argument(
        lambda v: points(global_indices=v), "global_indices", rows_of_points
    ),
    "NeighborInducingPoints num_remembered": Argument(
        lambda v: points(num_remembered=v),
        "num_remembered",
        lambda v: v is None or count(v) or v == 10**30 or (v == 0 and type(v) is int),
    ),
    "SitePosterior targets": Argument(sites, "targets", never),
    "NearestNeighborGP data": Argument(nearest, "data", never),
    "NearestNeighborGP kernel": Argument(lambda v: NearestNeighborGP(two, v), "kernel", never),
    "NearestNeighborGP num_neighbors": Argument(
        lambda v: nearest(num_neighbors=v), "num_neighbors", lambda v: count(v) or v == 10**30
    ),
    "NearestNeighborGP num_objective_rows": Argument(
        lambda v: nearest(num_objective_rows=v),
        "num_objective_rows",
        lambda v: count(v) or v == 10**30,
    ),
    "NearestNeighborGP noise_variance": Argument(
        lambda v: nearest(noise_variance=v), "noise_variance", noise
    ),
    "NearestNeighborGP mean_function": Argument(
        lambda v: nearest(mean_function=v), "mean_function", none
    ),
    "NearestNeighborGP.training_loss_closure compile": Argument(
        lambda v: NEAREST.training_loss_closure(compile=v)(), "compile", flag
    ),
    "NearestNeighborGP.posterior precompute_cache": Argument(
        NEAREST.posterior, "precompute_cache", none
    ),
}


# ------------------------------------------------------------------ what does not go together
def double(points):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return points()


endless = tf.data.Dataset.from_tensors(two).repeat()
nothing = tf.data.Dataset.from_tensors(two).take(0)
rows_alone = tf.data.Dataset.from_tensor_slices(two)
TOGETHER = {
    "more neighbors than points": (lambda: swsgp(number=M + 1), "num_neighbors"),
    "no neighbors but global ones": (lambda: points(global_indices=range(H)), "global_indices"),
    "one global point twice": (lambda: points(global_indices=[1, 1]), "global_indices"),
    "a global point that is none": (lambda: points(global_indices=[M]), "global_indices"),
    "a union of more than there are": (lambda: swsgp(union=M + 1), "union"),
    "a union of global points": (
        lambda: swsgp(union=2, inducing=points(global_indices=[0, 1])),
        "union",
    ),
    "a union and a weighting": (lambda: swsgp(union=3, kl_weighting="paper"), "kl_weighting"),
    "whitened": (lambda: swsgp(whiten=True), "whiten"),
    "scales of zero": (lambda: swsgp(q_sqrt=np.zeros((M, 1))), "q_sqrt"),
    "a covariance of low rank": (lambda: swsgp(covariance="low_rank"), "covariance"),
    "a rank": (lambda: swsgp(rank=2), "unexpected keyword argument 'rank'"),
    "a float32 kernel": (lambda: swsgp(k=float32_kernel()), "kernel"),
    "float32 points": (lambda: swsgp(inducing=double(points)), "inducing_variable"),
    "lengthscales of another number": (
        lambda: swsgp(k=kernels.Matern52(lengthscales=np.ones(3))),
        "kernel",
    ),
    "users that were not counted": (lambda: swsgp(num_data=N + 1).elbo(two), "update_neighbors"),
    "users that were not counted, compiled": (
        lambda: captured(swsgp(num_data=N + 1).elbo)(two),
        "update_neighbors",
    ),
    "a KL without rows": (MODEL.prior_kl, "X"),
    "a closure of drawn terms": (
        lambda: swsgp(kl_weighting="chain").training_loss_closure((X[:3], Y[:3])),
        "kl_weighting",
    ),
    "users of rows without end": (lambda: counted(endless), "X"),
    "users of no rows": (lambda: counted(nothing), "X"),
    "users of rows in no batches": (lambda: counted(rows_alone), "X"),
    "training on rows without end": (lambda: trained(endless), "X"),
    "sites of no rows": (lambda: MODEL.fit_sites(nothing), "data"),
    "sites of rows without end": (lambda: MODEL.start_from_sites(endless), "data"),
    "sites of rows in no batches": (lambda: MODEL.fit_sites(rows_alone), "data"),
    "a closed form of no rows": (lambda: MODEL.update_posterior(nothing), "data"),
    "a data set and Y": (lambda: MODEL.fit_sites(endless, Y), "Y"),
    "a closed form of another likelihood": (
        lambda: counted(likelihood=likelihoods.StudentT()).update_posterior((X, Y)),
        "likelihood",
    ),
    "a natural step of a union": (lambda: UNION.natural_step(two), "union"),
    "sites of negative precision": (lambda: sites(precisions=-np.ones((M, 1))), "precisions"),
    "sites of two kernels": (lambda: sites(k=kernels.SharedIndependent(kernel(), 2)), "kernel"),
    "sites of other points": (
        lambda: sites(inducing=gpflow.inducing_variables.InducingPoints(Z)),
        "inducing_variable",
    ),
    "a lower bound of nearest rows": (NEAREST.elbo, "elbo"),
    "nearest rows that change": (lambda: nearest((tf.Variable(X), Y)), "data"),
    "nearest rows under two kernels": (
        lambda: nearest(k=kernels.SharedIndependent(kernel(), 2)),
        "kernel",
    ),
    "a float32 kernel of nearest rows": (lambda: nearest(k=float32_kernel()), "kernel"),
    "a stock bound": (
        lambda: gpflow.models.SVGP(
            kernel(), likelihoods.Gaussian(), points(), whiten=False, q_diag=True
        ).elbo(two),
        "NeighborInducingPoints",
    ),
}


# ------------------------------------------------------------------ parts that were exchanged
KERNEL, POINTS = ("kernel", "lengthscales", "variance"), ("inducing_variable", "Z")
Q = ("q_mu", "q_log_scale")


def other_points(rows, columns=2):
    return lambda: NeighborInducingPoints(np.ones((rows, columns)) * np.arange(rows)[:, None], H)


def variable(value):
    return lambda: tf.Variable(value)


def neighbors_of(m):
    """The points that rows see some of, also where they are the second of two sets."""
    return getattr(m.inducing_variable, "sets", [m.inducing_variable])[-1]


def put_at_points(name, value):
    return lambda m: setattr(neighbors_of(m), name, value)


SPOILS = {
    "Z longer": Spoil(put("inducing_variable", value=other_points(M + 2)), (*Q, *POINTS)),
    "Z shorter": Spoil(put("inducing_variable", value=other_points(M - 1)), (*Q, *POINTS)),
    "Z of other columns": Spoil(
        put("inducing_variable", value=other_points(M, 3)), (*KERNEL, *POINTS, "X", "Xnew")
    ),
    "Z nan": Spoil(free(lambda m: neighbors_of(m).Z, np.nan), POINTS),
    "other inducing variables": Spoil(
        put("inducing_variable", value=lambda: gpflow.inducing_variables.InducingPoints(Z)), POINTS
    ),
    "num_neighbors too many": Spoil(put_at_points("num_neighbors", M + 1), ("num_neighbors",)),
    "global_indices outside": Spoil(put_at_points("global_indices", (M,)), ("global_indices",)),
    "kernel None": Spoil(put("kernel", value=None), KERNEL),
    "kernel of two outputs": Spoil(
        put("kernel", value=lambda: kernels.SharedIndependent(kernel(), 2)), KERNEL
    ),
    "lengthscales nan": Spoil(free(lambda m: m.kernel.lengthscales, np.nan), KERNEL),
    "mean function of rank 1": Spoil(put("mean_function", value=FlatMean), ("mean_function",)),
    "mean function nan": Spoil(nan_mean, ("mean_function", "mean_function.c")),
    "q_mu short": Spoil(put("q_mu", value=variable(np.zeros((M - 1, 1)))), ("q_mu",)),
    "q_mu None": Spoil(put("q_mu", value=None), ("q_mu",)),
    "q_mu nan": Spoil(lambda m: m.q_mu.assign(np.full((M, 1), np.nan)), ("q_mu",)),
    "q_log_scale short": Spoil(
        put("q_log_scale", value=variable(np.zeros((M - 1, 1)))), ("q_log_scale",)
    ),
    "q_log_scale None": Spoil(put("q_log_scale", value=None), ("q_log_scale",)),
    "q_log_scale nan": Spoil(
        lambda m: m.q_log_scale.assign(np.full((M, 1), np.nan)), ("q_log_scale",)
    ),
    "usage short": Spoil(put("usage", value=variable(np.ones((M - 1, 1)))), ("usage",)),
    "kl_weighting text": Spoil(put("kl_weighting", value="x"), ("kl_weighting",)),
    "covariance text": Spoil(put("covariance", value="x"), ("covariance",)),
    "union too many": Spoil(put("union", value=M + 1), ("union",)),
    "jitter text": Spoil(put("jitter", value="x"), ("jitter",)),
    "jitter negative": Spoil(put("jitter", value=-1.0), ("jitter",)),
}
SPOILED_DOORS = {
    "elbo": lambda m: m.elbo(two),
    "predict_f": lambda m: m.predict_f(X),
    "predict_y": lambda m: m.predict_y(X),
    "natural_step": lambda m: m.natural_step(two, 0.5),
}
SPOILED_DOORS |= {
    "captured: predict_f": captured(lambda m: m.predict_f(X)),
    "fit": lambda m: fit(m, two, num_steps=1, progress=False).elbo,
}


BUILDERS = {"SWSGP": lambda: counted(num_data=N), "ResidualNeighborGP": residual}


def spared(spoil, name, door):
    """Nothing that is wrong here may be passed over."""
    return False


# ------------------------------------------------------------------ what the tests take
EAGER = tuple(name for name, door in DOORS.items() if not door.slow)
CORE = (
    "NearestNeighborGP.training_loss | X",
    "SWSGP.elbo | X",
    "SWSGP.fit_sites | Y",
    "SWSGP.predict_f",
    "SWSGP.update_neighbors",
)
COMPILED = (
    *("SWSGP.start_from_sites tf.data | X", "SWSGP.update_posterior on disk | Y"),
    "update_neighbors tf.data",
)
TAKING = COMPILED
SPOILED_IN_TESTS = ("elbo", "predict_f")
