"""The benchmark of devices: small models as for a GPU, on the CPU, with and without XLA."""

import numpy as np
import pytest

from bench import devices
from bench.device_models import Cases, Sizes
from gpflow_sparse.numerics import devices as device_policy

CASES = Cases(Sizes(400, 64, 32, 8, 100, 200, 8, 50)).all()


@pytest.mark.nightly
@pytest.mark.parametrize("title", [title for title in CASES if not title.startswith("GPflow")])
def test_predictions_as_for_a_gpu_are_equal_with_and_without_xla(title, monkeypatch):
    monkeypatch.setattr(device_policy, "sees_gpu", lambda: True)
    found = [devices.prediction(CASES[title], xla) for xla in (False, True)]
    ends = [predict(*arguments(0)) for predict, arguments in found]
    for got, expected in zip(*ends, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)
