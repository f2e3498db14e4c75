"""Columns of longitudes and latitudes as points of the unit sphere."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.estimators import Column, TableEncoder
from gpflow_sparse.tables.reading.cells import ReadingOptions

WORLD = {
    "start_lng": np.linspace(-180.0, 180.0, 40),
    "start_lat": np.linspace(-90.0, 90.0, 40)[::-1],
    "lat": np.linspace(0.0, 1.0, 40) ** 2,
}


def test_longitudes_and_latitudes_are_points_of_the_sphere():
    frame = pd.DataFrame(WORLD)
    encoder = TableEncoder().fit(frame)
    values = encoder.transform(frame)
    assert list(encoder.get_feature_names_out()) == [
        *("start_lng x", "start_lng y", "start_lat z", "lat")
    ]
    assert encoder.notes_ == ("'start_lng' and 'start_lat' are points of the sphere.",)
    np.testing.assert_allclose((values[:, :3] ** 2).sum(axis=1), 1.0, atol=1e-8)
    east = np.array([values[i, :3] for i in range(40)]) @ [0.0, 1.0, 0.0]
    turn, height = np.radians(WORLD["start_lng"]), np.radians(WORLD["start_lat"])
    np.testing.assert_allclose(east, np.sin(turn) * np.cos(height), atol=1e-9)
    seam = pd.DataFrame({"start_lng": [-180.0, 180.0, 540.0], "start_lat": 10.0, "lat": 0.5})
    found = encoder.transform(seam)
    np.testing.assert_array_equal(found[1:], found[:1].repeat(2, axis=0))
    fields = [dataclasses.asdict(column) for column in encoder.columns_]
    again = TableEncoder.from_columns([Column(**each) for each in json.loads(json.dumps(fields))])
    np.testing.assert_array_equal(again.transform(seam), found)
    with pytest.raises(ValueError, match="'start_lng' must have latitudes beside it"):
        TableEncoder.from_columns([encoder.columns_[0], encoder.columns_[2]])
    with pytest.raises(ValueError, match="cannot have the latitude 'b'"):
        Column("a", "number", latitude="b")


@pytest.mark.parametrize(
    ("change", "lonlat", "num_columns"),
    [
        ({}, (), 3),
        ({"start_lng": WORLD["start_lng"] / 100.0}, None, 3),  # a town: a plane
        ({"start_lng": WORLD["start_lng"] / 100.0}, ("start_lng", "start_lat"), 4),
        ({"start_lat": WORLD["start_lat"] * 2.0}, None, 3),  # no latitudes
        ({"start_lng": WORLD["start_lng"] + 180.0}, None, 4),
    ],
)
def test_a_pair_of_columns_is_a_point_by_range_or_by_option(change, lonlat, num_columns):
    encoder = TableEncoder(options=ReadingOptions(lonlat=lonlat))
    assert encoder.fit_transform(pd.DataFrame(WORLD | change)).shape == (40, num_columns)


@pytest.mark.parametrize(
    ("lonlat", "message"),
    [
        (("lat", "x"), "lonlat must name two columns of numbers that vary, got lat, x; the table"),
        (("start_lat", "start_lng"), "lonlat must name longitudes, then latitudes from -90 to 90"),
    ],
)
def test_a_wrong_pair_is_refused(lonlat, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder(options=ReadingOptions(lonlat=lonlat)).fit(pd.DataFrame(WORLD))
