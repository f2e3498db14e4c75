"""The doors of models that see some of their functions in a step."""

from functools import partial

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels, likelihoods

from gpflow_sparse import bases
from gpflow_sparse.likelihoods import BernoulliLogit
from gpflow_sparse.models import QSGP, RVM
from gpflow_sparse.training import SparseAdagrad, SparseAdam, SparseSGD, adam, fit
from tests.hostile.judging import (
    Argument,
    Door,
    N,
    Spoil,
    X,
    Y,
    amount,
    below_one,
    count,
    drift,
    float32_kernel,
    given,
    nan_mean,
    never,
    pairs,
    seeded,
    swap,
    takes,
    traced,
    two,
)

M, K = 6, 2


def kernel():
    return kernels.Matern32(variance=1.3, lengthscales=[0.8, 1.2])


def fourier():
    return bases.RandomFourier(kernel(), M, seed=2)


def hybrid():
    return bases.Hybrid(kernel(), X[:3], M, seed=2)


def dictionary():
    return bases.KernelDictionary(kernel(), X)


def qsgp(basis=None, likelihood=None, **options):
    options = {"num_data": N, "basis_batch_size": K, "num_control_rows": 4, **options}
    return QSGP(
        fourier() if basis is None else basis,
        likelihoods.Gaussian(0.2) if likelihood is None else likelihood,
        **options,
    )


def rvm(centers=X, k=None, **options):
    options = {"num_data": N, "basis_batch_size": K, "num_control_rows": 4, **options}
    return RVM(centers, kernel() if k is None else k, **options)


def stepped(model, data=two, optimizer=None, prepare=True, **options):
    """The loss of one step."""
    if prepare:
        model.prepare_step(0, lambda: two)
    tf.random.set_seed(1)
    optimizer = SparseSGD(0.0) if optimizer is None else optimizer
    return model.sparse_step(data, optimizer, **options)[0]


def updated(rows):
    model = qsgp(hybrid())
    model.update_covariance(rows)
    return model.predict_f(X)


def prepared(data):
    model = qsgp()
    model.prepare_step(0, lambda: data)
    return model.anchors.factor.numpy()


def trained(model=None, data=two, **options):
    options = {"num_steps": 1, "progress": False, **options}
    return fit(qsgp() if model is None else model, data, **options).elbo


WHOLE = qsgp(basis_batch_size=M)
CHEVRON = qsgp(covariance="chevron", num_dense_columns=2)
HEAD = qsgp(hybrid())
AUGMENTED = qsgp(dictionary(), augmentation=X)
RELEVANCE = rvm()
CACHED, PLAIN = AUGMENTED.posterior(), CHEVRON.posterior()


# ------------------------------------------------------------------ arrays
def _pairs():
    tables = {
        "QSGP.elbo": CHEVRON.elbo,
        "QSGP.sparse_step": lambda d: stepped(qsgp(), d),
        "QSGP.prepare_step": prepared,
    }
    # rows that coincide, or nearly so, have a singular covariance as control rows
    return pairs({name: seeded(call) for name, call in tables.items()}, names=("Kpp",))


def _inputs():
    names = ("X", "Xnew")
    calls = {
        "QSGP.predict_f": CHEVRON.predict_f,
        "QSGP.update_covariance": updated,
    }
    for name, call in calls.items():
        yield name, Door(call, X, "alone", names)
    names = ("support", "kernel.lengthscales")
    held = lambda v: qsgp(support="none" if v is None else v).predict_f(X)  # noqa: E731
    yield "QSGP support", Door(held, X, "alone", names)
    names = ("centers", "kernel.lengthscales")
    yield "RVM centers", Door(lambda v: rvm(v).predict_f(X), X, "alone", names)


def _traced():
    yield "traced: augmented.predict_f", traced(CACHED.predict_f)
    WHOLE.prepare_step(0, lambda: two)
    optimizer = SparseSGD(0.0)
    stepped(WHOLE, optimizer=optimizer)  # it builds the optimizer
    step = lambda v: stepped(WHOLE, (X, v), optimizer, prepare=False, move=False)  # noqa: E731
    yield "traced: QSGP.sparse_step | Y", traced(step, "Y", unseen=True)


DOORS: dict[str, Door] = {**dict(_pairs()), **dict(_inputs()), **dict(_traced())}


# ------------------------------------------------------------------ arguments that are not arrays
def few(v):
    return count(v) and v <= 3


def rate(v):
    number = isinstance(v, int | float | np.number) and not isinstance(v, bool)
    # NumPy's sine is a function of the number of steps like any other
    return callable(v) or (number and 0.0 <= v < np.inf)


def fraction(v):
    return rate(v) and not callable(v) and v <= 1.0


def threshold(v):
    return isinstance(v, int | float | np.number) and not isinstance(v, bool) and v > 0


BUILD = partial(QSGP, num_data=N, basis_batch_size=K)
ARGUMENTS = {
    **takes("QSGP", partial(BUILD, likelihood=likelihoods.Gaussian()), never="basis"),
    **takes("QSGP", partial(BUILD, fourier()), never="likelihood"),
    **takes("QSGP", qsgp, count="num_data num_control_rows", never="variance_reduction"),
    **takes("QSGP", qsgp, none="covariance mean_function support"),
    **takes("QSGP", qsgp, basis_batch_size=lambda v: count(v) and v <= M),
    **takes("QSGP", qsgp, num_latent_gps=lambda v: v is None or few(v)),
    **takes("QSGP chevron", partial(qsgp, covariance="chevron"), num_dense_columns=few),
    **takes(
        "QSGP diag", qsgp, num_dense_columns=lambda v: v is None or (type(v) is int and v == 0)
    ),
    **takes("QSGP", lambda **o: qsgp(dictionary(), **o), none="augmentation"),
    **takes("RVM", partial(RVM, X, num_data=N, basis_batch_size=K), never="kernel"),
    **takes("RVM", rvm, never="centers", none="likelihood", count="num_data", flag="constant"),
    **takes("RVM", rvm, basis_batch_size=lambda v: count(v) and v <= N + 1),
    **takes("RVM.relevance_vectors", RELEVANCE.relevance_vectors, threshold=threshold),
    **takes("RVM.refine", lambda **o: rvm().refine(**o), never="data"),
    **takes("RVM.refine", lambda **o: rvm().refine(two, **o), count="num_rounds"),
    **takes("RVM.prune", RELEVANCE.prune, threshold=threshold),
    **takes("QSGP.elbo", CHEVRON.elbo, never="data"),
    **takes("QSGP.exact_elbo", CHEVRON.exact_elbo, never="data"),
    **takes("QSGP.training_loss_closure", WHOLE.training_loss_closure, never="data"),
    **takes(
        "QSGP.training_loss_closure", partial(WHOLE.training_loss_closure, two), flag="compile"
    ),
    **takes("QSGP.sparse_step", lambda **o: stepped(qsgp(), **o), never="data", flag="move"),
    **takes("QSGP.sparse_step", lambda **o: stepped(qsgp(), **o), scale=fraction),
    "QSGP.sparse_step optimizer": Argument(
        lambda v: stepped(qsgp(), optimizer=given(v)), "optimizer", never
    ),
    **takes("QSGP.prepare_step", lambda step: qsgp().prepare_step(step, lambda: two), index="step"),
    # NumPy's sine is a function like any other; what it says of its argument is its own
    **takes(
        "QSGP.prepare_step", lambda **o: qsgp().prepare_step(0, **o), never="data", also=("sin",)
    ),
    "QSGP.prepare_step what data returns": Argument(
        lambda v: qsgp().prepare_step(0, lambda: v), "data", never
    ),
    **takes("QSGP.update_covariance", lambda **o: qsgp().update_covariance(**o), never="X"),
    **takes("QSGP.update_mean", lambda **o: qsgp().update_mean(**o), never="data"),
    **takes("QSGP.posterior", CHEVRON.posterior, none="precompute_cache"),
    **takes("QSGP.predict_f", partial(HEAD.predict_f, X), flag="full_cov"),
    **takes("QSGP augmented.predict_f", partial(AUGMENTED.predict_f, X), no="full_cov"),
    **takes("ChevronPosterior.sample_functions", PLAIN.sample_functions, some="num_samples"),
    **takes("ChevronPosterior", partial(PLAIN.sample_functions, 1), seed_or_none="seed"),
    **takes("SparseSGD", SparseSGD, learning_rate=rate),
    **takes("SparseAdagrad", SparseAdagrad, initial_accumulator=amount, none="dense"),
    **takes("SparseAdam", SparseAdam, beta_1=below_one, beta_2=below_one),
    **takes("fit QSGP", trained, none="optimizer", zero="natural_gradients"),
}


# ------------------------------------------------------------------ what does not go together
TOGETHER = {
    "a diagonal with a head": (lambda: qsgp(num_dense_columns=2), "num_dense_columns"),
    "a diagonal with a head of a hybrid": (
        lambda: qsgp(hybrid(), covariance="diag", num_dense_columns=3),
        "num_dense_columns",
    ),
    "a head of all functions": (
        lambda: qsgp(covariance="block", num_dense_columns=M),
        "num_dense_columns",
    ),
    "a block without a size": (lambda: qsgp(covariance="block"), "num_dense_columns"),
    "a chevron under a dense precision": (
        lambda: qsgp(dictionary(), covariance="chevron", num_dense_columns=2),
        "covariance",
    ),
    "a block under a dense precision": (
        lambda: qsgp(dictionary(), covariance="block", num_dense_columns=2),
        "covariance",
    ),
    "augmentation of random features": (lambda: qsgp(augmentation=X), "augmentation"),
    "augmentation with a site": (
        lambda: qsgp(dictionary(), BernoulliLogit(), augmentation=X),
        "augmentation",
    ),
    "more functions than the tail has": (
        lambda: qsgp(hybrid(), basis_batch_size=M + 1),
        "basis_batch_size",
    ),
    "two latent functions for one class": (
        lambda: qsgp(likelihood=likelihoods.HeteroskedasticTFPConditional()),
        "num_latent_gps",
    ),
    "a support of more columns": (lambda: qsgp(hybrid(), support=np.hstack([X, X])), "support"),
    "a support of more columns than the data": (
        lambda: stepped(
            qsgp(bases.RandomFourier(kernels.Matern32(), M), support=np.hstack([X, X]))
        ),
        "support",
    ),
    "data of more columns than the support": (
        lambda: stepped(qsgp(bases.RandomFourier(kernels.Matern32(), M)), (np.hstack([X, X]), Y)),
        "X",
    ),
    "a closure of a random loss": (lambda: qsgp().training_loss_closure(two), "basis_batch_size"),
    "the best covariance for a site": (
        lambda: qsgp(likelihood=BernoulliLogit()).update_covariance(X),
        "likelihood",
    ),
    "draws with augmentation": (lambda: CACHED.sample_functions(2), "augmentation"),
    "full covariance with augmentation": (lambda: AUGMENTED.predict_f(X, True), "full_cov"),
    "Keras's Adam": (lambda: trained(optimizer=adam()), "optimizer"),
    "Keras's Adam in a step": (lambda: stepped(qsgp(), optimizer=adam()), "optimizer"),
    "natural gradients": (lambda: trained(natural_gradients=True), "natural_gradients"),
    "a step before its support": (lambda: stepped(qsgp(), prepare=False), "prepare_step"),
    "covariance of an RVM of no constant and one center": (
        lambda: rvm(X[:1], constant=False, basis_batch_size=2),
        "basis_batch_size",
    ),
    "an option that RVM does not have": (lambda: rvm(precision="dense"), "precision"),
    "nothing relevant": (lambda: RELEVANCE.prune(1e-9), "threshold"),
}


# ------------------------------------------------------------------ parts that were exchanged
KERNEL, MEAN = ("kernel",), ("mean_function",)
# an augmented posterior holds the noise as the second part of its augmentation
NOISE = ("likelihood", "likelihood.variance", "augmentation[1]")
OF_HEAD, OF_CHEVRON, OF_RVM = ("block",), ("chevron",), ("rvm",)
EVERY = ("block", "chevron", "rvm", "dense")
BUILDERS = {
    "block": lambda: qsgp(hybrid()),
    "chevron": lambda: qsgp(covariance="chevron", num_dense_columns=2),
    "rvm": rvm,
    "dense": lambda: qsgp(dictionary(), augmentation=X),
}


def values(name, value):
    """Assign one entry."""

    def do(m):
        variable = getattr(m, name)
        variable = getattr(variable, "unconstrained_variable", variable)
        flat = variable.numpy().copy()
        flat.flat[0] = value
        variable.assign(flat)

    return do


def variable(*shape):
    return lambda: tf.Variable(np.ones(shape))


SPOILS = {
    **{
        f"{name} {value}": Spoil(values(name, value), (name,), values=True, of=models)
        for value in (np.nan, np.inf)
        for name, models in {
            "q_mu": EVERY,
            "q_log_scale": EVERY,
            "q_block": (*OF_HEAD, *OF_CHEVRON),
            "q_columns": OF_CHEVRON,
        }.items()
    },
    "q_mu of another length": swap("q_mu", variable(3, 1), ("q_mu",)),
    "q_mu of more outputs": swap("q_mu", variable(M, 2), ("q_mu",)),
    "q_mu an array": swap("q_mu", lambda: np.ones((M, 1)), ("q_mu",)),
    "q_mu None": swap("q_mu", None, ("q_mu",)),
    "q_log_scale None": swap("q_log_scale", None, ("q_log_scale",)),
    "q_block None": swap("q_block", None, ("q_block",), of=OF_HEAD),
    "q_block a variable": swap("q_block", variable(1, 3, 3), ("q_block",), of=OF_HEAD),
    "q_columns None": swap("q_columns", None, ("q_columns",), of=OF_CHEVRON),
    "kernel a plain one": swap("kernel", kernel, KERNEL),
    "kernel float32": swap("kernel", float32_kernel, KERNEL),
    "likelihood of a site": swap(
        "likelihood", likelihoods.Bernoulli, ("augmentation",), of=("dense",)
    ),
    "noise nan": drift("likelihood.variance", np.nan, NOISE, values=True),
    "mean function nan": Spoil(nan_mean, MEAN, values=True),
    "lengthscales nan": drift("basis.kernel.lengthscales", np.nan, KERNEL, values=True),
    "lengthscales of another length": Spoil(
        lambda m: setattr(m.basis.kernel, "lengthscales", gpflow.Parameter(np.ones(3))),
        KERNEL,
        of=("block", "chevron", "rvm"),
    ),
    "log_precision nan": Spoil(
        lambda m: m.basis.log_precision.assign(np.full(N + 1, np.nan)),
        ("log_precision",),
        values=True,
        of=OF_RVM,
    ),
    "num_data negative": swap("num_data", -3, ("num_data",)),
    "num_data None": swap("num_data", None, ("num_data",)),
    "basis_batch_size 0": swap("basis_batch_size", 0, ("basis_batch_size",)),
    "variance_reduction text": swap("variance_reduction", "x", ("variance_reduction",)),
    "variance_reduction after": swap("variance_reduction", "none", ("variance_reduction",)),
}
SPOILED_DOORS = {
    # several draws, of which some contain the weight that is not finite
    "elbo": seeded(lambda m: sum(m.elbo(two) for _ in range(4))),
    "predict_y": lambda m: m.predict_y(X),
}


def spared(spoil, name, door):
    """Predictions need neither num_data nor prior precisions."""
    return door == "predict_y" and bool({"num_data", "log_precision"} & set(spoil.names))


# ------------------------------------------------------------------ what the tests take
CORE = ("QSGP.elbo | X", "QSGP.predict_f", "QSGP support", "RVM centers")
EAGER = (*CORE, "QSGP.sparse_step | Y", "QSGP.prepare_step | X", "QSGP.update_covariance")
COMPILED = ("traced: QSGP.sparse_step | Y", "traced: augmented.predict_f")
TAKING = COMPILED
