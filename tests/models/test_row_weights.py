"""Rows of integer weights against repeated rows, and of real weights against dense algebra."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32, Matern52

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.initialization.repeated_rows import copies_of
from gpflow_sparse.kernels import table_kernel
from gpflow_sparse.likelihoods import BernoulliLogit, OneVersusRest
from gpflow_sparse.models import (
    SOLVEGPR,
    GPMixture,
    NearestNeighborClassifier,
    NearestNeighborGP,
    SiteVGP,
)

N = 40
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
Y = np.exp(np.sin(2.0 * X[:, :1]) + 0.2 * RNG.normal(size=(N, 1)))
COUNTS = RNG.integers(1, 4, N)
LABELS = np.digitize(Y, [0.7, 1.5]).astype(float)
REAL = RNG.uniform(0.2, 3.0, N)
REAL *= 0.9 / REAL.mean()
NEW = RNG.normal(size=(9, 2))


def pair(build, outputs=Y):
    """The model of repeated rows whose weights have the same sum, and the model of weights."""
    repeated = X.repeat(COUNTS, 0), outputs.repeat(COUNTS, 0)
    equal = np.full(COUNTS.sum(), 1.0 / COUNTS.mean())
    return build(repeated, row_weights=equal), build((X, outputs), row_weights=COUNTS)


def require_same_predictions(first, second, atol=1e-8):
    for method in ("predict_f", "predict_y"):
        for found, expected in zip(
            getattr(second, method)(NEW), getattr(first, method)(NEW), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def mixture(data, transforms=("none", "none"), **options):
    kernels = [table_kernel(Matern32, 2, ard=ard) for ard in (False, True)]
    return GPMixture(data, kernels, transforms=transforms, num_draws=4, **options)


@pytest.mark.nightly
def test_a_mixture_of_weights_is_that_of_repeated_rows_before_and_after_integration():
    repeated, weighted = pair(mixture)
    np.testing.assert_allclose(weighted.elbo(), repeated.elbo(), rtol=1e-10)
    repeated.integrate()
    weighted.integrate()
    for parts in zip(weighted.parameters, repeated.parameters, strict=True):  # the modes
        np.testing.assert_allclose(*(part.numpy() for part in parts), rtol=1e-8, atol=1e-9)
    # rounding of gradients at the modes, 1e-11, is divided by the step of the Hessian, 1e-3
    np.testing.assert_allclose(weighted.log_evidence, repeated.log_evidence, rtol=0, atol=1e-7)
    require_same_predictions(repeated, weighted)


def test_a_weight_divides_the_noise_variance_of_an_exact_gp(tmp_path):
    kernel, noise = Matern52(), 0.1
    model = GPMixture((X, Y), [kernel], noise_variance=noise, row_weights=REAL)
    K = kernel(X).numpy() + np.diag(noise / REAL)
    mean = kernel(NEW, X).numpy() @ np.linalg.solve(K, Y)
    np.testing.assert_allclose(model.predict_f(NEW)[0], mean, rtol=0, atol=1e-10)
    # prod_n N(y_n; f_n, s2 / v_n)^p integrated over f, w_n = p v_n, p = 0.9, up to prod_n v_n^(p/2)
    evidence = -0.5 * (Y[:, 0] @ np.linalg.solve(K, Y[:, 0]) + np.linalg.slogdet(K)[1])
    evidence -= 0.5 * N * np.log(2.0 * np.pi)
    evidence -= 0.5 * np.sum((0.9 - 1.0) * np.log(2.0 * np.pi * noise) + np.log(REAL))
    np.testing.assert_allclose(model.elbo(), evidence, rtol=1e-10)
    gs.save(model, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.row_weights, REAL)
    np.testing.assert_array_equal(loaded.predict_f(NEW), model.predict_f(NEW))


def test_the_jacobian_of_a_transform_has_the_power_of_the_densities():
    options = {"noise_variance": 0.1, "row_weights": REAL}
    model = GPMixture((X, Y), [Matern52()], transforms=["yeo-johnson"], **options)
    transform = model.components[0].transform
    plain = GPMixture((X, transform.forward(Y)), [Matern52()], **options)
    expected = 0.9 * np.sum(transform.log_derivative(Y))
    np.testing.assert_allclose(model.elbo() - plain.elbo(), expected, rtol=1e-8)


ABOVE_ONE = [1.01, 1.3, 2.0, 10.0]


def test_weights_above_one_are_divided_by_their_mean():
    for weight in ABOVE_ONE:
        names = ["none", "yeo-johnson"]
        models = [mixture((X, Y), names, row_weights=w) for w in (np.full(N, weight), None)]
        np.testing.assert_allclose(models[0].elbo(), models[1].elbo(), rtol=1e-12)


def test_equal_rows_are_measurements_of_models_as_of_an_exact_gp():
    """Of rows 1 to 3 times, some of them again by ``condition_on``, and with known variances."""
    data = X.repeat(COUNTS, 0), Y.repeat(COUNTS, 0)
    some = tuple(part[:9] for part in data)
    kernel, options = Matern52(), {"noise_variance": 0.1}
    mixed = GPMixture(data, [kernel], **options)
    nearest = NearestNeighborGP(data, kernel, num_neighbors=2 * N, **options)
    exact = gpflow.models.GPR(data, kernel, **options)
    again = tuple(np.concatenate(pair) for pair in zip(data, some, strict=True))
    for model in (mixed, nearest):  # the jitter of both is 1e-6 of the variance
        require_same_predictions(exact, model, atol=1e-5)
        expected = gpflow.models.GPR(again, kernel, **options)
        require_same_predictions(expected, model.condition_on(*some), atol=1e-5)
    np.testing.assert_allclose(mixed.elbo(), exact.log_marginal_likelihood(), rtol=1e-5)
    require_same_predictions(nearest, nearest.of_rows(np.arange(N)))
    known = np.full(len(data[0]), 0.06)
    model = NearestNeighborGP(
        data, kernel, num_neighbors=2 * N, noise_variance=0.04, known_variance=known
    )
    moments = zip(model.predict_f(NEW), exact.predict_f(NEW), strict=True)
    for found, expected in moments:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_copies_of_rows_are_no_evidence_on_the_noise_of_starting_values():
    some = tuple(np.concatenate([part, part[:12] * (1.0 + 2e-16)]) for part in (X, Y))
    kernels = [Matern52(lengthscales=[1.0, 1.0]) for _ in range(2)]
    noises = [
        gs.initialization.posterior_mode(*data, kernel)[0]
        for data, kernel in zip((some, (X, Y)), kernels, strict=True)
    ]
    assert 0.5 < noises[0] / noises[1] < 2.0


def test_other_outputs_of_equal_rows_are_measurements():
    """Ratings are equal by chance: of 12 outputs at a row of inputs, each of 5 values."""
    r = np.random.default_rng(0)
    places = np.repeat(r.normal(size=(20, 2)), 12, axis=0)
    ratings = np.clip(np.round(3.0 + places[:, :1] + 0.7 * r.normal(size=(240, 1))), 1, 5)
    assert copies_of(places, ratings) is None
    doubled = copies_of(*(np.repeat(part[::12], 2, 0) for part in (places, ratings)))
    np.testing.assert_array_equal(doubled.counts, np.full(20, 2))


@pytest.mark.parametrize("count", [1, 7, 2 * N])
def test_nearest_neighbors_of_weights_are_those_of_repeated_rows(count):
    def build(data, **options):
        return NearestNeighborGP(
            data, Matern52(), num_neighbors=count, noise_variance=0.1, **options
        )

    repeated, weighted = pair(build)
    densities = [model.leave_one_out_log_density() for model in (weighted, repeated)]
    np.testing.assert_allclose(*densities, rtol=1e-10)
    require_same_predictions(repeated, weighted)


def test_a_left_out_row_loses_all_of_its_weight(tmp_path):
    options = {"num_neighbors": N, "noise_variance": 0.1, "row_weights": REAL}
    model = NearestNeighborGP((X, Y), Matern52(), **options)
    K, total = Matern52()(X).numpy(), 0.0
    for n in range(N):
        left, rows = REAL, np.arange(N) != n
        jitter = 1e-6  # of the model, relative to the variance 1
        inverse = np.linalg.inv(K[np.ix_(rows, rows)] + np.diag(0.1 / left[rows] + jitter))
        mean = K[n, rows] @ inverse @ Y[rows, 0]
        var = 1.1 - K[n, rows] @ inverse @ K[n, rows]
        total -= 0.5 * REAL[n] * ((Y[n, 0] - mean) ** 2 / var + np.log(2.0 * np.pi * var))
    np.testing.assert_allclose(model.leave_one_out_log_density(), total, rtol=1e-9)
    gs.save(model, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_f(NEW), model.predict_f(NEW))


def test_neighbors_of_weights_for_classes_are_those_of_repeated_rows():
    def build(data, **options):
        return NearestNeighborClassifier(data, Matern32(), 3, num_neighbors=7, **options)

    repeated, weighted = pair(build, LABELS)
    require_same_predictions(repeated, weighted)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_sites_of_weights_are_those_of_repeated_rows(num_classes):
    labels = np.minimum(LABELS, num_classes - 1.0)

    def build(data, **options):
        likelihood = BernoulliLogit() if num_classes == 2 else OneVersusRest(3)
        return SiteVGP(data, Matern32(), likelihood, **options)

    repeated, weighted = pair(build, labels)
    assert repeated.fit_sites()
    assert weighted.fit_sites()
    np.testing.assert_allclose(weighted.elbo(), repeated.elbo(), rtol=1e-10)
    require_same_predictions(repeated, weighted)


def neighbors(**options):
    return NearestNeighborGP((X, Y), Matern52(), num_neighbors=9, **options)


MODELS = {
    "neighbors": lambda: neighbors(row_weights=REAL),
    "neighbors of known variances": lambda: neighbors(known_variance=REAL),
    "classes": lambda: NearestNeighborClassifier((X, LABELS), Matern52(), 3, row_weights=REAL),
    "sites": lambda: SiteVGP((X, Y), Matern52(), gpflow.likelihoods.Gaussian(), row_weights=REAL),
    "solvegpr": lambda: SOLVEGPR(
        (X, Y), Matern52(), OrthogonalInducingVariables(X[:5], X[5:8]), known_variance=REAL
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_first_call_may_be_in_a_graph(name):
    model = MODELS[name]()
    found = tf.function(model.predict_f, autograph=False)(NEW)
    for graph, eager in zip(found, model.predict_f(NEW), strict=True):
        np.testing.assert_allclose(graph, eager, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [GPMixture, NearestNeighborGP, SiteVGP])
def test_other_weights_are_refused(kind):
    data, kernel = (X, Y), gpflow.kernels.Matern52()
    arguments = {
        GPMixture: [[kernel]],
        NearestNeighborGP: [kernel],
        SiteVGP: [kernel, gpflow.likelihoods.Gaussian()],
    }[kind]
    for weights in (np.ones(N - 1), np.zeros(N), np.full((N, 1), 1.0), -REAL):
        with pytest.raises(ValueError, match="row_weights must be 40 positive numbers"):
            kind(data, *arguments, row_weights=weights)
