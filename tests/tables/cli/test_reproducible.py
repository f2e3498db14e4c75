"""
The same command gives the same bits, and so does one that is killed and resumed.

In the default tier the bits of `fit` are compared, in tests/training/test_checkpoints.py and
test_seeds.py, and those of a command in tests/models.
"""

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from gpflow_sparse import training
from gpflow_sparse.tables.cli.main import main
from gpflow_sparse.tables.methods.registry import RECIPES
from tests.tables.cli.command_line import read_by
from tests.training.test_checkpoints import KilledError, killer

pytestmark = pytest.mark.nightly

SMALL = ["--num-inducing", "12", "--num-orthogonal", "8", "--num-steps", "9", "--batch-size", "16"]
SMALL += ["--num-subset", "40", "--num-basis", "30", "--basis-batch-size", "4"]
SMALL += ["--num-support", "6", "--no-plot"]
COMMANDS = {
    "odvgp": ["--num-penalty-samples", "3"],
    "basis_gpr": ["--basis", "fourier"],
    "swsgp": ["--kl-weighting", "chain", "--num-neighbors", "3"],
    "softki": ["--num-inducing", "20"],
    "conv-solvegp": ["--num-layers", "2"],
}
# their files are those of rounds, of blocks (test_solving.py), or none
WITHOUT_STEPS = [n for n, recipe in RECIPES.items() if recipe.holds_data and n != "solvegpr"]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2.0, 2.0, size=(80, 2))
    y = np.sin(2.0 * rows[:, 0]) * rows[:, 1] + 0.1 * rng.normal(size=80)
    lines = [f"{a:.6f},{b:.6f},{c:.6f}" for (a, b), c in zip(rows, y, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    images = rng.uniform(size=(60, 36))
    classes = (images[:, :18].sum(axis=1) > images[:, 18:].sum(axis=1)).astype(np.int64)
    np.savez(tmp_path / "images.npz", x=images, y=classes)
    return tmp_path


def fit(method, output, *more):
    images = method.startswith("conv")
    data = ["--data", "images.npz"] if images else ["--data", "table.csv", "--target", "y"]
    data += ["--task", "classification"] if images else []
    options = [*read_by(method, SMALL), *COMMANDS.get(method, [])]
    arguments = ["fit", "--method", method, *data, *options, "--output", output, *more]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def tensors(folder):
    return {k: v.tobytes() for k, v in load_file(folder / "model.safetensors").items()}


def killed(step):
    """`training.fit` with a checkpoint every three steps, killed after ``step``."""

    def fit_until(*arguments, callbacks=(), **options):
        hooks = [*callbacks, killer(step)]
        return training_fit(*arguments, **options, checkpoint_every=3, callbacks=hooks)

    training_fit = training.fit
    return fit_until


# Others are trained as solvegp, conv-solvegp and gpnn are.
LIKE_OTHERS = ("svgp", "basis_svgp", "conv-svgp", "dirichlet_gpnn")


@pytest.mark.parametrize("method", [name for name in RECIPES if name not in LIKE_OTHERS])
def test_two_equal_commands_and_a_resumed_one_give_the_same_bits(method, table, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(training, "fit", killed(None))
        fit(method, "a")
        fit(method, "b")
    assert tensors(table / "b") == tensors(table / "a")
    if method in WITHOUT_STEPS:
        return
    with monkeypatch.context() as patched:
        patched.setattr(training, "fit", killed(7))
        with pytest.raises(KilledError):
            fit(method, "c")
    with monkeypatch.context() as patched:
        patched.setattr(training, "fit", killed(None))
        fit(method, "c", "--resume")
    assert tensors(table / "c") == tensors(table / "a")
