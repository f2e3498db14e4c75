"""
What every model of the battery computes, as a few projections of each tensor: a refactoring must
not change it. ``python -m tests.fingerprints`` compares with the file and prints the largest
difference; ``--write`` makes the file again, which is right only where behavior is meant to change.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.models import SWSGP, SoftKI
from gpflow_sparse.training import fit
from tests import battery

FILE = Path(__file__).with_name("fingerprints.json")
MEMBERS = {**battery.MEMBERS, **battery.REGRESSIONS}


def project(tensor: Any) -> list[float]:
    """The norm of a tensor and its products with two fixed vectors; of a sparse gradient too."""
    values = np.asarray(tf.convert_to_tensor(tensor), np.float64).ravel()
    places = np.arange(1.0, values.size + 1.0)
    return [float(np.linalg.norm(values)), *(float(values @ f(places)) for f in (np.cos, np.sin))]


def objective_and_gradients(model: Any, data: Any) -> dict[str, Any]:
    tf.random.set_seed(6)
    holds_data = isinstance(model, gpflow.models.InternalDataTrainingLossMixin)
    variables = {
        path: parameter.unconstrained_variable if hasattr(parameter, "transform") else parameter
        for path, parameter in gpflow.utilities.parameter_dict(model).items()
        if parameter.trainable
    }
    with tf.GradientTape() as tape:
        loss = model.training_loss() if holds_data else model.training_loss(data)
    gradients = tape.gradient(loss, variables)
    found = {"loss": [float(loss)]}
    return found | {f"d{path}": project(g) for path, g in gradients.items() if g is not None}


def fingerprint(name: str) -> dict[str, list[float]]:
    """Objective, gradients, predictions and parameters after two training steps, in float64."""
    member = MEMBERS[name]
    model = battery.perturb(member.build())
    found = {}
    if hasattr(model, "count_neighbors"):
        model.count_neighbors(member.data[0])
    if hasattr(model, "prepare_step"):
        model.prepare_step(0, lambda: member.data)
    found |= objective_and_gradients(model, member.data)
    X = battery.inputs(seed=9, rows=5)
    found |= {f"predict_f[{i}]": project(part) for i, part in enumerate(model.predict_f(X))}
    covariance = model.predict_f(X, full_cov=True)[1]
    found["predict_f(full_cov=True)"] = project(covariance)
    found |= {f"predict_y[{i}]": project(part) for i, part in enumerate(model.predict_y(X))}
    density = model.predict_log_density((X, member.outputs()[:5]))
    found["predict_log_density"] = project(density)
    if hasattr(model, "prior_kl") and not isinstance(model, SoftKI):
        arguments = (member.data[0],) if isinstance(model, SWSGP) else ()
        found["prior_kl"] = [float(model.prior_kl(*arguments))]
    return found | trained(name)


def trained(name: str) -> dict[str, list[float]]:
    """All variables after two training steps from the start of the battery's model."""
    member = MEMBERS[name]
    holds_data = name in battery.REGRESSIONS and not name.startswith("softki")
    model = member.build() if holds_data else member.build(battery.N)
    natural = name.startswith(("solvegp_bernoulli", "odvgp", "basis_svgp_fourier"))
    data = None if holds_data else member.data
    batch = None if holds_data else 8
    fit(model, data, num_steps=2, batch_size=batch, natural_gradients=natural, progress=False)
    parameters = gpflow.utilities.parameter_dict(model)
    return {f"trained{path}": project(value) for path, value in parameters.items()}


def difference(old: dict[str, list[float]], new: dict[str, list[float]]) -> float:
    """The largest difference of two fingerprints, relative to the size of each tensor."""
    assert old.keys() == new.keys(), old.keys() ^ new.keys()
    return max(
        np.abs(np.subtract(old[key], new[key])).max() / (1.0 + np.abs(old[key]).max())
        for key in old
    )


def main() -> None:
    """Write the file, or compare with it."""
    found = {name: fingerprint(name) for name in MEMBERS}
    if "--write" in sys.argv:
        lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
        FILE.write_text(f"{{\n{lines}\n}}\n")
        return
    stored = json.loads(FILE.read_text())
    for name, values in found.items():
        print(f"{difference(stored[name], values):.1e}  {name}")


if __name__ == "__main__":
    main()
