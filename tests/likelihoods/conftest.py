"""What tests of exact identities share."""

import gpflow
import pytest

from gpflow_sparse.numerics import linalg


@pytest.fixture
def tiny_jitter(monkeypatch):
    monkeypatch.setattr(linalg, "relative_jitter", lambda dtype, at_least: 1e-13)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-13)):
        yield
