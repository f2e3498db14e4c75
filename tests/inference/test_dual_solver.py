"""Block Gauss-Seidel in the dual against dense algebra."""

import gpflow
import numpy as np
import pytest
from gpflow import kernels

from gpflow_sparse.models.dual import solver as dual_solver
from gpflow_sparse.models.dual.solver import ConvergenceError, DualOptions, partition, solve
from tests.oracles.dual import weights

N, D = 230, 2
NOISE = 0.02
TIGHT = DualOptions(block_size=60, tolerance=1e-10, max_passes=200)
KERNELS = {
    "matern12": lambda: kernels.Matern12(lengthscales=[0.8, 1.2]),
    "matern32": lambda: kernels.Matern32(variance=1.3, lengthscales=[0.8, 1.2]),
    "squared_exponential": lambda: kernels.SquaredExponential(lengthscales=0.7),
    "product": lambda: kernels.Matern52(active_dims=[0]) * kernels.Matern32(active_dims=[1]),
    "white": lambda: kernels.Matern32() + kernels.White(0.3) + kernels.Linear(),
}


@pytest.fixture
def rows(rng):
    return rng.normal(size=(N, D)), rng.normal(size=(N, 3))


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("name", KERNELS)
def test_weights_equal_those_of_dense_algebra(rows, name, offset):
    """Products are in float32: residuals from float64 remove their rounding."""
    X, B = rows
    kernel, noise = KERNELS[name](), np.linspace(NOISE, 2 * NOISE, N)
    if name in ("product", "white"):
        offset = 0.0  # float32 cannot center what is not one stationary kernel
    solution = solve(kernel, X + offset, noise, B, TIGHT)
    expected = weights(kernel(X).numpy(), noise, B)
    assert solution.converged
    tolerance = 1e-7 if offset == 0.0 else 1e-5  # of X + offset itself
    np.testing.assert_allclose(
        solution.state.weights, expected, atol=tolerance * np.abs(expected).max()
    )
    residuals = B - (kernel(X).numpy() + np.diag(noise)) @ solution.state.weights
    if offset == 0.0:
        np.testing.assert_allclose(solution.residuals, residuals, atol=1e-11)


def test_duplicates_of_rows_are_no_trouble(rows):
    X, B = rows
    X, B = np.concatenate([X, X]), np.concatenate([B, -0.5 * B])
    kernel, noise = KERNELS["matern32"](), np.full(2 * N, NOISE)
    found = solve(kernel, X, noise, B, TIGHT).state.weights
    expected = weights(kernel(X).numpy(), noise, B)
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())


def test_tiles_change_nothing_but_rounding(rows, monkeypatch):
    X, B = rows
    kernel, noise = KERNELS["matern32"](), np.full(N, NOISE)
    options = DualOptions(block_size=60, max_passes=4, tolerance=1e-12, precision="float64")
    expected = solve(kernel, X, noise, B, options)
    monkeypatch.setattr(dual_solver, "_TILE_ENTRIES", 2000)
    found = solve(kernel, X, noise, B, options)
    np.testing.assert_allclose(found.state.weights, expected.state.weights, rtol=1e-8)
    np.testing.assert_allclose(found.residuals, expected.residuals, atol=1e-10)


def test_a_resumed_run_is_the_same_to_the_last_bit(rows):
    X, B = rows
    arguments = KERNELS["matern32"](), X, np.full(N, NOISE), B
    states = []
    options = DualOptions(block_size=60, tolerance=1e-7, seed=3)
    expected = solve(*arguments, options, callback=states.append)
    assert [s.num_passes for s in states] == list(range(1, len(states) + 1))
    for kept in states[::3]:
        found = solve(*arguments, options, state=kept)
        assert found.state.history == expected.state.history
        np.testing.assert_array_equal(found.state.weights, expected.state.weights)
    short = solve(*arguments, DualOptions(block_size=60, tolerance=1e-7, seed=3, max_passes=2))
    assert not short.converged
    found = solve(*arguments, options, state=short.state)
    np.testing.assert_array_equal(found.state.weights, expected.state.weights)


def test_a_solution_is_a_start_that_needs_no_pass(rows):
    X, B = rows
    arguments = KERNELS["matern32"](), X, np.full(N, NOISE), B
    solved = solve(*arguments, TIGHT).state.weights
    again = solve(*arguments, DualOptions(tolerance=1e-8), weights=solved)
    assert (again.state.num_passes, again.converged) == (0, True)
    near = solve(*arguments, TIGHT, weights=1.001 * solved)
    np.testing.assert_allclose(near.state.weights, solved, atol=1e-7 * np.abs(solved).max())


def test_the_error_falls_in_every_step_that_has_no_rounding(rows):
    """In the norm of the matrix, in which a block's error is removed."""
    X, B = rows
    kernel, noise = KERNELS["matern32"](), np.full(N, NOISE)
    matrix = kernel(X).numpy() + np.diag(noise)
    expected, errors = weights(kernel(X).numpy(), noise, B), []

    def note(state):
        error = state.weights - expected
        errors.append(np.trace(error.T @ matrix @ error))

    options = DualOptions(block_size=60, precision="float64", tolerance=1e-5)
    solve(kernel, X, noise, B, options, callback=note)
    assert (np.diff(errors) < 0.0).all()


def test_blocks_are_a_partition_of_neighbors_drawn_anew(rng):
    X = rng.normal(size=(1003, 3))
    spreads = {}
    for kind in dual_solver.PARTITIONS:
        options = DualOptions(block_size=100, partition=kind)
        blocks = partition(X, options, 0)
        assert sorted(map(len, blocks)) == [91] * 9 + [92] * 2
        np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(1003))
        same, other = partition(X, options, 0), partition(X, options, 1)
        assert all((a == b).all() for a, b in zip(blocks, same, strict=True))
        assert len({tuple(b) for b in blocks} & {tuple(b) for b in other}) == 0
        spreads[kind] = np.mean([X[block].var(axis=0).sum() for block in blocks])
    assert spreads["neighbors"] < 0.5 * spreads["random"]


def test_neighbors_converge_in_fewer_passes(rng):
    X = rng.uniform(size=(800, 2))
    B = np.sin(9.0 * X[:, :1]) + 0.1 * rng.normal(size=(800, 1))
    kernel, noise = kernels.Matern32(lengthscales=0.3), np.full(800, 0.01)
    passes = [
        solve(
            kernel, X, noise, B, DualOptions(block_size=100, partition=kind, tolerance=1e-4)
        ).state.num_passes
        for kind in dual_solver.PARTITIONS
    ]
    assert passes[0] < passes[1]


def test_a_column_of_zeros_has_zero_weights(rows):
    X, B = rows
    B[:, 1] = 0.0
    solution = solve(KERNELS["matern32"](), X, np.full(N, NOISE), B, TIGHT)
    assert solution.converged
    assert (solution.state.weights[:, 1] == 0.0).all()


def test_a_stalled_run_says_what_helps(rng):
    X = rng.uniform(size=(300, 1))
    kernel, noise = gpflow.kernels.SquaredExponential(lengthscales=2.0), np.full(300, 1e-8)
    with pytest.raises(ConvergenceError, match=r"block_size=20.*partition='neighbors'"):
        solve(
            kernel,
            X,
            noise,
            rng.normal(size=(300, 1)),
            DualOptions(block_size=20, partition="random", max_passes=1000),
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size must be a positive integer"),
        ({"partition": "tree"}, "partition must be one of 'neighbors', 'random'"),
        ({"tolerance": 1.0}, "tolerance must be between 0 and 1, got 1.0"),
        ({"max_passes": 2.0}, "max_passes must be a positive integer"),
        ({"precision": "float16"}, "precision must be one of"),
        ({"seed": -1}, "seed must be an integer"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        DualOptions(**options)


def test_a_state_of_other_data_is_refused(rows):
    X, B = rows
    arguments = KERNELS["matern32"](), X, np.full(N, NOISE)
    state = solve(*arguments, B, DualOptions(max_passes=1)).state
    with pytest.raises(ValueError, match=r"state must be of the same rows.*\(230, 3\).*\(230, 2\)"):
        solve(*arguments, B[:, :2], state=state)
