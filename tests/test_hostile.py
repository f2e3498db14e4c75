"""
Hostile input meets a clear error or a right result in every public method; see ``hostile``.

The tests take part of each table: what has a meaning, or is compiled, costs a computation, and is
tried on a method of each kind. ``python -m tests.hostile`` judges all of it.
"""

import pytest

from tests.hostile import bases, deep, neighbors, orthogonal, soft_interpolation, sub_sampled
from tests.hostile.judging import arguments, bad, cell, spoiled, together
from tests.hostile.kinds import GROUPS, KINDS, OPTIONS

TABLES = {
    table.__name__.rpartition(".")[2]: table
    for table in (orthogonal, bases, sub_sampled, soft_interpolation, neighbors, deep)
}
every_table = pytest.mark.parametrize("name", TABLES)
# Kinds that compiled functions and training must refuse, which costs them nothing.
REFUSED = [name for name, kind in KINDS.items() if not kind.roles - {"scale"}]


# Cases of the default tier; the nightly tier has all of them, a table and a group of kinds at once.
ARRAYS = (
    *("one_entry bases", "scale_1e300 sub_sampled", "scale_1e300 deep", "scale_1e12 bases"),
    *("subnormal orthogonal", "uint64 orthogonal", "variable orthogonal", "ragged_tensor bases"),
    "dict orthogonal",
)
BROUGHT = ("nan neighbors", "string_tensor deep", "record neighbors", "sparse_tensor neighbors")
SPOILED = (
    *("orthogonal: active_dims negative", "bases: features of another basis"),
    *("bases: kernel variance inf", "neighbors: q_log_scale nan"),
)


def judged(table, kind):
    """Cells of the methods that take arrays, with this kind of array."""
    for door in table.CORE if {"x", "y"} & KINDS[kind].roles else table.EAGER:
        yield kind, door, cell(KINDS[kind], table.DOORS[door])


def judged_when_compiled(table, kind):
    """The same of compiled functions, of files and of training."""
    for door in table.COMPILED if kind in REFUSED else table.TAKING:
        yield kind, door, cell(KINDS[kind], table.DOORS[door])


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_are_refused_clearly_or_give_the_right_result(case):
    kind, name = case.split()
    assert bad(judged(TABLES[name], kind)) == []


@pytest.mark.parametrize("case", BROUGHT)
def test_compiled_functions_files_and_training_judge_the_same_arrays(case):
    kind, name = case.split()
    assert bad(judged_when_compiled(TABLES[name], kind)) == []


@pytest.mark.nightly
@every_table
@pytest.mark.parametrize("group", GROUPS)
def test_every_kind_of_array_is_refused_clearly_or_gives_the_right_result(group, name):
    table, kinds = TABLES[name], GROUPS[group]
    assert bad(found for kind in kinds for found in judged(table, kind)) == []
    brought = [kind for kind in kinds if kind in (*REFUSED, "float32")]
    assert bad(found for kind in brought for found in judged_when_compiled(table, kind)) == []


def test_a_file_in_another_byte_order_is_read_as_what_it_says():
    door = bases.DOORS["GRIEF on disk | Y"]
    assert cell(KINDS["big_endian"], door).symbol == "o"
    assert cell(KINDS["long_double"], door).symbol == "e"


def test_other_arguments_are_refused_clearly():
    """Of one table; the nightly tier has more values and all tables."""
    assert bad(arguments(neighbors.ARGUMENTS, {"'yes'": OPTIONS["'yes'"]})) == []


@pytest.mark.nightly
@every_table
def test_every_kind_of_argument_is_refused_clearly(name):
    assert bad(arguments(TABLES[name].ARGUMENTS)) == []


@pytest.mark.nightly
def test_arguments_of_training_are_refused_clearly():
    assert bad(arguments(orthogonal.TRAINING)) == []


@pytest.mark.parametrize(
    "name",
    [
        name if name == "soft_interpolation" else pytest.param(name, marks=pytest.mark.nightly)
        for name in TABLES
    ],
)
def test_what_does_not_go_together_is_refused(name):
    cells = list(together(TABLES[name]))
    assert bad(cells) == []
    assert [verdict.symbol for *_, verdict in cells] == ["e"] * len(TABLES[name].TOGETHER)


@pytest.mark.parametrize("case", SPOILED)
def test_a_spoiled_model_says_which_part_is_wrong(case):
    name, kind = case.split(": ")
    assert bad(spoiled(TABLES[name], kind)) == []


@pytest.mark.nightly
@every_table
def test_every_spoiled_model_says_which_part_is_wrong(name):
    table = TABLES[name]
    cells = (cell for kind in table.SPOILS for cell in spoiled(table, kind))
    assert bad(cells) == []
