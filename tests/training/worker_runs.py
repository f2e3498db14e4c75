"""Runs of two loopback workers that end in some other way than by themselves.

`python -m tests.training.worker_runs KILLS` kills the chief or the other worker at random moments,
starts both again each time, and compares the last bits with those of a run without kills.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

STEPS, KILLED_STEPS = 20, 400
GRACE = 30.0  # seconds from the failure of one worker to the end of the others


def environments(count: int) -> list[dict[str, str]]:
    """The environment of each of ``count`` workers, the chief first; ports are free ones."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:  # all are open at once, so that the ports differ
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    cluster = {"worker": addresses}
    return [
        {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}),
        }
        for i in range(count)
    ]


def start(command: Sequence[str], count: int, **options: Any) -> list[subprocess.Popen[Any]]:
    """Start ``count`` workers, the chief first; ``options`` go to ``subprocess.Popen``."""
    return [subprocess.Popen(command, env=env, **options) for env in environments(count)]


def wait(processes: Sequence[subprocess.Popen[Any]]) -> int:
    """
    Wait until all workers have ended; after a failure of one the others are ended.

    :return: 0, or the status of the first that failed.
    """
    deadline, failed = float("inf"), 0
    while any(process.poll() is None for process in processes):
        time.sleep(0.05)
        found = [process.returncode for process in processes if process.returncode]
        if found and not failed:
            failed, deadline = found[0], time.monotonic() + GRACE
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
    return failed or next((p.returncode for p in processes if p.returncode), 0)


class FailsOnce(gpflow.likelihoods.Gaussian):
    """NaN in the fourth evaluation of rows that have a target above 5."""

    def __init__(self):
        super().__init__(0.5)
        counter = tf.Variable(0, trainable=False)
        self.count = lambda: counter.assign_add(1)  # no variable of the model, put back with it

    def _variational_expectations(self, X, Fmu, Fvar, Y):
        found = super()._variational_expectations(X, Fmu, Fvar, Y)
        now = tf.reduce_any(Y > 5.0) & (self.count() == 4)
        return tf.where(now, tf.constant(np.nan, found.dtype), found)


def train(strategy=None, likelihood=None, num_steps=STEPS, **options):
    """A model and its history; only the last row has a target above 5."""
    from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
    from gpflow_sparse.models import SOLVEGP
    from gpflow_sparse.training import adam, fit

    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(400, 2))
    Y = np.sin(3.0 * X[:, :1]) * X[:, 1:2] + 0.1 * rng.normal(size=(400, 1))
    Y[-1] = 6.0
    model = SOLVEGP(
        gpflow.kernels.Matern52(lengthscales=np.ones(2)),
        gpflow.likelihoods.Gaussian(0.5) if likelihood is None else likelihood,
        OrthogonalInducingVariables(X[:20], X[20:40]),
        num_data=400,
    )
    options = {"natural_gradients": 0.1, "checkpoint_every": 2, "progress": False} | options
    rate = adam(0.02, decay_steps=KILLED_STEPS)
    history = fit(model, (X, Y), optimizer=rate, num_steps=num_steps, strategy=strategy, **options)
    return model, history


def not_finite():
    """One worker's rows give NaN: both go back, and end where one process ends."""
    used = strategy()  # before anything that makes a variable
    many, ours = train(used, FailsOnce(), batch_size=400)
    one, theirs = train(None, FailsOnce(), batch_size=400)
    assert len(ours.recoveries) == len(theirs.recoveries) == 1, ours.recoveries
    pairs = zip(many.trainable_variables, one.trainable_variables, strict=True)
    assert max(np.abs((a - b).numpy()).max() for a, b in pairs) < 1e-10


def hanging():
    """The second worker sleeps after five steps: the chief gives up, with an error."""
    from gpflow_sparse.training import TrainingError

    used = strategy()
    sleeps = used.cluster_resolver.task_id == 1

    def callback(state):
        if state.step == 5 and sleeps:
            time.sleep(1000.0)

    try:
        train(used, callbacks=[callback], strategy_timeout=5.0)
    except TrainingError as error:
        print(error, flush=True)


def resumed(folder, **options):
    """Train to the end, from the newest checkpoint if there is one; the chief keeps the values."""
    used = strategy()
    options |= {"checkpoint_dir": folder, "resume": True, "deterministic": True}
    model, _ = train(used, num_steps=KILLED_STEPS, batch_size=50, **options)
    if used.cluster_resolver.task_id == 0:
        values = {str(i): v.numpy() for i, v in enumerate(model.variables)}
        np.savez(Path(folder) / "final.npz", **values)


def strategy():
    return tf.distribute.MultiWorkerMirroredStrategy()


def started(call, **options):
    """Two workers that each make a call of this module, and leave without TensorFlow's farewell."""
    text = f"from tests.training import worker_runs as r; r.{call}; import os; os._exit(0)"
    return start([sys.executable, "-c", text], 2, **options)


def newest(folder):
    return max((path.name for path in folder.glob("checkpoint-*")), default=None)


def same_ends(work):
    ends = [np.load(f"{work}/{name}/final.npz") for name in ("undisturbed", "disturbed")]
    return all(ends[0][name].tobytes() == ends[1][name].tobytes() for name in ends[0])


def interrupted():
    """The statuses of two workers of which one got Ctrl-C, and whether the resumed run is right."""
    with tempfile.TemporaryDirectory() as work, open(f"{work}/log", "w+") as log:
        quiet = {"stdout": log, "stderr": log}
        assert wait(started(f"resumed({f'{work}/undisturbed'!r})", **quiet)) == 0
        folder = Path(work) / "disturbed"
        processes = started(f"resumed({str(folder)!r})", **quiet)
        while newest(folder) is None:
            time.sleep(0.01)
        processes[1].send_signal(signal.SIGINT)
        wait(processes)
        log.seek(0)
        messages = log.read().count("TrainingInterrupted: fit was interrupted after step")
        assert wait(started(f"resumed({str(folder)!r})", **quiet)) == 0
        return messages, same_ends(work)


def killed(kills, seed=0):
    """Whether a run that is killed so often ends with the bits of one that is not."""
    with tempfile.TemporaryDirectory() as work, open(f"{work}/log", "w") as log:
        quiet = {"stdout": log, "stderr": log}
        assert wait(started(f"resumed({f'{work}/undisturbed'!r})", **quiet)) == 0
        folder, chance = Path(work) / "disturbed", random.Random(seed)
        folder.mkdir()
        for number in range(kills):
            processes = started(f"resumed({str(folder)!r})", **quiet)
            before, victim = newest(folder), chance.randrange(2)
            while newest(folder) == before and all(p.poll() is None for p in processes):
                time.sleep(0.002)
            time.sleep(chance.uniform(0.0, 0.3))
            while number % 2 and not list(folder.glob("*.tmp")) and processes[0].poll() is None:
                pass  # every other kill falls into a write
            ended = [p.poll() for p in processes]
            processes[victim].send_signal(signal.SIGKILL)
            writing = "in a write" if list(folder.glob("*.tmp")) else "between writes"
            processes[victim].wait()
            begin = time.monotonic()
            wait(processes)
            print(
                f"kill {number + 1} of worker {victim} {writing}, newest {newest(folder)}, ended "
                f"before {ended}, the other ended after {time.monotonic() - begin:.1f} s",
                flush=True,
            )
        assert wait(started(f"resumed({str(folder)!r})", **quiet)) == 0
        return same_ends(work)


if __name__ == "__main__":
    bit_equal = killed(int(sys.argv[1]))
    print(f"bit-equal: {bit_equal}")
    sys.exit(not bit_equal)
