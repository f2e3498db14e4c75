"""Grid eigenfunctions against dense Kronecker algebra; their identities; the index set; doors."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Constant, Matern32, Periodic, SquaredExponential

from gpflow_sparse.bases import GridEigenfunctions
from tests.oracles import grief as oracle

D, SIZES = 3, (5, 4, 6)
LENGTHSCALES, VARIANCE = [0.8, 1.1, 0.6], 1.7


def se(ls=LENGTHSCALES):
    return [oracle.SE(value) for value in np.broadcast_to(ls, D)]


# kernel, its factors, the columns it reads
KERNELS = {
    "ard": (lambda: SquaredExponential(VARIANCE, LENGTHSCALES), se(), [0, 1, 2]),
    "isotropic": (lambda: SquaredExponential(VARIANCE, 0.7), se(0.7), [0, 1, 2]),
    "active_dims": (
        lambda: SquaredExponential(VARIANCE, [0.6, 0.9], active_dims=[2, 0]),
        [oracle.SE(0.9), oracle.SE(0.6)],
        [0, 2],
    ),
    "materns": (
        lambda: (
            Matern32(VARIANCE, 0.8, active_dims=[0])
            * Matern32(1.0, 1.1, active_dims=[1])
            * Matern32(1.0, 0.6, active_dims=[2])
        ),
        [oracle.Matern32(value) for value in LENGTHSCALES],
        [0, 1, 2],
    ),
    "periodic": (
        lambda: Periodic(SquaredExponential(VARIANCE, [0.4, 0.5, 0.3]), period=[5.0, 7.0, 6.0]),
        [oracle.PeriodicSE(0.4, 5.0), oracle.PeriodicSE(0.5, 7.0), oracle.PeriodicSE(0.3, 6.0)],
        [0, 1, 2],
    ),
    "constant": (
        lambda: Constant(2.0) * SquaredExponential(VARIANCE / 2.0, LENGTHSCALES),
        se(),
        [0, 1, 2],
    ),
}
every_kernel = pytest.mark.parametrize("name", list(KERNELS))
quiet = pytest.mark.filterwarnings("ignore:.*of the prior variance")


def inputs(rows=30, columns=D, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def grid(X, sizes=SIZES):
    return [oracle.percentile_grid(column, m) for column, m in zip(X.T, sizes, strict=True)]


def build(kernel, X, p, **options):
    """The basis, without the warning that p is small, which tests of numbers do not mind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GridEigenfunctions(kernel, X, p, **options)


def pair(name="ard", p=25, X=None):
    """The basis and its oracle."""
    X = inputs() if X is None else X
    make, factors, columns = KERNELS[name]
    nodes = grid(X)
    basis = build(make(), None, p, grid=nodes)
    return basis, oracle.build_basis(factors, VARIANCE, [nodes[i] for i in columns], p)


def dense_lml(basis, X, y, noise):
    Phi = basis(X)
    C = tf.linalg.matmul(Phi, Phi, transpose_b=True) + noise * tf.eye(len(y), dtype=Phi.dtype)
    L = tf.linalg.cholesky(C)
    alpha = tf.linalg.triangular_solve(L, y[:, None])
    log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)))
    return -0.5 * tf.reduce_sum(alpha**2) - log_det - 0.5 * len(y) * np.log(2.0 * np.pi)


@every_kernel
def test_features_are_those_of_the_oracle_up_to_sign(name):
    basis, expected = pair(name, 18)
    columns, X = KERNELS[name][2], inputs(9, seed=2)
    np.testing.assert_array_equal(basis.indices, expected.idx)
    np.testing.assert_allclose(basis.log_eigenvalues(), expected.log_lam, rtol=1e-12, atol=1e-12)
    Phi = expected.features(X[:, columns])
    np.testing.assert_allclose(np.abs(basis(X)), np.abs(Phi), atol=1e-9)
    signs = np.sign(np.sum(basis(X).numpy() * Phi, axis=0))
    np.testing.assert_allclose(basis(X), Phi * signs, atol=1e-9)
    np.testing.assert_array_equal(basis.features(X), np.transpose(basis(X)))
    assert basis.num_basis == 18
    assert basis.input_dim == D


@every_kernel
def test_on_the_grid_they_are_orthogonal_with_the_eigenvalues_as_squares(name):
    basis, expected = pair(name)
    U = np.zeros((len(oracle.cartesian(expected.grid)), D))
    U[:, KERNELS[name][2]] = oracle.cartesian(expected.grid)
    Phi = basis(U).numpy()
    lam = VARIANCE * np.exp(expected.log_lam)
    np.testing.assert_allclose(Phi.T @ Phi, np.diag(lam), atol=1e-11 * lam.max())
    share = np.mean(np.sum(Phi**2, axis=1)) / VARIANCE
    np.testing.assert_allclose(basis.explained_variance(), share, rtol=1e-10)
    np.testing.assert_allclose(share, oracle.explained_variance(expected), rtol=1e-10)


@pytest.mark.parametrize(
    ("p", "lengthscale", "float_type"),
    [
        *((p, lengthscale, "float64") for p in (10, 4000) for lengthscale in (0.3, 1.0, 5.0)),
        *((150, 1.0, "float64"), (10, 0.3, "float32"), (150, 1.0, "float32")),
        (4000, 5.0, "float32"),
    ],
    indirect=["float_type"],
)
def test_what_the_features_leave_of_the_kernel_is_a_covariance(p, lengthscale, float_type):
    """Inside and outside of the grid, with a third and more of the eigenvalues lost to rounding."""
    data, X = inputs(200), np.concatenate([inputs(40, seed=2), 3.0 * inputs(40, seed=3)])
    kernel = SquaredExponential(VARIANCE, lengthscale)
    basis = build(kernel, data, p, points_per_dimension=16)
    Phi = basis(X.astype(float_type)).numpy()
    assert Phi.dtype == float_type
    Phi = Phi.astype(float)
    K = oracle.product_kernel(se(lengthscale), VARIANCE, X, X)
    least, excess = (-1e-10, 1e-12) if float_type is np.float64 else (-1e-5, 1e-5)
    assert np.linalg.eigvalsh(K - Phi @ Phi.T).min() > least
    assert np.sum(Phi**2, axis=1).max() <= VARIANCE * (1.0 + excess)
    far = np.sum(basis((100.0 + X).astype(float_type)).numpy() ** 2, axis=1)
    np.testing.assert_array_equal(far, np.zeros(80))


@pytest.mark.nightly
def test_two_hundred_columns_neither_overflow_nor_vanish(float_type):
    """Against logarithms and signs, sheet 1.6; the product of the eigenvalues is e^400 and more."""
    d, p, scale = 200, 300, 1e-3
    data, X = inputs(60, d), inputs(5, d, seed=2)
    kernel = SquaredExponential(scale, 14.0)
    basis = build(kernel, data, p)
    assert float(basis.log_eigenvalues()[0]) > 400.0
    logs, signs = np.full((5, p), 0.5 * np.log(scale)), np.ones((5, p))
    for i, nodes in enumerate(basis.grid):
        k, index = oracle.SE(14.0), basis.indices.numpy()[:, i]
        system = oracle.eigensystem(k(nodes, nodes))
        B = (k(X[:, i], nodes) @ system.vectors)[:, index] / np.sqrt(system.values[index])
        logs, signs = logs + np.log(np.abs(B)), signs * np.sign(B)
    rtol = 1e-9 if float_type is np.float64 else 2e-3
    got = basis(X.astype(float_type)).numpy()
    expected = np.exp(logs)
    assert expected.max() > 0.1 * np.sqrt(scale)
    np.testing.assert_allclose(np.abs(got), expected, rtol=rtol, atol=rtol * np.sqrt(scale))
    np.testing.assert_allclose(
        got @ got.T, (signs * expected) @ (signs * expected).T, rtol=rtol, atol=rtol * scale
    )


@quiet
def test_the_index_set_is_frozen_until_it_is_refreshed():
    data, X = inputs(200), inputs(9, seed=2)
    kernel = SquaredExponential(VARIANCE, [0.5, 0.5, 5.0])
    basis = GridEigenfunctions(kernel, data, 30)
    compiled = tf.function(lambda x: (basis(x), basis(x, [3, 29])), autograph=False)
    compiled(X)
    before = basis.indices.numpy()
    assert basis.refresh() is False
    kernel.lengthscales.assign([5.0, 0.5, 0.5])
    np.testing.assert_array_equal(basis.indices, before)
    frozen = basis(X).numpy()
    np.testing.assert_allclose(compiled(X)[0], frozen, atol=1e-11)
    assert basis.refresh() is True
    assert basis.refresh() is False
    assert (basis.indices.numpy() != before).any()
    fresh = GridEigenfunctions(kernel, data, 30)
    np.testing.assert_array_equal(basis.indices, fresh.indices)
    np.testing.assert_array_equal(basis(X), fresh(X))
    assert np.abs(basis(X) - frozen).max() > 0.1
    everything, two = compiled(X)  # was traced before the change
    np.testing.assert_allclose(everything, fresh(X), atol=1e-11)
    np.testing.assert_allclose(two, fresh(X).numpy()[:, [3, 29]], atol=1e-11)
    assert basis.explained_variance() == pytest.approx(fresh.explained_variance(), rel=1e-12)


@quiet
def test_where_fewer_functions_exist_than_before_the_rest_are_zero():
    data, X = inputs(200), inputs(9, seed=2)
    kernel = SquaredExponential(VARIANCE, 0.5)
    basis = GridEigenfunctions(kernel, data, 200)
    kernel.lengthscales.assign(50.0)
    assert basis.refresh()
    fresh = GridEigenfunctions(kernel, data, 200)
    exist = fresh.num_basis
    assert exist < 150
    assert basis.num_basis == 200
    Phi = basis(X).numpy()
    np.testing.assert_allclose(Phi[:, :exist], fresh(X), atol=1e-11)
    np.testing.assert_array_equal(Phi[:, exist:], np.zeros((9, 200 - exist)))
    assert np.isinf(basis.log_eigenvalues()[exist:]).all()
    assert basis.complete_multiplets() == fresh.complete_multiplets() <= exist
    with tf.GradientTape() as tape:
        value = dense_lml(basis, X, np.sin(X[:, 0]), 0.2)
    assert all(np.isfinite(g) for g in tape.gradient(value, kernel.trainable_variables))
    kernel.lengthscales.assign(0.5)
    assert basis.refresh()
    assert np.isfinite(basis.log_eigenvalues()).all()


def test_complete_multiplets_of_equal_columns():
    """1, 1 + d, ... and the index set does not hang on rounding."""
    column = np.linspace(-1.0, 1.0, 50)
    data = np.stack([np.random.default_rng(i).permutation(column) for i in range(4)], axis=1)
    for p, whole in ((4, 1), (5, 5), (8, 5), (11, 11), (14, 11)):
        basis = build(SquaredExponential(lengthscales=1.0), data, p)
        assert basis.complete_multiplets() == whole
        again = build(SquaredExponential(lengthscales=1.0 + 1e-15), data[:, [2, 0, 3, 1]], p)
        np.testing.assert_array_equal(basis.indices, again.indices)
    # of the four functions of first order the last columns go first, lexicographically
    np.testing.assert_array_equal(
        build(SquaredExponential(), data, 4).indices[1:], np.eye(4)[[3, 2, 1]]
    )


@pytest.mark.parametrize("wide", [0.0, 1.0])
def test_the_fraction_outside_counts_rows(wide):
    data = inputs(200)
    kernel = SquaredExponential(lengthscales=[0.8, 0.9], active_dims=[0, 2])
    basis = build(kernel, data, 30)
    assert basis.fraction_outside(data) == 0.0
    X = (1.0 + wide) * inputs(500, seed=2)
    X[0, 1] = 1e3  # of a column that the kernel does not read
    used = data[:, [0, 2]]
    outside = (X[:, [0, 2]] < used.min(axis=0)) | (X[:, [0, 2]] > used.max(axis=0))
    assert basis.fraction_outside(X) == pytest.approx(outside.any(axis=1).mean(), abs=1e-12)


def test_a_kernel_that_reads_other_columns_than_before_is_refused():
    basis = pair()[0]
    basis.kernel = SquaredExponential(active_dims=[0, 1])
    for call in (lambda: basis(inputs()), basis.refresh):
        with pytest.raises(ValueError, match="kernel"):
            call()


def test_refresh_inside_a_graph_is_refused():
    basis = pair()[0]
    with pytest.raises(ValueError, match=r"outside of tf\.function"):
        tf.function(lambda: basis.refresh(), autograph=False)()


def test_with_one_plus_d_functions_they_are_closer_than_nystrom_which_overtakes():
    """Erratum E12: in the paper they are closer for every number of functions."""
    rng = np.random.default_rng(0)
    n, d = 100, 30
    X = rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), size=(n, d))
    kernel = SquaredExponential(lengthscales=np.sqrt(d))
    K = kernel(X).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they lack prior variance, which is the point
        Phi = GridEigenfunctions(kernel, X, 80, 20)(X).numpy()  # the first p are the basis of p

    def errors(p):
        rows = [rng.choice(n, p, replace=False) for _ in range(5)]
        nystrom = [K[:, r] @ np.linalg.solve(K[np.ix_(r, r)], K[r]) for r in rows]
        approximations = (Phi[:, :p] @ Phi[:, :p].T, *nystrom)
        own, *others = (np.linalg.norm(K - approximation) for approximation in approximations)
        return own, np.mean(others)

    own, nystrom = errors(1 + d)
    assert own < 0.8 * nystrom
    own_later, nystrom_later = errors(80)
    assert nystrom_later < 0.8 * own_later
    assert own_later > 0.8 * own  # products of columns add little each
