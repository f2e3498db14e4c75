"""The table of all figures, the time before the first step, and the comparison of batch sizes."""

import sys

import numpy as np
import pytest

from bench import speed, step_variants
from bench.speed import Sizes

SMALL = Sizes(
    num_inducing=8,
    batch_size=20,
    num_held=60,
    num_basis=(20, 40),
    num_data=(60,),
    num_drawn=5,
    num_patches=3,
    num_images=2,
    num_predicted=10,
    memory_calls=1,
)


def test_quotients_are_of_rows_that_were_measured():
    times = {"SWSGP(1000, H = 16)": 2.0, "SWSGP(100000, H = 16)": 3.0, "SWSGP(1000, H = 100)": 1.0}
    rows = [{"part": "step", "title": t, "milliseconds": m} for t, m in times.items()]
    (found,) = speed._quotients(rows)
    assert found["ratio"] == 1.5


@pytest.mark.nightly
def test_every_part_is_measured(monkeypatch):
    monkeypatch.setattr(speed, "SIZES", SMALL)
    monkeypatch.setitem(sys.modules, "gpytorch", None)  # as if it were not installed
    monkeypatch.setattr(step_variants, "_NEIGHBORS", ((20, 5), (40, 5)))
    monkeypatch.setattr(step_variants, "_DENSE", (15, 3))
    monkeypatch.setattr(step_variants, "_SVGP", 10)
    monkeypatch.setattr(step_variants, "_NEIGHBOR_DATA", 80)
    rows = speed.all_methods(True)["rows"]
    assert {row["part"] for row in rows} == {part for part, _ in speed._groups()}
    assert all(np.isfinite(row["ratio"]) for row in rows if row.get("ratio") is not None)
