"""Hostile input at the doors of bases and of the models over them; see ``hostile_bases``."""

import pytest

from tests.hostile import cell
from tests.hostile_arguments import arguments
from tests.hostile_bases import ARGUMENTS, DOORS, SPOILED_DOORS, SPOILS, spoiled
from tests.hostile_kinds import KINDS, OPTIONS
from tests.test_hostile import REFUSED, bad

EAGER = {name: door for name, door in DOORS.items() if not door.slow}
# What has a meaning costs a computation: there, a door of each room, and the whole table by hand.
CORE = {
    name: EAGER[name]
    for name in (
        *("GRIEF | Y", "BasisSVGP.elbo | X", "GridEigenfunctions()", "ReweightedBasis.features"),
        *("MixturePosterior quadrature.predict_f", "percentile_grid", "GridEigenfunctions grid[0]"),
        *("ReweightedBasis weights", "product_of lengthscales", "interpolated_covariance X"),
        *("conjugate_gradients B", "BasisSVGP q_mu"),
    )
}
COMPILED = {
    name: DOORS[name]
    for name in (
        *("traced: BasisSVGP.predict_f", "traced: MixturePosterior.predict_log_density | Y"),
        *("GRIEF on disk | Y", "BasisGPR tf.data | X"),
    )
}
# Of either sort of what an argument can be but should not.
OTHERS = ("None", "0", "2.5", "True", "'yes'", "nan", "[2]", "array([2])", "tensor(2)", "object")


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_refused_clearly_or_give_the_right_result(kind):
    doors = CORE if {"x", "y"} & KINDS[kind].roles else EAGER
    assert bad((name, cell(KINDS[kind], door)) for name, door in doors.items()) == []


@pytest.mark.parametrize("kind", REFUSED)
def test_compiled_doors_and_files_refuse_the_same_arrays(kind):
    assert bad((name, cell(KINDS[kind], door)) for name, door in COMPILED.items()) == []


def test_a_file_in_another_byte_order_is_read_as_what_it_says():
    door = DOORS["GRIEF on disk | Y"]
    assert cell(KINDS["big_endian"], door).symbol == "o"
    assert cell(KINDS["long_double"], door).symbol == "e"


def test_other_arguments_are_refused_clearly():
    assert len(ARGUMENTS) > 60
    assert bad(arguments(ARGUMENTS, {name: OPTIONS[name] for name in OTHERS})) == []


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_spoiled_model_says_which_part_is_wrong(spoil):
    doors = {name: SPOILED_DOORS[name] for name in ("objective", "posterior.predict_f")}
    assert bad(spoiled({spoil: SPOILS[spoil]}, doors)) == []
