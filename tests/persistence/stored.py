"""
Files written by version 0.1 (commit 0f1fed1), which every later version must load.

``python -m tests.persistence.stored FOLDER`` writes such files with the code that it finds: the
models of the zoo, checkpoints of short runs and an export, packed into one archive, and beside it
what they must predict. The files in ``fixtures`` are never written again; a change of the format
adds a second folder.

``fixtures/first`` has files of commits before it, of early forms of a class: SOLVEGP of 1ce97ad,
GRIEF and BasisSVGP of 207924b, GRIEF of af1dcdf and 849669e, SoftKI of 849669e, others of 74236f4;
their predictions are those of ``predict_f`` and ``predict_y``.

``fixtures/removed`` has models of commit fffd54e after three steps, with options that no longer
exist: ``variance_reduction`` "eq3" and "tracked" of QSGP, ``site_estimator`` "strict" of QSGP and
"absorbed" of RVM.
"""

import json
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse as gs
from gpflow_sparse import kernels
from gpflow_sparse.bases import ReweightedBasis
from gpflow_sparse.training import EarlyStopping, SparseAdagrad, SparseAdam, SparseSGD, adam, fit
from tests import battery
from tests.persistence import zoo

FIXTURES = Path(__file__).with_name("fixtures")
FIRST = FIXTURES / "first"
REMOVED = FIXTURES / "removed"
ARCHIVE, EXPECTED = "files.tar.xz", "expected.json"
ROWS = 3
# Runs of two steps, of which a checkpoint is kept: member of the battery, options of `fit`.
RUNS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "adam": ("solvegp", lambda: {"callbacks": [EarlyStopping(patience=50)]}),
    "natural": ("solvegp_bernoulli", lambda: {"natural_gradients": 0.5}),
    "schedule": (
        "basis_svgp_fourier",
        lambda: {"optimizer": adam(0.05, decay_steps=20, warmup_steps=2)},
    ),
    "deep": ("deep", dict),
    "sub_sampled": ("qsgp_bernoulli", lambda: {"optimizer": SparseAdagrad(0.1)}),
    "chevron": ("qsgp_chevron", lambda: {"optimizer": SparseSGD(0.01)}),
    "neighbors": ("swsgp", lambda: {"optimizer": SparseAdam(0.02)}),
    "regression": ("grief_rotated", dict),
}


def reweighted() -> ReweightedBasis:
    return ReweightedBasis(battery.grid()(), np.linspace(0.5, 2.0, 9))


BUILDERS: dict[str, Callable[[], Any]] = zoo.BUILDERS | {
    "kernel.grief": lambda: zoo.svgp(
        kernels.GRIEF(battery.gaussian_product(), zoo.inputs(), 9, 5) + gpflow.kernels.White()
    ),
    "kernel.softki": lambda: zoo.svgp(
        kernels.SoftKI(battery.matern(), zoo.inputs(seed=2, rows=6)) + gpflow.kernels.White()
    ),
    "kernel.corrected": lambda: zoo.svgp(kernels.Corrected(reweighted())),
    "basis_gpr.reweighted": lambda: zoo.moved(zoo.basis_gpr(reweighted)),
}


def train(name: str, folder: Path, num_steps: int, *, resume: bool = False) -> Any:
    """The model of a run after ``num_steps`` steps, with a checkpoint at every second one."""
    member_name, options = RUNS[name]
    holds_data = member_name in battery.REGRESSIONS
    member = {**battery.MEMBERS, **battery.REGRESSIONS}[member_name]
    model = battery.perturb(member.build() if holds_data else member.build(battery.N))
    data, batch = (None, None) if holds_data else (member.data, 8)
    fixed = {"batch_size": batch, "checkpoint_every": 2, "progress": False, "resume": resume}
    fit(model, data, num_steps=num_steps, checkpoint_dir=folder, **fixed, **options())
    return model


def main(folder: Path) -> None:
    """Write the archive and the predictions."""
    files = folder / "unpacked"
    expected: dict[str, Any] = {}

    def record(name: str, parts: Sequence[Any], X: np.ndarray) -> None:
        found = [np.asarray(part).tolist() for part in parts]
        expected[name] = {"X": X.tolist(), "values": found}

    for name, build in BUILDERS.items():
        model, X = build(), zoo.inputs_of(name)[:ROWS]
        gs.save(model, files / "models" / name)
        record(f"models/{name}", zoo.predictions(model, X), X)
    for name in RUNS:
        train(name, files / "runs" / name, 2)
        (files / "runs" / name / ".lock").unlink()
        X = battery.inputs(seed=9, rows=ROWS)
        model = train(name, folder / "unused" / name, 4)
        gs.save(model, files / "models" / f"trained.{name}")
        for kind in (f"models/trained.{name}", f"runs/{name}"):
            record(kind, zoo.predictions(model, X), X)
    model, X = zoo.BUILDERS["model.standardized"](), battery.inputs(seed=9, rows=ROWS)
    gs.export(model, files / "export")
    record("export", [*model.predict_f(X), *model.predict_y(X)], X)
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=9) as archive:
        archive.add(files, ".")
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in expected.items())
    (folder / EXPECTED).write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
