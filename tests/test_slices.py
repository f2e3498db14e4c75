"""The slices of the nightly tier, of which CI runs one a day."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import NUM_SLICES, day_number, pytest_collection_modifyitems

NAMES = [f"tests/test_a.py::test_b[{number}]" for number in range(2000)]


def slice_of(day, names):
    """Names of the tests that ``--slice DAY`` runs, and of those that it leaves out."""
    items = [SimpleNamespace(nodeid=name, name=name, path=Path("test_a.py")) for name in names]
    left = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: day, hook=hook), items)
    return [item.nodeid for item in items], [item.nodeid for item in left]


def test_twenty_days_in_a_row_run_every_test_once():
    today = day_number("today")
    slices = [slice_of(day, NAMES)[0] for day in range(today, today + NUM_SLICES)]
    assert sorted(name for names in slices for name in names) == sorted(NAMES)
    assert [len(names) for names in slices] == pytest.approx([100] * NUM_SLICES, rel=0.4)


def test_a_slice_depends_on_the_day_and_the_name_alone():
    first, left = slice_of(7, NAMES)
    assert sorted(first + left) == sorted(NAMES)
    assert slice_of(7 + NUM_SLICES, NAMES)[0] == first
    assert slice_of(7, NAMES[1000:])[0] == [name for name in first if name in NAMES[1000:]]


def test_without_the_option_all_tests_run():
    assert slice_of(None, NAMES) == (NAMES, [])
