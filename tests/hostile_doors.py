"""The public doors that take arrays, each as a function of one argument that is under attack."""

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse import initialization
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.initialization.hyperparameters import subset_hyperparameters
from gpflow_sparse.models import SOLVEGP, SOLVEGPR
from gpflow_sparse.training import EarlyStopping, fit

N, D = 6, 2
X = np.random.default_rng(1).normal(size=(N, D))
Y = np.sin(X[:, :1]) + 0.1 * X[:, 1:]
Z, O = X[:3] + 0.1, X[3:] - 0.2
Q_MU = np.array([[0.3], [-0.2], [0.1]])
Q_SQRT = np.tril(np.full((1, 3, 3), 0.1)) + 0.5 * np.eye(3)


class Door(NamedTuple):
    """One argument of one public callable."""

    call: Callable[[Any], Any]
    good: np.ndarray
    """A good value of the argument."""
    role: str
    """One of the roles in ``hostile_kinds``."""
    names: tuple[str, ...]
    """What an error may call the argument."""
    graph: bool = False
    """The value is an argument of a traced function."""
    slow: bool = False
    """Compiles or trains: good values take a second."""
    bring: Callable[[Any], Any] | None = None
    """What brings the value to the door, TensorFlow's or NumPy's; may refuse it."""
    unseen: bool = False
    """A training objective in a graph, which does not look at values: NaN flows on to ``fit``."""


def model(**options):
    return SOLVEGP(
        gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.8, 1.2]),
        options.pop("likelihood", None) or gpflow.likelihoods.Gaussian(0.2),
        options.pop("inducing", None) or OrthogonalInducingVariables(Z, O),
        **options,
    )


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


def flags(method):
    return {
        f"{full_cov:d}{full_output:d}": lambda v, a=full_cov, b=full_output: method(v, a, b)
        for full_cov in (False, True)
        for full_output in (False, True)
    }


def captured(function):
    return lambda v: tf.function(lambda: function(v), autograph=False)()


def argument(function):
    traced = tf.function(function, autograph=False)
    return lambda v: traced(v if tf.is_tensor(v) else tf.convert_to_tensor(v))


def unmasked(v):
    if isinstance(v, np.ma.MaskedArray):
        raise TypeError("TensorFlow and np.memmap bring the hidden values back")
    return v


def as_argument(v):
    return tf.convert_to_tensor(unmasked(v))


def seeded(function):
    def call(v):
        tf.random.set_seed(1)
        return function(v)

    return call


def trained(data, **options):
    m = model(num_data=N)
    fit(m, data, num_steps=2, progress=False, **options)
    return m.elbo((X, Y))


def on_disk(pair):
    folder = Path(mkdtemp())
    parts = []
    for name, value in zip("XY", pair, strict=True):
        array = np.asarray(value)
        part = np.memmap(folder / name, dtype=array.dtype, mode="w+", shape=array.shape)
        part[...] = array
        parts.append(part)
    return tuple(parts)


def stopping(pair):
    return trained((X, Y), callbacks=[EarlyStopping(validation=pair, every=1)])


# ------------------------------------------------------------------ a pair (X, Y)
PAIRS = {
    "elbo": MODEL.elbo,
    "maximum_log_likelihood_objective": MODEL.maximum_log_likelihood_objective,
    "training_loss": MODEL.training_loss,
    "training_loss_closure": lambda d: MODEL.training_loss_closure(d, compile=False)(),
    "predict_log_density": MODEL.predict_log_density,
    "list pair: elbo": lambda d: MODEL.elbo(list(d)),
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
    "fit": trained,
    "fit(batch_size)": lambda d: trained(d, batch_size=3),
    "EarlyStopping(validation)": stopping,
}
# ------------------------------------------------------------------ inputs for prediction
INPUTS = {
    **{f"predict_f {k}": call for k, call in flags(MODEL.predict_f).items()},
    "predict_f_samples": seeded(lambda v: MODEL.predict_f_samples(v, 2)),
    "predict_f_samples marginal": seeded(lambda v: MODEL.predict_f_samples(v, full_cov=False)),
    "predict_y": MODEL.predict_y,
    "SOLVEGPR.predict_f": REGRESSION.predict_f,
    "SOLVEGPR.predict_y": REGRESSION.predict_y,
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


def _pairs(table, slow):
    for name, call in table.items():
        wide = name in WIDE
        slow = slow or name == "subset_hyperparameters"
        by_x, by_y = lambda v, c=call: c((v, Y)), lambda v, c=call: c((X, v))
        yield f"{name} | X", Door(by_x, X, "wide" if wide else "x", ("X", "data"), slow=slow)
        # a regression model has as many outputs as Y has columns
        y_role = "wide" if wide or name == "SOLVEGPR" else "y"
        yield f"{name} | Y", Door(by_y, Y, y_role, ("Y", "data"), slow=slow)


def _traced():
    by_x = argument(lambda v: MODEL.elbo((v, Y)))
    by_y = argument(lambda v: MODEL.elbo((X, v)))
    density = argument(lambda v: MODEL.predict_log_density((X, v)))
    options = {"graph": True, "slow": True, "bring": as_argument}
    yield "traced: elbo | X", Door(by_x, X, "x", ("X",), unseen=True, **options)
    yield "traced: elbo | Y", Door(by_y, Y, "y", ("Y",), unseen=True, **options)
    yield "traced: predict_log_density | Y", Door(density, Y, "y", ("Y",), **options)
    for name, method in {
        "predict_f": MODEL.predict_f,
        "predict_y": MODEL.predict_y,
        "posterior.predict_f": CACHED.predict_f,
    }.items():
        yield f"traced: {name}", Door(argument(method), X, "alone", ("Xnew",), **options)


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


def _disk():
    for name, pair in {"X": lambda v: (v, Y), "Y": lambda v: (X, v)}.items():
        good, role = (X, "x") if name == "X" else (Y, "y")
        mapped = lambda v, p=pair: on_disk(p(unmasked(v)))  # noqa: E731
        batch = lambda v, p=pair: tf.data.Dataset.from_tensors(p(unmasked(v)))  # noqa: E731
        for source, bring in {"on disk": mapped, "tf.data": batch}.items():
            call = lambda v, b=bring: trained(b(v))  # noqa: E731
            door = Door(call, good, role, (name, "data"), slow=True, bring=bring)
            yield f"fit {source} | {name}", door


DOORS: dict[str, Door] = {
    **dict(_pairs(PAIRS, False)),
    **dict(_pairs(SLOW_PAIRS, True)),
    **dict(_traced()),
    **dict(_others()),
    **dict(_disk()),
}
