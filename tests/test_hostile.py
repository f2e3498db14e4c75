"""Hostile input meets a clear error or a right result at every public door; see ``hostile``."""

import pytest

from tests.hostile import BAD, cell
from tests.hostile_arguments import ARGUMENTS, TRAINING, arguments
from tests.hostile_doors import DOORS
from tests.hostile_kinds import KINDS
from tests.hostile_labels import CASES, LABEL_DOORS, labels
from tests.hostile_models import DOORS as MODEL_DOORS
from tests.hostile_models import SPOILS, spoiled

EAGER = {name: door for name, door in DOORS.items() if not door.slow}
# What has a meaning costs a computation: there, a door of each room, and the whole table by hand.
CORE = {
    name: EAGER[name]
    for name in (
        *("elbo | X", "elbo | Y", "predict_log_density | Y", "predict_f 00", "predict_f_samples"),
        *("posterior.predict_f 11", "kmeans", "greedy_variance", "median_lengthscales", "q_mu"),
        *("Standardizer.fit | X", "Standardizer.transform_inputs", "Z of SOLVEGP", "O of SOLVEGP"),
    )
}
COMPILED = {
    name: DOORS[name]
    for name in (
        *("captured: elbo | X", "traced: elbo | Y", "traced: predict_f", "closure compiled | Y"),
        *("fit | X", "fit(batch_size) | Y", "fit tf.data | Y"),
    )
}
TAKING = ("captured: elbo | X", "traced: elbo | Y", "traced: predict_f", "fit | X")
# Kinds that compiled and training doors must refuse, which costs them nothing.
REFUSED = [name for name, kind in KINDS.items() if not kind.roles - {"scale"}]


def bad(cells):
    return [(*names, verdict.text) for *names, verdict in cells if verdict.symbol == BAD]


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_refused_clearly_or_give_the_right_result(kind):
    doors = CORE if {"x", "y"} & KINDS[kind].roles else EAGER
    assert bad((name, cell(KINDS[kind], door)) for name, door in doors.items()) == []


@pytest.mark.parametrize("kind", REFUSED)
def test_compiled_doors_and_training_refuse_the_same_arrays(kind):
    assert bad((name, cell(KINDS[kind], door)) for name, door in COMPILED.items()) == []


@pytest.mark.parametrize("door", TAKING)
def test_compiled_doors_and_training_take_float32(door):
    assert bad([(door, cell(KINDS["float32"], COMPILED[door]))]) == []


def test_other_arguments_are_refused_clearly():
    assert len(ARGUMENTS) > 40
    assert bad(arguments()) == []


@pytest.mark.nightly
def test_arguments_of_training_are_refused_clearly():
    assert bad(arguments(TRAINING)) == []


@pytest.mark.parametrize("case", CASES)
def test_values_of_y_fit_the_likelihood_or_are_refused(case):
    assert bad(labels([case], {"elbo": LABEL_DOORS["elbo"]})) == []


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_spoiled_model_says_which_part_is_wrong(spoil):
    assert bad(spoiled({spoil: SPOILS[spoil]}, MODEL_DOORS)) == []
