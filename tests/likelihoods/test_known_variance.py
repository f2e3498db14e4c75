"""Noise of known variance against dense algebra, in a likelihood and in models that hold data."""

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.likelihoods import GaussianWithKnownVariance


def rows(rng, N=14, P=2):
    X = rng.uniform(0.0, 3.0, size=(N, 2))
    Y = np.sin(X[:, :1] + np.arange(P)) + 0.3 * rng.normal(size=(N, P))
    return X, Y, rng.uniform(0.001, 0.8, size=N)


def dense(kernel, X, Y, noise, Xnew):
    """Log density, and mean and variance of f, of exact regression."""
    K = kernel(X).numpy() + np.diag(noise)
    k, solved = kernel(X, Xnew).numpy(), np.linalg.solve(K, Y)
    value = -0.5 * np.sum(Y * solved)
    value -= 0.5 * Y.shape[1] * (np.linalg.slogdet(K)[1] + len(X) * np.log(2.0 * np.pi))
    left = kernel(Xnew, full_cov=False) - np.sum(k * np.linalg.solve(K, k), axis=0)
    return value, k.T @ solved, left


def test_expectations_are_those_of_gpflow_row_by_row(rng):
    X, Y, known = rows(rng)
    known = np.column_stack([known, known[::-1]])
    m, v = rng.normal(size=Y.shape), rng.uniform(0.1, 1.0, size=Y.shape)
    site = GaussianWithKnownVariance(0.2)
    for method in ("variational_expectations", "predict_log_density"):
        found = getattr(site, method)(X, m, v, np.hstack([Y, known]))
        for n in range(len(X)):
            each = [
                getattr(gpflow.likelihoods.Gaussian(0.2 + known[n, p]), method)(
                    X[:1], m[n : n + 1, [p]], v[n : n + 1, [p]], Y[n : n + 1, [p]]
                )
                for p in range(2)
            ]
            np.testing.assert_allclose(found[n], np.sum(each), rtol=1e-12)
    np.testing.assert_allclose(site.predict_mean_and_var(X, m, v)[1], v + 0.2, rtol=1e-14)
    assert not GaussianWithKnownVariance(0).trainable_variables
    with pytest.raises(ValueError, match=r"variance must be one positive number; got -1"):
        GaussianWithKnownVariance(-1)


KERNEL = gpflow.kernels.Matern32(1.3, 0.9)


@pytest.mark.parametrize("bound", ["standard", "log", "block", "coupled", "fully_coupled"])
def test_every_bound_of_solvegpr_is_dense_algebra(rng, bound):
    X, Y, known = rows(rng)
    Z = rng.uniform(0.0, 3.0, size=(6, 2))
    sets = OrthogonalInducingVariables(Z)
    model = gs.models.SOLVEGPR(
        (X, Y), KERNEL, sets, noise_variance=0.2, bound=bound, block_size=20, known_variance=known
    )
    K, k = KERNEL(Z).numpy() + 1.3e-6 * np.eye(6), KERNEL(Z, X).numpy()
    Q, noise = k.T @ np.linalg.solve(K, k), known + 0.2
    R, C = KERNEL(X).numpy() - Q, Q + np.diag(noise)
    density = np.sum(Y * np.linalg.solve(C, Y))
    density = -0.5 * density - 0.5 * 2 * (np.linalg.slogdet(C)[1] + len(X) * np.log(2 * np.pi))
    roots = np.sqrt(noise)
    loss = {
        "standard": np.sum(np.diag(R) / noise),
        "log": np.sum(np.log1p(np.diag(R) / noise)),
        "block": np.linalg.slogdet(np.eye(len(X)) + R / roots[:, None] / roots)[1],
        "coupled": np.trace(np.linalg.solve(C, R)),
        "fully_coupled": np.trace(np.linalg.solve(C, R)),
    }[bound]
    np.testing.assert_allclose(model.elbo(), density - 0.5 * 2 * loss, rtol=1e-9)
    if bound == "standard":
        sparse = model.to_solvegp()
        data = X, np.hstack([Y, known[:, None], known[:, None]])
        np.testing.assert_allclose(sparse.elbo(data), model.elbo(), rtol=1e-8)
        for found, expected in zip(sparse.predict_f(X), model.predict_f(X), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.usefixtures("tiny_jitter")
def test_models_at_all_rows_are_dense_algebra(rng):
    X, Y, known = rows(rng)
    Xnew = rng.uniform(0.0, 3.0, size=(5, 2))
    value, mean, var = dense(KERNEL, X, Y, known + 0.2, Xnew)
    sets = OrthogonalInducingVariables(X[:9], X[9:])
    options = {"noise_variance": 0.2, "known_variance": known}
    models = [
        gs.models.SOLVEGPR((X, Y), KERNEL, sets, bound="coupled", **options),
        gs.models.GPMixture((X, Y), [KERNEL], **options),
        gs.models.SOLVEGPR((X, Y), KERNEL, OrthogonalInducingVariables(X), **options),
        gs.models.NearestNeighborGP((X, Y), KERNEL, num_neighbors=14, **options),
    ]
    for model in models[:3]:
        np.testing.assert_allclose(model.elbo(), value, rtol=1e-9)
    for model in models[1:]:
        found = model.predict_f(Xnew)
        np.testing.assert_allclose(found[0], mean, atol=1e-9)
        np.testing.assert_allclose(found[1], np.stack([var, var], axis=1), atol=1e-9)
    np.testing.assert_allclose(models[3].predict_y(Xnew)[1] - found[1], 0.2, rtol=1e-9)


@pytest.mark.usefixtures("tiny_jitter")
@pytest.mark.parametrize("num_places", [14, 5])
def test_a_left_out_row_of_nearest_neighbors_has_its_own_variance(rng, num_places):
    """Also where inputs repeat, whose precisions are added; with all rows as neighbors."""
    X, Y, known = rows(rng)
    X = X[np.arange(14) % num_places]
    model = gs.models.NearestNeighborGP(
        (X, Y), KERNEL, num_neighbors=14, noise_variance=0.2, known_variance=known
    )
    total, noise = 0.0, known + 0.2
    for n in range(14):
        others = np.delete(np.arange(14), n)
        _, mean, var = dense(KERNEL, X[others], Y[others], noise[others], X[[n]])
        spread = var[0] + noise[n]
        total -= 0.5 * np.sum((Y[n] - mean[0]) ** 2) / spread + np.log(2 * np.pi * spread)
    np.testing.assert_allclose(model.leave_one_out_log_density(), total, rtol=1e-9)
    _, mean, _ = dense(KERNEL, X, Y, noise, X + 0.1)
    np.testing.assert_allclose(model.predict_f(X + 0.1)[0], mean, atol=1e-9)


def test_copies_with_other_variances_are_other_observations(rng):
    X, Y, known = rows(rng)
    twice = np.vstack([X, X[:2]]), np.vstack([Y, Y[:2]]), np.append(known, [known[0], 2.0])
    data, options = twice[:2], {"noise_variance": 0.2}
    model = gs.models.NearestNeighborGP(data, KERNEL, known_variance=twice[2], **options)
    assert len(model.data[0]) == len(model.known_variance) == 15
    with pytest.raises(ValueError, match="known_variance must be None for local factors"):
        model.fit_local_variance()


@pytest.mark.parametrize("build", ["solvegpr", "gpnn"])
@pytest.mark.parametrize("wrong", [-np.ones(14), np.ones(13), 0.1])
def test_other_variances_are_refused(rng, build, wrong):
    X, Y, _ = rows(rng)
    with pytest.raises(ValueError, match="known_variance must be a number of at least 0 for each"):
        if build == "gpnn":
            gs.models.NearestNeighborGP((X, Y), KERNEL, known_variance=wrong)
        else:
            Z = OrthogonalInducingVariables(X)
            gs.models.SOLVEGPR((X, Y), KERNEL, Z, known_variance=wrong)


def test_variances_below_zero_in_y_are_refused(rng):
    X, Y, known = rows(rng)
    model = gs.models.SOLVEGP(
        KERNEL,
        GaussianWithKnownVariance(),
        OrthogonalInducingVariables(X),
        num_latent_gps=2,
    )
    data = X, np.column_stack([Y, known, -known])
    with pytest.raises(ValueError, match="Y must hold variances of at least 0 in its second half"):
        model.elbo(data)
    with pytest.raises(ValueError, match=r"Y must have 4 column\(s\) for GaussianWithKnown"):
        model.elbo((X, Y))


def test_a_saved_model_has_its_known_variances(rng, tmp_path):
    X, Y, known = rows(rng)
    Z = OrthogonalInducingVariables(X)
    for model in (
        gs.models.NearestNeighborGP((X, Y), KERNEL, known_variance=known),
        gs.models.GPMixture((X, Y), [KERNEL], known_variance=known),
        gs.models.SOLVEGPR((X, Y), KERNEL, Z, known_variance=known),
    ):
        gs.save(model, tmp_path / "model.gp")
        loaded = gs.load(tmp_path / "model.gp")
        np.testing.assert_array_equal(loaded.known_variance, known)
        np.testing.assert_array_equal(loaded.predict_f(X)[1], model.predict_f(X)[1])


def test_models_are_not_conditioned_on_rows_of_unknown_variances(rng):
    X, Y, known = rows(rng)
    sets = OrthogonalInducingVariables(X[:4])
    for model in (
        gs.models.SOLVEGPR((X, Y), KERNEL, sets, known_variance=known),
        gs.models.NearestNeighborGP((X, Y), KERNEL, known_variance=known),
        gs.models.GPMixture((X, Y), [KERNEL], known_variance=known),
    ):
        with pytest.raises(ValueError, match="their known_variance is not known here"):
            model.condition_on(X, Y)
