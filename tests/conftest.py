"""Fixtures for all tests."""

import gpflow
import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture(params=["float64", "float32"])
def float_type(request: pytest.FixtureRequest):
    """Run the test in both precisions, with GPflow's default float set around it."""
    dtype = np.dtype(request.param).type
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        yield dtype
