"""GPflow's functions of inducing variables, called as GPflow's own tests call them."""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.conditionals import conditional, sample_conditional
from gpflow.inducing_variables import (
    FallbackSharedIndependentInducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    LinearCoregionalization,
    Matern32,
    Matern52,
    SeparateIndependent,
    SharedIndependent,
)
from gpflow.posteriors import create_posterior

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import (
    BasisFeatures,
    LocatedPatches,
    NeighborInducingPoints,
    OrthogonalInducingVariables,
    Patches,
)

N, M, P = 5, 6, 2
FLAGS = [(False, False), (True, False), (False, True), (True, True)]


def patch_kernel(kind):
    return kind(gpflow.kernels.SquaredExponential(), image_shape=(4, 4, 1), patch_shape=(2, 2))


def build(name, rng):
    """Kernel, inducing variables, inputs."""
    X, Z = rng.normal(size=(N, 2)), rng.normal(size=(M, 2))
    if name == "orthogonal":
        return Matern52(), OrthogonalInducingVariables(Z[:4], Z[4:]), X
    if name == "neighbors":
        return Matern52(), NeighborInducingPoints(Z, 3), X
    if name == "basis":
        basis = gs.bases.RandomFourier(gpflow.kernels.SquaredExponential(), M)
        return gs.kernels.Basis(basis), BasisFeatures(basis), X
    images, patches = rng.normal(size=(N, 16)), rng.normal(size=(M, 4))
    if name == "patches":
        return patch_kernel(gs.kernels.Convolutional), Patches(patches), images
    places = rng.uniform(0.0, 2.0, size=(M, 2))
    if name == "located patches":
        return patch_kernel(gs.kernels.TICK), LocatedPatches(patches, places), images
    sets = OrthogonalInducingVariables(Patches(patches[:4]), Patches(patches[4:]))
    return patch_kernel(gs.kernels.Convolutional), sets, images


NAMES = ["orthogonal", "neighbors", "basis", "patches", "located patches", "orthogonal patches"]


def factors(rng):
    """Every ``q_sqrt`` that GPflow's posteriors take."""
    return {
        "dense": np.tril(rng.normal(size=(P, M, M))),
        "diagonal": rng.uniform(0.1, 1.0, size=(M, P)),
        "none": None,
    }


def assert_equal(got, expected):
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "q"),
    [
        *((name, "dense") for name in NAMES),
        *itertools.product(("orthogonal", "neighbors", "patches"), ("diagonal", "none")),
    ],
)
def test_a_q_of_numpy_arrays_is_the_one_of_tensors(rng, name, q):
    """
    The diagonal one is also that of the dense factor with the same diagonal. For single sets of
    patches, GPflow's own ``conditional`` takes tensors only, as it does for its own points.
    """
    kernel, inducing, X = build(name, rng)
    q_mu, q_sqrt = rng.normal(size=(M, P)), factors(rng)[q]
    tensor = None if q_sqrt is None else tf.constant(q_sqrt)
    dense = tf.linalg.diag(tf.transpose(tensor)) if q == "diagonal" else tensor
    white = name != "neighbors"
    for full_cov, full_output_cov in FLAGS:
        options = {"full_cov": full_cov, "full_output_cov": full_output_cov}
        expected = conditional(
            X, inducing, kernel, tf.constant(q_mu), q_sqrt=dense, white=white, **options
        )
        for value in (tensor,) if name in ("patches", "located patches") else (q_sqrt, tensor):
            got = conditional(X, inducing, kernel, q_mu, q_sqrt=value, white=white, **options)
            assert_equal(got, expected)
            posterior = create_posterior(kernel, inducing, q_mu, value, whiten=white)
            got = posterior.predict_f(X, **options)
            for ours, theirs in zip(got, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7)
            if not (full_cov and full_output_cov):
                drawn = sample_conditional(
                    X, inducing, kernel, q_mu, q_sqrt=value, white=white, **options
                )
                assert np.isfinite(drawn[0]).all()
                assert_equal(drawn[1:], expected)


def test_factors_that_are_no_arrays_of_the_right_rank_are_refused(rng):
    kernel, inducing, _ = build("orthogonal", rng)
    with pytest.raises(ValueError, match="q_mu and q_sqrt must fit the inducing sets"):
        create_posterior(kernel, inducing, rng.normal(size=(M, P)), np.ones((P, M, 2)), whiten=True)


def multioutput_kernels(kernel, other):
    return {
        "single": kernel,
        "shared": SharedIndependent(kernel, P),
        "separate": SeparateIndependent([kernel, other]),
        "mixed": LinearCoregionalization(
            [kernel, other], W=np.array([[1.0, 0.3], [-0.5, 0.8], [0.2, 0.6]])
        ),
    }


@pytest.mark.parametrize(
    ("kind", "wrapper"),
    zip(
        ["single", "shared", "separate", "mixed"],
        2 * [SharedIndependentInducingVariables, FallbackSharedIndependentInducingVariables],
        strict=True,
    ),
)
@pytest.mark.parametrize("name", ["orthogonal", "neighbors"])
def test_gpflows_wrapper_for_shared_inducing_variables_changes_nothing(rng, name, kind, wrapper):
    kernel, inducing, X = build(name, rng)
    kernel = multioutput_kernels(kernel, Matern32())[kind]
    q_mu, q_sqrt = rng.normal(size=(M, P)), factors(rng)["dense"]
    outputs = 3 if kind == "mixed" else P
    mean_function = gpflow.functions.Constant(np.arange(outputs, dtype=float))
    arguments = (q_mu, q_sqrt, name != "neighbors", mean_function)
    plain = create_posterior(kernel, inducing, *arguments)
    wrapped = create_posterior(kernel, wrapper(inducing), *arguments)
    for full_cov, full_output_cov in FLAGS:
        assert_equal(
            wrapped.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov),
            plain.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov),
        )


@pytest.mark.parametrize("name", ["orthogonal", "neighbors"])
def test_what_needs_joint_covariances_is_refused_in_one_sentence(rng, name):
    kernel, inducing, X = build(name, rng)
    several, q_mu = SharedIndependent(kernel, P), np.zeros((M, P))
    both = SeparateIndependentInducingVariables([inducing, inducing])
    shared = SharedIndependentInducingVariables(inducing)
    model = "SOLVEGP" if name == "orthogonal" else "SWSGP"
    message = rf"{type(inducing).__name__} has no joint Kuu and Kuf.* to gs\.models\.{model}"
    for call in (
        lambda: create_posterior(several, both, q_mu, None, whiten=True),
        lambda: conditional(X, both, several, q_mu),
        lambda: conditional(X, shared, several, q_mu),
        lambda: gpflow.models.SGPR((X, X[:, :1]), kernel, inducing).elbo(),
        lambda: gpflow.covariances.Kuf(inducing, kernel, X),
    ):
        with pytest.raises(ValueError, match=message):
            call()
