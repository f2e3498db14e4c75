"""Kill one run at random moments, resume it each time, compare its last bits: `python -m ...`."""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpflow
import numpy as np

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.training import adam, fit

STEPS = 1200


def train(folder: str) -> None:
    """Minibatches, natural gradients, Adam on a schedule, a checkpoint every other step."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(2000, 4))
    Y = np.sin(3.0 * X[:, :1]) * X[:, 1:2] + 0.1 * rng.normal(size=(2000, 1))
    model = SOLVEGP(
        gpflow.kernels.Matern52(lengthscales=np.ones(4)),
        gpflow.likelihoods.Gaussian(0.5),
        OrthogonalInducingVariables(X[:100], X[100:200]),
        num_data=2000,
    )
    fit(
        model,
        (X, Y),
        optimizer=adam(0.02, decay_steps=STEPS, warmup_steps=20),
        num_steps=STEPS,
        batch_size=128,
        natural_gradients=0.1,
        checkpoint_dir=folder,
        checkpoint_every=2,
        resume=True,
        deterministic=True,
    )
    np.savez(Path(folder) / "final.npz", *(v.numpy() for v in model.variables))


def main(kills: int) -> None:
    """Run once undisturbed and once with ``kills``; print where each kill fell."""
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(command(f"{work}/undisturbed"), check=True, stderr=subprocess.DEVNULL)
        folder, chance = Path(work) / "killed", random.Random(0)
        folder.mkdir()
        for number in range(kills):
            process = subprocess.Popen(command(str(folder)), stderr=subprocess.DEVNULL)
            before = newest(folder)
            while newest(folder) == before and process.poll() is None:
                time.sleep(0.002)
            time.sleep(chance.uniform(0.0, 1.5))
            while number % 2 and not list(folder.glob("*.tmp")) and process.poll() is None:
                pass  # every other kill falls into a write
            if process.poll() is not None:
                sys.exit(f"the run ended by itself with status {process.returncode}")
            process.send_signal(signal.SIGKILL)
            process.wait()
            writing = "in a checkpoint write" if list(folder.glob("*.tmp")) else "between writes"
            print(f"kill {number + 1}: {writing}, newest {newest(folder)}", flush=True)
        subprocess.run(command(str(folder)), check=True, stderr=subprocess.DEVNULL)
        ends = [np.load(f"{work}/{name}/final.npz") for name in ("undisturbed", "killed")]
        same = all(ends[0][name].tobytes() == ends[1][name].tobytes() for name in ends[0])
        print(f"{len(ends[0].files)} variables, bit-equal: {same}")
        sys.exit(not same)


def newest(folder: Path) -> str | None:
    return max((path.name for path in folder.glob("checkpoint-*")), default=None)


def command(folder: str) -> list[str]:
    return [sys.executable, "-c", f"from tests.training.kills import train; train({folder!r})"]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
