"""Operations of a step as it is traced for a GPU, where each of them is a launch."""

import pytest
import tensorflow as tf

from bench.device_models import Cases, Sizes
from bench.graph_counts import counted

CASES = Cases(Sizes(400, 64, 64, 8, 100, 200, 8, 50)).all()
PINNED = "2.21"
# Nodes, executed operations, Cholesky factorizations and triangular solves of value and gradient.
EXPECTED = {
    "SOLVEGP(32+32)": (392, 296, 1, 4),
    "SOLVEGP(32+32), log": (424, 325, 1, 4),
    "ODVGP(32+32)": (442, 334, 1, 4),
    "SoftKI(32)": (370, 291, 2, 6),
    "DeepGP(16, 16)": (681, 536, 2, 8),
    "SWSGP(100, H = 8)": (648, 340, 1, 1),
    "QSGP(200)": (273, 153, 0, 0),
    "SOLVEGP(32+32), convolutional": (586, 447, 1, 4),
    "SOLVEGPR(32+32)": (431, 344, 4, 14),
    "GRIEF(64)": (610, 403, 1, 4),
    "BasisGPR(64)": (182, 134, 1, 4),
    "NearestNeighborGP(400, H = 8)": (558, 269, 1, 4),
}


@pytest.mark.parametrize("title", EXPECTED)
def test_operations_of_value_and_gradient_are_as_few_as_they_were(title):
    found = counted(CASES[title], "value and gradient", "GPU")
    names = ("nodes", "executed", "Cholesky", "solves")
    margin = 0.0 if tf.__version__.startswith(PINNED) else 0.05
    for name, expected in zip(names, EXPECTED[title], strict=True):
        assert found[name] == pytest.approx(expected, rel=margin, abs=0)
    assert found["host"] == 0
