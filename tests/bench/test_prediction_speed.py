"""Cached predictions of every model, timed once at small sizes."""

import pytest

from bench import prediction_speed


@pytest.mark.nightly
def test_every_model_is_timed_beside_svgp(monkeypatch):
    monkeypatch.setattr(prediction_speed, "_IMAGE", (6, 6))
    tables = prediction_speed.predictions(8, 20, 2, 1)
    titles = [row["title"].split("(")[0] for row in tables["rows"]]
    assert titles[0] == "GPflow SVGP"
    assert {"SOLVEGP", "SWSGP", "SoftKI", "GRIEF", "QSGP", "NearestNeighborGP"} <= set(titles)
    assert tables["rows"][0]["ratio"] == tables["images"][0]["ratio"] == 1.0
    for row in [*tables["rows"], *tables["images"]]:
        assert row["microseconds"] > 0.0
