"""Damaged and forged checkpoints are passed over with a warning, or refused in one sentence."""

import json

import numpy as np
import pytest

from gpflow_sparse.persistence import files
from gpflow_sparse.training import EarlyStopping, adam, fit
from gpflow_sparse.training.checkpoints import CheckpointFolder
from gpflow_sparse.training.state import Progress, RunState, Snapshot
from tests.training.test_checkpoints import data, solvegp

SETTINGS = {"seed": 0, "optimizer": {"rate": 0.1}}
NAMES = ("checkpoint-000000002.safetensors", "checkpoint-000000001.safetensors")


@pytest.fixture
def folder(tmp_path):
    """A folder with checkpoints of steps 1 and 2."""
    found = CheckpointFolder(tmp_path, SETTINGS, resume=False)
    progress = Progress(2, [-3.0, -2.0], [0.1, 0.2], 0.5, 1e-4, ["a step failed"])
    for step in (1, 2):
        found.save(Snapshot(step, {"model.x": np.full(3, float(step))}, [None]), progress)
    return found


def forge(path, change=None, text=None, drop=()):
    """Change the record of a checkpoint, or replace its text, or drop arrays; and sign it again."""
    header, arrays = files.read(path)
    record = json.loads(header["run"])
    if change is not None:
        change(record)
    header["run"] = json.dumps(record) if text is None else text
    files.write(path, {n: a for n, a in arrays.items() if n not in drop}, header)


def without(name):
    return {"change": lambda record: record.pop(name)}


def with_value(name, value):
    return {"change": lambda record: record.update({name: value})}


DEEP = "[" * 100_000 + "]" * 100_000
FORGERIES = {
    "no run": ({"text": "null"}, "it must hold an object, got None"),
    "deep": ({"text": DEEP}, "nested too deeply"),
    "deep settings": ({"text": '{"settings": ' + DEEP + "}"}, "nested too deeply"),
    **{f"no {n}": (without(n), f"{n} must be present") for n in ("step", "hooks", "settings")},
    "text as step": (with_value("step", "2"), "step must be an integer"),
    "negative step": (with_value("step", -2), "elbo must have -2 entries"),
    "later step": (with_value("step", 3), r"elbo must have 3 entries, got \(2,\)"),
    "hooks": (with_value("hooks", None), "hooks must be a list, got None"),
    "scale": (
        with_value("scale", 1e300),
        r"scale must be a number from 2.*e-308 to 1, got 1e\+300",
    ),
    "no scale": (with_value("scale", 0.0), "scale must be a number"),
    "jitter": (with_value("jitter", 1e300), r"jitter must be a number from .* to 1 or null"),
    "recoveries": (with_value("recoveries", [1]), r"recoveries\[0\] must be text, got 1"),
    "stopped": (with_value("stopped", 1), "stopped must be true or false, got 1"),
    "settings": (with_value("settings", []), r"settings must be an object, got \[\]"),
    "no elbo": ({"drop": ("elbo",)}, "elbo must have 2 entries, got None"),
    "no seconds": ({"drop": ("seconds",)}, "seconds must have 2 entries, got None"),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_checkpoint_is_passed_over_and_the_one_before_is_taken(folder, kind):
    changes, message = FORGERIES[kind]
    forge(folder.path / NAMES[0], **changes)
    with pytest.warns(UserWarning, match=rf"{NAMES[0]} is damaged: .*{message}.*the previous one"):
        snapshot, progress = folder.newest()
    assert (snapshot.step, progress.step, progress.elbo) == (1, 1, [-3.0])
    np.testing.assert_array_equal(snapshot.variables["model.x"], [1.0, 1.0, 1.0])
    assert (progress.scale, progress.jitter, progress.recoveries) == (0.5, 1e-4, ["a step failed"])


def test_if_all_are_forged_none_is_taken(folder):
    for name in NAMES:
        forge(folder.path / name, text="{}")
    with (
        pytest.warns(UserWarning, match="step must be present"),
        pytest.raises(ValueError, match=r"no checkpoint in .* can be read; start in another"),
    ):
        folder.newest()


@pytest.mark.parametrize("value", ["x" * 10_000, json.loads("[" * 500 + "]" * 500)])
def test_other_settings_are_named_in_a_short_sentence(folder, value):
    forge(folder.path / NAMES[0], lambda record: record["settings"]["optimizer"].update(rate=value))
    with pytest.raises(ValueError, match=r"optimizer\.rate=.*, this one has optimizer\.rate=0\.1:"):
        folder.newest()
    with pytest.raises(ValueError) as caught:
        folder.newest()
    assert len(str(caught.value)) < 300 + len(str(folder.path))


def test_a_forged_memory_of_early_stopping_is_refused(tmp_path):
    options = {"checkpoint_dir": tmp_path, "callbacks": [EarlyStopping()]}
    fit(solvegp(), data(), num_steps=1, **options)
    (path,) = tmp_path.glob("checkpoint-*1.safetensors")
    for memory, message in [
        ({}, "the state of EarlyStopping is damaged: best must be present"),
        ({"best": "x", "stale": 0, "recent": []}, "best must be a number or null, got 'x'"),
        ({"best": None, "stale": [], "recent": []}, "stale must be an integer"),
        ({"best": None, "stale": 0, "recent": ["x"]}, r"recent\[0\] must be a number, got 'x'"),
        ([], "it must hold an object"),
    ]:
        forge(path, lambda record, memory=memory: record.update(hooks=[memory]))
        with pytest.raises(ValueError, match=message):
            fit(solvegp(), data(), num_steps=2, resume=True, **options)


def test_a_memory_that_another_callback_cannot_take_is_refused():
    class Counting:
        def __call__(self, state):
            return False

        def set_state(self, memory):
            self.count = memory["count"]

    model = solvegp()
    state = RunState(model, adam(), [Counting()])
    snapshot = RunState(model, adam(), [None]).take(0)
    with pytest.raises(ValueError, match=r"nothing that Counting\.set_state can take \(TypeError"):
        state.put(Snapshot(0, snapshot.variables, ["text"]))
