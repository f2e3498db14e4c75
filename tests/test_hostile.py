"""
Hostile input meets a clear error or a right result in every public method; see ``hostile``.

The tests take part of each table: what has a meaning, or is compiled, costs a computation, and is
tried on a method of each kind. ``python -m tests.hostile`` judges all of it.
"""

import pytest

from tests.hostile import bases, deep, neighbors, orthogonal, soft_interpolation, sub_sampled
from tests.hostile.judging import arguments, bad, cell, spoiled, together
from tests.hostile.kinds import KINDS, OPTIONS

TABLES = {
    table.__name__.rpartition(".")[2]: table
    for table in (orthogonal, bases, sub_sampled, soft_interpolation, neighbors, deep)
}
every_table = pytest.mark.parametrize("name", TABLES)
# Kinds that compiled functions and training must refuse, which costs them nothing.
REFUSED = [name for name, kind in KINDS.items() if not kind.roles - {"scale"}]
# What an argument can be but should not; the nightly tier has many more.
OTHERS = ("'yes'",)


@every_table
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_refused_clearly_or_give_the_right_result(kind, name):
    table = TABLES[name]
    doors = table.CORE if {"x", "y"} & KINDS[kind].roles else table.EAGER
    assert bad((door, cell(KINDS[kind], table.DOORS[door])) for door in doors) == []


@every_table
@pytest.mark.parametrize("kind", [*REFUSED, "float32"])
def test_compiled_functions_files_and_training_judge_the_same_arrays(kind, name):
    table = TABLES[name]
    doors = table.COMPILED if kind in REFUSED else table.TAKING
    assert bad((door, cell(KINDS[kind], table.DOORS[door])) for door in doors) == []


def test_a_file_in_another_byte_order_is_read_as_what_it_says():
    door = bases.DOORS["GRIEF on disk | Y"]
    assert cell(KINDS["big_endian"], door).symbol == "o"
    assert cell(KINDS["long_double"], door).symbol == "e"


@every_table
def test_other_arguments_are_refused_clearly(name):
    found = arguments(TABLES[name].ARGUMENTS, {option: OPTIONS[option] for option in OTHERS})
    assert bad(found) == []


@pytest.mark.nightly
@every_table
def test_every_kind_of_argument_is_refused_clearly(name):
    assert bad(arguments(TABLES[name].ARGUMENTS)) == []


@pytest.mark.nightly
def test_arguments_of_training_are_refused_clearly():
    assert bad(arguments(orthogonal.TRAINING)) == []


@every_table
def test_what_does_not_go_together_is_refused(name):
    cells = list(together(TABLES[name]))
    assert bad(cells) == []
    assert [verdict.symbol for *_, verdict in cells] == ["e"] * len(TABLES[name].TOGETHER)


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in TABLES for kind in TABLES[name].SPOILS]
)
def test_a_spoiled_model_says_which_part_is_wrong(name, kind):
    table = TABLES[name]
    assert bad(spoiled(table, kind, table.SPOILED_IN_TESTS)) == []
