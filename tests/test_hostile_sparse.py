"""Hostile input at the doors of sub-sampled models; see ``hostile_sparse``."""

import pytest

from tests.hostile import cell
from tests.hostile_arguments import arguments
from tests.hostile_kinds import KINDS, OPTIONS
from tests.hostile_sparse import (
    ARGUMENTS,
    DOORS,
    SPOILED_DOORS,
    SPOILS,
    TOGETHER,
    spoiled,
    together,
)
from tests.test_hostile import REFUSED, bad
from tests.test_hostile_bases import OTHERS

# A door of each room; the whole table by hand.
EAGER = ("QSGP.elbo | X", "QSGP.predict_f", "QSGP support", "RVM centers")
STEPS = ("QSGP.sparse_step | Y", "QSGP.prepare_step | X", "QSGP.update_covariance")
COMPILED = ("traced: QSGP.sparse_step | Y", "traced: augmented.predict_f")


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_refused_clearly_or_give_the_right_result(kind):
    names = (*EAGER, *STEPS) if kind in REFUSED else EAGER
    assert bad((name, cell(KINDS[kind], DOORS[name])) for name in names) == []


@pytest.mark.parametrize("kind", [*REFUSED, "float32"])
def test_compiled_doors_refuse_the_same_arrays(kind):
    assert bad((name, cell(KINDS[kind], DOORS[name])) for name in COMPILED) == []


def test_other_arguments_are_refused_clearly():
    assert len(ARGUMENTS) > 40
    assert bad(arguments(ARGUMENTS, {name: OPTIONS[name] for name in OTHERS})) == []


def test_what_does_not_go_together_is_refused():
    cells = list(together())
    assert bad(cells) == []
    assert [verdict.symbol for *_, verdict in cells] == ["e"] * len(TOGETHER)


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_spoiled_model_says_which_part_is_wrong(spoil):
    doors = {name: SPOILED_DOORS[name] for name in ("elbo", "predict_y")}
    assert bad(spoiled({spoil: SPOILS[spoil]}, doors)) == []
