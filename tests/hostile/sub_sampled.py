"""The doors of models that see some of their functions in a step."""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import functions, kernels, likelihoods

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
    argument,
    as_argument,
    captured,
    count,
    flag,
    float32_kernel,
    free,
    nan_mean,
    never,
    noise,
    none,
    pairs,
    put,
    seed,
    seeded,
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
    options = {"num_data": N, "basis_batch_size": K, "num_support": 4, **options}
    return QSGP(
        fourier() if basis is None else basis,
        likelihoods.Gaussian(0.2) if likelihood is None else likelihood,
        **options,
    )


def rvm(centers=X, k=None, **options):
    options = {"num_data": N, "basis_batch_size": K, "num_support": 4, **options}
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
        "QSGP.exact_elbo": HEAD.exact_elbo,
        "QSGP.training_loss": WHOLE.training_loss,
        "QSGP.predict_log_density": HEAD.predict_log_density,
        "QSGP.sparse_step": lambda d: stepped(qsgp(), d),
        "RVM.sparse_step": lambda d: stepped(rvm(), d),
        "QSGP.prepare_step": prepared,
        "RVM.elbo": RELEVANCE.elbo,
    }
    # rows that coincide, or nearly so, have a singular covariance as support rows
    return pairs({name: seeded(call) for name, call in tables.items()}, names=("Kpp",))


def _inputs():
    names = ("X", "Xnew")
    calls = {
        "QSGP.predict_f": CHEVRON.predict_f,
        "QSGP.predict_f full": lambda v: HEAD.predict_f(v, True, True),
        "QSGP.predict_y": AUGMENTED.predict_y,
        "QSGP.predict_f_samples": seeded(lambda v: HEAD.predict_f_samples(v, 2, full_cov=False)),
        "RVM.predict_f": RELEVANCE.predict_f,
        "ChevronPosterior.predict_f": CACHED.predict_f,
        "QSGP draws": PLAIN.sample_functions(2, seed=0),
        "QSGP.update_covariance": updated,
    }
    for name, call in calls.items():
        yield name, Door(call, X, "alone", names)
    names = ("support", "kernel.lengthscales")
    held = lambda v: qsgp(support="none" if v is None else v).predict_f(X)  # noqa: E731
    yield "QSGP support", Door(held, X, "alone", names)
    names = ("augmentation", "kernel.lengthscales")
    more = lambda v: qsgp(dictionary(), augmentation="none" if v is None else v)  # noqa: E731
    yield "QSGP augmentation", Door(lambda v: more(v).predict_f(X), X, "alone", names)
    names = ("centers", "kernel.lengthscales")
    yield "RVM centers", Door(lambda v: rvm(v).predict_f(X), X, "alone", names)


def _traced():
    options = {"graph": True, "slow": True, "bring": as_argument}
    for name, method in {"QSGP": CHEVRON.predict_f, "augmented": CACHED.predict_f}.items():
        yield f"traced: {name}.predict_f", Door(argument(method), X, "alone", ("Xnew",), **options)
    density = argument(lambda v: HEAD.predict_log_density((X, v)))
    yield "traced: QSGP.predict_log_density | Y", Door(density, Y, "y", ("Y",), **options)
    for name, model in {"QSGP": WHOLE, "RVM": rvm(basis_batch_size=N + 1)}.items():
        model.prepare_step(0, lambda: two)
        optimizer = SparseSGD(0.0)
        stepped(model, optimizer=optimizer)  # it builds the optimizer
        by_x = argument(
            lambda v, m=model, o=optimizer: stepped(m, (v, Y), o, prepare=False, move=False)
        )
        by_y = argument(
            lambda v, m=model, o=optimizer: stepped(m, (X, v), o, prepare=False, move=False)
        )
        options = {"graph": True, "slow": True, "bring": as_argument, "unseen": True}
        yield f"traced: {name}.sparse_step | X", Door(by_x, X, "x", ("X",), **options)
        yield f"traced: {name}.sparse_step | Y", Door(by_y, Y, "y", ("Y",), **options)
    held = captured(lambda d: CHEVRON.elbo(d))
    yield "captured: QSGP.elbo | X", Door(lambda v: held((v, Y)), X, "x", ("X",), slow=True)


DOORS: dict[str, Door] = {**dict(_pairs()), **dict(_inputs()), **dict(_traced())}


# ------------------------------------------------------------------ arguments that are no arrays
def few(v):
    return count(v) and v <= 3


def rate(v):
    number = isinstance(v, int | float | np.number) and not isinstance(v, bool)
    # NumPy's sine is a function of the number of steps like any other
    return callable(v) or (number and 0.0 <= v < np.inf)


def fraction(v):
    return rate(v) and not callable(v) and v <= 1.0


def below_one(v):
    return rate(v) and not callable(v) and v < 1.0


def threshold(v):
    return isinstance(v, int | float | np.number) and not isinstance(v, bool) and v > 0


ARGUMENTS = {
    "QSGP basis": Argument(
        lambda v: QSGP(v, likelihoods.Gaussian(), num_data=N, basis_batch_size=K), "basis", never
    ),
    "QSGP likelihood": Argument(
        lambda v: QSGP(fourier(), v, num_data=N, basis_batch_size=K), "likelihood", never
    ),
    "QSGP num_data": Argument(lambda v: qsgp(num_data=v), "num_data", count),
    "QSGP basis_batch_size": Argument(
        lambda v: qsgp(basis_batch_size=v), "basis_batch_size", lambda v: count(v) and v <= M
    ),
    "QSGP covariance": Argument(lambda v: qsgp(covariance=v), "covariance", none),
    "QSGP num_dense_columns": Argument(
        lambda v: qsgp(covariance="chevron", num_dense_columns=v), "num_dense_columns", few
    ),
    "QSGP num_dense_columns of a diagonal": Argument(
        lambda v: qsgp(num_dense_columns=v),
        "num_dense_columns",
        lambda v: v is None or (type(v) is int and v == 0),
    ),
    "QSGP variance_reduction": Argument(
        lambda v: qsgp(variance_reduction=v), "variance_reduction", never
    ),
    "QSGP mean_function": Argument(lambda v: qsgp(mean_function=v), "mean_function", none),
    "QSGP num_latent_gps": Argument(
        lambda v: qsgp(num_latent_gps=v), "num_latent_gps", lambda v: v is None or few(v)
    ),
    "QSGP num_support": Argument(lambda v: qsgp(num_support=v), "num_support", count),
    "QSGP support": Argument(lambda v: qsgp(support=v), "support", none),
    "QSGP augmentation": Argument(
        lambda v: qsgp(dictionary(), augmentation=v), "augmentation", none
    ),
    "RVM centers": Argument(rvm, "centers", never),
    "RVM kernel": Argument(lambda v: RVM(X, v, num_data=N, basis_batch_size=K), "kernel", never),
    "RVM likelihood": Argument(lambda v: rvm(likelihood=v), "likelihood", none),
    "RVM num_data": Argument(lambda v: rvm(num_data=v), "num_data", count),
    "RVM basis_batch_size": Argument(
        lambda v: rvm(basis_batch_size=v), "basis_batch_size", lambda v: count(v) and v <= N + 1
    ),
    "RVM constant": Argument(lambda v: rvm(constant=v), "constant", flag),
    "RVM initial_precision": Argument(
        lambda v: rvm(initial_precision=v),
        "initial_precision",
        lambda v: v is None or (noise(v) and np.ndim(v) == 0),
    ),
    "RVM.relevance_vectors threshold": Argument(
        RELEVANCE.relevance_vectors, "threshold", threshold
    ),
    "RVM.refine data": Argument(rvm().refine, "data", never),
    "RVM.refine num_rounds": Argument(lambda v: rvm().refine((X, Y), v), "num_rounds", count),
    "RVM.prune threshold": Argument(RELEVANCE.prune, "threshold", threshold),
    "QSGP.elbo data": Argument(CHEVRON.elbo, "data", never),
    "QSGP.exact_elbo data": Argument(CHEVRON.exact_elbo, "data", never),
    "QSGP.training_loss_closure data": Argument(WHOLE.training_loss_closure, "data", never),
    "QSGP.training_loss_closure compile": Argument(
        lambda v: WHOLE.training_loss_closure(two, compile=v), "compile", flag
    ),
    "QSGP.sparse_step data": Argument(lambda v: stepped(qsgp(), v), "data", never),
    "QSGP.sparse_step optimizer": Argument(
        lambda v: stepped(qsgp(), optimizer="none" if v is None else v), "optimizer", never
    ),
    "QSGP.sparse_step move": Argument(lambda v: stepped(qsgp(), move=v), "move", flag),
    "QSGP.sparse_step scale": Argument(lambda v: stepped(qsgp(), scale=v), "scale", fraction),
    "QSGP.prepare_step step": Argument(
        lambda v: qsgp().prepare_step(v, lambda: two),
        "step",
        lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and v >= 0,
    ),
    # NumPy's sine is a function like any other; what it says of its argument is its own
    "QSGP.prepare_step data": Argument(
        lambda v: qsgp().prepare_step(0, v), "data", never, ("sin",)
    ),
    "QSGP.prepare_step what data returns": Argument(
        lambda v: qsgp().prepare_step(0, lambda: v), "data", never
    ),
    "QSGP.update_covariance X": Argument(qsgp().update_covariance, "X", never),
    "QSGP.update_mean data": Argument(qsgp().update_mean, "data", never),
    "QSGP.posterior precompute_cache": Argument(CHEVRON.posterior, "precompute_cache", none),
    "QSGP.predict_f full_cov": Argument(lambda v: HEAD.predict_f(X, v), "full_cov", flag),
    "augmented predict_f full_cov": Argument(
        lambda v: AUGMENTED.predict_f(X, v), "full_cov", lambda v: flag(v) and not v
    ),
    "ChevronPosterior.sample_functions num_samples": Argument(
        PLAIN.sample_functions, "num_samples", lambda v: count(v) and v < 10**6
    ),
    "ChevronPosterior.sample_functions seed": Argument(
        lambda v: PLAIN.sample_functions(1, seed=v), "seed", lambda v: v is None or seed(v)
    ),
    "SparseSGD learning_rate": Argument(SparseSGD, "learning_rate", rate),
    "SparseAdagrad initial_accumulator": Argument(
        lambda v: SparseAdagrad(initial_accumulator=v),
        "initial_accumulator",
        lambda v: rate(v) and not callable(v),
    ),
    "SparseAdagrad dense": Argument(lambda v: SparseAdagrad(dense=v), "dense", none),
    "SparseAdam beta_1": Argument(lambda v: SparseAdam(beta_1=v), "beta_1", below_one),
    "SparseAdam beta_2": Argument(lambda v: SparseAdam(beta_2=v), "beta_2", below_one),
    "fit QSGP optimizer": Argument(lambda v: trained(optimizer=v), "optimizer", none),
    "fit QSGP natural_gradients": Argument(
        lambda v: trained(natural_gradients=v),
        "natural_gradients",
        lambda v: v is not None and isinstance(v, int | float | np.bool_) and v == 0,
    ),
}


# ------------------------------------------------------------------ what does not go together
STUDENT, GAUSSIAN = likelihoods.StudentT, likelihoods.Gaussian
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
        f"{name} {value}": (Spoil(values(name, value), (name,), values=True), models)
        for value in (np.nan, np.inf)
        for name, models in {
            "q_mu": EVERY,
            "q_log_scale": EVERY,
            "q_block": (*OF_HEAD, *OF_CHEVRON),
            "q_columns": OF_CHEVRON,
        }.items()
    },
    "q_mu of another length": (Spoil(put("q_mu", value=variable(3, 1)), ("q_mu",)), EVERY),
    "q_mu of more outputs": (Spoil(put("q_mu", value=variable(M, 2)), ("q_mu",)), EVERY),
    "q_mu an array": (Spoil(put("q_mu", value=lambda: np.ones((M, 1))), ("q_mu",)), EVERY),
    "q_mu None": (Spoil(put("q_mu", value=None), ("q_mu",)), EVERY),
    "q_log_scale None": (Spoil(put("q_log_scale", value=None), ("q_log_scale",)), EVERY),
    "q_block None": (Spoil(put("q_block", value=None), ("q_block",)), OF_HEAD),
    "q_block a variable": (Spoil(put("q_block", value=variable(1, 3, 3)), ("q_block",)), OF_HEAD),
    "q_columns None": (Spoil(put("q_columns", value=None), ("q_columns",)), OF_CHEVRON),
    "kernel a plain one": (Spoil(put("kernel", value=kernel), KERNEL), EVERY),
    "kernel None": (Spoil(put("kernel", value=None), KERNEL), EVERY),
    "kernel float32": (Spoil(put("kernel", value=float32_kernel), KERNEL), EVERY),
    "likelihood None": (Spoil(put("likelihood", value=None), NOISE), EVERY),
    "likelihood of 3 classes": (
        Spoil(
            put("likelihood", value=lambda: likelihoods.MultiClass(3)), (*NOISE, "num_latent_gps")
        ),
        EVERY,
    ),
    "likelihood of a site": (
        Spoil(put("likelihood", value=likelihoods.Bernoulli), ("augmentation",)),
        ("dense",),
    ),
    "noise nan": (Spoil(free(lambda m: m.likelihood.variance, np.nan), NOISE, values=True), EVERY),
    "mean function of 2 outputs": (
        Spoil(put("mean_function", value=lambda: functions.Constant(np.zeros(2))), MEAN),
        EVERY,
    ),
    "mean function nan": (Spoil(nan_mean, MEAN, values=True), EVERY),
    "lengthscales nan": (
        Spoil(free(lambda m: m.basis.kernel.lengthscales, np.nan), KERNEL, values=True),
        EVERY,
    ),
    "lengthscales of another length": (
        Spoil(
            lambda m: setattr(m.basis.kernel, "lengthscales", gpflow.Parameter(np.ones(3))), KERNEL
        ),
        ("block", "chevron", "rvm"),
    ),
    "log_precision nan": (
        Spoil(
            lambda m: m.basis.log_precision.assign(np.full(N + 1, np.nan)),
            ("log_precision",),
            values=True,
        ),
        OF_RVM,
    ),
    "num_data negative": (Spoil(put("num_data", value=-3), ("num_data",)), EVERY),
    "num_data None": (Spoil(put("num_data", value=None), ("num_data",)), EVERY),
    "basis_batch_size 0": (Spoil(put("basis_batch_size", value=0), ("basis_batch_size",)), EVERY),
    "variance_reduction text": (
        Spoil(put("variance_reduction", value="x"), ("variance_reduction",)),
        EVERY,
    ),
    "variance_reduction after": (
        Spoil(put("variance_reduction", value="none"), ("variance_reduction",)),
        EVERY,
    ),
}
SPOILED_DOORS = {
    # several draws, of which some contain the weight that is not finite
    "elbo": seeded(lambda m: sum(m.elbo(two) for _ in range(4))),
    "exact_elbo": lambda m: m.exact_elbo(two),
    "predict_f": lambda m: m.predict_f(X),
    "predict_y": lambda m: m.predict_y(X),
    "posterior.predict_f": lambda m: m.posterior().predict_f(X),
    "prior_kl": lambda m: m.prior_kl(),
    "sparse_step": stepped,
}
SPOILED_DOORS |= {"captured: predict_f": captured(lambda m: m.predict_f(X)), "fit": trained}


def spared(spoil, name, door):
    """f and the KL need neither noise nor num_data, the KL no kernel and no mean."""
    late = {"likelihood", "num_data", "mean_function", "kernel"} & set(spoil.names)
    if late and ("predict_f" in door or door == "prior_kl"):
        return True
    return ("num_data" in late and door == "predict_y") or (
        "log_precision" in spoil.names and "predict" in door
    )


# ------------------------------------------------------------------ what the tests take
CORE = ("QSGP.elbo | X", "QSGP.predict_f", "QSGP support", "RVM centers")
EAGER = (*CORE, "QSGP.sparse_step | Y", "QSGP.prepare_step | X", "QSGP.update_covariance")
COMPILED = ("traced: QSGP.sparse_step | Y", "traced: augmented.predict_f")
TAKING = COMPILED
SPOILED_IN_TESTS = ("elbo", "predict_y")
