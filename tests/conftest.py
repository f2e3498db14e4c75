"""Fixtures for all tests, and which cases of the large matrices wait for the nightly tier."""

import signal

import gpflow
import numpy as np
import pytest

# Files whose tests run over many models, methods or kinds of input: the default tier takes one case
# in so many of each test, starting at another case in each test, so that every model meets some
# tests and every test some models. The nightly tier takes them all.
THINNED = {
    "test_basis.py": 3,
    "test_basis_features.py": 2,
    "test_battery.py": 8,
    "test_checkpoints.py": 2,
    "test_exporting.py": 2,
    "test_fingerprints.py": 8,
    "test_fit.py": 2,
    "test_fourier.py": 4,
    "test_gpflow_calls.py": 3,
    "test_grid_eigenfunctions.py": 3,
    "test_guard.py": 2,
    "test_hostile.py": 6,
    "test_hybrid.py": 3,
    "test_paper_models.py": 8,
    "test_qsgp.py": 3,
    "test_qsgp_variance.py": 2,
    "test_round_trip.py": 6,
    "test_rounds.py": 3,
    "test_seeds.py": 2,
    "test_softki.py": 2,
    "test_solvegpr.py": 3,
    "test_steps.py": 3,
    "test_stored.py": 6,
    "test_subsampled_objective.py": 2,
    "test_swsgp.py": 2,
    "test_variable_data.py": 4,
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
