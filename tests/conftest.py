"""Fixtures for all tests, and which cases of the large matrices wait for the nightly tier."""

import signal

import gpflow
import numpy as np
import pytest

# Files whose tests run over many models, methods or kinds of input: the default tier takes one case
# in so many of each test, starting at another case in each test, so that every model meets some
# tests and every test some models. The nightly tier takes them all.
THINNED: dict[str, int] = {}


def pytest_configure() -> None:
    """Tests that interrupt a run also work where the tests were started with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    counts: dict[str, int] = {}
    for item in items:
        every = THINNED.get(item.path.name, 1)
        test = item.nodeid.partition("[")[0]
        place = counts.get(test, 0)
        counts[test] = place + 1
        if "[" in item.nodeid and (place + len(counts)) % every:
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
