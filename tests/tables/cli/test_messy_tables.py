"""Tables as people have them, from file to predictions by the command line."""

import io

import numpy as np
import pandas as pd
import pytest

from tests.tables.cli.command_line import last_json
from tests.tables.cli.command_line import run as run
from tests.tables.reading import messy

ALL = [pytest.param(n, marks=[] if n == "export" else pytest.mark.nightly) for n in messy.NAMES]


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        frame.to_csv(path, index=False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALL)
def test_every_trouble_is_read_trained_and_predicted(run, tmp_path, name):
    write(messy.table(name), tmp_path / "my.csv")
    new = messy.table(name, seed=1)
    write(new.drop(columns="y").sample(frac=1.0, axis=1, random_state=0), tmp_path / "new.csv")
    write(new.dropna(subset="y"), tmp_path / "scored.csv")
    options = ["--target", "y", "--num-draws", "4", "--no-plot", "--output", "run"]
    code, out, err = run("fit", "--data", "my.csv", *options)
    assert code == 0, err
    record = last_json(out)
    assert record["chosen"] == "mixture"
    code, out, err = run("predict", "--model", "run", "--data", "new.csv")
    assert code == 0, err
    predicted = pd.read_csv(io.StringIO(out))
    assert predicted.shape == (len(new), 4)
    assert np.isfinite(predicted.to_numpy()).all()
    code, out, err = run("evaluate", "--model", "run", "--data", "scored.csv")
    assert code == 0, err
    if name not in ("outlier", "heavy_tail"):
        assert last_json(out)["scores"]["rmse_standardized"] < 0.8


@pytest.mark.nightly
@pytest.mark.parametrize(
    "suffix",
    [".feather", *(pytest.param(s, marks=pytest.mark.nightly) for s in (".csv.gz", ".parquet"))],
)
def test_other_formats_give_the_same_predictions(run, tmp_path, suffix):
    pytest.importorskip("pyarrow", reason="Parquet and Feather need pyarrow, which is optional")
    frame, predicted = messy.table("shop"), []
    for kind in (".csv", suffix):
        write(frame, tmp_path / f"my{kind}")
        options = ["--target", "y", "--no-plot", "--output", f"run{kind}", "--num-subset", "0"]
        options += ["--method", "solvegp", "--num-steps", "3"]
        code, _, err = run("fit", "--data", f"my{kind}", *options)
        assert code == 0, err
        text = run("predict", "--model", f"run{kind}", "--data", "my.csv")[1]
        predicted.append(pd.read_csv(io.StringIO(text)))
    np.testing.assert_allclose(*predicted, rtol=1e-9)
