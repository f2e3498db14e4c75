"""Every model of the package that the battery runs over; a new method adds one line below."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_sparse import inducing_variables as iv
from gpflow_sparse import models
from gpflow_sparse.bases import GridEigenfunctions, Hybrid, RandomFourier
from gpflow_sparse.inference.dirichlet import dirichlet_observations
from gpflow_sparse.kernels import TICK, Basis, Convolutional, WithMissingVariance
from gpflow_sparse.likelihoods import BernoulliLogit, OneVersusRest
from gpflow_sparse.mean_functions import RectifiedFilters, pca

N, D = 12, 2


def inputs(seed=1, rows=N):
    return np.random.default_rng(seed).normal(size=(rows, D))


def reals(P):
    return lambda: (
        np.sin(2.0 * inputs()[:, :1]) + 0.3 * np.random.default_rng(2).normal(size=(N, P))
    )


def held(P):
    return inputs(), reals(P)()


def labels():
    return (inputs()[:, :1] > 0).astype(float)


def classes():
    return np.arange(float(N))[:, None] % 3


def gaussian():
    return gpflow.likelihoods.Gaussian(0.2)


class Member(NamedTuple):
    """How to build a model of one kind, and what the battery may expect of it."""

    build: Callable[..., gpflow.models.GPModel]
    """``build(num_data=None)``: the same model at every call, not yet trained."""
    outputs: Callable[[], np.ndarray]
    """``Y [N, P]`` for :func:`inputs`."""
    guarded: bool = True
    """Whether the model is ours; stock GPflow models run without our guards."""
    float32: bool = True
    """Whether float32 is supported away from the prior; un-whitened models say no."""

    degenerate: bool = False
    """Whether f is a finite sum, so that variances vanish far away; Gaussian sums only."""
    drawable: bool = True
    """Whether its posterior draws functions."""
    xla: float | None = None
    """
    Relative error of XLA, whose eigenvectors are iterated to about 1e-6 only; None without it, or
    where ``tests/training/test_kernels_of_gpu.py`` compiles steps of the like, which takes seconds.
    """
    prior: bool = True
    """Whether q starts at the prior; independent inducing variables start closest to it."""
    one_kl: bool = True
    """Whether there is a KL of q as a whole; with neighbors most have one for each row."""
    averages: bool = True
    """Whether estimates over the disjoint batches of an epoch average to the bound."""
    shared: bool = False
    """Whether the rows of a batch see the same points in training, and their own in prediction."""
    deep: bool = False
    """
    Whether f goes through hidden layers: its prior is not the kernel's, and the draws that make
    ``full_cov`` predictions are others than those of variances, joint over the rows in their order.
    """
    mixture: bool = False
    """Whether predictions average over several Gaussians, so that moments of f do not give them."""

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return inputs(), self.outputs()


def matern():
    return gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.8, 1.2])


def separate():
    return gpflow.kernels.SeparateIndependent([matern(), gpflow.kernels.Matern32(variance=0.7)])


def two_kernels():
    return matern() + gpflow.kernels.Matern32(variance=0.7)


def mixed():
    """Three outputs from two latent functions."""
    W = [[1.0, 0.2], [-0.4, 0.8], [0.5, 0.5]]
    return gpflow.kernels.LinearCoregionalization(
        [matern(), gpflow.kernels.SquaredExponential()], W=W
    )


def sets(sizes=(4, 3), seed=3):
    """Orthogonal sets of inducing points."""
    rng = np.random.default_rng(seed)
    return iv.OrthogonalInducingVariables(*(rng.normal(size=(M, D)) for M in sizes))


def linear(P):
    return gpflow.functions.Linear(np.full((D, P), 0.2), np.full(P, 0.5))


def solvegp(
    sizes=(5, 4), *, model=models.SOLVEGP, kernel=matern, inducing=None, P=1, **options
) -> Callable[..., Any]:
    """
    A builder of a model over orthogonal sets; the drop-in form if ``model`` is stock SVGP.

    ``P`` counts the columns of the mean function and of Y; the kernel may mix fewer latents.
    """
    likelihood = options.pop("likelihood", gaussian)

    def build(num_data=None):
        return model(
            kernel(),
            likelihood(),
            sets(sizes) if inducing is None else inducing(),
            mean_function=linear(P),
            num_data=num_data,
            **{"num_latent_gps": P, **options},
        )

    return build


def solvegpr(bound, sizes=(5, 4), P=1) -> Callable[..., Any]:
    """A builder of a regression model, which holds its data."""

    options = {"noise_variance": 0.2, "bound": bound}
    return lambda: models.SOLVEGPR(
        held(P), matern(), sets(sizes), mean_function=linear(P), **options
    )


def gaussian_product():
    return gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=[0.8, 1.2])


def grid(p=9):
    """The leading eigenfunctions of a product kernel on a grid of 25 points."""
    return lambda: GridEigenfunctions(gaussian_product(), inputs(), p, 5)


def fourier():
    return RandomFourier(matern(), 8, seed=2)


def basis_svgp(basis, P=1, likelihood=gaussian, **options) -> Callable[..., Any]:
    """A builder of a model over the weights of a basis."""
    options = {"num_latent_gps": P} | options
    return lambda num_data=None: models.BasisSVGP(
        basis(), likelihood(), mean_function=linear(P), num_data=num_data, **options
    )


def basis_gpr(basis, P=1) -> Callable[..., Any]:
    """A builder of exact regression with a basis, which holds its data."""
    options = {"noise_variance": 0.2}
    return lambda: models.BasisGPR(held(P), basis(), mean_function=linear(P), **options)


def grief(P=1, **options) -> Callable[..., Any]:
    """A builder of a GRIEF model, which holds its data."""
    sizes = {"num_eigenfunctions": 9, "points_per_dimension": 5, "noise_variance": 0.2}
    return lambda: models.GRIEF(
        held(P), gaussian_product(), mean_function=linear(P), **sizes, **options
    )


def softki(P=1, filled=False, **options) -> Callable[..., Any]:
    """A builder of soft interpolation between five points, its posterior fitted."""

    def build(num_data=None):
        model = models.SoftKI(
            matern(),
            np.random.default_rng(3).normal(size=(5, D)),
            mean_function=linear(P),
            num_latent_gps=P,
            noise_variance=0.2,
            num_data=num_data,
            **options,
        )
        if filled:
            model.kernel = WithMissingVariance(model.basis)
        return settle(model)

    return build


def mixture(P=1) -> Callable[..., Any]:
    """A builder of a mixture of one exact GP, which holds its data."""
    options = {"noise_variance": 0.2}
    return lambda: models.GPMixture(held(P), [matern()], mean_function=linear(P), **options)


def nearest(H, P=1) -> Callable[..., Any]:
    """A builder of exact GPs on the H nearest rows, which holds its data."""
    options = {"num_neighbors": H, "noise_variance": 0.2, "num_objective_rows": 9}
    return lambda: models.NearestNeighborGP(held(P), matern(), mean_function=linear(P), **options)


def nearest_classes():
    """Classes from the 5 nearest rows, with a prior mean for each."""
    data, eps = (inputs(), classes()), np.float64(0.1)
    observed, _ = dirichlet_observations(data[1][:, 0].astype(int), 3, eps)
    mean = gpflow.functions.Constant(np.mean(observed, axis=0))
    model = models.NearestNeighborClassifier(data, matern(), 3, num_neighbors=5, mean_function=mean)
    model.concentration.assign(eps)
    return model


def site_vgp(outputs, likelihood, P, kernel=matern) -> Callable[..., Any]:
    """A builder of a model with q at all rows, which holds its data; its sites fitted."""
    return lambda: settle(
        models.SiteVGP((inputs(), outputs()), kernel(), likelihood(), mean_function=linear(P))
    )


def settle(model):
    """What follows from the parameters and is kept, for the parameters as they are now."""
    if isinstance(model, models.SiteVGP):
        model.fit_sites()
    kind = model.dtype.as_numpy_dtype if isinstance(model, models.SoftKI | models.SWSGP) else None
    if isinstance(model, models.SoftKI):
        rows = inputs().astype(kind), reals(model.num_latent_gps)().astype(kind)
        model.fit_posterior(rows, refit_noise=False)
    if isinstance(model, models.SWSGP):
        model.count_neighbors(inputs().astype(kind))
    return model


def hybrid():
    """Three inducing points and six random features for the rest."""
    return Hybrid(matern(), inputs()[:3], 6, seed=2)


def qsgp(basis, P=1, likelihood=gaussian, **options) -> Callable[..., Any]:
    """A builder of a sub-sampled model that takes all its functions, so that nothing is random."""

    def build(num_data=None):
        functions = basis()
        head = options.get("num_dense_columns", functions.num_leading)
        return models.QSGP(
            functions,
            likelihood(),
            mean_function=linear(P),
            num_latent_gps=P,
            num_data=N if num_data is None else num_data,
            basis_batch_size=functions.num_basis - head,
            **options,
        )

    return build


def rvm(num_data=None):
    """One function at each input, and a constant."""
    return models.RVM(
        inputs(),
        gaussian_product(),
        gpflow.likelihoods.Gaussian(0.2),
        num_data=N if num_data is None else num_data,
        basis_batch_size=N + 1,
        mean_function=linear(1),
    )


def swsgp(H=4, M=9, *, kernel=matern, P=1, likelihood=gaussian, points=None, **options):
    """A builder of a model in which each row sees H of M points, their users counted."""

    def build(num_data=None):
        model = models.SWSGP(
            kernel(),
            likelihood(),
            iv.NeighborInducingPoints(inputs(seed=3, rows=M), H, **(points or {})),
            mean_function=linear(P),
            num_data=num_data,
            **{"num_latent_gps": P, **options},
        )
        return settle(model)

    return build


def multiclass():
    return gpflow.likelihoods.MultiClass(3)


def convolutional(channels=1):
    """Over images of 1 x 2 pixels, one at a time."""
    base = gpflow.kernels.Matern52(variance=1.3, lengthscales=0.8)
    return Convolutional(base, (1, 2, channels), (1, 1), weights=[0.7, 1.4], average=False)


def tick(channels=1):
    """The same, depending on where the pixel is."""
    return TICK(
        gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=1.1),
        (1, 2, channels),
        (1, 1),
        location_kernel=gpflow.kernels.Matern32(lengthscales=0.9),
    )


def pixels(sizes=(5, 4), seed=3, channels=1):
    """Orthogonal sets of inducing pixels."""
    rng = np.random.default_rng(seed)
    return iv.OrthogonalInducingVariables(
        *(iv.Patches(rng.normal(size=(M, channels))) for M in sizes)
    )


def located(sizes=(5, 4), seed=3, channels=1):
    """The same, with places."""
    rng = np.random.default_rng(seed)
    parts = ((rng.normal(size=(M, channels)), rng.uniform(size=(M, 2))) for M in sizes)
    return iv.OrthogonalInducingVariables(*(iv.LocatedPatches(*part) for part in parts))


def hidden(points=sets, mean=None, **options) -> Callable[..., Any]:
    """A builder of a layer of two outputs."""
    return lambda: models.GPLayer(
        matern(), points(), num_latent_gps=2, mean_function=mean and mean(), **options
    )


def basis_layer():
    basis = fourier()
    return models.GPLayer(Basis(basis), iv.BasisFeatures(basis), num_latent_gps=2)


def convolution_layer():
    """Two channels of each pixel."""
    points = iv.OrthogonalInducingVariables(*(part.Z for part in pixels((4, 2)).sets))
    kernel = gpflow.kernels.Matern52(variance=1.3, lengthscales=0.8)
    return models.ConvLayer(kernel, points, (1, 2), (1, 1), num_latent_gps=2)


def top_layer(P=1):
    return models.GPLayer(matern(), sets(seed=8), num_latent_gps=P, mean_function=linear(P))


def image_layer():
    """Three classes from images of two channels; robust-max alone would not see a variance."""
    mean = gpflow.functions.Linear(np.full((4, 3), 0.2), np.arange(3.0))
    return models.GPLayer(tick(2), located(channels=2), num_latent_gps=3, mean_function=mean)


def deep(hidden, last=top_layer, likelihood=gaussian, **options) -> Callable[..., Any]:
    """A builder of a model of two layers whose draws are frozen, so that nothing is random."""
    options = {"seed": 0, "num_samples": 3, "num_prediction_samples": 3} | options
    return lambda num_data=None: models.DeepGP(
        [hidden(), last()], likelihood(), num_data=num_data, **options
    )


BERNOULLI = gpflow.likelihoods.Bernoulli
HIDDEN = {"deep": True, "mixture": True}
OF_ROWS = {"prior": False, "one_kl": False}
ONE_DRAW = {"num_samples": 1, "num_prediction_samples": 1, "sampling": "shared_inducing"}
MIXED = {"P": 3, "kernel": mixed, "num_latent_gps": None}
MEMBERS = {
    "solvegp": Member(solvegp(P=2), reals(2)),
    "solvegp_unwhitened": Member(solvegp(P=2, whiten=False), reals(2), float32=False),
    "solvegp_three_sets": Member(solvegp((5, 3, 2)), reals(1)),
    "solvegp_bernoulli": Member(solvegp(likelihood=BERNOULLI), labels),
    "solvegp_multiclass": Member(solvegp(P=3, likelihood=multiclass), classes),
    "solvegp_separate": Member(solvegp(P=2, kernel=separate), reals(2)),
    "solvegp_mixed": Member(solvegp(**MIXED), reals(3)),
    "solvegp_mixed_unwhitened": Member(solvegp(**MIXED, whiten=False), reals(3), float32=False),
    "odvgp": Member(solvegp(model=models.ODVGP, P=2), reals(2)),
    "odvgp_unwhitened": Member(solvegp(model=models.ODVGP, whiten=False), reals(1), float32=False),
    "odvgp_bernoulli": Member(solvegp(model=models.ODVGP, likelihood=BERNOULLI), labels),
    "odvgp_mixed": Member(solvegp(model=models.ODVGP, **MIXED), reals(3)),
    "stock_svgp_mixed": Member(
        solvegp(model=gpflow.models.SVGP, P=3, kernel=mixed, num_latent_gps=2),
        reals(3),
        guarded=False,
    ),
    "basis_svgp": Member(basis_svgp(grid(), P=2), reals(2)),
    "basis_svgp_finite": Member(basis_svgp(grid(), keep_residual=False), reals(1), degenerate=True),
    "basis_svgp_fourier": Member(basis_svgp(fourier, P=2), reals(2)),
    "basis_svgp_bernoulli": Member(basis_svgp(grid(), likelihood=BERNOULLI), labels),
    "qsgp": Member(qsgp(fourier, P=2), reals(2)),
    "qsgp_block": Member(qsgp(hybrid, P=2), reals(2)),
    "qsgp_chevron": Member(qsgp(fourier, P=2, covariance="chevron", num_dense_columns=3), reals(2)),
    "qsgp_grid": Member(qsgp(grid()), reals(1), degenerate=True),
    "qsgp_bernoulli": Member(qsgp(fourier, likelihood=BernoulliLogit), labels),
    "rvm": Member(rvm, reals(1)),
    "swsgp": Member(swsgp(P=2), reals(2), **OF_ROWS),
    "swsgp_dense": Member(
        swsgp(covariance="dense", points={"global_indices": [5, 0]}), reals(1), one_kl=False
    ),
    "swsgp_chain": Member(swsgp(kl_weighting="chain"), reals(1), prior=False, averages=False),
    "swsgp_union": Member(swsgp(union=6), reals(1), **OF_ROWS, averages=False, shared=True),
    "swsgp_bernoulli": Member(swsgp(likelihood=BERNOULLI, kl_weighting="paper"), labels, **OF_ROWS),
    "swsgp_separate": Member(swsgp(P=2, kernel=separate), reals(2), **OF_ROWS),
    "stock_svgp": Member(solvegp(model=gpflow.models.SVGP, P=2), reals(2), guarded=False),
    "solvegp_patches": Member(
        solvegp(kernel=convolutional, inducing=pixels, P=2), reals(2), drawable=False
    ),
    "solvegp_located": Member(
        solvegp(kernel=tick, inducing=located, P=3, likelihood=multiclass),
        classes,
        drawable=False,
        xla=1e-8,
    ),
    "deep": Member(
        deep(hidden(mean=lambda: pca(inputs(), 2), whiten=False), lambda: top_layer(2)),
        reals(2),
        float32=False,
        **HIDDEN,
    ),
    "deep_neighbors": Member(
        deep(hidden(lambda: iv.NeighborInducingPoints(inputs(seed=3, rows=7), 4))),
        reals(1),
        prior=False,
        **HIDDEN,
    ),
    "deep_rectified": Member(
        deep(hidden(mean=lambda: RectifiedFilters(np.random.default_rng(5).normal(size=(2, 2))))),
        reals(1),
        **HIDDEN,
    ),
    "deep_basis": Member(deep(basis_layer), reals(1), **HIDDEN),
    "deep_convolution": Member(
        deep(convolution_layer, image_layer, multiclass, **ONE_DRAW),
        classes,
        drawable=False,
        deep=True,
    ),
}

# Models that hold their data, or a q that was computed from data: nothing to train in either case.
REGRESSIONS = {
    "solvegpr": Member(solvegpr("standard", (5, 3, 2), P=2), reals(2), xla=1e-8),
    "solvegpr_coupled": Member(solvegpr("coupled", P=2), reals(2)),
    "solvegpr_tighter": Member(solvegpr("fully_coupled"), reals(1)),
    "basis_gpr": Member(basis_gpr(grid(), P=2), reals(2), degenerate=True, xla=1e-4),
    "basis_gpr_fourier": Member(basis_gpr(fourier), reals(1)),
    "softki": Member(softki(P=2, temperature=0.4, tied=True), reals(2)),
    "softki_filled": Member(
        softki(filled=True, temperature=1.0, tied=False), reals(1), drawable=False
    ),
    "grief": Member(grief(P=2), reals(2), xla=1e-4),
    "grief_likelihood": Member(grief(objective="likelihood"), reals(1), degenerate=True),
    "grief_corrected": Member(grief(objective="corrected"), reals(1)),
    "grief_original": Member(grief(reweighted="original", P=2), reals(2)),
    "mixture": Member(mixture(P=2), reals(2), xla=1e-8),
    "site_vgp": Member(site_vgp(reals(2), gaussian, 2), reals(2), xla=1e-8),
    "site_vgp_classes": Member(
        site_vgp(classes, lambda: OneVersusRest(3), 3, two_kernels),
        classes,
    ),
    "gpnn": Member(nearest(5, P=2), reals(2), xla=1e-8),
    "gpnn_classes": Member(nearest_classes, classes),
    "gpnn_all": Member(nearest(N), reals(1)),
    "grief_rotated": Member(grief(reweighted="rotated", P=2), reals(2)),
}
ALL = MEMBERS | REGRESSIONS

# One member of each class of models, for what does not depend on how the class is set up.
KINDS = {
    name: ALL[name]
    for name in (
        *("solvegp", "odvgp", "basis_svgp", "qsgp", "rvm", "swsgp", "deep", "solvegpr"),
        *("basis_gpr", "softki", "grief", "mixture", "site_vgp", "gpnn", "gpnn_classes"),
    )
}


def perturb(model, seed=4, scale=0.3):
    """Move every trainable variable at random, so that no special case hides a mistake."""
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add((scale * rng.normal(size=variable.shape)).astype(variable.dtype.name))
    return settle(model)
