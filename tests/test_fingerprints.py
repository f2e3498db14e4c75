"""
One model of each class computes what it computed when the fingerprints were written.

``python -m tests.fingerprints`` compares all models of the battery.
"""

import json

import pytest

from tests.battery import KINDS
from tests.fingerprints import FILE, MEMBERS, difference, fingerprint

STORED = json.loads(FILE.read_text())


def test_every_member_has_a_fingerprint():
    assert STORED.keys() == MEMBERS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_values_gradients_predictions_and_steps_are_unchanged(name):
    """Other processors round otherwise; on one machine differences are below 1e-12."""
    assert difference(STORED[name], fingerprint(name)) < 1e-8
