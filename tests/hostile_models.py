"""Models whose parts were spoiled after, or at, construction."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import functions, kernels, likelihoods

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.training import fit
from tests.hostile import Verdict, judge
from tests.hostile_doors import D, N, O, X, Y, Z, captured, model, regression, seeded


class Spoil(NamedTuple):
    """Something done to a good model."""

    do: Callable[[Any], None]
    names: tuple[str, ...]
    """What an error may name."""
    values: bool = False
    """Only values of parameters are wrong: training objectives do not look at them in a graph."""
    harmless: bool = False
    """A finite result is right too."""


def put(*path: str, value: Any) -> Callable[[Any], None]:
    def do(m: Any) -> None:
        for attribute in path[:-1]:
            m = getattr(m, attribute)
        setattr(m, path[-1], value() if callable(value) else value)

    return do


def free(get: Callable[[Any], gpflow.Parameter], value: float) -> Callable[[Any], None]:
    """Assign an unconstrained variable, as a training step does."""

    def do(m: Any) -> None:
        variable = get(m).unconstrained_variable
        variable.assign(tf.fill(variable.shape, tf.cast(value, variable.dtype)))

    return do


def lengthscales(m: Any) -> gpflow.Parameter:
    return m.kernel.lengthscales


def sum_with_zero_variance() -> kernels.Kernel:
    part = kernels.Linear()
    part.variance = np.float64(0.0)
    return kernels.Matern52() + part


def float32_kernel() -> kernels.Kernel:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return kernels.Matern52()


class FlatMean(functions.MeanFunction):
    """A mean function of rank 1, which would broadcast to N x N."""

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(X, axis=-1)


def nan_mean(m: Any) -> None:
    m.mean_function = functions.Constant([0.0])
    m.mean_function.c.unconstrained_variable.assign([np.nan])


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


def trained(m: Any) -> np.ndarray:
    m.num_data = N if m.num_data is None else m.num_data
    return fit(m, (X, Y), num_steps=1, progress=False).elbo


def regression_of(m: Any) -> Any:
    """A regression model made of the same parts, assigned one by one."""
    r = regression()
    for part in ("kernel", "likelihood", "mean_function", "inducing_variable", "jitter"):
        setattr(r, part, getattr(m, part))
    return r


DOORS = {
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
SLOW = {
    "compiled closure": lambda m: m.training_loss_closure((X, Y))(),
    "captured: elbo": captured(lambda m: m.elbo((X, Y))),
    "captured: predict_f": captured(lambda m: m.predict_f(X)),
    "captured: prior_kl": captured(lambda m: m.prior_kl()),
    "fit": trained,
}


def spoiled(spoils=SPOILS, doors=None) -> Iterator[tuple[str, str, Verdict]]:
    for kind, spoil in spoils.items():
        for door, call in (doors or {**DOORS, **SLOW}).items():
            m = model()
            spoil.do(m)
            compiled = door.startswith(("captured", "compiled"))
            unseen = spoil.values and compiled and "predict" not in door
            verdict = judge(call, m, names=spoil.names, graph=compiled, unseen=unseen)
            # a whitened KL needs neither kernel nor noise, predictions no num_data
            spared = "prior_kl" in door or (LATE & set(spoil.names) and "predict" in door)
            spared = spared or ("SOLVEGPR" in door and NOT_OF_REGRESSION & set(spoil.names))
            if verdict == Verdict("BAD", "accepted") and (spoil.harmless or spared):
                verdict = Verdict("o")
            yield kind, door, verdict
