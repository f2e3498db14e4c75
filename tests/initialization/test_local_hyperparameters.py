"""Hyperparameters from subsets of neighboring rows, and the score that compares them."""

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp
from scipy import stats

from gpflow_sparse.initialization import (
    hyperparameters,
    local_hyperparameters,
    posterior_mode,
    subset_hyperparameters,
)
from tests.oracles.mixture import laplace
from tests.oracles.solvegp import matern52

SCALES = np.array([0.06, 0.12])


def draw(num_rows, noise_variance=0.01, seed=0):
    """Rows in the unit square of a function that random subsets of a hundred rows cannot see."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(num_rows, 2))
    K = gpflow.kernels.Matern52(lengthscales=SCALES)(X).numpy()
    root = np.linalg.cholesky(K + noise_variance * np.eye(num_rows))
    return X, root @ rng.standard_normal((num_rows, 1))


def nearest(X, rows, places, count, scales):
    """For each of some rows the indices of the nearest places."""
    squares = np.sum(np.square((X[rows][:, None] - X[places]) / scales), axis=2)
    return places[np.argsort(squares, axis=1)[:, :count]]


def test_local_subsets_recover_what_random_ones_take_for_noise():
    X, Y = draw(1500)
    errors = {}
    for name, fit, options in (
        ("local", local_hyperparameters, {"num_subsets": 20, "num_rows": 30}),
        ("random", subset_hyperparameters, {"num_rows": 120}),
    ):
        kernel = gpflow.kernels.Matern52(lengthscales=[0.4, 0.4])
        noise_variance = fit(X, Y, kernel, **options)
        found = np.array([*kernel.lengthscales.numpy(), noise_variance])
        errors[name] = np.abs(np.log(found / [*SCALES, 0.01])).max()
    assert errors["local"] < 0.5
    assert errors["local"] < 0.5 * errors["random"]


@pytest.mark.parametrize("repeated", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_fit_maximizes_the_sum_of_the_likelihoods_of_the_subsets(repeated):
    """Subsets are of distinct rows, with all their outputs, which are around zero as the prior."""
    X, Y = draw_repeated(80) if repeated else draw(80)
    Y = Y - Y.mean(axis=0)
    places, start = firsts(X), [0.3, 0.5]
    kernel, reference = (gpflow.kernels.Matern52(lengthscales=start) for _ in range(2))
    noise_variance = local_hyperparameters(X, Y, kernel, num_subsets=3, num_rows=20, seed=1)
    order = np.random.default_rng(1).permutation(80)
    rest = order[:64]  # a fifth is held out
    subsets = [all_of(X, places[i]) for i in nearest(places, rest[:3], rest, 20, start)]
    models = [gpflow.models.GPR((X[i], Y[i]), reference, noise_variance=0.1) for i in subsets]
    for model in models[1:]:
        model.likelihood = models[0].likelihood
    starts = zip(models[0].trainable_parameters, (start, 1.0, 0.1), strict=True)
    for parameter, value in starts:
        # times the value, the density of the logarithm: normal around that of the start
        parameter.prior = tfp.distributions.LogNormal(np.log(value) + 1.0, np.float64(1.0))
    gpflow.optimizers.Scipy().minimize(
        lambda: (
            -sum(m.maximum_log_likelihood_objective() for m in models)
            - models[0].log_prior_density()
        ),
        models[0].trainable_variables,
        tf_fun_args={"autograph": False},
    )
    np.testing.assert_allclose(kernel.lengthscales, reference.lengthscales, rtol=3e-3)
    np.testing.assert_allclose(kernel.variance, reference.variance, rtol=3e-3)
    np.testing.assert_allclose(noise_variance, models[0].likelihood.variance, rtol=3e-3)


def test_a_fit_that_predicts_worse_and_one_that_fails_change_nothing(monkeypatch):
    X, Y = draw(100)
    kernel = gpflow.kernels.Matern52(lengthscales=SCALES)

    def spoil(density, start, **_):
        return np.concatenate([start[:-2], [np.log(1e-3)], start[-1:]])  # the kernel's variance

    monkeypatch.setattr(hyperparameters, "find_mode", spoil)
    assert local_hyperparameters(X, Y, kernel, num_rows=20, noise_variance=0.02) == 0.02
    assert kernel.variance.numpy() == 1.0
    monkeypatch.undo()
    huge = gpflow.kernels.RBF(lengthscales=100.0, variance=1e14)
    before = huge.variance.numpy()
    with pytest.raises(ValueError, match="log density of the hyperparameters is not finite"):
        local_hyperparameters(X, Y, huge, num_rows=20, noise_variance=1e-5)
    assert huge.variance.numpy() == before


def log_joint(X, Y, start, mean=0.0):
    """Log density of outputs and of the logarithms of lengthscales, variance and noise variance."""

    def density(logs):
        def kernel(A):
            return np.exp(logs[2]) * matern52(A / np.exp(logs[:2]), A / np.exp(logs[:2]))

        prior = stats.norm.logpdf(logs, np.log([*start, 1.0, 0.1])).sum()
        return log_density(kernel, np.exp(logs[3]), X, Y - mean) + prior

    return density


def test_the_posterior_mode_has_the_evidence_by_laplace():
    """Priors of logarithms are normal around the start, with deviation 1."""
    X, Y = draw(40)
    start = np.array([0.3, 0.5])
    kernel = gpflow.kernels.Matern52(lengthscales=start)
    noise, evidence = posterior_mode(X, Y, kernel)
    mode = np.log([*kernel.lengthscales.numpy(), kernel.variance.numpy(), noise])
    joint = log_joint(X, Y, start)
    np.testing.assert_allclose(evidence, laplace(joint, mode, 0.3, np.ones(4))[1], atol=1e-3)
    for direction in (*np.eye(4), *-np.eye(4)):
        assert joint(mode + 0.02 * direction) < joint(mode)


def draw_repeated(num_places=30, seed=0):
    """Rows whose inputs occur one to six times, with two outputs, in random order."""
    rng = np.random.default_rng(seed)
    places, f = draw(num_places, noise_variance=1e-6, seed=seed)
    of_row = rng.permutation(np.repeat(np.arange(num_places), rng.integers(1, 7, num_places)))
    Y = np.column_stack([f[of_row], 100.0 - 2.0 * f[of_row]])
    return places[of_row], Y + 0.3 * rng.standard_normal(Y.shape)


def firsts(X):
    """Distinct rows in the order in which they occur first."""
    return X[np.sort(np.unique(X, axis=0, return_index=True)[1])]


def all_of(X, places):
    """Indices of all rows that are equal to one of some places."""
    return np.flatnonzero((X[:, None] == places).all(axis=2).any(axis=1))


def log_density(kernel, noise, X, errors):
    """Of all columns together, from the dense covariance of all rows."""
    K = np.asarray(kernel(X)) + noise * np.eye(len(X))
    L = np.linalg.cholesky(K)
    log_det = 2.0 * np.sum(np.log(np.diag(L)))
    squares = np.sum(np.linalg.solve(L, errors) ** 2)
    return -0.5 * (squares + errors.shape[1] * (log_det + len(X) * np.log(2.0 * np.pi)))


def test_the_density_of_repeated_rows_is_that_of_all_their_outputs():
    X, Y = draw_repeated()
    start = np.array([0.3, 0.5])
    kernel = gpflow.kernels.Matern52(lengthscales=start)
    mean_function = gpflow.functions.Constant([50.0])
    gpflow.set_trainable(mean_function, False)
    noise, evidence = posterior_mode(X, Y, kernel, mean_function=mean_function, max_iterations=5)
    mode = np.log([*kernel.lengthscales.numpy(), kernel.variance.numpy(), noise])
    expected = laplace(log_joint(X, Y, start, 50.0), mode, 0.3, np.ones(4))[1]
    np.testing.assert_allclose(evidence, expected, atol=0.02)
