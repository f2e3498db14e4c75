"""
Any basis with any inference, any inducing set at any depth: the same q has the same objective,
whichever model or layer holds it.
"""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.bases import (
    GridEigenfunctions,
    Hybrid,
    KernelDictionary,
    RandomFourier,
    ReweightedBasis,
    SoftInterpolation,
)
from gpflow_sparse.inducing_variables import (
    BasisFeatures,
    LocatedPatches,
    NeighborInducingPoints,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.likelihoods import BernoulliLogit
from gpflow_sparse.models import (
    QSGP,
    SOLVEGP,
    SWSGP,
    BasisGPR,
    BasisSVGP,
    ConvLayer,
    DeepGP,
    GPLayer,
)

NOISE = 0.2


def inputs(rows=20):
    return np.random.default_rng(0).normal(size=(rows, 2))


def kernel():
    return gpflow.kernels.SquaredExponential(variance=1.4, lengthscales=[0.9, 1.3])


def grid():
    return GridEigenfunctions(kernel(), inputs(), 9, 5)


BASES = {
    "fourier": lambda: RandomFourier(kernel(), 8, seed=1),
    "orthogonal": lambda: RandomFourier(kernel(), 8, orthogonal=True, seed=1),
    "grid": grid,
    "reweighted": lambda: ReweightedBasis(grid(), np.linspace(0.5, 2.0, 9)),
    "hybrid": lambda: Hybrid(kernel(), inputs()[:3], 6, seed=1),
    "soft": lambda: SoftInterpolation(kernel(), inputs()[:7], temperature=0.4),
    "inducing": lambda: KernelDictionary(kernel(), inputs()[:7]),
    "relevance": lambda: KernelDictionary(
        kernel(),
        inputs()[:7],
        precision="diagonal",
        constant=True,
        initial_precision=np.linspace(0.5, 2.0, 8),
    ),
}
every_basis = pytest.mark.parametrize("basis", BASES.values(), ids=list(BASES))


def data(labels=False):
    X = inputs()
    Y = np.sin(2.0 * X[:, :1]) + 0.3 * np.random.default_rng(2).normal(size=(len(X), 1))
    return (X, (Y > 0.0).astype(float)) if labels else (X, Y)


def whitener(basis):
    """``T`` with ``v = T w ~ N(0, I)`` for weights w of the basis's own columns."""
    if basis.precision == "dense":
        return np.linalg.cholesky(basis.prior_precision().numpy() + 1.4e-6 * np.eye(7)).T
    return np.diag(np.sqrt(basis.precision_diagonal().numpy()))


@pytest.mark.parametrize(
    ("basis", "labels"),
    [(make, False) for make in BASES.values()] + [(BASES["hybrid"], True)],
    ids=[*BASES, "logit"],
)
def test_sub_sampling_and_all_functions_have_the_same_objective(basis, labels):
    """With all functions drawn, a QSGP is a BasisSVGP whose covariance has its shape."""
    functions, rng = basis(), np.random.default_rng(3)
    likelihood = BernoulliLogit() if labels else gpflow.likelihoods.Gaussian(NOISE)
    m = functions.num_basis
    model = QSGP(
        functions, likelihood, num_data=20, basis_batch_size=m, covariance="diag",
        variance_reduction="none",
    )  # fmt: skip
    mu, c = rng.normal(size=(m, 1)), rng.uniform(0.2, 1.5, size=m)
    model.q_mu.assign(mu)
    model.q_log_scale.assign(np.log(c)[:, None])
    T = whitener(functions)
    q_sqrt = np.linalg.cholesky(T @ np.diag(c**2) @ T.T)[None]
    options = {"q_mu": T @ mu, "q_sqrt": q_sqrt, "num_data": 20, "keep_residual": False}
    dense = BasisSVGP(functions, likelihood, **options)
    batch = data(labels)
    np.testing.assert_allclose(model.exact_elbo(batch), dense.elbo(batch), rtol=1e-5)
    for got, expected in zip(
        model.predict_f(batch[0], full_cov=True), dense.predict_f(batch[0], full_cov=True),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(got, expected, atol=2e-5)
    if functions.precision != "dense":  # whose steps leave out a constant
        np.testing.assert_allclose(model.elbo(batch), dense.elbo(batch), rtol=1e-5)


@every_basis
def test_the_exact_posterior_is_the_best_q(basis):
    """BasisGPR's evidence is BasisSVGP's elbo at its q; no diagonal q reaches it."""
    functions, batch = basis(), data()
    exact = BasisGPR(batch, functions, noise_variance=NOISE)
    evidence = float(exact.elbo())
    np.testing.assert_allclose(exact.to_svgp().elbo(batch), evidence, rtol=1e-8)
    model = QSGP(
        functions,
        gpflow.likelihoods.Gaussian(NOISE),
        num_data=20,
        basis_batch_size=functions.num_basis,
        covariance="diag",
    )
    mean = exact.compute_qu()[0].numpy()
    model.q_mu.assign(np.linalg.solve(whitener(functions), mean))
    model.update_covariance(batch[0])
    np.testing.assert_allclose(
        model.predict_f(inputs())[0], exact.predict_f(inputs())[0], atol=2e-4
    )
    assert float(model.exact_elbo(batch)) < evidence - 1e-3


# Inducing x structure x depth: a set of points, patches or located patches; one set, orthogonal
# ones, neighbors or the functions of a basis; shallow, a hidden layer, the last layer.

IMAGE, PATCH = (5, 4), (2, 3)
PIXELS, PATCH_LENGTH, NUM_PATCHES = 20, 6, 8


def patch_kernel(kind):
    base = gpflow.kernels.SquaredExponential(variance=1.4, lengthscales=1.7)
    make = gs.kernels.TICK if kind == "located" else gs.kernels.Convolutional
    return base if kind == "points" else make(base, IMAGE, PATCH)


def inducing_set(kind, rng, M):
    if kind == "points":
        return gpflow.inducing_variables.InducingPoints(rng.normal(size=(M, PIXELS)))
    Z = rng.normal(size=(M, PATCH_LENGTH))
    places = rng.uniform(size=(M, 2)) * [3.0, 1.0]
    return LocatedPatches(Z, places) if kind == "located" else Patches(Z)


def some_q(rng, sizes, G):
    means = [rng.normal(size=(M, G)) for M in sizes]
    return means, [0.3 * np.tril(rng.normal(size=(G, M, M))) + np.eye(M) for M in sizes]


def of_sets(kind, sizes):
    """A builder of a shallow model and a layer with the same parts."""

    def build(rng, G):
        prior, sets = patch_kernel(kind), [inducing_set(kind, rng, M) for M in sizes]
        q_mu, q_sqrt = some_q(rng, sizes, G)
        options = {"num_latent_gps": G, "q_mu": q_mu, "q_sqrt": q_sqrt}
        both = OrthogonalInducingVariables(*sets)
        shallow = SOLVEGP(prior, gpflow.likelihoods.Gaussian(NOISE), both, **options)
        return shallow, GPLayer(prior, both if len(sets) > 1 else sets[0], **options)

    return build


def of_neighbors(rng, G):
    prior, Z = patch_kernel("points"), rng.normal(size=(7, PIXELS))
    q_mu, q_sqrt = rng.normal(size=(7, G)), rng.uniform(0.3, 1.0, size=(7, G))
    points = NeighborInducingPoints(Z, 3)
    shallow = SWSGP(
        prior, gpflow.likelihoods.Gaussian(NOISE), points, num_latent_gps=G, q_mu=q_mu,
        q_sqrt=q_sqrt, kl_weighting="chain",
    )  # fmt: skip
    return shallow, GPLayer(prior, points, num_latent_gps=G, q_mu=[q_mu], q_sqrt=[q_sqrt])


def of_basis(rng, G):
    functions = RandomFourier(patch_kernel("points"), 8, seed=1)
    q_mu, q_sqrt = some_q(rng, [8], G)
    shallow = BasisSVGP(
        functions, gpflow.likelihoods.Gaussian(NOISE), num_latent_gps=G, q_mu=q_mu[0],
        q_sqrt=q_sqrt[0],
    )  # fmt: skip
    prior, features = gs.kernels.Basis(functions), BasisFeatures(functions)
    return shallow, GPLayer(prior, features, num_latent_gps=G, q_mu=q_mu, q_sqrt=q_sqrt)


CELLS = {
    f"{kind}_{name}": of_sets(kind, sizes)
    for kind in ("points", "patches", "located")
    for name, sizes in {"one_set": (5,), "orthogonal": (4, 3), "three_sets": (3, 2, 2)}.items()
} | {"points_neighbors": of_neighbors, "points_basis": of_basis}
# Every kind and every number of sets; three sets of points only.
FEW = [name for name in CELLS if name.startswith("points") or "three" not in name]
every_cell = pytest.mark.parametrize("build", [CELLS[name] for name in FEW], ids=FEW)


def images(rng, rows=4):
    return rng.normal(size=(rows, PIXELS))


@every_cell
def test_alone_a_layer_is_the_shallow_model(rng, build):
    shallow, layer = build(rng, 2)
    X, Y = images(rng, 8), rng.normal(size=(8, 2))  # enough rows for all terms of a chain
    alone = DeepGP([layer], gpflow.likelihoods.Gaussian(NOISE))
    for full_cov in (False, True):
        pairs = zip(alone.predict_f(X, full_cov), shallow.predict_f(X, full_cov), strict=True)
        for got, expected in pairs:
            np.testing.assert_allclose(got, expected, atol=1e-9)
    np.testing.assert_allclose(alone.elbo((X, Y)), shallow.elbo((X, Y)), rtol=1e-9)


@every_cell
def test_a_hidden_layer_puts_out_what_the_shallow_model_believes(rng, build):
    shallow, layer = build(rng, 3)
    last, top = of_top(rng)
    model = DeepGP([layer, top], gpflow.likelihoods.Gaussian(NOISE))
    X, eps = images(rng), rng.normal(size=(2, 4, 3))
    mean, var = shallow.predict_f(X)
    for s, found in enumerate(zip(*model.propagate(X, [eps]), strict=True)):
        hidden = mean + np.sqrt(var) * eps[s]
        for got, expected in zip(found, last.predict_f(hidden), strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-8)
    kl = model.prior_kl() - last.prior_kl()
    np.testing.assert_allclose(kl, shallow.prior_kl(), rtol=1e-9)


def of_top(rng, inputs=3):
    """One output, as a model and as a layer."""
    prior = gpflow.kernels.SquaredExponential(lengthscales=0.8 * np.sqrt(inputs))
    q_mu, q_sqrt = some_q(rng, [4], 1)
    sets = OrthogonalInducingVariables(rng.normal(size=(4, inputs)))
    options = {"q_mu": q_mu, "q_sqrt": q_sqrt}
    shallow = SOLVEGP(prior, gpflow.likelihoods.Gaussian(NOISE), sets, **options)
    return shallow, GPLayer(prior, sets, **options)


def conv_layer_of(kind, rng):
    return ConvLayer(patch_kernel(kind), inducing_set(kind, rng, 5), IMAGE, PATCH)


def last_of_patches(rng):
    layer = ConvLayer(patch_kernel("points"), rng.normal(size=(3, 6)), IMAGE, PATCH)
    return DeepGP([layer], gpflow.likelihoods.Gaussian())


def swsgp_of_sets(rng):
    sets = OrthogonalInducingVariables(rng.normal(size=(3, 2)))
    return SWSGP(kernel(), gpflow.likelihoods.Gaussian(), sets)


NO_SENSE = [
    # patches have no neighbors: which are near depends on the patch of the image
    (lambda rng: NeighborInducingPoints(inducing_set("patches", rng, 5), 3), "Z"),
    (lambda rng: NeighborInducingPoints(inducing_set("located", rng, 5), 3), "Z"),
    # functions of a basis are of images: those of patches would have to be summed
    (lambda rng: RandomFourier(patch_kernel("patches"), 8), "kernel"),
    (lambda rng: RandomFourier(patch_kernel("located"), 8), "kernel"),
    # a layer of patches looks at each by itself, so its kernel is of patches, not of images
    (lambda rng: conv_layer_of("patches", rng), "kernel|inducing_variable"),
    (lambda rng: conv_layer_of("located", rng), "kernel|inducing_variable"),
    (
        lambda rng: OrthogonalInducingVariables(
            *(inducing_set(kind, rng, 5) for kind in ("patches", "located"))
        ),
        "of one kind",
    ),
    (swsgp_of_sets, "NeighborInducingPoints"),
    (last_of_patches, "last layer must be a GPLayer"),
]


def test_a_cell_that_makes_no_sense_says_so(rng):
    for make, message in NO_SENSE:
        with pytest.raises(ValueError, match=message):
            make(rng)
