"""The doors of models with neighbors, their points and posteriors."""

from functools import partial

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels, likelihoods

from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP, SWSGP, NearestNeighborGP
from gpflow_sparse.posteriors import SitePosterior
from gpflow_sparse.training import fit
from tests.hostile.judging import (
    Door,
    N,
    Spoil,
    X,
    Y,
    captured,
    count,
    drift,
    float32_kernel,
    from_sources,
    given,
    index,
    nan_mean,
    pairs,
    swap,
    takes,
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
    model.count_neighbors(inputs)
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


NEAREST = nearest()
MODEL, UNION = counted(), swsgp(union=4)
CACHED = MODEL.posterior()
SITES = SitePosterior(kernel(), points(), Y[:M], np.ones((M, 1)), precompute_cache="tensor")


# ------------------------------------------------------------------ arrays
def _pairs():
    tables = {
        "elbo": MODEL.elbo,
        "elbo union": UNION.elbo,
        "training_loss": MODEL.training_loss,
        "predict_log_density": MODEL.predict_log_density,
        "natural_step": lambda d: counted().natural_step(d, 0.5),
        "update_posterior": lambda d: after("update_posterior", d),
        "start_from_sites": lambda d: after("start_from_sites", d),
    }
    yield from pairs(tables, "SWSGP.")
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
    }
    for name, call in calls.items():
        yield f"SWSGP.{name}", Door(call, X, "alone", ("X", "Xnew"))
    yield "SWSGP.prior_kl", Door(MODEL.prior_kl, X, "alone", ("X", "Xnew"))
    users = lambda v: counted([] if isinstance(v, tf.data.Dataset) else v).usage.numpy()  # noqa: E731
    yield "SWSGP.count_neighbors", Door(users, X, "alone", ("X",))
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
    yield from from_sources(
        {
            f"SWSGP.{method}": lambda d, m=method: after(m, d)
            for method in ("update_posterior", "start_from_sites")
        }
    )
    brought = lambda v: tf.data.Dataset.from_tensors(unmasked(v))  # noqa: E731
    users = lambda v: counted(brought(v)).usage.numpy()  # noqa: E731
    options = {"slow": True, "graph": True, "bring": brought}
    yield "count_neighbors tf.data", Door(users, X, "alone", ("X",), **options)


DOORS: dict[str, Door] = {**dict(_pairs()), **dict(_inputs()), **dict(_sources())}


# ------------------------------------------------------------------ arguments that are not arrays
def few(v):
    return count(v) and v <= M


def rows_of_points(v):
    return isinstance(v, list | tuple | np.ndarray) and np.shape(v) in ((0,), (1,))


BUILD = partial(SWSGP, kernel=kernel(), likelihood=likelihoods.Gaussian())
ARGUMENTS = {
    **takes("SWSGP", partial(BUILD, inducing_variable=points()), never="kernel likelihood"),
    **takes("SWSGP", BUILD, never="inducing_variable"),
    **takes("SWSGP", swsgp, never="covariance start kl_weighting", none="mean_function"),
    **takes("SWSGP", swsgp, num_data="num_data", no="whiten"),
    **takes("SWSGP", swsgp, union=lambda v: v is None or few(v)),
    **takes(
        "SWSGP.natural_step",
        lambda **o: counted().natural_step(two, **o),
        gamma=lambda v: isinstance(v, int | float | np.number) and 0.0 < v <= 1.0,
    ),
    **takes("SWSGP.natural_step", MODEL.natural_step, never="data"),
    **takes("SWSGP.count_neighbors", lambda X: counted(X), never="X"),
    **takes("SWSGP.start_from_sites", MODEL.start_from_sites, never="data"),
    **takes("SWSGP.update_posterior", counted().update_posterior, never="data"),
    **takes("SWSGP.prior_kl", MODEL.prior_kl, never="X"),
    **takes("SWSGP chain", swsgp(kl_weighting="chain").training_loss_closure, never="data"),
    **takes("NeighborInducingPoints", points, never="Z", global_indices=rows_of_points),
    **takes("NeighborInducingPoints", partial(NeighborInducingPoints, Z), num_neighbors=few),
    **takes(
        "NeighborInducingPoints",
        points,
        num_remembered=lambda v: v is None or index(v),
    ),
    **takes("SitePosterior", sites, never="targets"),
    **takes("NearestNeighborGP", partial(NearestNeighborGP, two), never="kernel"),
    **takes("NearestNeighborGP", nearest, never="data", none="mean_function"),
    **takes("NearestNeighborGP", nearest, many="num_neighbors num_objective_rows"),
    **takes("NearestNeighborGP", nearest, noise="noise_variance"),
    **takes(
        "NearestNeighborGP.training_loss_closure",
        lambda **o: NEAREST.training_loss_closure(**o)(),
        flag="compile",
    ),
    **takes(
        "NearestNeighborGP.fit_local_variance",
        lambda **o: nearest().fit_local_variance(**o),
        many="num_rows",
    ),
    **takes("NearestNeighborGP.posterior", NEAREST.posterior, none="precompute_cache"),
}


# ------------------------------------------------------------------ what does not go together
def double(points):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return points()


def cut_off():
    model = nearest()
    model.data = tuple(part[:3] for part in model.data)
    return model


PARTS, PART = (kernel(), likelihoods.Gaussian()), "inducing_variable"
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
    "users that were not counted": (lambda: swsgp(num_data=N + 1).elbo(two), "count_neighbors"),
    "users that were not counted, compiled": (
        lambda: captured(swsgp(num_data=N + 1).elbo)(two),
        "count_neighbors",
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
    "sites of no rows": (lambda: MODEL.start_from_sites(nothing), "data"),
    "sites of rows without end": (lambda: MODEL.start_from_sites(endless), "data"),
    "sites of rows in no batches": (lambda: MODEL.start_from_sites(rows_alone), "data"),
    "a closed form of no rows": (lambda: MODEL.update_posterior(nothing), "data"),
    "a closed form of another likelihood": (
        lambda: counted(likelihood=likelihoods.StudentT()).update_posterior((X, Y)),
        "likelihood",
    ),
    "a natural step of a union": (lambda: UNION.natural_step(two), "union"),
    "a natural step of a chain": (
        lambda: swsgp(kl_weighting="chain").natural_step(two),
        "kl_weighting",
    ),
    "a closed form of a dense covariance": (
        lambda: counted(covariance="dense").update_posterior((X, Y)),
        "covariance",
    ),
    "neighbors in SOLVEGP": (
        lambda: SOLVEGP(*PARTS, OrthogonalInducingVariables(X[:2], points())),
        PART,
    ),
    "one row to train on": (lambda: nearest((X[:1], Y[:1])).training_loss(), "data"),
    "nearest rows that were cut off": (lambda: cut_off().predict_f(X), "data"),
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
}


# ------------------------------------------------------------------ parts that were exchanged
KERNEL, POINTS = ("kernel", "lengthscales", "variance"), ("inducing_variable", "Z")
Q = ("q_mu", "q_log_scale")


def other_points(rows, columns=2):
    return lambda: NeighborInducingPoints(np.ones((rows, columns)) * np.arange(rows)[:, None], H)


def variable(value):
    return lambda: tf.Variable(value)


def put_at_points(name, value):
    return lambda m: setattr(m.inducing_variable, name, value)


SPOILS = {
    "Z longer": swap("inducing_variable", other_points(M + 2), (*Q, *POINTS)),
    "Z shorter": swap("inducing_variable", other_points(M - 1), (*Q, *POINTS)),
    "Z of other columns": swap(
        "inducing_variable", other_points(M, 3), (*KERNEL, *POINTS, "X", "Xnew")
    ),
    "Z nan": Spoil(lambda m: drift("Z", np.nan, POINTS).do(m.inducing_variable), POINTS),
    "other inducing variables": swap(
        "inducing_variable", lambda: gpflow.inducing_variables.InducingPoints(Z), POINTS
    ),
    "num_neighbors too many": Spoil(put_at_points("num_neighbors", M + 1), ("num_neighbors",)),
    "global_indices outside": Spoil(put_at_points("global_indices", (M,)), ("global_indices",)),
    "lengthscales nan": drift("kernel.lengthscales", np.nan, KERNEL),
    "mean function nan": Spoil(nan_mean, ("mean_function", "mean_function.c")),
    "q_mu short": swap("q_mu", variable(np.zeros((M - 1, 1))), ("q_mu",)),
    "q_mu None": swap("q_mu", None, ("q_mu",)),
    "q_mu nan": Spoil(lambda m: m.q_mu.assign(np.full((M, 1), np.nan)), ("q_mu",)),
    "q_log_scale short": swap("q_log_scale", variable(np.zeros((M - 1, 1))), ("q_log_scale",)),
    "q_log_scale None": swap("q_log_scale", None, ("q_log_scale",)),
    "q_log_scale nan": Spoil(
        lambda m: m.q_log_scale.assign(np.full((M, 1), np.nan)), ("q_log_scale",)
    ),
    "usage short": swap("usage", variable(np.ones((M - 1, 1))), ("usage",)),
    "kl_weighting text": swap("kl_weighting", "x", ("kl_weighting",)),
    "covariance text": swap("covariance", "x", ("covariance",)),
    "union too many": swap("union", M + 1, ("union",)),
    "jitter text": swap("jitter", "x", ("jitter",)),
    "jitter negative": swap("jitter", -1.0, ("jitter",)),
}
SPOILED_DOORS = {"elbo": lambda m: m.elbo(two), "predict_f": lambda m: m.predict_f(X)}


BUILDERS = {"SWSGP": lambda: counted(num_data=N)}


def spared(spoil, name, door):
    """Nothing that is wrong here may be passed over."""
    return False


# ------------------------------------------------------------------ what the tests take
EAGER = tuple(name for name, door in DOORS.items() if not door.slow)
CORE = (
    "NearestNeighborGP.training_loss | X",
    "SWSGP.elbo | X",
    "SWSGP.start_from_sites | Y",
    "SWSGP.predict_f",
    "SWSGP.count_neighbors",
)
COMPILED = (
    *("SWSGP.start_from_sites tf.data | X", "SWSGP.update_posterior on disk | Y"),
    "count_neighbors tf.data",
)
TAKING = COMPILED
