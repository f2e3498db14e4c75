"""The command line predicts and scores six tables as it did when ``frozen.json`` was written."""

import json

import numpy as np
import pytest

from tests.tables.cli import frozen

KNOWN = json.loads(frozen.FILE.read_text())
# Tables of seconds, of all kinds of columns; the others are nightly.
DAILY = ("mixed", "two_classes")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in DAILY else pytest.mark.nightly)
        for name in sorted(frozen.COMMANDS)
    ],
)
def test_predictions_and_scores_are_as_they_were(tmp_path, name):
    found = frozen.run(name, tmp_path)
    for score, value in KNOWN[name]["scores"].items():
        assert found["scores"][score] == pytest.approx(value, rel=1e-9), score
    expected = KNOWN[name]["predictions"]
    assert set(found["predictions"]) == {"row", *expected}
    for column, cells in expected.items():
        if column == "class":
            assert found["predictions"][column] == cells
        else:
            values = np.array([found["predictions"][column], cells], float)
            digits = max(len(cell.partition(".")[2]) for cell in found["predictions"][column])
            np.testing.assert_allclose(*values, rtol=0, atol=max(1e-9, 0.501 * 10.0**-digits))
