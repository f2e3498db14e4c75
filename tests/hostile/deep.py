"""The doors of convolutional kernels, inducing patches, layers and deep models."""

from functools import partial

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
from tests.hostile.judging import (
    CHECKS,
    Argument,
    Door,
    N,
    Spoil,
    X,
    Y,
    captured,
    count,
    drift,
    float32_kernel,
    given,
    nan_mean,
    never,
    pairs,
    swap,
    takes,
    traced,
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
    yield "traced: DeepGP.predict_f", traced(MODEL.predict_f)
    yield "traced: DeepGP.elbo | X", traced(lambda v: MODEL.elbo((v, Y)), "X", unseen=True)


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


# ------------------------------------------------------------------ arguments that are not arrays
def up_to(most, least=1):
    """A check of integers from ``least`` to ``most``."""
    return lambda v: (count(v) or (v is not True and CHECKS["index"](v))) and least <= v <= most


IMAGES = partial(Convolutional, base_kernel=kernel(1), image_shape=IMAGE, patch_shape=PIXEL)
IDENTITY = mean_functions.identity_convolution
ARGUMENTS = {
    **takes("Convolutional", IMAGES, never="base_kernel image_shape patch_shape"),
    **takes("Convolutional", convolutional, count="stride", flag="average", none="weights"),
    **takes("TICK", tick, none="location_kernel"),
    **takes("Patches", Patches, never="Z"),
    **takes(
        "LocatedPatches", partial(LocatedPatches, Z=PATCHES, locations=PLACES), never="Z locations"
    ),
    **takes("GPLayer", partial(GPLayer, inducing_variable=Z), never="kernel"),
    "GPLayer inducing_variable": Argument(lambda v: GPLayer(kernel(), v), "base", never),
    **takes("GPLayer", layer, latents="num_latent_gps", flag="whiten", none="q_mu q_sqrt"),
    **takes("GPLayer", lambda **o: deep(layer(**o)).elbo(two), none="mean_function"),
    **takes("GPLayer.start_at", lambda **o: layer().start_at(**o), never="filters"),
    **takes("ConvLayer", convolution, never="image_shape patch_shape", count="stride"),
    **takes("DeepGP", partial(DeepGP, likelihood=likelihoods.Gaussian()), never="layers"),
    **takes("DeepGP", lambda **o: DeepGP([layer(), top()], **o), never="likelihood"),
    **takes("DeepGP", deep, num_data="num_data", some="num_samples", never="sampling"),
    **takes("DeepGP", deep, count="num_prediction_samples", seed_or_none="seed"),
    **takes("DeepGP.elbo", partial(MODEL.elbo, two), none="eps"),
    **takes("DeepGP.propagate", MODEL.propagate, never="X", also=("Xnew",)),
    **takes("DeepGP.propagate", partial(MODEL.propagate, X), none="eps"),
    **takes(
        "DeepGP.predict_f_samples",
        partial(MODEL.predict_f_samples, X),
        num_samples=lambda v: v is None or CHECKS["some"](v),
    ),
    **takes("DeepGP.predict_y", partial(MODEL.predict_y, X), no="full_cov"),
    **takes(
        "identity_convolution",
        partial(IDENTITY, num_channels=1, num_outputs=1),
        never="patch_shape",
    ),
    **takes(
        "identity_convolution",
        partial(IDENTITY, PIXEL, num_channels=1, num_outputs=1),
        some="num_channels num_outputs",
    ),
    **takes("pca", partial(mean_functions.pca, X), some="num_outputs"),
    "deep likelihood": Argument(lambda v: of_table(likelihood=given(v)), "likelihood", never),
    **takes("deep", of_table, none="kernel", num_data="num_data", seed="seed"),
    **takes("deep", of_table, num_inducing=up_to(N), num_orthogonal=up_to(N - 2, least=0)),
    **takes("deep", of_table, num_layers=up_to(10)),
    **takes("deep", of_table, num_hidden=lambda v: v is None or up_to(10**4)(v)),
    **takes("deep", of_table, num_neighbors=lambda v: v is None or up_to(2)(v)),
    "deep_convolutional likelihood": Argument(
        lambda v: built(likelihood=given(v)), "likelihood", never
    ),
    **takes("deep_convolutional", built, never="image_shape", flag="tick whiten"),
    **takes("deep_convolutional", built, num_data="num_data", seed="seed"),
    **takes("deep_convolutional", built, num_inducing=up_to(2), num_orthogonal=up_to(2, least=0)),
    **takes(
        "deep_convolutional",
        partial(built, architecture=None),
        never="num_layers architecture",
        also=("patch_shape",),
    ),
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
    "images of another size, of a kernel": (lambda: convolutional()(np.ones((N, 3))), "X"),
    "neighbors beside an orthogonal set": (
        lambda: of_table(num_neighbors=1, num_orthogonal=2),
        "num_orthogonal",
    ),
    "neighbors of one layer": (
        lambda: of_table(num_neighbors=1, num_orthogonal=0, num_layers=1),
        "num_layers",
    ),
    "more hidden columns than lengthscales": (
        lambda: of_table(kernel=kernel(), num_hidden=3),
        "kernel",
    ),
    "lengthscales of other inputs": (
        lambda: GPLayer(kernel(3), Z),
        "kernel.lengthscales",
    ),
    "a mean function of more inputs": (
        lambda: layer(mean_function=mean_functions.pca(np.eye(3), 2)),
        "mean_function",
    ),
    "a layer of one covariance": (lambda: layer(q_sqrt=[np.eye(4)[None]]), "q_sqrt[0]"),
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
KERNEL, LAYERS, Q = ("kernel", "base_kernel"), ("layers", "layers[0]", "layers[1]"), ("q_mu",)
POINTS = ("inducing_variable", "q_mu", "Z")
SPOILS = {
    "layers None": swap("layers", None, LAYERS),
    "layers a number": swap("layers", 5, LAYERS),
    "no layers": swap("layers", (), LAYERS),
    "layers of nothing": swap("layers", [None], LAYERS),
    "layers the other way round": Spoil(lambda m: setattr(m, "layers", m.layers[::-1]), LAYERS),
    "num_samples None": swap("num_samples", None, ("num_samples",)),
    "num_prediction_samples 0": swap("num_prediction_samples", 0, ("num_prediction_samples",)),
    "sampling None": swap("sampling", None, ("sampling",)),
    "sampling an array": swap("sampling", np.ones(2), ("sampling",)),
    "seed text": swap("seed", "x", ("seed",)),
    "jitter text": swap("jitter", "x", ("jitter",)),
    "jitter of a layer": swap("layers[0].jitter", "x", ("jitter",)),
    "kernel points cannot have": swap("kernel", kernel, KERNEL),
    "mean function nan": Spoil(nan_mean, ("mean_function", "layers.1.mean_function.c")),
    "lengthscales nan": drift(
        "layers[0].kernel.lengthscales", np.nan, ("layers[0].kernel.lengthscales",)
    ),
    "stride 0": swap("kernel.stride", 0, ("stride",)),
    "patch_shape too large": swap("kernel.patch_shape", (2, 1), ("patch_shape",)),
    "image_shape another": swap("kernel.image_shape", (2, 2, 1), LAYERS),
    "weights of another number": swap(
        "kernel.weights", lambda: gpflow.Parameter(np.ones(3)), ("weights",)
    ),
    "average text": swap("kernel.average", "x", ("average",)),
    "base kernel None": swap("kernel.base_kernel", None, KERNEL),
    "base kernel of other patches": swap(
        "kernel.base_kernel", lambda: kernel(3), ("base_kernel.lengthscales",)
    ),
}
for i in (0, 1):
    SPOILS |= {
        f"layers[{i}].{name}": swap(f"layers[{i}].{name.split()[0]}", value, names)
        for name, (value, names) in {
            "kernel None": (None, KERNEL),
            "q_mu None": (None, Q),
            "q_mu short": (lambda: [tf.zeros([2, 1], tf.float64)], Q),
            "q_sqrt None": (None, ("q_sqrt",)),
            "whiten text": ("x", ("whiten",)),
            "num_latent_gps another": (3, (*Q, *LAYERS)),
            "inducing_variable None": (None, POINTS),
            "inducing_variable points": (lambda: InducingPoints(Z), POINTS),
            "inducing_variable an array": (lambda: Z, POINTS),
            "inducing_variable of other size": (
                lambda: OrthogonalInducingVariables(X),
                POINTS,
            ),
        }.items()
    }
SPOILED_DOORS = {
    "elbo": lambda m: m.elbo(two),
    "captured: predict_f": captured(lambda m: m.predict_f(X)),
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
