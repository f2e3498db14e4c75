"""
Predictions and scores of the command line on six tables, kept in ``frozen.json``.

``python -m tests.tables.cli.frozen`` writes the file, which a change of numbers on purpose needs.
"""

import csv
import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from click.testing import CliRunner

FILE = Path(__file__).with_suffix(".json")
NUM_PREDICTED = 12
STEPS = ("--num-steps", "15", "--num-inducing", "20")
# The command of each table: method, target, and options.
COMMANDS = {
    "mixed": ("solvegp", "price", (*STEPS, "--num-orthogonal", "10")),
    "two_classes": ("svgp", "label", STEPS),
    "three_classes": ("dirichlet_gpnn", "label", ()),
    "long": ("gpnn", "y", ("--num-subset", "300")),
    "counts": ("svgp", "y", (*STEPS, "--likelihood", "poisson")),
    "images": (
        "conv-solvegp",
        "label",
        ("--num-steps", "4", "--num-inducing", "8", "--num-orthogonal", "4"),
    ),
}


def table(name: str) -> pd.DataFrame:
    """One of the six tables."""
    rng = np.random.default_rng(sorted(COMMANDS).index(name))
    count = {"long": 5000, "images": 60}.get(name, 150)
    X = rng.normal(size=(count, 3))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).round(6)
    if name == "mixed":
        town = rng.choice(["Ulm", "Bonn", "Köln"], count)
        day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, count), "D")
        frame["b"] = frame["b"].mask(rng.random(count) < 0.1)
        frame = frame.assign(town=town, day=day.strftime("%Y-%m-%d"))
        return frame.assign(price=(f + (town == "Ulm") + 0.1 * rng.normal(size=count)).round(6))
    if name == "images":
        pixels = rng.random((count, 36)).round(6)
        return pd.DataFrame(pixels).add_prefix("p").assign(label=np.arange(count) % 2)
    if name == "counts":
        return frame.assign(y=rng.poisson(np.exp(f)))
    if name == "long":
        return frame.assign(y=(f + 0.1 * rng.normal(size=count)).round(6))
    cuts = (0.0,) if name == "two_classes" else (-0.5, 0.5)
    labels = np.array(["low", "middle", "high"])[
        np.digitize(f + 0.1 * rng.normal(size=count), cuts)
    ]
    return frame.assign(label=labels)


def run(name: str, folder: Path) -> dict:
    """The scores of a command on its test rows, and predictions of the first rows of its table."""
    from gpflow_sparse.tables.cli.main import main

    method, target, options = COMMANDS[name]
    data, output, head = folder / f"{name}.csv", folder / name, folder / f"{name}-head.csv"
    frame = table(name)
    frame.to_csv(data, index=False)
    frame.head(NUM_PREDICTED).drop(columns=target).to_csv(head, index=False)
    if name == "images":
        options = (*options, "--task", "classification")
    given = ["--data", str(data), "--target", target, "--output", str(output), "--no-plot"]
    result = CliRunner().invoke(main, ["fit", method, *given, *options])
    assert result.exit_code == 0, result.output
    scores = json.loads((output / "run.json").read_text())["scores"]
    found = CliRunner().invoke(main, ["predict", "--model", str(output), "--data", str(head)])
    assert found.exit_code == 0, found.output
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    return {
        "scores": scores,
        "predictions": {key: [row[key] for row in rows] for key in rows[0]},
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        frozen = {name: run(name, Path(place)) for name in COMMANDS}
    FILE.write_text(json.dumps(frozen, indent=1) + "\n")
