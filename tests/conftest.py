"""Fixtures for all tests, and which cases of the large matrices wait for the nightly tier."""

import signal

import gpflow
import numpy as np
import pytest

# Files whose tests run over many models, methods or kinds of input: the default tier takes one case
# in so many of each test, starting at another case in each test, so that every model meets some
# tests and every test some models. The nightly tier takes them all.
THINNED = {
    "test_basis.py": 11,
    "test_basis_features.py": 8,
    "test_battery.py": 43,
    "test_calibration.py": 32,
    "test_checkpoints.py": 11,
    "test_cli.py": 8,
    "test_cli_outputs.py": 8,
    "test_convolutional.py": 5,
    "test_deep.py": 8,
    "test_diagnosis.py": 11,
    "test_dual.py": 8,
    "test_dual_solver.py": 8,
    "test_exporting.py": 8,
    "test_fingerprints.py": 32,
    "test_fit.py": 8,
    "test_fourier.py": 13,
    "test_gpflow_calls.py": 8,
    "test_grid_eigenfunctions.py": 11,
    "test_grief.py": 8,
    "test_grief_weights.py": 5,
    "test_guard.py": 8,
    "test_hostile.py": 38,
    "test_hybrid.py": 11,
    "test_likelihoods.py": 5,
    "test_matrix.py": 5,
    "test_multioutput.py": 8,
    "test_nearest_neighbor.py": 8,
    "test_optimizers.py": 5,
    "test_orthogonal.py": 5,
    "test_paper_models.py": 22,
    "test_qsgp.py": 11,
    "test_qsgp_variance.py": 8,
    "test_reproducible.py": 8,
    "test_round_trip.py": 32,
    "test_residual_bounds.py": 8,
    "test_rounds.py": 11,
    "test_saving.py": 5,
    "test_seeds.py": 11,
    "test_soft_interpolation.py": 5,
    "test_softki.py": 8,
    "test_solvegpr.py": 11,
    "test_sparse.py": 8,
    "test_steps.py": 11,
    "test_starts.py": 3,
    "test_stored.py": 22,
    "test_sub_sampled.py": 8,
    "test_subsampled_objective.py": 8,
    "test_subsampling.py": 5,
    "test_swsgp.py": 8,
    "test_swsgp_chain.py": 5,
    "test_swsgp_oracle.py": 5,
    "test_swsgp_steps.py": 5,
    "test_variable_data.py": 11,
}


def pytest_configure() -> None:
    """Tests that interrupt a run also work where the tests were started with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that the default tier leaves out; of every test at least one case stays."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.name in THINNED:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for number, found in enumerate(cases.values()):
        every = min(THINNED[found[0].path.name], len(found))
        for place, item in enumerate(found):
            if (place + number) % every:
                item.add_marker(pytest.mark.nightly)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture(params=["float64", "float32"])
def float_type(request: pytest.FixtureRequest):
    """Run the test in both precisions, with GPflow's default float set around it."""
    dtype = np.dtype(request.param).type
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        yield dtype
