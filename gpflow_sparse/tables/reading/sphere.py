"""Pairs of columns of longitudes and latitudes as points of the unit sphere, which has no seam."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gpflow_sparse.data.limits import listed
from gpflow_sparse.tables.reading.columns import Column

# Below this range of longitudes, in degrees, the plane of both columns serves.
_MIN_LONGITUDES = 30.0
_NAMES = {
    "longitude": re.compile(r"(.*[\W_])?(?:lon|lng|long|longitude)", re.IGNORECASE),
    "latitude": re.compile(r"(.*[\W_])?(?:lat|latitude)", re.IGNORECASE),
}
_DECIMALS = 9


def points_of(columns: Sequence[Column], frame: pd.DataFrame, lonlat: Any) -> list[Column]:
    """
    The columns of a table; columns of longitudes and latitudes are marked as such.

    :param lonlat: see :class:`ReadingOptions`.
    :raises ValueError: if ``lonlat`` names columns that do not hold degrees as numbers.
    """
    numbers_of = {column.name: column for column in columns if column.kind == "number"}
    pairs = [lonlat] if lonlat else [] if lonlat == () else _pairs_by_name(list(numbers_of))
    if lonlat and not {*lonlat} <= {*numbers_of}:
        raise ValueError(
            f"lonlat must name two columns of numbers that vary, got {listed(lonlat)}; the table "
            f"has {listed(list(numbers_of))}."
        )
    for pair in pairs:
        lon, lat = (numbers_of[name].values(numbers_of[name].cells(frame)) for name in pair)
        west, east = np.nanmin(lon), np.nanmax(lon)
        is_point = np.nanmax(np.abs(lat)) <= 90.0 and west >= -180.0 and east <= 360.0
        if lonlat and not is_point:
            raise ValueError(
                f"lonlat must name longitudes, then latitudes from -90 to 90, got {listed(pair)} "
                f"from {west:g} and {np.nanmin(lat):g} to {east:g} and {np.nanmax(lat):g}; turn "
                "them round, or leave it out."
            )
        if is_point and (lonlat or _MIN_LONGITUDES < east - west <= 360.0):
            note = f"{pair[0]!r} and {pair[1]!r} are points of the sphere."
            found = dict(zip(pair, _NAMES, strict=True))
            columns = [
                replace(
                    column,
                    kind=found.get(column.name, column.kind),
                    latitude=pair[1] if column.name == pair[0] else column.latitude,
                    note=f"{note} {column.note}".strip() if column.name == pair[0] else column.note,
                )
                for column in columns
            ]
    return list(columns)


def _pairs_by_name(names: Sequence[str]) -> list[tuple[str, str]]:
    """Names of longitudes and latitudes that begin alike, such as "start_lng" and "start_lat"."""
    begins: dict[str, dict[str, str]] = {kind: {} for kind in _NAMES}
    for kind, name in itertools.product(_NAMES, names):
        if match := _NAMES[kind].fullmatch(name):
            begins[kind].setdefault((match[1] or "").lower(), name)
    lon, lat = begins.values()
    return [(lon[begin], lat[begin]) for begin in lon if begin in lat]


def sphere_features(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Two coordinates of points in the plane of the equator of the unit sphere [N, 2]."""
    turn, height = np.radians(longitude), np.radians(latitude)
    plane = np.cos(height)[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return np.round(plane, _DECIMALS) + 0.0
