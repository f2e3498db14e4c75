"""Tables as people have them, from file to predictions by the command line."""

import io

import numpy as np
import pandas as pd
import pytest

from tests.tables.cli.command_line import last_json
from tests.tables.cli.command_line import run as run
from tests.tables.reading import messy

# All troubles: those of other tables are read alone in tests/tables/reading/test_columns.py.
TOGETHER = {trouble for troubles in messy.TOGETHER.values() for trouble in troubles}
OTHERS = [name for name, trouble in messy.ALONE.items() if trouble not in TOGETHER]


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        frame.to_csv(path, index=False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*messy.TOGETHER, *OTHERS])
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
    assert predicted.shape == (len(new), 5)
    assert np.isfinite(predicted.to_numpy()).all()
    code, out, err = run("evaluate", "--model", "run", "--data", "scored.csv")
    assert code == 0, err
    if name not in ("outlier", "heavy_tail"):
        assert last_json(out)["scores"]["rmse_standardized"] < 0.8


@pytest.mark.nightly
def test_a_file_of_a_spreadsheet_is_read_by_the_same_options_in_all_commands(run, tmp_path):
    rng = np.random.default_rng(0)
    lines = ["Bericht 2024", "St\u00fcck;Preis;y"]
    for count, price in zip(rng.integers(200, 4000, 40), rng.uniform(1, 9, 40), strict=True):
        cells = f"{count:,}", f"{price:.2f}", f"{price * 3 + count / 1000:.1f}"
        lines.append(";".join(cells).translate(str.maketrans(".,", ",.")))
    lines[5] = f"{lines[5].rpartition(';')[0]};k.A."
    (tmp_path / "my.csv").write_text("\n".join(lines), encoding="cp1252")
    options = ["--encoding", "cp1252", "--skip-rows", "1", "--no-plot", "--output", "run"]
    options += ["--method", "solvegp", "--num-steps", "3", "--num-subset", "0"]
    code, _, err = run("fit", "--data", "my.csv", *options)
    assert code == 1
    assert "'k.A.': correct them, or leave out these rows by --drop-bad-targets" in err
    code, out, err = run("fit", "--data", "my.csv", "--drop-bad-targets", *options)
    assert code == 0, err
    assert "'St\u00fcck' is read with separators of thousands" in err
    assert last_json(out)["num_train"] + last_json(out)["num_test"] == 39
    code, out, err = run("predict", "--model", "run", "--data", "my.csv")
    assert code == 0, err
    code, again, err = run("predict", "--model", "run/model.safetensors", "--data", "my.csv")
    assert (code, again) == (0, out), err
    (tmp_path / "new.csv").write_text("\n".join(lines[1:]), encoding="utf-8")
    new = ["--encoding", "utf-8", "--skip-rows", "0"]
    code, again, err = run("predict", "--model", "run", "--data", "new.csv", *new)
    assert (code, again) == (0, out), err
    code, _, err = run("evaluate", "--model", "run")
    assert code == 0, err
