"""A run that is stopped, at any moment, goes on as if nothing had happened."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables, neighbors
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.training import (
    EarlyStopping,
    SparseAdagrad,
    SparseAdam,
    TrainingInterrupted,
    adam,
    fit,
)
from gpflow_sparse.training.checkpoints import remove_checkpoints
from tests import battery
from tests.training.replicated import MODELS
from tests.training.replicated import data as rows_of_kinds

N = 60


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, np.sin(3.0 * X[:, :1]) + 0.1 * rng.normal(size=(N, 1))


def classes():
    X, Y = data()
    return X, np.digitize(Y, [-0.3, 0.3]).astype(float)


def solvegp(likelihood=None, P=1):
    rng = np.random.default_rng(1)
    return SOLVEGP(
        gpflow.kernels.Matern52(lengthscales=[1.0, 1.0]),
        gpflow.likelihoods.Gaussian(0.5) if likelihood is None else likelihood,
        OrthogonalInducingVariables(rng.normal(size=(6, 2)), rng.normal(size=(4, 2))),
        num_latent_gps=P,
        num_data=N,
    )


def softmax():
    return solvegp(gpflow.likelihoods.Softmax(3), P=3)


def bits(model):
    return [variable.numpy().tobytes() for variable in model.variables]


class KilledError(Exception):
    """What a test kills a run with."""


def killer(step):
    def kill(state):
        if state.step == step:
            raise KilledError

    return kill


def stopped_and_resumed(build, source, folder, steps, kills, **options):
    """One run, ended by an exception after each of ``kills``, each time with a new model."""
    for kill in [*kills, None]:
        model = build()
        made = {name: value() if callable(value) else value for name, value in options.items()}
        made["callbacks"] = [*made.get("callbacks", ()), killer(kill)]
        try:
            history = fit(
                model, source, num_steps=steps, checkpoint_dir=folder, resume=True, **made
            )
        except KilledError:
            continue
    return model, history


def undisturbed(build, source, folder, steps, **options):
    return stopped_and_resumed(build, source, folder, steps, [], **options)


def run_of(name):
    """How to build a model of a kind, its rows, and options of a run that moves it fast."""
    options = {"optimizer": lambda: adam(0.02, decay_steps=60, warmup_steps=5)}
    if name in OPTIMIZERS:
        return solvegp, data(), OPTIMIZERS[name]
    if name == "softmax":
        return softmax, classes(), options
    if name in HELD:
        return lambda: battery.perturb(battery.REGRESSIONS[name].build()), None, options
    natural = MODELS[name](gs)[1]
    if isinstance(MODELS[name](gs)[0], gs.models.SWSGP | gs.models.QSGP):
        options = {"optimizer": lambda: SparseAdam(0.05, dense=adam(0.1))}
    options |= {"natural_gradients": 0.1 if natural else False}
    return lambda: MODELS[name](gs)[0], rows_of_kinds(), options


def falling(step):
    return 0.1 / (1.0 + 0.1 * tf.cast(step, tf.float64))


OPTIMIZERS = {
    "tf_keras": {"optimizer": lambda: adam(0.02)},
    "keras": {"optimizer": lambda: tf.optimizers.Adam(0.02), "natural_gradients": 0.3},
    "schedule": {"optimizer": lambda: adam(0.02, decay_steps=60, warmup_steps=5)},
    "sparse_adam": {"optimizer": lambda: SparseAdam(0.02)},
    "sparse_adagrad": {"optimizer": lambda: SparseAdagrad(falling)},
}
HELD = ("grief", "grief_original", "grief_rotated", "basis_gpr_fourier")


# Trained as solvegp and swsgp are.
LIKE_OTHERS = ("svgp", "log_bound", "swsgp_paper")


@pytest.mark.parametrize(
    "name", [*OPTIMIZERS, "softmax", *(n for n in MODELS if n not in LIKE_OTHERS), *HELD]
)
def test_a_killed_run_ends_with_the_same_bits(name, tmp_path, monkeypatch):
    """Draws, schedules, slots and rows included; neighbors are found by a tree."""
    monkeypatch.setattr(neighbors, "_MAX_IN_GRAPH", 3)
    build, source, options = run_of(name)
    options |= {"batch_size": None if source is None else 16, "checkpoint_every": 5}
    options |= {"deterministic": True, "progress": False}
    model, history = undisturbed(build, source, tmp_path / "a", 12, **options)
    again, resumed = stopped_and_resumed(build, source, tmp_path / "b", 12, [7], **options)
    assert bits(again) == bits(model)
    np.testing.assert_array_equal(resumed.elbo, history.elbo)
    assert len(resumed.seconds) == 12
    assert (np.diff(resumed.seconds) > 0).all()


@pytest.mark.nightly
def test_early_stopping_remembers_across_a_kill(tmp_path):
    def stopping():
        return [EarlyStopping(every=5, patience=2, min_delta=1e9)]

    options = {"callbacks": stopping, "checkpoint_every": 4}
    _, history = undisturbed(solvegp, data(), tmp_path / "a", 100, **options)
    _, resumed = stopped_and_resumed(solvegp, data(), tmp_path / "b", 100, [6, 11], **options)
    assert history.stopped_early
    assert resumed.stopped_early
    assert history.num_steps == resumed.num_steps == 15
    _, finished = undisturbed(solvegp, data(), tmp_path / "b", 100, **options)
    assert finished.num_steps == 15


@pytest.mark.nightly
def test_a_finished_run_is_not_run_again_and_can_be_prolonged(tmp_path):
    options = {"checkpoint_every": 4, "deterministic": True}
    model, history = undisturbed(solvegp, data(), tmp_path, 10, **options)
    again, same = undisturbed(solvegp, data(), tmp_path, 10, **options)
    assert bits(again) == bits(model)
    np.testing.assert_array_equal(same.elbo, history.elbo)
    longer, _ = undisturbed(solvegp, data(), tmp_path, 25, **options)
    straight, _ = undisturbed(solvegp, data(), tmp_path / "straight", 25, **options)
    assert bits(longer) == bits(straight)
    with pytest.raises(ValueError, match=r"has done 25 steps, more than the 12 asked for"):
        undisturbed(solvegp, data(), tmp_path, 12, **options)


@pytest.mark.nightly
def test_two_checkpoints_are_kept_and_a_damaged_one_is_passed_over(tmp_path):
    options = {"checkpoint_every": 5, "deterministic": True}
    model, _ = undisturbed(solvegp, data(), tmp_path / "a", 30, **options)
    stopped_and_resumed(solvegp, data(), tmp_path / "b", 12, [], **options)
    kept = sorted((tmp_path / "b").glob("checkpoint-*"))
    assert [file.name for file in kept] == [
        "checkpoint-000000010.safetensors",
        "checkpoint-000000012.safetensors",
    ]
    content = bytearray(kept[-1].read_bytes())
    content[len(content) // 2] ^= 1
    kept[-1].write_bytes(content)
    (tmp_path / "b" / ".saving-1.tmp").write_bytes(b"half")
    with pytest.warns(match=r"damaged.*Looking for the previous one"):
        again, _ = undisturbed(solvegp, data(), tmp_path / "b", 30, **options)
    assert bits(again) == bits(model)
    assert not list((tmp_path / "b").glob("*.tmp"))
    for file in (tmp_path / "b").glob("checkpoint-*"):
        file.write_bytes(b"")
    with (
        pytest.warns(match=r"Looking for the previous one"),
        pytest.raises(ValueError, match=r"no checkpoint .* can be read"),
    ):
        undisturbed(solvegp, data(), tmp_path / "b", 30, **options)


X, Y = data()


def with_kernel(kernel):
    def build():
        model = solvegp()
        model.kernel = kernel()
        return model

    return build


def with_prior():
    model = solvegp()
    one = np.float64(1.0)
    model.likelihood.variance.prior = tfp.distributions.LogNormal(0.0 * one, one)
    return model


def frozen_kernel():
    model = solvegp()
    gpflow.set_trainable(model.kernel, False)
    return model


def on_first(columns):
    return lambda: gpflow.kernels.Matern52(lengthscales=[1.0, 1.0], active_dims=columns)


SETTINGS = {
    "seed": ({"seed": 1}, r"seed=0, this one has seed=1"),
    "batch size": ({"batch_size": 10}, r"batch_size=60, this one has batch_size=10"),
    "rate": (
        {"optimizer": lambda: adam(0.5)},
        r"optimizer\.learning_rate=0\.00\d+, this one has optimizer\.learning_rate=0\.5",
    ),
    "natural": ({"natural_gradients": True}, r"natural_gradients=0.0, this one has .*=0.1"),
    "data": ({"source": (X, Y + 1.0)}, r"data=arrays"),
    "callbacks": ({"callbacks": [EarlyStopping()]}, r"has 1 callbacks, this run 2"),
    "likelihood": ({"build": lambda: solvegp(gpflow.likelihoods.StudentT())}, r"model\.structure"),
    "columns": ({"build": with_kernel(on_first([1, 0]))}, r"model\.structure"),
    "prior": ({"build": with_prior}, r"model\.structure"),
    "trainable": ({"build": frozen_kernel}, r"model\.structure"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of three steps."""
    folder = tmp_path_factory.mktemp("finished")
    undisturbed(solvegp, data(), folder, 3)
    return folder


def test_a_checkpoint_of_another_run_is_refused(finished):
    for change, message in SETTINGS.values():
        change = dict(change)
        build, source = change.pop("build", solvegp), change.pop("source", data())
        with pytest.raises(ValueError, match=message):
            undisturbed(build, source, finished, 6, **change)


def test_a_folder_with_a_run_is_not_written_over(tmp_path):
    fit(solvegp(), data(), num_steps=2, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match=r"holds a run .* pass resume=True"):
        fit(solvegp(), data(), num_steps=2, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match=r"resume=True needs checkpoint_dir"):
        fit(solvegp(), data(), num_steps=2, resume=True)
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", 3):
        with pytest.raises(ValueError, match=r"checkpoint_dir must be a folder"):
            fit(solvegp(), data(), num_steps=2, checkpoint_dir=folder)


@pytest.mark.nightly
def test_the_legacy_optimizers_are_not_resumed(tmp_path):
    optimizer = tf_keras.optimizers.legacy.Adam
    fit(solvegp(), data(), num_steps=2, optimizer=optimizer(0.01))
    with pytest.raises(ValueError, match=r"legacy optimizer.* cannot be resumed"):
        fit(solvegp(), data(), num_steps=2, optimizer=optimizer(0.01), checkpoint_dir=tmp_path)


def test_files_of_a_person_in_a_checkpoint_folder_are_kept(tmp_path):
    """Their names resemble names of checkpoints."""
    notes = {"checkpoint-best.safetensors": "1", "checkpoint-1.safetensors": "2"}
    for name, text in notes.items():
        (tmp_path / name).write_text(text)
    fit(solvegp(), data(), num_steps=4, checkpoint_dir=tmp_path, checkpoint_every=1)
    assert {name: (tmp_path / name).read_text() for name in notes} == notes
    assert len(list(tmp_path.glob("checkpoint-0*"))) == 2
    remove_checkpoints(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(notes)
    for name in notes:
        (tmp_path / name).unlink()
    remove_checkpoints(tmp_path)
    assert not tmp_path.exists()


def test_a_full_disk_is_warned_of_and_training_goes_on(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(match=r"no checkpoint of step 0, training continues: .*No space left"):
        history = fit(solvegp(), data(), num_steps=3, checkpoint_dir=tmp_path)
    assert history.num_steps == 3


@pytest.mark.nightly
def test_the_memory_of_a_callback_must_be_plain_if_it_is_to_be_kept(tmp_path):
    def callback(state):
        return False

    callback.set_state = lambda memory: None
    for memory in (np.float32(1.0), {1: "int key"}, {"a": (1, 2)}):
        callback.get_state = lambda memory=memory: memory
        fit(solvegp(), data(), num_steps=2, callbacks=[callback])
        with pytest.raises(ValueError, match=r"get_state of a callback must return"):
            fit(solvegp(), data(), num_steps=2, callbacks=[callback], checkpoint_dir=tmp_path)


def press_ctrl_c(step):
    def press(state):
        if state.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return press


def test_ctrl_c_keeps_the_step_and_says_how_to_go_on(tmp_path, capfd):
    options = {"batch_size": 16, "deterministic": True, "num_steps": 20}
    straight, again = solvegp(), solvegp()
    fit(straight, data(), callbacks=[press_ctrl_c(99)], **options)
    options["checkpoint_dir"] = tmp_path
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(TrainingInterrupted, match=r"after step 13 of 20.*resume=True") as caught:
        fit(solvegp(), data(), callbacks=[press_ctrl_c(13)], **options)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert str(tmp_path) in str(caught.value)
    assert signal.getsignal(signal.SIGINT) is handler
    assert "stopping after this step" in capfd.readouterr().err
    history = fit(again, data(), callbacks=[press_ctrl_c(99)], resume=True, **options)
    assert history.num_steps == 20
    assert bits(again) == bits(straight)


def test_ctrl_c_without_a_folder_or_in_the_last_step(tmp_path):
    model, same = solvegp(), solvegp()
    with pytest.raises(TrainingInterrupted, match=r"after step 4 of 20.*checkpoint_dir"):
        fit(model, data(), num_steps=20, callbacks=[press_ctrl_c(4)])
    options = {"num_steps": 4, "checkpoint_dir": tmp_path}
    with pytest.raises(TrainingInterrupted, match=r"after step 4 of 4.*The run is complete"):
        fit(same, data(), callbacks=[press_ctrl_c(4)], **options)
    assert bits(model) == bits(same)
    history = fit(solvegp(), data(), callbacks=[press_ctrl_c(99)], resume=True, **options)
    assert history.num_steps == 4


def test_a_sigint_that_the_parent_ignores_stays_ignored():
    """As in the background of a shell script: Ctrl-C there is meant for the foreground."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        history = fit(solvegp(), data(), num_steps=4, callbacks=[press_ctrl_c(2)])
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)
    assert history.num_steps == 4


@pytest.mark.nightly
def test_sigkill_at_random_moments_loses_nothing():
    """Real kills of a real process, in the midst of steps and checkpoints."""
    command = [sys.executable, "-m", "tests.training.kills", "3"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
