"""Every model of the package that the battery runs over; a new method adds one line below."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_sparse.bases import GridEigenfunctions, Hybrid, RandomFourier
from gpflow_sparse.inducing_variables import (
    BasisFeatures,
    LocatedPatches,
    NeighborInducingPoints,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.inference.dirichlet import dirichlet_observations
from gpflow_sparse.kernels import TICK, Basis, Convolutional, WithMissingVariance
from gpflow_sparse.likelihoods import BernoulliLogit, OneVersusRest
from gpflow_sparse.mean_functions import RectifiedFilters, pca
from gpflow_sparse.models import (
    GRIEF,
    ODVGP,
    QSGP,
    RVM,
    SOLVEGP,
    SOLVEGPR,
    SWSGP,
    BasisGPR,
    BasisSVGP,
    ConvLayer,
    DeepGP,
    GPLayer,
    GPMixture,
    NearestNeighborClassifier,
    NearestNeighborGP,
    SiteVGP,
    SoftKI,
)

N, D = 12, 2


def inputs(seed=1, rows=N):
    return np.random.default_rng(seed).normal(size=(rows, D))


def reals(P):
    return lambda: (
        np.sin(2.0 * inputs()[:, :1]) + 0.3 * np.random.default_rng(2).normal(size=(N, P))
    )


def labels():
    return (inputs()[:, :1] > 0).astype(float)


def classes():
    return np.arange(float(N))[:, None] % 3


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
    xla: float | None = 1e-8
    """
    Relative error of XLA: its eigenvectors are iterated to about 1e-6 only; None without it, or
    where a like member is compiled, which takes seconds.
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


def solvegp(
    sizes=(5, 4), *, model=SOLVEGP, kernel=matern, P=1, likelihood=None, **fixed
) -> Callable[..., Any]:
    """
    A builder of a model over orthogonal sets; the drop-in form if ``model`` is stock SVGP.

    ``P`` counts the columns of the mean function and of Y; the kernel may mix fewer latents.
    """

    def build(num_data=None):
        rng = np.random.default_rng(3)
        return model(
            kernel(),
            gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood(),
            OrthogonalInducingVariables(*(rng.normal(size=(M, D)) for M in sizes)),
            mean_function=gpflow.functions.Linear(np.full((D, P), 0.2), np.full(P, 0.5)),
            num_data=num_data,
            **{"num_latent_gps": P, **fixed},
        )

    return build


def solvegpr(bound, sizes=(5, 4), P=1) -> Callable[..., Any]:
    """A builder of a regression model, which holds its data."""

    def build():
        rng = np.random.default_rng(3)
        return SOLVEGPR(
            (inputs(), reals(P)()),
            matern(),
            OrthogonalInducingVariables(*(rng.normal(size=(M, D)) for M in sizes)),
            mean_function=gpflow.functions.Linear(np.full((D, P), 0.2), np.full(P, 0.5)),
            noise_variance=0.2,
            bound=bound,
        )

    return build


def gaussian_product():
    return gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=[0.8, 1.2])


def grid(p=9):
    """The leading eigenfunctions of a product kernel on a grid of 25 points."""
    return lambda: GridEigenfunctions(gaussian_product(), inputs(), p, 5)


def fourier():
    return RandomFourier(matern(), 8, seed=2)


def linear(P):
    return gpflow.functions.Linear(np.full((D, P), 0.2), np.full(P, 0.5))


def basis_svgp(basis, P=1, likelihood=None, **options) -> Callable[..., Any]:
    """A builder of a model over the weights of a basis."""

    def build(num_data=None):
        return BasisSVGP(
            basis(),
            gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood(),
            mean_function=linear(P),
            num_latent_gps=P,
            num_data=num_data,
            **options,
        )

    return build


def basis_gpr(basis, P=1) -> Callable[..., Any]:
    """A builder of exact regression with a basis, which holds its data."""
    return lambda: BasisGPR(
        (inputs(), reals(P)()), basis(), mean_function=linear(P), noise_variance=0.2
    )


def grief(P=1, **options) -> Callable[..., Any]:
    """A builder of a GRIEF model, which holds its data."""
    return lambda: GRIEF(
        (inputs(), reals(P)()),
        gaussian_product(),
        num_eigenfunctions=9,
        points_per_dimension=5,
        mean_function=linear(P),
        noise_variance=0.2,
        **options,
    )


def softki(P=1, filled=False, **options) -> Callable[..., Any]:
    """A builder of soft interpolation between five points, its posterior fitted."""

    def build(num_data=None):
        model = SoftKI(
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
    return lambda: GPMixture(
        (inputs(), reals(P)()), [matern()], noise_variance=0.2, mean_function=linear(P)
    )


def nearest(H, P=1) -> Callable[..., Any]:
    """A builder of exact GPs on the H nearest rows, which holds its data."""
    return lambda: NearestNeighborGP(
        (inputs(), reals(P)()),
        matern(),
        num_neighbors=H,
        mean_function=linear(P),
        noise_variance=0.2,
        num_objective_rows=9,
    )


def nearest_classes():
    """Classes from the 5 nearest rows, with a prior mean for each."""
    data, eps = (inputs(), classes()), np.float64(0.1)
    observed, _ = dirichlet_observations(data[1][:, 0].astype(int), 3, eps)
    mean = gpflow.functions.Constant(np.mean(observed, axis=0))
    model = NearestNeighborClassifier(data, matern(), 3, num_neighbors=5, mean_function=mean)
    model.concentration.assign(eps)
    return model


def site_vgp(outputs, likelihood, P, kernel=matern) -> Callable[..., Any]:
    """A builder of a model with q at all rows, which holds its data; its sites fitted."""
    return lambda: settle(
        SiteVGP((inputs(), outputs()), kernel(), likelihood(), mean_function=linear(P))
    )


def settle(model):
    """What follows from the parameters and is kept, for the parameters as they are now."""
    if isinstance(model, SiteVGP):
        model.fit_sites()
    kind = model.dtype.as_numpy_dtype if isinstance(model, SoftKI | SWSGP) else None
    if isinstance(model, SoftKI):
        rows = inputs().astype(kind), reals(model.num_latent_gps)().astype(kind)
        model.fit_posterior(rows, refit_noise=False)
    if isinstance(model, SWSGP):
        model.count_neighbors(inputs().astype(kind))
    return model


def hybrid():
    """Three inducing points and six random features for the rest."""
    return Hybrid(matern(), inputs()[:3], 6, seed=2)


def qsgp(basis, P=1, likelihood=None, **options) -> Callable[..., Any]:
    """A builder of a sub-sampled model that takes all its functions, so that nothing is random."""

    def build(num_data=None):
        functions = basis()
        head = options.get("num_dense_columns", functions.num_leading)
        return QSGP(
            functions,
            gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood(),
            mean_function=linear(P),
            num_latent_gps=P,
            num_data=N if num_data is None else num_data,
            basis_batch_size=functions.num_basis - head,
            **options,
        )

    return build


def rvm(num_data=None):
    """One function at each input, and a constant."""
    return RVM(
        inputs(),
        gaussian_product(),
        gpflow.likelihoods.Gaussian(0.2),
        num_data=N if num_data is None else num_data,
        basis_batch_size=N + 1,
        mean_function=linear(1),
    )


def swsgp(H=4, M=9, *, kernel=matern, P=1, likelihood=None, points=None, **options):
    """A builder of a model in which each row sees H of M points, their users counted."""

    def build(num_data=None):
        model = SWSGP(
            kernel(),
            gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood(),
            NeighborInducingPoints(inputs(seed=3, rows=M), H, **(points or {})),
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
    return OrthogonalInducingVariables(*(Patches(rng.normal(size=(M, channels))) for M in sizes))


def located(sizes=(5, 4), seed=3, channels=1):
    """The same, with places."""
    rng = np.random.default_rng(seed)
    return OrthogonalInducingVariables(
        *(LocatedPatches(rng.normal(size=(M, channels)), rng.uniform(size=(M, 2))) for M in sizes)
    )


def on_images(kernel, inducing, P=1, likelihood=None) -> Callable[..., Any]:
    """A builder of SOLVE-GP over pixels."""

    def build(num_data=None):
        return SOLVEGP(
            kernel(),
            gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood(),
            inducing(),
            mean_function=linear(P),
            num_latent_gps=P,
            num_data=num_data,
        )

    return build


def sets(seed=3):
    rng = np.random.default_rng(seed)
    return OrthogonalInducingVariables(*(rng.normal(size=(M, D)) for M in (4, 3)))


def orthogonal_layer():
    return GPLayer(matern(), sets(), num_latent_gps=2, mean_function=pca(inputs(), 2), whiten=False)


def rectified_layer():
    weights = np.random.default_rng(5).normal(size=(2, 2))
    mean = RectifiedFilters(weights)
    return GPLayer(matern(), sets(), num_latent_gps=2, mean_function=mean)


def neighbor_layer():
    points = NeighborInducingPoints(inputs(seed=3, rows=7), 4)
    return GPLayer(matern(), points, num_latent_gps=2)


def basis_layer():
    basis = fourier()
    return GPLayer(Basis(basis), BasisFeatures(basis), num_latent_gps=2)


def convolution_layer():
    """Two channels of each pixel."""
    points = OrthogonalInducingVariables(*(part.Z for part in pixels((4, 2)).sets))
    kernel = gpflow.kernels.Matern52(variance=1.3, lengthscales=0.8)
    return ConvLayer(kernel, points, (1, 2), (1, 1), num_latent_gps=2)


def top_layer(P=1):
    return GPLayer(matern(), sets(seed=8), num_latent_gps=P, mean_function=linear(P))


def image_layer():
    """Three classes from images of two channels; robust-max alone would not see a variance."""
    mean = gpflow.functions.Linear(np.full((4, 3), 0.2), np.arange(3.0))
    return GPLayer(tick(2), located(channels=2), num_latent_gps=3, mean_function=mean)


def deep(hidden, last=top_layer, likelihood=None, **options) -> Callable[..., Any]:
    """A builder of a model of two layers whose draws are frozen, so that nothing is random."""

    def build(num_data=None):
        return DeepGP(
            [hidden(), last()],
            gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood(),
            num_data=num_data,
            seed=0,
            **{"num_samples": 3, "num_prediction_samples": 3, **options},
        )

    return build


MEMBERS = {
    "solvegp": Member(solvegp(P=2), reals(2)),
    "solvegp_unwhitened": Member(solvegp(P=2, whiten=False), reals(2), float32=False),
    "solvegp_three_sets": Member(solvegp((5, 3, 2)), reals(1)),
    "solvegp_bernoulli": Member(solvegp(likelihood=gpflow.likelihoods.Bernoulli), labels),
    "solvegp_multiclass": Member(solvegp(P=3, likelihood=multiclass), classes),
    "solvegp_separate": Member(solvegp(P=2, kernel=separate), reals(2)),
    "solvegp_mixed": Member(solvegp(P=3, kernel=mixed, num_latent_gps=None), reals(3)),
    "solvegp_mixed_unwhitened": Member(
        solvegp(P=3, kernel=mixed, num_latent_gps=None, whiten=False), reals(3), float32=False
    ),
    "odvgp": Member(solvegp(model=ODVGP, P=2), reals(2)),
    "odvgp_unwhitened": Member(solvegp(model=ODVGP, whiten=False), reals(1), float32=False),
    "odvgp_bernoulli": Member(
        solvegp(model=ODVGP, likelihood=gpflow.likelihoods.Bernoulli), labels
    ),
    "odvgp_mixed": Member(solvegp(model=ODVGP, P=3, kernel=mixed, num_latent_gps=None), reals(3)),
    "stock_svgp_mixed": Member(
        solvegp(model=gpflow.models.SVGP, P=3, kernel=mixed, num_latent_gps=2),
        reals(3),
        guarded=False,
    ),
    "basis_svgp": Member(basis_svgp(grid(), P=2), reals(2), xla=1e-4),
    "basis_svgp_finite": Member(
        basis_svgp(grid(), keep_residual=False), reals(1), degenerate=True, xla=1e-4
    ),
    "basis_svgp_fourier": Member(basis_svgp(fourier, P=2), reals(2)),
    "basis_svgp_bernoulli": Member(
        basis_svgp(grid(), likelihood=gpflow.likelihoods.Bernoulli), labels, xla=1e-4
    ),
    "qsgp": Member(qsgp(fourier, P=2), reals(2)),
    "qsgp_block": Member(qsgp(hybrid, P=2), reals(2)),
    "qsgp_chevron": Member(qsgp(fourier, P=2, covariance="chevron", num_dense_columns=3), reals(2)),
    "qsgp_grid": Member(qsgp(grid()), reals(1), degenerate=True, xla=1e-4),
    "qsgp_bernoulli": Member(qsgp(fourier, likelihood=BernoulliLogit), labels),
    "rvm": Member(rvm, reals(1)),
    "swsgp": Member(swsgp(P=2), reals(2), prior=False, one_kl=False),
    "swsgp_dense": Member(
        swsgp(covariance="dense", points={"global_indices": [5, 0]}), reals(1), one_kl=False
    ),
    "swsgp_chain": Member(swsgp(kl_weighting="chain"), reals(1), prior=False, averages=False),
    "swsgp_union": Member(
        swsgp(union=6), reals(1), prior=False, one_kl=False, averages=False, shared=True, xla=None
    ),
    "swsgp_bernoulli": Member(
        swsgp(likelihood=gpflow.likelihoods.Bernoulli, kl_weighting="paper"),
        labels,
        prior=False,
        one_kl=False,
    ),
    "swsgp_separate": Member(swsgp(P=2, kernel=separate), reals(2), prior=False, one_kl=False),
    "stock_svgp": Member(solvegp(model=gpflow.models.SVGP, P=2), reals(2), guarded=False),
    "solvegp_patches": Member(
        on_images(convolutional, pixels, P=2), reals(2), drawable=False, xla=None
    ),
    "solvegp_located": Member(
        on_images(tick, located, P=3, likelihood=multiclass), classes, drawable=False
    ),
    "deep": Member(
        deep(orthogonal_layer, lambda: top_layer(2)),
        reals(2),
        float32=False,
        xla=None,
        deep=True,
        mixture=True,
    ),
    "deep_neighbors": Member(
        deep(neighbor_layer), reals(1), prior=False, xla=None, deep=True, mixture=True
    ),
    "deep_rectified": Member(deep(rectified_layer), reals(1), xla=None, deep=True, mixture=True),
    "deep_basis": Member(deep(basis_layer), reals(1), xla=None, deep=True, mixture=True),
    "deep_convolution": Member(
        deep(
            convolution_layer,
            image_layer,
            likelihood=multiclass,
            num_samples=1,
            num_prediction_samples=1,
            sampling="shared_inducing",
        ),
        classes,
        drawable=False,
        deep=True,
    ),
}

# Models that hold their data, or a q that was computed from data: nothing to train in either case.
REGRESSIONS = {
    "solvegpr": Member(solvegpr("standard", (5, 3, 2), P=2), reals(2)),
    "solvegpr_coupled": Member(solvegpr("coupled", P=2), reals(2)),
    "solvegpr_tighter": Member(solvegpr("fully_coupled"), reals(1)),
    "basis_gpr": Member(basis_gpr(grid(), P=2), reals(2), degenerate=True, xla=1e-4),
    "basis_gpr_fourier": Member(basis_gpr(fourier), reals(1)),
    "softki": Member(softki(P=2, temperature=0.4, tied=True), reals(2)),
    "softki_filled": Member(
        softki(filled=True, temperature=1.0, tied=False), reals(1), drawable=False
    ),
    "grief": Member(grief(P=2), reals(2), xla=1e-4),
    "grief_likelihood": Member(grief(objective="likelihood"), reals(1), degenerate=True, xla=1e-4),
    "grief_corrected": Member(grief(objective="corrected"), reals(1), xla=1e-4),
    "grief_original": Member(grief(reweighted="original", P=2), reals(2), xla=1e-4),
    "mixture": Member(mixture(P=2), reals(2)),
    "site_vgp": Member(site_vgp(reals(2), lambda: gpflow.likelihoods.Gaussian(0.2), 2), reals(2)),
    "site_vgp_classes": Member(
        site_vgp(classes, lambda: OneVersusRest(3), 3, two_kernels),
        classes,
        drawable=False,
        xla=None,
    ),
    "gpnn": Member(nearest(5, P=2), reals(2)),
    "gpnn_classes": Member(nearest_classes, classes, xla=None),
    "gpnn_all": Member(nearest(N), reals(1), xla=None),
    "grief_rotated": Member(grief(reweighted="rotated", P=2), reals(2), xla=1e-4),
}


def perturb(model, seed=4, scale=0.3):
    """Move every trainable variable at random, so that no special case hides a mistake."""
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add((scale * rng.normal(size=variable.shape)).astype(variable.dtype.name))
    return settle(model)
