"""The slices of the nightly tier, of which CI runs one a day."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import NUM_SLICES, day_number, pytest_collection_modifyitems

NAMES = [f"tests/test_a.py::test_b[{number}]" for number in range(2000)]


def slice_of(day):
    """Names of the tests that ``--slice DAY`` runs; without a day all."""
    items = [SimpleNamespace(nodeid=name, name=name, path=Path("test_a.py")) for name in NAMES]
    left = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: day, hook=hook), items)
    assert sorted(item.nodeid for item in items + left) == sorted(NAMES)
    return [item.nodeid for item in items]


def test_twenty_days_in_a_row_run_every_test_once():
    today = day_number("today")
    slices = [slice_of(day) for day in range(today, today + NUM_SLICES)]
    assert sorted(name for names in slices for name in names) == sorted(NAMES)
    assert [len(names) for names in slices] == pytest.approx([100] * NUM_SLICES, rel=0.4)
    assert slice_of(today + NUM_SLICES) == slices[0]
    assert slice_of(None) == NAMES
