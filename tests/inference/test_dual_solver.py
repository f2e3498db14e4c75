"""The block Gauss-Seidel solver of `DualGPR` against dense algebra."""

import gpflow
import numpy as np
import pytest
from gpflow import kernels

from gpflow_sparse.models import DualGPR, DualOptions
from tests.oracles.dual import weights

N, D, P, NOISE = 230, 2, 3, 0.02
TIGHT = {"block_size": 60, "tolerance": 1e-10, "max_passes": 200}
KERNELS = {
    "matern12": lambda: kernels.Matern12(lengthscales=[0.8, 1.2]),
    "matern32": lambda: kernels.Matern32(variance=1.3, lengthscales=[0.8, 1.2]),
    "squared_exponential": lambda: kernels.SquaredExponential(lengthscales=0.7),
    "product": lambda: kernels.Matern52(active_dims=[0]) * kernels.Matern32(active_dims=[1]),
}


@pytest.fixture
def rows(rng):
    return rng.normal(size=(N, D)), rng.normal(size=(N, P))


def build(rows, kernel="matern32", noise=NOISE, **options):
    options = {"num_paths": 2, "num_features": 4, **options}
    return DualGPR(rows, KERNELS[kernel](), noise_variance=noise, **options)


def exact_weights(model, rows, extra=0.0):
    noise = np.full(len(rows[0]), NOISE) + extra
    return weights(model.kernel(rows[0]).numpy(), noise, rows[1])


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("name", KERNELS)
def test_weights_equal_those_of_dense_algebra(rows, name, offset):
    """Products are in float32: residuals from float64 remove their rounding."""
    X, B = rows
    extra, offset = np.linspace(0.0, NOISE, N), 0.0 if name == "product" else offset
    solution = build((X + offset, B), name, row_noise=extra).solve(DualOptions(**TIGHT))
    model = build(rows, name)
    expected = exact_weights(model, rows, extra)
    assert solution.converged
    tolerance = 1e-7 if offset == 0.0 else 1e-5  # of X + offset itself
    found = solution.state.weights[:, :P]
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    if offset == 0.0:
        residuals = B - (model.kernel(X).numpy() + np.diag(NOISE + extra)) @ found
        np.testing.assert_allclose(solution.residuals[:, :P], residuals, atol=1e-11)


def test_duplicates_of_rows_and_columns_of_zeros_are_no_trouble(rows):
    """With so many rows that a product takes several tiles."""
    X, B = (np.tile(part, (5, 1)) for part in rows)
    B[N:] *= -0.5
    B[:, 1] = 0.0
    model = build((X, B))
    solution = model.solve(DualOptions(block_size=1000, tolerance=1e-9, precision="float64"))
    expected, found = exact_weights(model, (X, B)), solution.state.weights[:, :P]
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())
    assert (found[:, 1] == 0.0).all()


def test_a_resumed_run_is_the_same_to_the_last_bit_and_a_solution_needs_no_pass(rows):
    states, options = [], DualOptions(block_size=60, tolerance=1e-5, seed=3)
    model = build(rows)
    expected = model.solve(options, callback=states.append)
    assert [s.num_passes for s in states] == list(range(1, len(states) + 1))
    found = build(rows).solve(options, state=states[len(states) // 2])
    assert found.state.history == expected.state.history
    np.testing.assert_array_equal(found.state.weights, expected.state.weights)
    again = model.solve(DualOptions(tolerance=1e-4))
    assert (again.state.num_passes, again.converged) == (0, True)


def test_the_error_falls_in_every_step_that_has_no_rounding(rows):
    """In the norm of the matrix, in which a block's error is removed."""
    model, errors = build(rows), []
    matrix = model.kernel(rows[0]).numpy() + NOISE * np.eye(N)
    expected = exact_weights(model, rows)

    def note(state):
        error = state.weights[:, :P] - expected
        errors.append(np.trace(error.T @ matrix @ error))

    model.solve(DualOptions(block_size=60, precision="float64", tolerance=1e-5), callback=note)
    assert (np.diff(errors) < 0.0).all()


def test_neighbors_converge_in_fewer_passes(rng):
    X = rng.uniform(size=(500, 2))
    Y = np.sin(9.0 * X[:, :1]) + 0.1 * rng.normal(size=(500, 1))
    passes = []
    for kind in ("neighbors", "random"):
        model = DualGPR(
            (X, Y), kernels.Matern32(lengthscales=0.3), noise_variance=0.01, num_paths=2
        )
        options = DualOptions(block_size=60, partition=kind, tolerance=1e-4)
        passes.append(model.solve(options).state.num_passes)
    assert passes[0] < passes[1]


def test_a_stalled_run_says_what_helps(rng):
    X = rng.uniform(size=(300, 1))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=2.0)
    model = DualGPR((X, rng.normal(size=(300, 1))), kernel, noise_variance=2e-6, num_paths=1)
    with pytest.raises(ValueError, match=r"block_size=20.*partition='neighbors'"):
        model.solve(DualOptions(block_size=20, partition="random", max_passes=1000))


def test_a_state_of_other_data_is_refused(rows):
    with pytest.warns(UserWarning, match="after 1 passes"):
        state = build(rows).solve(DualOptions(block_size=60, max_passes=1)).state
    with pytest.raises(ValueError, match=r"state must be of the same rows.*\(230, 9\).*\(230, 6\)"):
        build((rows[0], rows[1][:, :2])).solve(state=state)
