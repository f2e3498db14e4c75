"""Hostile input at the doors of convolutional and deep models; see ``hostile_deep``."""

import pytest

from tests.hostile import cell
from tests.hostile_arguments import arguments
from tests.hostile_deep import (
    ARGUMENTS,
    DOORS,
    SPOILED_DOORS,
    SPOILS,
    TOGETHER,
    spoiled,
    together,
)
from tests.hostile_kinds import KINDS, OPTIONS
from tests.test_hostile import REFUSED, bad
from tests.test_hostile_bases import OTHERS

EAGER = {name: door for name, door in DOORS.items() if not door.slow}
# Where an array has a meaning, a door of each room; the whole table by hand.
CORE = ("DeepGP.elbo | X", "DeepPosterior.predict_y", "LocatedPatches locations", "pca X")


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_refused_clearly_or_give_the_right_result(kind):
    names = CORE if {"x", "y"} & KINDS[kind].roles else EAGER
    assert bad((name, cell(KINDS[kind], EAGER[name])) for name in names) == []


@pytest.mark.parametrize("kind", REFUSED)
def test_compiled_doors_refuse_the_same_arrays(kind):
    names = ("traced: DeepGP.predict_f", "traced: DeepGP.elbo | X")
    assert bad((name, cell(KINDS[kind], DOORS[name])) for name in names) == []


def test_other_arguments_are_refused_clearly():
    assert len(ARGUMENTS) > 40
    assert bad(arguments(ARGUMENTS, {name: OPTIONS[name] for name in OTHERS})) == []


def test_what_does_not_go_together_is_refused():
    cells = list(together())
    assert bad(cells) == []
    assert [verdict.symbol for *_, verdict in cells] == ["e"] * len(TOGETHER)


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_spoiled_model_says_which_part_is_wrong(spoil):
    doors = {name: SPOILED_DOORS[name] for name in ("elbo", "captured: predict_f")}
    assert bad(spoiled({spoil: SPOILS[spoil]}, doors)) == []
