"""Choices of inducing inputs and lengthscales against naive oracles in NumPy."""

import gpflow
import numpy as np
import pytest
from gpflow.utilities import set_trainable

from gpflow_sparse.initialization import (
    greedy_orthogonal,
    greedy_variance,
    inducing_inputs,
    kmeans,
    median_lengthscales,
    random_subset,
    split_orthogonal,
    subset_hyperparameters,
)
from tests.oracles.pivoted_cholesky import greedy_picks

CHOICES = [kmeans, random_subset, greedy_variance]


def make_inputs(num_rows=200, num_columns=2, seed=0):
    return np.random.default_rng(seed).standard_normal((num_rows, num_columns))


def make_kernel():
    """Without ties: the linear part makes the prior variance differ from row to row."""
    return gpflow.kernels.Matern52(lengthscales=0.7) + gpflow.kernels.Linear(variance=0.3)


def make_stationary():
    return gpflow.kernels.Matern32(lengthscales=0.7)


def sort_rows(rows):
    return rows[np.lexsort(rows.T)]


def find_rows(X, rows):
    """Index in X of every row of another array."""
    return [int(np.flatnonzero(np.all(row == X, axis=1))[0]) for row in rows]


def inertia(X, centers):
    return np.sum(np.min(np.sum((X[:, None] - centers) ** 2, axis=-1), axis=1))


# --- all choices


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("M", [7, 8, 99])
def test_all_distinct_rows_are_the_points_where_rows_repeat_and_more_are_asked_for(choose, M):
    rows = make_inputs(7)
    X = np.random.default_rng(1).permutation(np.repeat(rows, 5, axis=0))
    for kernel in (make_stationary(), gpflow.kernels.Linear()):  # the second has rank 2
        Z = choose(X, M, kernel)
        np.testing.assert_array_equal(sort_rows(Z), sort_rows(rows))


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("M", [0, -1, 11])
def test_a_size_that_cannot_be_had_is_an_error(choose, M):
    with pytest.raises(ValueError, match=f"M: expected between 1 and 10, .* got {M}"):
        choose(make_inputs(10), M, make_stationary())


# --- k-means


@pytest.mark.parametrize("limit", [np.inf, 0.0], ids=["lloyd", "mini-batches"])
def test_kmeans_inertia_is_well_below_that_of_a_random_subset(limit, monkeypatch):
    monkeypatch.setattr(inducing_inputs, "_LLOYD_LIMIT", limit)
    X = make_inputs(3000)
    Z = kmeans(X, 50)
    assert len(np.unique(Z, axis=0)) == 50
    assert inertia(X, Z) < 0.7 * inertia(X, random_subset(X, 50))


def test_kmeans_is_kmeans_of_the_scaled_inputs():
    X, lengthscales = make_inputs(), np.array([0.1, 3.0])
    Z = kmeans(X, 10, gpflow.kernels.RBF(lengthscales=lengthscales))
    np.testing.assert_allclose(Z, kmeans(X / lengthscales, 10) * lengthscales, rtol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: gpflow.kernels.RBF(lengthscales=0.1, active_dims=[0]),
        lambda: gpflow.kernels.RBF(lengthscales=[0.1, 3.0], active_dims=[1, 0]),
        lambda: gpflow.kernels.RBF(lengthscales=0.1, active_dims=slice(1, None)),
        lambda: gpflow.kernels.RBF(lengthscales=[0.1, 3.0]) + gpflow.kernels.Linear(),
    ],
    ids=["list", "permuted", "slice", "sum"],
)
def test_kernels_without_a_lengthscale_for_every_column_leave_inputs_unscaled(make):
    X = make_inputs()
    np.testing.assert_allclose(kmeans(X, 10, make()), kmeans(X, 10), rtol=1e-10)


# --- random subsets


def test_a_random_subset_consists_of_rows_of_the_inputs():
    X = make_inputs()
    assert len(set(find_rows(X, random_subset(X, 50)))) == 50


# --- greedy choices


def test_greedy_picks_are_those_of_the_naive_conditional_variance():
    X, kernel = make_inputs(), make_kernel()
    picks = greedy_picks(kernel(X).numpy(), 25)
    np.testing.assert_array_equal(greedy_variance(X, 25, kernel), X[picks])


def test_orthogonal_picks_are_those_of_the_naive_variance_given_z():
    X, Z, kernel = make_inputs(), make_inputs(15, seed=1), make_kernel()
    K = kernel(np.concatenate([Z, X])).numpy()
    picks = np.array(greedy_picks(K, 20, given=range(15))) - 15
    np.testing.assert_array_equal(greedy_orthogonal(X, Z, 20, kernel), X[picks])


def test_a_covariance_of_low_rank_is_an_error_that_says_how_many_picks_are_useful():
    X, kernel = make_inputs(num_columns=3), gpflow.kernels.Linear()
    assert greedy_variance(X, 3, kernel).shape == (3, 3)
    with pytest.raises(ValueError, match=r"M: expected at most 3, .* got 4"):
        greedy_variance(X, 4, kernel)
    with pytest.raises(ValueError, match=r"M2: expected at most 1, .* got 2"):
        greedy_orthogonal(X, X[:2], 2, kernel)


# --- joint choices


def test_splits_that_cannot_be_made_are_errors():
    X = make_inputs(10)
    for sizes in [(5, 0), (0, 5), (6, 5)]:
        with pytest.raises(ValueError, match="M, num_orthogonal: expected sizes"):
            split_orthogonal(X, *sizes)
    with pytest.raises(ValueError, match=r"method: expected .* got 'best'"):
        split_orthogonal(X, 2, 2, method="best")
    with pytest.raises(ValueError, match=r'method: expected .* "greedy" with a kernel'):
        split_orthogonal(X, 2, 2, method="greedy")


@pytest.mark.parametrize("method", ["kmeans", "random", "greedy"])
def test_distinct_rows_are_split_where_rows_repeat_and_they_are_too_few(method):
    rows, kernel = make_inputs(9), make_stationary()
    X = np.random.default_rng(1).permutation(np.repeat(rows, 4, axis=0))
    for sizes, expected in (
        ((6, 6), (6, 3)),
        ((5, 4), (5, 4)),
        ((9, 2), (9, 0)),
        ((40, 40), (9, 0)),
        ((3, 4, 5), (3, 4, 2)),
        ((4, 4), (4, 4)),
    ):
        sets = split_orthogonal(X, *sizes, kernel=kernel, method=method)
        assert tuple(map(len, sets)) == expected
        joint = np.concatenate(sets)
        assert len(np.unique(joint, axis=0)) == len(joint)
        if len(joint) == 9:
            np.testing.assert_array_equal(sort_rows(joint), sort_rows(rows))
    if method == "greedy":  # in order of choice
        Z = split_orthogonal(X, 4, 9, kernel=kernel, method=method)[0]
        np.testing.assert_array_equal(Z, greedy_variance(X, 4, kernel))


# --- lengthscales


def test_median_lengthscales_are_those_of_all_pairs():
    X = make_inputs(101, 3) * [1.0, 10.0, 0.1]
    first, second = np.triu_indices(101, k=1)
    expected = np.median(np.abs(X[first] - X[second]), axis=0) * np.sqrt(3.0)
    np.testing.assert_allclose(median_lengthscales(X), expected, rtol=1e-14)


def test_constant_and_mostly_constant_columns_have_positive_lengthscales():
    X = make_inputs(100, 3)
    X[:, 1] = 0.1
    X[:, 2] = np.arange(100) < 5
    lengthscales = median_lengthscales(X)
    assert lengthscales[1] == 1.0
    np.testing.assert_allclose(lengthscales[2], np.sqrt(0.05 * 0.95) * np.sqrt(3.0), rtol=1e-12)


# --- hyperparameters


def draw_gp(num_rows=300, lengthscale=0.3, noise_variance=0.01, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 3.0, size=(num_rows, 1))
    K = gpflow.kernels.Matern52(lengthscales=lengthscale)(X).numpy()
    root = np.linalg.cholesky(K + noise_variance * np.eye(num_rows))
    return X, root @ rng.standard_normal((num_rows, 1))


def test_untrainable_parameters_are_left_untouched():
    X, Y = draw_gp(60)
    kernel = gpflow.kernels.Matern52(variance=1.7) + gpflow.kernels.Linear(variance=0.2)
    set_trainable(kernel.kernels[0].variance, False)
    set_trainable(kernel.kernels[1], False)
    fixed = [kernel.kernels[0].variance, kernel.kernels[1].variance]
    before = [value.numpy() for value in fixed]
    subset_hyperparameters(X, Y, kernel, max_iterations=5)
    assert [value.numpy() for value in fixed] == before
    assert kernel.kernels[0].lengthscales.numpy() != 1.0


def test_a_mean_function_is_fitted_along():
    X, Y = draw_gp(60)
    mean_function = gpflow.functions.Constant(np.zeros(1))
    subset_hyperparameters(X, Y + 5.0, gpflow.kernels.Matern52(), mean_function=mean_function)
    np.testing.assert_allclose(mean_function.c.numpy(), 5.0, atol=2.0)


def test_outputs_too_large_to_fit_leave_the_kernel_at_its_starting_values():
    X, Y = draw_gp(30)
    kernel = gpflow.kernels.Matern52(lengthscales=0.5, variance=2.0)
    with pytest.raises(ValueError, match="Y must be smaller than"):
        subset_hyperparameters(X, Y * 1e200, kernel)
    assert kernel.lengthscales.numpy() == pytest.approx(0.5, rel=1e-12)
    assert kernel.variance.numpy() == pytest.approx(2.0, rel=1e-12)


def test_a_fit_to_outputs_in_thousands_is_the_fit_to_standardized_ones():
    X, Y = draw_gp(60)
    found = []
    for unit in (1.0, 1e4):
        kernel = gpflow.kernels.Matern52(variance=unit**2)
        noise = subset_hyperparameters(X, unit * Y, kernel, noise_variance=0.1 * unit**2)
        variances = [noise / unit**2, kernel.variance.numpy() / unit**2]
        found.append([*variances, kernel.lengthscales.numpy()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3)
    assert abs(np.log(found[0][0] / 0.1)) > 0.5  # the fit moved


@pytest.mark.parametrize("lower", [0.0, 0.01])
def test_a_lengthscale_stays_within_a_factor_of_100_of_its_start(lower):
    """Also one whose transform has a lower bound, which is searched in another coordinate."""
    X = np.linspace(0.0, 3.0, 200)[:, None]
    kernel = gpflow.kernels.RBF()
    transform = gpflow.utilities.positive(lower=lower)
    kernel.lengthscales = gpflow.Parameter(0.012, transform=transform)
    subset_hyperparameters(X, np.sin(X) + 0.5, kernel, noise_variance=0.01)
    assert kernel.lengthscales.numpy() == pytest.approx(1.2, rel=1e-4)


def test_a_covariance_that_does_not_factor_is_an_error_that_leaves_the_kernel():
    X, Y = draw_gp(30)
    kernel = gpflow.kernels.RBF(lengthscales=100.0, variance=1e14)
    before = kernel.variance.numpy()
    with pytest.raises(ValueError, match="log density of the hyperparameters is not finite"):
        subset_hyperparameters(X, Y, kernel, noise_variance=1e-5)
    assert kernel.variance.numpy() == before


def test_the_noise_of_a_noisy_table_is_fitted_although_calibration_could_replace_it():
    rng = np.random.default_rng(10)
    X = rng.normal(size=(400, 3))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 2.0 * rng.normal(size=(400, 1))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[2.0] * 3)
    noise = subset_hyperparameters(X, Y / Y.std(), kernel, num_rows=200)
    assert 0.6 < noise < 1.0
