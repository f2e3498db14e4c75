"""A run that is stopped, at any moment, goes on as if nothing had happened."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.persistence import files, locks
from gpflow_sparse.training import EarlyStopping, TrainingInterrupted, adam, fit
from gpflow_sparse.training.checkpoints import CheckpointFolder, remove_checkpoints
from gpflow_sparse.training.feed import HELD
from gpflow_sparse.training.state import describe_run, named_variables

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
    return {name: v.numpy().tobytes() for name, v in named_variables(model).items()}


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


OPTIMIZERS = {
    "tf_keras": lambda: adam(0.02),
    "keras": lambda: tf.optimizers.Adam(0.02),
    "schedule": lambda: adam(0.02, decay_steps=60, warmup_steps=5),
}


@pytest.mark.parametrize(
    ("name", "gamma"), [("tf_keras", 0.0), ("keras", 0.3), ("schedule", 0.3)], ids=list(OPTIMIZERS)
)
@pytest.mark.nightly
def test_a_killed_run_ends_with_the_same_bits(name, gamma, tmp_path):
    options = {"optimizer": OPTIMIZERS[name], "natural_gradients": gamma, "batch_size": 16}
    options |= {"checkpoint_every": 7, "deterministic": True}
    model, history = undisturbed(solvegp, data(), tmp_path / "a", 40, **options)
    again, resumed = stopped_and_resumed(solvegp, data(), tmp_path / "b", 40, [3, 7, 21], **options)
    assert bits(again) == bits(model)
    np.testing.assert_array_equal(resumed.elbo, history.elbo)
    assert len(resumed.seconds) == 40
    assert (np.diff(resumed.seconds) > 0).all()


@pytest.mark.nightly
def test_random_draws_of_the_likelihood_are_repeated(tmp_path):
    """Softmax draws from the latent functions in every step."""
    options = {"batch_size": 16, "checkpoint_every": 5, "deterministic": True}
    model, _ = undisturbed(softmax, classes(), tmp_path / "a", 10, **options)
    again, _ = stopped_and_resumed(softmax, classes(), tmp_path / "b", 10, [7], **options)
    assert bits(again) == bits(model)
    other, _ = undisturbed(softmax, classes(), tmp_path / "c", 10, seed=1, **options)
    assert bits(other) != bits(model)


@pytest.mark.nightly
def test_random_draws_do_not_come_again_after_each_checkpoint(tmp_path):
    """Nothing moves, so only the draws tell one step from another."""
    still = {"optimizer": adam(0.0), "checkpoint_every": 4, "deterministic": True}
    history = fit(softmax(), classes(), num_steps=12, checkpoint_dir=tmp_path, **still)
    assert len(set(history.elbo)) == 12


@pytest.mark.nightly
def test_datasets_find_their_place_again(tmp_path):
    def source():
        tf.random.set_seed(0)  # half of the seed of `shuffle`
        return tf.data.Dataset.from_tensor_slices(data()).shuffle(N, seed=3).batch(16)

    options = {"checkpoint_every": 5, "deterministic": True}
    model, _ = undisturbed(solvegp, source(), tmp_path / "a", 20, **options)
    for kill in (9, None):
        again = solvegp()
        try:
            fit(
                again,
                source(),
                num_steps=20,
                checkpoint_dir=tmp_path / "b",
                resume=True,
                callbacks=[killer(kill)],
                **options,
            )
        except KilledError:
            continue
    assert bits(again) == bits(model)


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


@pytest.mark.parametrize(("change", "message"), SETTINGS.values(), ids=list(SETTINGS))
def test_a_checkpoint_of_another_run_is_refused(change, message, finished):
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


def test_the_identity_of_a_model_is_all_but_what_training_moves():
    def identity(model):
        return describe_run(model, HELD, adam())["model"]

    model = with_kernel(on_first([0, 1]))()
    before = identity(model)
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * np.ones(variable.shape))
    model.jitter = 1e-4
    assert identity(model) == before == identity(with_kernel(on_first([0, 1]))())
    assert identity(with_kernel(on_first([1, 0]))()) != before
    model.likelihood.invlink = lambda x: x  # no file can hold it: the kinds of the parts must do
    assert identity(model)["kind"] == "SOLVEGP"


@pytest.mark.nightly
def test_data_on_disk_or_in_a_dataset_that_changed_are_refused(tmp_path):
    def mapped(values, name):
        file = np.memmap(tmp_path / name, dtype=values.dtype, mode="w+", shape=values.shape)
        file[:] = values
        return file

    def dataset(scale):
        return tf.data.Dataset.from_tensor_slices((X, scale * Y)).batch(16)

    sources = {
        "memmap": [(mapped(X, "X"), mapped(scale * Y, f"Y{scale}")) for scale in (1.0, 2.0)],
        "dataset": [dataset(1.0), dataset(2.0)],
    }
    for name, (source, other) in sources.items():
        undisturbed(solvegp, source, tmp_path / name, 2)
        with pytest.raises(ValueError, match=r"this one has data="):
            undisturbed(solvegp, other, tmp_path / name, 4)


def test_a_second_run_in_the_folder_is_refused_and_does_no_harm(tmp_path):
    (tmp_path / ".saving-1.tmp").write_bytes(b"of the run that holds the folder")
    refused = []

    def intrude(state):
        (tmp_path / ".saving-1.tmp").write_bytes(b"in the midst of a write")
        with pytest.raises(ValueError, match="another run is writing") as caught:
            CheckpointFolder(tmp_path, {}, resume=True)
        refused.append(caught)

    fit(solvegp(), data(), num_steps=1, checkpoint_dir=tmp_path, callbacks=[intrude])
    assert len(refused) == 1
    assert (tmp_path / ".saving-1.tmp").exists()
    with CheckpointFolder(tmp_path, {}, resume=True):
        assert not (tmp_path / ".saving-1.tmp").exists()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_is_warned_of_and_training_goes_on(code, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(locks.fcntl, "flock", fail)
    with (
        pytest.warns(match=r"cannot be locked \(.*\): do not start a second run in it"),
        CheckpointFolder(tmp_path, {}, resume=False),
    ):
        pass


@pytest.mark.parametrize("code", [errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES])
def test_a_lock_that_is_held_means_another_run(code, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(locks.fcntl, "flock", fail)
    with pytest.raises(ValueError, match="another run is writing"):
        CheckpointFolder(tmp_path, {}, resume=False)


def test_files_of_a_person_in_a_checkpoint_folder_are_kept(tmp_path):
    """Names that resemble those of checkpoints, and the name of the lock."""
    notes = {"checkpoint-best.safetensors": "1", "checkpoint-1.safetensors": "2", ".lock": "3"}
    for name, text in notes.items():
        (tmp_path / name).write_text(text)
    fit(solvegp(), data(), num_steps=4, checkpoint_dir=tmp_path, checkpoint_every=1)
    assert {name: (tmp_path / name).read_text() for name in notes} == notes
    assert len(list(tmp_path.glob("checkpoint-0*"))) == 2
    remove_checkpoints(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(notes)
    for name in notes:
        (tmp_path / name).unlink()
    fit(solvegp(), data(), num_steps=1, checkpoint_dir=tmp_path)
    remove_checkpoints(tmp_path)
    assert not tmp_path.exists()


def test_a_full_disk_is_warned_of_and_training_goes_on(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write", full)
    with pytest.warns(match=r"no checkpoint of step 0, training goes on: .*No space left"):
        history = fit(solvegp(), data(), num_steps=3, checkpoint_dir=tmp_path)
    assert history.num_steps == 3


@pytest.mark.nightly
def test_the_memory_of_a_callback_must_be_plain_if_it_is_to_be_kept(tmp_path):
    class Remembering:
        def __init__(self, memory):
            self.memory = memory

        def __call__(self, state):
            return False

        def get_state(self):
            return self.memory

        def set_state(self, memory):
            self.memory = memory

    for number, memory in enumerate((np.float32(1.0), {1: "int key"}, {"a": (1, 2)})):
        callbacks = [Remembering(memory)]
        fit(solvegp(), data(), num_steps=2, callbacks=callbacks)
        with pytest.raises(ValueError, match=r"get_state of a callback must return"):
            fit(
                solvegp(),
                data(),
                num_steps=2,
                callbacks=callbacks,
                checkpoint_dir=tmp_path / str(number),
            )


def press_ctrl_c(step):
    def press(state):
        if state.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return press


def test_ctrl_c_keeps_the_step_and_says_how_to_go_on(tmp_path, capfd):
    options = {"batch_size": 16, "deterministic": True}
    straight = solvegp()
    fit(straight, data(), num_steps=20, callbacks=[press_ctrl_c(99)], **options)
    model = solvegp()
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(TrainingInterrupted, match=r"after step 13 of 20.*resume=True") as caught:
        fit(
            model,
            data(),
            num_steps=20,
            callbacks=[press_ctrl_c(13)],
            checkpoint_dir=tmp_path,
            **options,
        )
    assert isinstance(caught.value, KeyboardInterrupt)
    assert str(tmp_path) in str(caught.value)
    assert signal.getsignal(signal.SIGINT) is handler
    assert "stopping after this step" in capfd.readouterr().err
    again = solvegp()
    history = fit(
        again,
        data(),
        num_steps=20,
        callbacks=[press_ctrl_c(99)],
        checkpoint_dir=tmp_path,
        resume=True,
        **options,
    )
    assert history.num_steps == 20
    assert bits(again) == bits(straight)


def test_ctrl_c_without_a_folder_leaves_the_model_at_its_step():
    model, same = solvegp(), solvegp()
    with pytest.raises(TrainingInterrupted, match=r"after step 4 of 20.*checkpoint_dir"):
        fit(model, data(), num_steps=20, callbacks=[press_ctrl_c(4)])
    fit(same, data(), num_steps=4)
    assert bits(model) == bits(same)


def test_ctrl_c_in_the_last_step_still_stops_the_script(tmp_path):
    with pytest.raises(TrainingInterrupted, match=r"after step 4 of 4.*The run is complete"):
        fit(solvegp(), data(), num_steps=4, callbacks=[press_ctrl_c(4)], checkpoint_dir=tmp_path)
    again = [press_ctrl_c(99)]
    history = fit(
        solvegp(), data(), num_steps=4, callbacks=again, checkpoint_dir=tmp_path, resume=True
    )
    assert history.num_steps == 4


def test_it_trains_outside_of_the_main_thread():
    done = []
    thread = threading.Thread(target=lambda: done.append(fit(solvegp(), data(), num_steps=2)))
    thread.start()
    thread.join()
    assert done[0].num_steps == 2


def test_a_sigint_that_the_parent_ignores_stays_ignored():
    """As in the background of a shell script: Ctrl-C there is meant for the foreground."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        history = fit(solvegp(), data(), num_steps=4, callbacks=[press_ctrl_c(2)])
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)
    assert history.num_steps == 4


_RUN = """
import sys
from tests.training.test_checkpoints import data, solvegp
from gpflow_sparse.training import adam, fit
model = solvegp()
fit(model, data(), num_steps=400, batch_size=16, optimizer=adam(0.02), natural_gradients=0.2,
    checkpoint_dir=sys.argv[1], checkpoint_every=3, resume=True, deterministic=True)
"""


@pytest.mark.nightly
def test_sigkill_at_a_random_moment_loses_nothing(tmp_path):
    """A real kill of a real process, in the midst of steps and checkpoints."""
    options = {"optimizer": lambda: adam(0.02), "natural_gradients": 0.2, "batch_size": 16}
    options |= {"checkpoint_every": 3, "deterministic": True}
    model = solvegp()
    made = {name: value() if callable(value) else value for name, value in options.items()}
    fit(model, data(), num_steps=400, checkpoint_dir=tmp_path / "a", **made)
    folder = tmp_path / "b"
    command = [sys.executable, "-c", _RUN, str(folder)]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(folder.glob("checkpoint-*"))) < 2:
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    again = solvegp()
    made = {name: value() if callable(value) else value for name, value in options.items()}
    fit(again, data(), num_steps=400, checkpoint_dir=folder, resume=True, **made)
    assert bits(again) == bits(model)
