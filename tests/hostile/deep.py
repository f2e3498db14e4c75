"""The doors of convolutional kernels, inducing patches, layers and deep models."""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels, likelihoods
from gpflow.inducing_variables import InducingPoints

from gpflow_sparse import mean_functions, models
from gpflow_sparse.inducing_variables import (
    LocatedPatches,
    NeighborInducingPoints,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.kernels import TICK, Convolutional
from gpflow_sparse.models import SOLVEGP, ConvLayer, ConvSpec, DeepGP, GPLayer, deep_convolutional
from gpflow_sparse.training import fit
from tests.hostile.judging import (
    Argument,
    Door,
    FlatMean,
    N,
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
    given,
    nan_mean,
    never,
    none,
    num_data,
    pairs,
    put,
    seed,
    two,
)

Z = X[:3] + 0.1
IMAGE, PIXEL = (1, 2), (1, 1)
PATCHES, PLACES = Z[:, :1], Z - Z.min()
CLASSES = np.arange(float(N))[:, None] % 3


def kernel(columns=2):
    return kernels.Matern52(variance=1.3, lengthscales=np.linspace(0.8, 1.2, columns))


def tick(**options):
    return TICK(kernel(1), IMAGE, PIXEL, **options)


def convolutional(**options):
    return Convolutional(kernel(1), IMAGE, PIXEL, **options)


def on_images(k=None, *sets, likelihood=None, P=1, **options):
    return SOLVEGP(
        convolutional() if k is None else k,
        likelihoods.Gaussian(0.2) if likelihood is None else likelihood,
        OrthogonalInducingVariables(*(sets or [Patches(PATCHES)])),
        num_latent_gps=P,
        **options,
    )


def layer(inducing=Z, **options):
    return GPLayer(kernel(), inducing, **{"num_latent_gps": 2, **options})


def convolution(inducing=PATCHES, image_shape=IMAGE, patch_shape=PIXEL, **options):
    return ConvLayer(kernel(1), inducing, image_shape, patch_shape, **options)


def top(P=1, **options):
    sets = OrthogonalInducingVariables(Patches(PATCHES), Patches(PATCHES[:2] + 1.0))
    return GPLayer(convolutional(), sets, num_latent_gps=P, **options)


def deep(first=None, P=1, likelihood=None, **options):
    """Frozen draws, so that equal arguments give equal results."""
    return DeepGP(
        [layer() if first is None else first, top(P)],
        likelihoods.Gaussian(0.2) if likelihood is None else likelihood,
        **{"seed": 0, **options},
    )


def built(images=X, likelihood=None, image_shape=IMAGE, **options):
    options = {"num_inducing": 2, "architecture": (ConvSpec(1, 1, 1), ConvSpec(1)), **options}
    gaussian = likelihoods.Gaussian(0.2)
    return deep_convolutional(
        images, image_shape, gaussian if likelihood is None else likelihood, **options
    )


def of_table(inputs=X, likelihood=None, **options):
    gaussian = likelihoods.Gaussian(0.2)
    options = {"num_inducing": 2, **options}
    return models.deep(inputs, gaussian if likelihood is None else likelihood, **options)


MODEL = deep()
CACHED, NOISE = MODEL.posterior(), np.linspace(-1.0, 1.0, 2 * N).reshape(N, 2)


# ------------------------------------------------------------------ arrays
def _pairs():
    tables = {
        "elbo": MODEL.elbo,
        "training_loss": MODEL.training_loss,
        "predict_log_density": MODEL.predict_log_density,
    }
    yield from pairs(tables, "DeepGP.")
    cached = lambda v: CACHED.predict_log_density((v, Y), MODEL.likelihood)  # noqa: E731
    yield "DeepPosterior.predict_log_density | X", Door(cached, X, "x", ("X", "Xnew"))


def _inputs():
    calls = {
        "DeepGP.predict_f": MODEL.predict_f,
        "DeepGP.predict_f full": lambda v: MODEL.predict_f(v, True, True),
        "DeepGP.predict_y": MODEL.predict_y,
        "DeepPosterior.predict_f": CACHED.predict_f,
        "DeepPosterior.predict_y": lambda v: CACHED.predict_y(v, MODEL.likelihood),
    }
    for name, call in calls.items():
        yield name, Door(call, X, "alone", ("X", "Xnew"))
    traced = {"graph": True, "slow": True, "bring": as_argument}
    yield (
        "traced: DeepGP.predict_f",
        Door(argument(MODEL.predict_f), X, "alone", ("Xnew",), **traced),
    )
    yield (
        "traced: DeepGP.elbo | X",
        Door(argument(lambda v: MODEL.elbo((v, Y))), X, "x", ("X",), unseen=True, **traced),
    )


def _parts():
    rows = lambda v: on_images(None, Patches(v)).elbo(two)  # noqa: E731
    yield "Patches Z", Door(rows, PATCHES, "alone", ("Z", "kernel"))
    located = lambda v, s: on_images(tick(), LocatedPatches(v, s)).elbo(two)  # noqa: E731
    yield (
        "LocatedPatches Z",
        Door(lambda v: located(v, PLACES), PATCHES, "exact", ("Z", "locations", "kernel")),
    )
    yield (
        "LocatedPatches locations",
        Door(lambda v: located(PATCHES, v), PLACES, "exact", ("locations", "Kuu")),
    )
    points = lambda v: deep(layer(v)).elbo(two)  # noqa: E731
    names = ("base", "inducing_variable", "kernel", "X", "layers[0]")
    yield "GPLayer inducing_variable", Door(points, Z, "alone", names)
    q_mu = lambda v: deep(layer(q_mu=[given(v)])).elbo(two)  # noqa: E731
    yield "GPLayer q_mu", Door(q_mu, Z, "exact", ("q_mu[0]",))

    def started(v):
        first = layer(num_latent_gps=3)
        first.start_at(v)
        return first.posterior().posterior.fused_predict_f(Z)

    filters = np.array([[1.0, 0.3, 0.2], [0.1, -0.4, 0.5]])
    yield "GPLayer.start_at", Door(started, filters, "exact", ("filters",))
    directions = lambda v: deep(layer(mean_function=mean_functions.pca(v, 2))).elbo(two)  # noqa: E731
    yield "pca X", Door(directions, X, "alone", ("X", "mean_function"))
    images = lambda v: built(v).elbo(two)  # noqa: E731
    yield (
        "deep_convolutional X",
        Door(images, X, "alone", ("X", "num_inducing", "likelihood"), slow=True),
    )
    rows = lambda v: of_table(v).propagate(two[0], np.zeros((1, N, 2)))  # noqa: E731
    names = ("X", "num_inducing", "M", "likelihood", "kernel", "eps")
    yield "deep X", Door(rows, X, "alone", names, slow=True)


DOORS: dict[str, Door] = {**dict(_pairs()), **dict(_inputs()), **dict(_parts())}


# ------------------------------------------------------------------ arguments that are no arrays
def one_or_none(v):
    return v is None or (count(v) and v == 1)


ARGUMENTS = {
    "Convolutional base_kernel": Argument(
        lambda v: Convolutional(v, IMAGE, PIXEL), "base_kernel", never
    ),
    "Convolutional image_shape": Argument(
        lambda v: Convolutional(kernel(1), v, PIXEL), "image_shape", never
    ),
    "Convolutional patch_shape": Argument(
        lambda v: Convolutional(kernel(1), IMAGE, v), "patch_shape", never
    ),
    "Convolutional stride": Argument(lambda v: convolutional(stride=v), "stride", count),
    "Convolutional average": Argument(lambda v: convolutional(average=v), "average", flag),
    "Convolutional weights": Argument(lambda v: convolutional(weights=v), "weights", none),
    "TICK location_kernel": Argument(lambda v: tick(location_kernel=v), "location_kernel", none),
    "Patches Z": Argument(Patches, "Z", never),
    "LocatedPatches Z": Argument(lambda v: LocatedPatches(v, PLACES), "Z", never),
    "LocatedPatches locations": Argument(lambda v: LocatedPatches(PATCHES, v), "locations", never),
    "GPLayer kernel": Argument(lambda v: GPLayer(v, Z), "kernel", never),
    "GPLayer inducing_variable": Argument(lambda v: GPLayer(kernel(), v), "base", never),
    "GPLayer num_latent_gps": Argument(
        lambda v: layer(num_latent_gps=v),
        "num_latent_gps",
        lambda v: count_or_none(v) and v != 10**9,
    ),
    "GPLayer mean_function": Argument(
        lambda v: deep(layer(mean_function=v)).elbo(two), "mean_function", none
    ),
    "GPLayer whiten": Argument(lambda v: layer(whiten=v), "whiten", flag),
    "GPLayer q_mu": Argument(lambda v: layer(q_mu=v), "q_mu", none),
    "GPLayer q_sqrt": Argument(lambda v: layer(q_sqrt=v), "q_sqrt", none),
    "GPLayer.start_at filters": Argument(lambda v: layer().start_at(v), "filters", never),
    "ConvLayer image_shape": Argument(lambda v: convolution(image_shape=v), "image_shape", never),
    "ConvLayer patch_shape": Argument(lambda v: convolution(patch_shape=v), "patch_shape", never),
    "ConvLayer stride": Argument(lambda v: convolution(stride=v), "stride", count),
    "DeepGP layers": Argument(lambda v: DeepGP(v, likelihoods.Gaussian()), "layers", never),
    "DeepGP likelihood": Argument(lambda v: DeepGP([layer(), top()], v), "likelihood", never),
    "DeepGP num_data": Argument(lambda v: deep(num_data=v), "num_data", num_data),
    "DeepGP num_samples": Argument(
        lambda v: deep(num_samples=v), "num_samples", lambda v: count(v) and v < 10**9
    ),
    "DeepGP num_prediction_samples": Argument(
        lambda v: deep(num_prediction_samples=v), "num_prediction_samples", count
    ),
    "DeepGP sampling": Argument(lambda v: deep(sampling=v), "sampling", never),
    "DeepGP seed": Argument(lambda v: deep(seed=v), "seed", lambda v: v is None or seed(v)),
    "DeepGP.elbo eps": Argument(lambda v: MODEL.elbo(two, v), "eps", none),
    "DeepGP.propagate X": Argument(MODEL.propagate, "X", never, ("Xnew",)),
    "DeepGP.propagate eps": Argument(lambda v: MODEL.propagate(X, v), "eps", none),
    "DeepGP.predict_f_samples num_samples": Argument(
        lambda v: MODEL.predict_f_samples(X, v),
        "num_samples",
        lambda v: v is None or (count(v) and v < 10**6),
    ),
    "DeepGP.predict_y full_cov": Argument(
        lambda v: MODEL.predict_y(X, full_cov=v), "full_cov", lambda v: flag(v) and not v
    ),
    "identity_convolution patch_shape": Argument(
        lambda v: mean_functions.identity_convolution(v, 1, 1), "patch_shape", never
    ),
    "identity_convolution num_channels": Argument(
        lambda v: mean_functions.identity_convolution(PIXEL, v, 1),
        "num_channels",
        lambda v: count(v) and v < 10**6,
    ),
    "identity_convolution num_outputs": Argument(
        lambda v: mean_functions.identity_convolution(PIXEL, 1, v),
        "num_outputs",
        lambda v: count(v) and v < 10**6,
    ),
    "pca num_outputs": Argument(
        lambda v: mean_functions.pca(X, v), "num_outputs", lambda v: count(v) and v < 10**6
    ),
    "deep likelihood": Argument(
        lambda v: of_table(likelihood="none" if v is None else v), "likelihood", never
    ),
    "deep num_inducing": Argument(
        lambda v: of_table(num_inducing=v), "num_inducing", lambda v: count(v) and v <= N
    ),
    "deep num_orthogonal": Argument(
        lambda v: of_table(num_orthogonal=v),
        "num_orthogonal",
        lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and 0 <= v <= N - 2,
    ),
    "deep num_layers": Argument(
        lambda v: of_table(num_layers=v), "num_layers", lambda v: count(v) and v <= 10
    ),
    "deep num_hidden": Argument(
        lambda v: of_table(num_hidden=v),
        "num_hidden",
        lambda v: v is None or (count(v) and v < 10**4),
    ),
    "deep num_neighbors": Argument(
        lambda v: of_table(num_neighbors=v),
        "num_neighbors",
        lambda v: v is None or (count(v) and v <= 2),
    ),
    "deep kernel": Argument(lambda v: of_table(kernel=v), "kernel", lambda v: v is None),
    "deep num_data": Argument(lambda v: of_table(num_data=v), "num_data", num_data),
    "deep seed": Argument(lambda v: of_table(seed=v), "seed", seed),
    "deep_convolutional image_shape": Argument(
        lambda v: built(image_shape=v), "image_shape", never
    ),
    "deep_convolutional likelihood": Argument(
        lambda v: built(likelihood="none" if v is None else v), "likelihood", never
    ),
    "deep_convolutional num_inducing": Argument(
        lambda v: built(num_inducing=v), "num_inducing", lambda v: count(v) and v <= 2
    ),
    "deep_convolutional num_orthogonal": Argument(
        lambda v: built(num_orthogonal=v),
        "num_orthogonal",
        lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and 0 <= v <= 2,
    ),
    "deep_convolutional num_layers": Argument(
        lambda v: built(num_layers=v, architecture=None), "num_layers", never, ("patch_shape",)
    ),
    "deep_convolutional architecture": Argument(
        lambda v: built(architecture=v), "architecture", never, ("patch_shape",)
    ),
    "deep_convolutional tick": Argument(lambda v: built(tick=v), "tick", flag),
    "deep_convolutional whiten": Argument(lambda v: built(whiten=v), "whiten", flag),
    "deep_convolutional num_data": Argument(lambda v: built(num_data=v), "num_data", num_data),
    "deep_convolutional seed": Argument(lambda v: built(seed=v), "seed", seed),
}


# ------------------------------------------------------------------ what does not go together
def on_classes(labels, likelihood=None, call="elbo", model=deep):
    likelihood = likelihoods.MultiClass(3) if likelihood is None else likelihood
    return lambda: getattr(model(P=3, likelihood=likelihood), call)((X, labels))


def float32_layer():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return GPLayer(kernels.Matern52(), Z.astype(np.float32), num_latent_gps=2)


TOGETHER = {
    "a patch larger than the image": (
        lambda: Convolutional(kernel(1), IMAGE, (2, 1)),
        "patch_shape",
    ),
    "weights of another number": (lambda: convolutional(weights=np.ones(3)), "weights"),
    "weights nan": (lambda: convolutional(weights=[1.0, np.nan]), "weights"),
    "lengthscales of other patches": (
        lambda: Convolutional(kernel(2), IMAGE, PIXEL),
        "base_kernel.lengthscales",
    ),
    "a base kernel of two outputs": (
        lambda: Convolutional(kernels.SharedIndependent(kernel(1), 2), IMAGE, PIXEL),
        "base_kernel",
    ),
    "a location kernel of three columns": (
        lambda: tick(location_kernel=kernel(3)),
        "location_kernel.lengthscales",
    ),
    "fewer locations than patches": (lambda: LocatedPatches(PATCHES, PLACES[:2]), "locations"),
    "locations of three columns": (lambda: LocatedPatches(PATCHES, np.ones((3, 3))), "locations"),
    "patches of another kernel": (
        lambda: on_images(kernel(), Patches(PATCHES)).elbo(two),
        "kernel",
    ),
    "patches without places": (lambda: on_images(tick(), Patches(PATCHES)).elbo(two), "kernel"),
    "places without a use": (
        lambda: on_images(None, LocatedPatches(PATCHES, PLACES)).elbo(two),
        "kernel",
    ),
    "patches of another length": (lambda: on_images(None, Patches(Z)).elbo(two), "Z"),
    "patches and points": (lambda: on_images(None, Patches(Z), Z), "inducing sets"),
    "images of another size": (lambda: on_images().elbo((np.ones((N, 3)), Y)), "X"),
    "images of another size, compiled": (
        lambda: captured(on_images().elbo)((np.ones((N, 3)), Y)),
        "X",
    ),
    "a stock model of other patches": (
        lambda: gpflow.models.SVGP(convolutional(), likelihoods.Gaussian(), Patches(Z)).elbo(two),
        "Z",
    ),
    "a mean function of other patches": (
        lambda: convolution(mean_function=mean_functions.identity_convolution((1, 2), 1, 1)),
        "mean_function",
    ),
    "layers that do not fit": (
        lambda: DeepGP([layer(num_latent_gps=3), top()], likelihoods.Gaussian()),
        "layers[1]",
    ),
    "an image at the end": (lambda: DeepGP([convolution()], likelihoods.Gaussian()), "last layer"),
    "a float32 layer": (lambda: deep(float32_layer()).elbo(two), "layers"),
    "a float32 kernel": (
        lambda: DeepGP([GPLayer(float32_kernel(), Z)], likelihoods.Gaussian()),
        "kernel",
    ),
    "three outputs and one latent function": (
        lambda: deep(likelihood=likelihoods.MultiClass(3)),
        "num_latent_gps",
    ),
    "labels beyond the classes": (on_classes(CLASSES + 1.0), "Y"),
    "labels beyond the classes, compiled": (
        lambda: captured(deep(P=3, likelihood=likelihoods.Softmax(3)).elbo)((X, CLASSES + 1.0)),
        "Y",
    ),
    "labels between classes": (on_classes(CLASSES + 0.5, likelihoods.Softmax(3)), "Y"),
    "labels in one-hot": (on_classes(np.eye(3)[CLASSES[:, 0].astype(int)]), "Y"),
    "labels beyond the classes, predicted": (
        on_classes(CLASSES - 1.0, call="predict_log_density"),
        "Y",
    ),
    "labels beyond the classes, of images": (
        on_classes(
            CLASSES + 1.0, model=lambda P, likelihood: on_images(P=P, likelihood=likelihood)
        ),
        "Y",
    ),
    "draws of another width": (lambda: MODEL.elbo(two, [np.ones((1, N, 3))]), "eps[0]"),
    "draws of other rows": (lambda: MODEL.elbo(two, [np.ones((1, N + 1, 2))]), "eps[0]"),
    "draws of rank 2": (lambda: MODEL.elbo(two, [NOISE]), "eps[0]"),
    "no draws": (lambda: MODEL.elbo(two, [np.ones((0, N, 2))]), "eps[0]"),
    "draws nan": (lambda: MODEL.elbo(two, [NOISE[None] * np.nan]), "eps[0]"),
    "draws of two layers": (lambda: MODEL.propagate(X, [NOISE[None]] * 2), "eps"),
    "joint draws of outputs": (
        lambda: MODEL.predict_f_samples(X, 2, full_output_cov=True),
        "full_output_cov",
    ),
    "neighbors that patches share": (
        lambda: deep(
            convolution(NeighborInducingPoints(PATCHES, 2)), sampling="shared_inducing"
        ).elbo(two),
        "sampling",
    ),
    "filters of a layer with neighbors": (
        lambda: convolution(NeighborInducingPoints(PATCHES, 2)).start_at(np.ones((2, 1))),
        "filters",
    ),
    "fewer rows than directions": (lambda: mean_functions.pca(np.ones((1, 3)), 2), "X"),
    "more patches than there are": (lambda: built(num_inducing=[2, 2 * N + 1]), "num_inducing"),
    "numbers of other layers": (lambda: built(num_inducing=[2, 2, 2]), "num_inducing"),
    "channels at the end": (lambda: built(architecture=[ConvSpec(1, 1, 2)]), "architecture"),
    "no channels on the way": (
        lambda: built(architecture=[ConvSpec(1), ConvSpec(1)]),
        "architecture",
    ),
    "constant images": (lambda: built(np.ones((N, 2))), "num_inducing"),
    "built for images of another size": (lambda: built(np.ones((N, 3))), "X"),
}


# ------------------------------------------------------------------ parts that were exchanged
def in_layer(i, *path, value):
    return lambda m: put(*path, value=value)(m.layers[i])


KERNEL, LAYERS, Q = ("kernel", "base_kernel"), ("layers", "layers[0]", "layers[1]"), ("q_mu",)
POINTS = ("inducing_variable", "q_mu", "Z")
SPOILS = {
    "layers None": Spoil(put("layers", value=None), LAYERS),
    "layers a number": Spoil(put("layers", value=5), LAYERS),
    "no layers": Spoil(put("layers", value=()), LAYERS),
    "layers of nothing": Spoil(put("layers", value=[None]), LAYERS),
    "layers the other way round": Spoil(lambda m: setattr(m, "layers", m.layers[::-1]), LAYERS),
    "num_samples None": Spoil(put("num_samples", value=None), ("num_samples",)),
    "num_prediction_samples 0": Spoil(
        put("num_prediction_samples", value=0), ("num_prediction_samples",)
    ),
    "sampling None": Spoil(put("sampling", value=None), ("sampling",)),
    "sampling an array": Spoil(put("sampling", value=np.ones(2)), ("sampling",)),
    "seed text": Spoil(put("seed", value="x"), ("seed",)),
    "jitter text": Spoil(put("jitter", value="x"), ("jitter",)),
    "both jitters": Spoil(
        lambda m: [put("jitter", value=1e-6)(m), in_layer(0, "jitter", value="x")(m)], ("jitter",)
    ),
    "kernel points cannot have": Spoil(put("kernel", value=kernel), KERNEL),
    "mean function of rank 1": Spoil(put("mean_function", value=FlatMean), ("mean_function",)),
    "mean function nan": Spoil(nan_mean, ("mean_function", "layers.1.mean_function.c")),
    "lengthscales nan": Spoil(
        free(lambda m: m.layers[0].kernel.lengthscales, np.nan), ("layers[0].kernel.lengthscales",)
    ),
    "stride 0": Spoil(put("kernel", "stride", value=0), ("stride",)),
    "patch_shape too large": Spoil(put("kernel", "patch_shape", value=(2, 1)), ("patch_shape",)),
    "image_shape another": Spoil(put("kernel", "image_shape", value=(2, 2, 1)), LAYERS),
    "weights of another number": Spoil(
        put("kernel", "weights", value=lambda: gpflow.Parameter(np.ones(3))), ("weights",)
    ),
    "average text": Spoil(put("kernel", "average", value="x"), ("average",)),
    "base kernel None": Spoil(put("kernel", "base_kernel", value=None), KERNEL),
    "base kernel of other patches": Spoil(
        put("kernel", "base_kernel", value=lambda: kernel(3)), ("base_kernel.lengthscales",)
    ),
}
for i in (0, 1):
    SPOILS |= {
        f"layers[{i}].{name}": Spoil(in_layer(i, *path, value=value), names)
        for name, (path, value, names) in {
            "kernel None": (("kernel",), None, KERNEL),
            "q_mu None": (("q_mu",), None, Q),
            "q_mu short": (("q_mu",), lambda: [tf.zeros([2, 1], tf.float64)], Q),
            "q_sqrt None": (("q_sqrt",), None, ("q_sqrt",)),
            "whiten text": (("whiten",), "x", ("whiten",)),
            "num_latent_gps another": (("num_latent_gps",), 3, (*Q, *LAYERS)),
            "inducing_variable None": (("inducing_variable",), None, POINTS),
            "inducing_variable points": (("inducing_variable",), lambda: InducingPoints(Z), POINTS),
            "inducing_variable an array": (("inducing_variable",), lambda: Z, POINTS),
            "inducing_variable of other size": (
                ("inducing_variable",),
                lambda: OrthogonalInducingVariables(X),
                POINTS,
            ),
        }.items()
    }
SPOILED_DOORS = {
    "elbo": lambda m: m.elbo(two),
    "predict_y": lambda m: m.predict_y(X),
    "captured: predict_f": captured(lambda m: m.predict_f(X)),
    "fit": lambda m: fit(m, two, num_steps=1, progress=False).elbo,
}


BUILDERS = {"DeepGP": lambda: deep(num_data=N)}


def spared(spoil, name, door):
    """Nothing that is wrong here may be passed over."""
    return False


# ------------------------------------------------------------------ what the tests take
EAGER = tuple(name for name, door in DOORS.items() if not door.slow)
CORE = ("DeepGP.elbo | X", "DeepPosterior.predict_y", "LocatedPatches locations", "pca X")
COMPILED = ("traced: DeepGP.predict_f", "traced: DeepGP.elbo | X")
TAKING = ()
SPOILED_IN_TESTS = ("elbo", "captured: predict_f")
